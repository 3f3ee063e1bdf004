"""Reasons: which features hold a person's score down."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.policy.features import Floats, PolicyError, counted_columns
from consequential.policy.raw_column import RawColumn
from consequential.policy.summary import FeatureSummary

if TYPE_CHECKING:
    from consequential.policy.policy import Policy

_Column = tuple[RawColumn, list[int], Floats]  # the places of its features, their reference

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
    propensity
        What the probability of acceptance would be then.

    Examples
    --------
    >>> from consequential.policy import Reason
    >>> print(Reason("income", 1200.0, 2500.0, 0.84, 0.41))
    income is 1200 (2500 would raise the score by 0.84, the probability to 0.41)
    """

    feature: str
    value: float | str
    reference: float | str
    rise: float
    propensity: float

    def __str__(self) -> str:
        value, reference = (
            each if isinstance(each, str) else f"{each:.6g}"
            for each in (self.value, self.reference)
        )
        then = f"raise the score by {self.rise:.3g}, the probability to {self.propensity:.3g}"
        return f"{self.feature} is {value} ({reference} would {then})"


@dataclass(frozen=True, slots=True, eq=False)
class ScoreRises:
    """People's linear scores, and how much each would rise with one column at its reference.

    `score` has one number per person, `rises` one row per person and one column per name.
    """

    names: tuple[str, ...]
    score: Floats
    rises: Floats


def score_rises(policy: Policy, features: Any, sensitive: ArrayLike | None = None) -> ScoreRises:
    """Return scores and rises of people, all from one evaluation of the policy.

    Examples
    --------
    >>> import consequential as cq
    >>> from consequential.policy.reasons import score_rises
    >>> summary = cq.FeatureSummary.of([[2.0], [3.0], [4.0]], ["income"])
    >>> policy = cq.Policy([0.5, 1.0], feature_names=["income"], summary=summary)
    >>> found = score_rises(policy, [[1.0]])
    >>> found.score, found.rises
    (array([1.5]), array([[2.]]))
    """
    people, columns = _described(policy, features)
    scores = policy.linear_score(*_changed(policy, people, sensitive)).reshape(len(people), -1)
    names = tuple(raw.name for raw, _, _ in columns)
    return ScoreRises(names, scores[:, 0], scores[:, 1:] - scores[:, :1])


def reasons_for(
    policy: Policy, features: Any, sensitive: ArrayLike | None = None, *, most: int = 4
) -> list[tuple[Reason, ...]]:
    """Return for each row the features that hold its score down, those that do most first."""
    people, columns = _described(policy, features)
    group = None if sensitive is None else np.atleast_1d(np.asarray(sensitive))
    at_once = max(1, _AT_ONCE // (len(columns) + 1))
    found: list[tuple[Reason, ...]] = []
    for start in range(0, len(people), at_once):
        some = people[start : start + at_once]
        groups = None if group is None else group[start : start + at_once]
        changed = _changed(policy, some, groups)
        scores = policy.linear_score(*changed)
        chances = policy.scored(scores, *changed).reshape(len(some), -1)[:, 1:]
        scores = scores.reshape(len(some), -1)
        for person, rise, chance in zip(some, scores[:, 1:] - scores[:, :1], chances, strict=True):
            first = [k for k in np.argsort(-rise, kind="stable")[:most] if rise[k] > 0.0]
            found.append(
                tuple(_reason(columns[k], person, float(rise[k]), float(chance[k])) for k in first)
            )
    return found


def _changed(
    policy: Policy, people: Floats, sensitive: ArrayLike | None
) -> tuple[Floats, NDArray[Any] | None]:
    """Return people as they are and with each column at its reference, and their groups."""
    reset, reference = _changes(policy)
    changed = np.where(reset, reference, people[:, None, :]).reshape(-1, people.shape[1])
    if sensitive is None:
        return changed, None
    return changed, np.repeat(np.atleast_1d(np.asarray(sensitive)), len(reset))


def _described(policy: Policy, features: Any) -> tuple[Floats, tuple[_Column, ...]]:
    """Return people's features, and the columns that the features come from."""
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
    return people, _columns(policy)


@lru_cache(maxsize=16)  # services ask for the same few policies all the time
def _columns(policy: Policy) -> tuple[_Column, ...]:
    """Return the columns that features are made of, their places and their reference values."""
    if policy.preparation is not None:
        raws: list[tuple[RawColumn, list[int]]] = []
        for raw in policy.preparation.columns:
            start = raws[-1][1][-1] + 1 if raws else 0
            raws.append((raw, [*range(start, start + len(raw.feature_names))]))
    else:
        summary = cast("FeatureSummary", policy.summary)
        raws = [(_column(summary, name, at), at) for name, at in summary.columns.items()]
    return tuple((raw, places, raw.reference) for raw, places in raws)


@lru_cache(maxsize=16)
def _changes(policy: Policy) -> tuple[NDArray[np.bool_], Floats]:
    """Return which features are set to their reference, and the reference.

    The first row sets none, each further row one column.
    """
    columns = _columns(policy)
    n_features = sum(len(places) for _, places, _ in columns)
    at_reference = np.zeros((len(columns) + 1, n_features), dtype=np.bool_)
    reference = np.zeros(n_features)
    for k, (_, places, values) in enumerate(columns, 1):
        at_reference[k, places] = True
        reference[places] = values
    return at_reference, reference


def _column(summary: FeatureSummary, name: str, places: list[int]) -> RawColumn:
    """Return a column of features that were not prepared, as a preparation would describe it."""
    words = tuple(summary.names[k].partition("=")[2] for k in places)
    reference = summary.reference[places]
    if not words[0]:
        return RawColumn(name, "number", float(reference[0]))
    commonest = words[int(reference.argmax())] if reference.any() else ""
    return RawColumn(name, "word", commonest, words=words)


def _reason(column: _Column, person: Floats, rise: float, propensity: float) -> Reason:
    raw, places, reference = column
    value = raw.value_of(person[places])
    return Reason(raw.name, value, raw.value_of(reference), rise, propensity)
