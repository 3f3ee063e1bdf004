"""Reasons: which features hold a person's score down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from consequential.policies.features import Floats, PolicyError, counted_columns
from consequential.policies.raw_column import RawColumn
from consequential.policies.summary import FeatureSummary

if TYPE_CHECKING:
    from consequential.policies.policy import Policy

_Column = tuple[RawColumn, list[int]]  # and the places of its features

_AT_ONCE = 200_000  # changed people that are evaluated in one batch


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
            found.append(tuple(_reason(columns[k], person, float(rise[k])) for k in first))
    return found


def _columns(policy: Policy, summary: FeatureSummary) -> list[_Column]:
    """Return the columns that features are made of."""
    if policy.preparation is not None:
        columns = policy.preparation.columns
        ends = np.cumsum([len(raw.feature_names) for raw in columns]).tolist()
        return [
            (raw, [*range(end - len(raw.feature_names), end)])
            for raw, end in zip(columns, ends, strict=True)
        ]
    return [(_column(summary, name, places), places) for name, places in summary.columns.items()]


def _column(summary: FeatureSummary, name: str, places: list[int]) -> RawColumn:
    """Return a column of features that were not prepared, as a preparation would describe it."""
    words = tuple(summary.names[k].partition("=")[2] for k in places)
    reference = summary.reference[places]
    if not words[0]:
        return RawColumn(name, "number", float(reference[0]))
    commonest = words[int(reference.argmax())] if reference.any() else ""
    return RawColumn(name, "word", commonest, words=words)


def _reason(column: _Column, person: Floats, rise: float) -> Reason:
    raw, places = column
    return Reason(raw.name, raw.said(person[places]), raw.said(raw.reference), rise)


def _rises(policy: Policy, columns: list[_Column], people: Floats, group: Any) -> Floats:
    """Return how much each person's score rises with each column at its reference value."""
    changed = np.repeat(people[:, None, :], len(columns), axis=1)
    for k, (column, places) in enumerate(columns):
        changed[:, k, places] = column.reference
    groups = None if group is None else np.repeat(group, len(columns))
    scores = policy.linear_score(changed.reshape(-1, people.shape[1]), groups)
    rises: Floats = scores.reshape(len(people), -1) - policy.linear_score(people, group)[:, None]
    return rises
