"""Words for decisions and labels: yes and no, approved and declined, repaid and defaulted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consequential.log.errors import DecisionLogError
from consequential.log.numbers import missing_values

Floats = NDArray[np.float64]
Role = Literal["decision", "label"]

_YES = ("yes", "y", "true", "t", "1")
_NO = ("no", "n", "false", "f", "0")
_OWN: dict[Role, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "decision": (
        ("accepted", "accept", "approved", "approve", "granted", "grant", "admitted", "hired"),
        ("rejected", "reject", "declined", "decline", "denied", "deny", "refused", "refuse"),
    ),
    "label": (
        ("repaid", "paid", "paid back", "fully paid", "good"),
        ("defaulted", "default", "charged off", "unpaid", "not repaid", "bad"),
    ),
}
_MEANING = {
    "decision": "1 for accepted and 0 for rejected",
    "label": "1 for the outcome hoped for and 0 for the other, and leave unknown ones missing",
}
_BAD_OUTCOME = re.compile(
    r"default|bad|charged?.?off|delinquen|fraud|churn|late|arrest|recidiv|fail"
)
_SHOWN = 6


def coded(role: Role, column: str, values: NDArray[Any]) -> tuple[Floats, str]:
    """Return words as 1 and 0, missing ones as NaN, and a sentence that says which is which.

    `column` is the name of the column, where it has one: a label called `default` that says yes is
    not the outcome hoped for.
    """
    known = dict.fromkeys((*_YES, *_OWN[role][0]), 1.0) | dict.fromkeys((*_NO, *_OWN[role][1]), 0.0)
    absent = missing_values(values)
    texts = [str(value) for value in values.tolist()]
    found = {text: _plain(text) for text, gone in zip(texts, absent, strict=True) if not gone}
    if not all(word in known for word in found.values()):
        raise DecisionLogError(
            f"{role} has the values {listed(found)}, which are not known as yes and no: code it "
            f"as {_MEANING[role]}"
        )
    unclear = any(word in (*_YES, *_NO) for word in found.values())
    if role == "label" and unclear and _BAD_OUTCOME.search(column.lower()):
        raise DecisionLogError(
            f"the label {column!r} has the values {listed(found)}: is yes the outcome hoped for? "
            f"Code it as {_MEANING[role]}"
        )
    code = {text: known[word] for text, word in found.items()}
    said = [f"{text!r} is {code[text]:.0f}" for text in sorted(code, key=lambda t: (-code[t], t))]
    numbers = np.array([code.get(text, np.nan) for text in texts])
    return np.where(absent, np.nan, numbers), f"{role}: {', '.join(said)}"


def _plain(text: str) -> str:
    return re.sub(r"[\s_-]+", " ", text.strip().lower())


def listed(values: Iterable[Any]) -> str:
    """Return different values in words, the first few of them."""
    shown = sorted({repr(value) for value in values})
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return ", ".join(shown[:_SHOWN]) + more
