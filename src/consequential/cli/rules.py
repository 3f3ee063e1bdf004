"""Rules: policies by name or from a file, asked about the people of a log."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.cli.columns import Source
from consequential.log import DecisionLog
from consequential.policies import (
    AcceptAll,
    DecisionRule,
    Logged,
    Policy,
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
    """A rule with the name it was asked for by; `digest` is that of its file."""

    name: str
    rule: DecisionRule
    digest: str = ""

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
        return cls(reference, load_policy(file), digest)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features it looks at, by name; none where it looks at none or knows no names."""
        return tuple(getattr(self.rule, "feature_names", ()))

    def on(self, log: DecisionLog, source: Source) -> tuple[DecisionRule, list[str]]:
        """Return the rule for the people of a log, and what to know of that."""
        names, rule = self.feature_names, self.rule
        notes = source.new_words(names)
        if not isinstance(rule, Policy):
            return rule, notes
        if rule.uses_sensitive:
            notes.append(f"{self.name} decides by the sensitive attribute")
        if not names or names == log.feature_names:
            return rule, notes
        if rule.learned_from and not log.estimated_propensity:
            own = source.log_of(names)
            if rule.learned_from in (own.fingerprint, own.settled().fingerprint):
                notes.append(_FLATTERED.format(name=self.name))
        columns = tuple(log.feature_names.index(name) for name in names)
        return OwnColumns(rule, columns), notes


@dataclass(frozen=True, slots=True)
class OwnColumns(DecisionRule):
    """A policy that looks at some of a log's features, in an order of its own."""

    policy: Policy
    columns: tuple[int, ...]

    @property
    def uses_sensitive(self) -> bool:
        """As the policy says."""
        return self.policy.uses_sensitive

    def propensity(self, features: ArrayLike, sensitive: ArrayLike | None = None) -> Floats:
        """Ask the policy about its own columns."""
        return self.policy.propensity(np.asarray(features)[:, list(self.columns)], sensitive)


@dataclass(frozen=True, slots=True, eq=False)
class Unseen(DecisionRule):
    """A learner's policies, each asked only about people it was not fitted on."""

    values: Floats

    def propensity(self, features: ArrayLike, sensitive: ArrayLike | None = None) -> Floats:
        """Return what was found for these very rows."""
        return self.values


def log_for(source: Source, *rules: Ruled) -> DecisionLog:
    """Return the log with all features that are asked for and that the rules look at."""
    wanted = dict.fromkeys(name for rule in rules for name in rule.feature_names)
    if not wanted and not source.features:
        raise ValueError("give --features: the rules name none of their own")
    return source.log(*wanted)


def noted(ask: Callable[[], Found], name: str) -> tuple[Found, list[str]]:
    """Return an answer, and a warning about flattered figures in words of the command line."""
    from consequential.evaluation import WinnersCurseWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", WinnersCurseWarning)
        found = ask()
    notes = []
    for each in caught:
        if issubclass(each.category, WinnersCurseWarning):
            notes.append(_FLATTERED.format(name=name))
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    return found, list(dict.fromkeys(notes))


def plain(groups: dict[Any, float]) -> dict[str, float]:
    """Return numbers by group, ready for JSON."""
    return {str(group): float(value) for group, value in groups.items()}
