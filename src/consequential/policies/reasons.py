"""Reasons: which features hold a person's score down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from consequential.policies.features import Floats, PolicyError, counted_columns
from consequential.policies.summary import FeatureSummary

if TYPE_CHECKING:
    from consequential.policies.policy import Policy

_AT_ONCE = 200_000  # changed people that are evaluated in one batch
_NO_WORD = "another word"


@dataclass(frozen=True, slots=True)
class Reason:
    """How much a person's linear score would rise with one feature at its reference value.

    Attributes
    ----------
    feature
        The feature, or the column of words.
    value, reference
        What the person has, and what the people learned from have: the median, or the commonest
        word.
    rise
        How much higher the linear score would be with the reference value.

    Examples
    --------
    >>> import consequential as cq
    >>> print(cq.Reason("income", 1200.0, 2500.0, 0.84))
    income is 1200 (2500 would raise the score by 0.84)
    """

    feature: str
    value: float | str
    reference: float | str
    rise: float

    def __str__(self) -> str:
        value, reference = (
            each if isinstance(each, str) else f"{each:.6g}"
            for each in (self.value, self.reference)
        )
        return f"{self.feature} is {value} ({reference} would raise the score by {self.rise:.3g})"


def reasons_for(
    policy: Policy, features: Any, sensitive: ArrayLike | None = None, *, most: int = 4
) -> list[tuple[Reason, ...]]:
    """Return for each row the features that hold its score down, those that do most first."""
    summary = policy.summary
    if summary is None:
        raise PolicyError(
            "the policy has no summary of the people it was learned from, so there is nothing to "
            "compare a person with. A policy that FairPolicyLearner learns has one; for another, "
            "give summary=FeatureSummary.of(features, names)"
        )
    people = np.asarray(policy.looked_at(features))
    if people.shape[1] != len(summary.names):
        raise PolicyError(
            f"the policy's summary is of {len(summary.names)} features, but "
            f"{counted_columns(people)}"
        )
    group = None if sensitive is None else np.atleast_1d(np.asarray(sensitive))
    columns = _columns(policy, summary)
    at_once = max(1, _AT_ONCE // len(columns))
    found: list[tuple[Reason, ...]] = []
    for start in range(0, len(people), at_once):
        some = people[start : start + at_once]
        groups = None if group is None else group[start : start + at_once]
        for person, rise in zip(some, _rises(policy, columns, some, groups), strict=True):
            first = [k for k in np.argsort(-rise, kind="stable")[:most] if rise[k] > 0.0]
            found.append(tuple(columns[k].reason(person, float(rise[k])) for k in first))
    return found


@dataclass(frozen=True, slots=True)
class _Column:
    """A column, the places of its features, and what they are for the reference value."""

    name: str
    places: list[int]
    reference: Floats
    said: Callable[[Floats], float | str]

    def reason(self, person: Floats, rise: float) -> Reason:
        return Reason(self.name, self.said(person[self.places]), self.said(self.reference), rise)


def _columns(policy: Policy, summary: FeatureSummary) -> list[_Column]:
    if policy.preparation is not None:
        ends = np.cumsum([len(column.feature_names) for column in policy.preparation.columns])
        return [
            _Column(raw.name, [*range(end - len(raw.reference), end)], raw.reference, raw.said)
            for raw, end in zip(policy.preparation.columns, ends.tolist(), strict=True)
        ]
    return [
        _Column(name, places, summary.reference[places], partial(_said, summary, places))
        for name, places in summary.columns.items()
    ]


def _rises(policy: Policy, columns: list[_Column], people: Floats, group: Any) -> Floats:
    """Return how much each person's score rises with each column at its reference value."""
    changed = np.repeat(people[:, None, :], len(columns), axis=1)
    for k, column in enumerate(columns):
        changed[:, k, column.places] = column.reference
    groups = None if group is None else np.repeat(group, len(columns))
    scores = policy.linear_score(changed.reshape(-1, people.shape[1]), groups)
    rises: Floats = scores.reshape(len(people), -1) - policy.linear_score(people, group)[:, None]
    return rises


def _said(summary: FeatureSummary, places: list[int], features: Floats) -> float | str:
    """Return the number that a person has in a column, or the word."""
    words = [summary.names[k].partition("=")[2] for k in places]
    if not words[0]:
        return float(features[0])
    return words[int(features.argmax())] if features.any() else _NO_WORD
