"""Rules: policies by name or from a file, asked about the people of a log."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from consequential.cli.columns import Source
from consequential.log import DecisionLog
from consequential.policies import (
    AcceptAll,
    DecisionRule,
    Logged,
    RejectAll,
    load_policy,
)

Floats = NDArray[np.float64]
Found = TypeVar("Found")

_NAMED: dict[str, Callable[[], DecisionRule]] = {
    "logged": Logged,
    "accept-all": AcceptAll,
    "reject-all": RejectAll,
}
_FLATTERED = (
    "{name} was learned from this very log: its figures are flattered and its intervals too "
    "narrow. Judge it on decisions that came later, or read the cross-fitted figures of its fit"
)


@dataclass(frozen=True, slots=True)
class Ruled:
    """A rule with the name it was asked for by.

    `digest` is that of its file, `learned_from` that of the log's file it was fitted to, where the
    results of its fit still lie beside it.
    """

    name: str
    rule: DecisionRule
    digest: str = ""
    learned_from: str = ""

    @classmethod
    def of(cls, reference: str) -> Ruled:
        """Find a rule by name, or read it from a file."""
        if reference in _NAMED:
            return cls(reference, _NAMED[reference]())
        file = Path(reference)
        if not file.is_file():
            raise FileNotFoundError(
                f"no policy file {reference!r}; give one that `consequential fit` wrote, or one "
                f"of {', '.join(_NAMED)}"
            )
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        return cls(reference, load_policy(file), digest, fitted_to(file))

    def notes_on(self, log: DecisionLog, source: Source) -> list[str]:
        """Return what to know of the rule when it is asked about the people of a log."""
        rule = self.rule
        notes = source.new_words(rule.feature_names)
        if rule.uses_sensitive:
            if "sensitive" not in source.roles:
                raise ValueError(
                    f"{self.name} decides by the sensitive attribute{_groups(rule)}: say with "
                    "--sensitive which column has it"
                )
            notes.append(f"{self.name} decides by the sensitive attribute")
        if self.learned_from == source.sha256 or self._learned_from(source, log):
            notes.append(_FLATTERED.format(name=self.name))
        return notes

    def _learned_from(self, source: Source, log: DecisionLog) -> bool:
        """Whether the policy says that it was learned from this log, with features of its own."""
        said = getattr(self.rule, "learned_from", "")
        if not said or log.estimated_propensity:
            return False
        own = source.log_of(source.columns_of(self.rule) or log.feature_names)
        return said in (own.fingerprint, own.settled().fingerprint)


def _groups(rule: DecisionRule) -> str:
    groups = " or ".join(map(str, getattr(rule, "groups", ())))
    return f" ({groups})" if groups else ""


def log_for(source: Source, *rules: Ruled) -> DecisionLog:
    """Return the log with all features that are asked for and that the rules look at."""
    wanted = dict.fromkeys(name for each in rules for name in source.columns_of(each.rule))
    if not wanted and not source.features:
        raise ValueError("give --features: the rules name none of their own")
    return source.log(*wanted)


def quietly(ask: Callable[[], Found]) -> Found:
    """Return an answer without the warning about flattered figures, which is a note here."""
    from consequential.evaluation import WinnersCurseWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WinnersCurseWarning)
        return ask()


def fitted_to(policy: Path) -> str:
    """Return the digest of the log's file that a policy was fitted to, empty where unknown."""
    try:
        found = json.loads((policy.parent / "results.json").read_text(encoding="utf-8"))
        return str(found["file"]["sha256"]) if found["command"] == "fit" else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def plain(groups: dict[Any, float]) -> dict[str, float]:
    """Return numbers by group, ready for JSON."""
    return {str(group): float(value) for group, value in groups.items()}
