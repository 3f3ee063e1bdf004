"""Claims of the paper: sentences in claims.toml, each tested on stored results or by exact sums."""

from __future__ import annotations

import pkgutil
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from consequential.paper import truths
from consequential.paper.claims.claim import (
    FAILS,
    HOLDS,
    NOT_RUN,
    Case,
    Checked,
    Claim,
    Measured,
    verdict_of,
)

if TYPE_CHECKING:
    from consequential.paper.results import Results


def _claims() -> Iterator[Claim]:
    """Yield the claims of the file; those about COMPAS for each orientation of the label."""
    listed = tomllib.loads((files(__package__) / "claims.toml").read_text(encoding="utf-8"))
    for each in listed["claims"]:
        yield _claim(each)
    for name, label in truths.ORIENTATIONS.items():
        for each in listed["compas"]:
            yield _claim(each, name=name, label=label)


def _claim(stored: dict[str, Any], **words: str) -> Claim:
    text, criterion = (" ".join(stored[key].split()) for key in ("text", "criterion"))
    return Claim(
        stored["id"].format(**words),
        stored["section"],
        text.format(**words),
        criterion,
        tuple(name.format(**words) for name in stored.get("studies", ())),
        pkgutil.resolve_name(f"{__package__}.{stored['test']}"),
        tuple(name.format(**words) for name in stored.get("worlds", ())),
    )


CLAIMS: tuple[Claim, ...] = tuple(_claims())


def check_claims(results: Results) -> list[Checked]:
    """Test every claim on what there is."""
    return [claim.check(results) for claim in CLAIMS]


__all__ = [
    "CLAIMS",
    "FAILS",
    "HOLDS",
    "NOT_RUN",
    "Case",
    "Checked",
    "Claim",
    "Measured",
    "check_claims",
    "verdict_of",
]
