"""The door of a log: each column checked once, with an error that teaches."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.policies import (
    PolicyError,
    as_features,
    group_codes,
    numbered_names,
    plain_groups,
)

Floats = NDArray[np.float64]


class DecisionLogError(ValueError):
    """A table of decisions that cannot be what it claims to be."""


@runtime_checkable
class PropensityEstimator(Protocol):
    """What can stand in for propensities that were not logged."""

    def propensities(
        self,
        features: Floats,
        decision: NDArray[np.bool_],
        group: NDArray[np.intp],
        groups: tuple[Hashable, ...],
    ) -> Floats:
        """Return each person's estimated probability of acceptance."""
        ...


@dataclass(frozen=True, slots=True)
class Columns:
    """The checked columns of a log."""

    features: Floats
    decision: NDArray[np.bool_]
    propensity: Floats
    label: Floats
    group: NDArray[np.intp]
    groups: tuple[Hashable, ...]
    time_step: NDArray[np.int64]
    amount: Floats | None
    cost: Floats | None


def checked_columns(
    features: ArrayLike,
    decision: ArrayLike,
    propensity: ArrayLike | PropensityEstimator | None,
    label: ArrayLike,
    sensitive: ArrayLike | None,
    time_step: ArrayLike | int,
    amount: ArrayLike | None,
    cost: ArrayLike | None,
    groups: Sequence[Hashable] | None,
    *,
    copy: bool = True,
) -> Columns:
    """Turn what a user gives into checked, private, typed columns."""
    matrix = _features(features, copy)
    n = len(matrix)
    decided = _decision(_column("decision", decision, n))
    codes, names = _groups(sensitive, groups, n)
    if isinstance(propensity, PropensityEstimator):
        propensity = propensity.propensities(matrix, decided, codes, names)
    return Columns(
        features=matrix,
        decision=decided,
        propensity=_propensity(propensity, decided),
        label=_label(_column("label", label, n), decided),
        group=codes,
        groups=names,
        time_step=_time_step(time_step, n),
        amount=None if amount is None else _positive("amount", amount, n),
        cost=None if cost is None else _cost(cost, n),
    )


def checked_names(names: Sequence[str] | None, n_features: int) -> tuple[str, ...]:
    """Return the features' names: as given, or x0, x1, ..."""
    if names is None:
        return numbered_names(n_features)
    given = tuple(str(name) for name in names)
    if len(given) != n_features:
        raise DecisionLogError(f"{len(given)} feature names were given for {n_features} features")
    for k, name in enumerate(given):
        if name in given[:k]:
            raise DecisionLogError(f"two features have the name {name!r}")
    return given


def _fail(bad: NDArray[np.bool_], what: str, advice: str) -> None:
    """Raise with the number of bad rows and the first of them, if there are any."""
    if bad.any():
        count, first = int(bad.sum()), int(np.argmax(bad))
        rows = "1 row has" if count == 1 else f"{count} rows have"
        raise DecisionLogError(f"{rows} {what} (first: row {first}). {advice}")


def _numbers(name: str, values: Any) -> Floats:
    try:
        # None, pandas' NA and the like stand for a missing number
        if np.asarray(values).dtype.kind in "OU":
            array = np.asarray(values, dtype=object)
            values = np.where(_missing(array), np.nan, array)
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        advice = "encode categories first (one-hot, say)" if name == "features" else "code it so"
        raise DecisionLogError(f"{name} must be numbers; {advice}") from None


def _missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Where an object array has None, NaN or another value that is not equal to itself."""

    def is_missing(value: Any) -> bool:
        if value is None:
            return True
        try:
            return bool(value != value)  # NaN and NaT differ from themselves
        except (TypeError, ValueError):
            return type(value).__name__ == "NAType"

    flags = [is_missing(value) for value in values.ravel()]
    return np.array(flags, dtype=np.bool_).reshape(values.shape)


def _column(name: str, values: ArrayLike, n: int) -> Floats:
    column = _numbers(name, values)
    if column.shape != (n,):
        found = f"{column.shape[0]}" if column.ndim == 1 else f"shape {column.shape}"
        raise DecisionLogError(
            f"{name} has {found} values but features has {n} rows: one value a row is needed"
        )
    return column


def _features(features: ArrayLike, copy: bool) -> Floats:
    as_is = not copy and isinstance(features, np.ndarray) and features.dtype == np.float64
    # a view, so that closing the log's columns to writing does not close the caller's array
    numbers = features.view() if as_is else _numbers("features", features)  # type: ignore[union-attr]
    if numbers.ndim not in (1, 2):
        raise DecisionLogError(f"features is one row a person, not of shape {numbers.shape}")
    matrix = as_features(numbers)
    if len(matrix) == 0:
        raise DecisionLogError("the log is empty: it needs at least one decision")
    if not np.isfinite(matrix).all():
        _fail(
            np.asarray(~np.isfinite(matrix).all(axis=1)),
            "a feature that is missing or infinite",
            "Impute or drop them before building the log, for accepted and rejected alike.",
        )
    return matrix


def _decision(decision: Floats) -> NDArray[np.bool_]:
    neither = np.isin(decision, (0.0, 1.0), invert=True)
    _fail(
        neither,
        "a decision that is not 0 or 1",
        "1 is accepted, 0 is rejected; leave out people nobody has decided on.",
    )
    accepted: NDArray[np.bool_] = decision == 1
    return accepted


def _propensity(propensity: ArrayLike | None, decision: NDArray[np.bool_]) -> Floats:
    if propensity is None:
        raise DecisionLogError(
            "propensity is missing: the probability with which each person would be accepted "
            "by the rule then in force. Without it what was learned from accepted people says "
            "nothing about the rejected. If it was not logged but decisions left something to "
            "chance, give propensity=EstimatedPropensity()"
        )
    p = _column("propensity", propensity, len(decision))
    _fail(np.isnan(p), "no propensity", "Every decision needs the probability it was drawn with.")
    _fail((p < 0) | (p > 1), "a propensity outside [0, 1]", "It is a probability of acceptance.")
    _fail(
        decision & (p == 0),
        "propensity 0 although decision is 1",
        "What was done cannot have had no chance; propensity is that of *acceptance*.",
    )
    _fail(
        ~decision & (p == 1),
        "propensity 1 although decision is 0",
        "What was sure cannot have failed to happen; propensity is that of *acceptance*.",
    )
    return p


def _label(label: Floats, decision: NDArray[np.bool_]) -> Floats:
    known = ~np.isnan(label)
    _fail(
        known & ~decision,
        "a label although decision is 0",
        "Rejected people have no outcome: leave the label missing.",
    )
    _fail(
        known & (label != 0) & (label != 1),
        "a label that is not 0 or 1",
        "1 is the outcome hoped for (repaid, no claim), 0 the other.",
    )
    return np.where(known, label, np.nan)


def _groups(
    sensitive: ArrayLike | None, groups: Sequence[Hashable] | None, n: int
) -> tuple[NDArray[np.intp], tuple[Hashable, ...]]:
    if sensitive is None:
        if groups is not None:
            raise DecisionLogError("groups are given but no sensitive attribute that has them")
        return np.zeros(n, dtype=np.intp), ("everyone",)
    values = np.asarray(sensitive)
    if values.dtype.kind == "U" and not isinstance(sensitive, np.ndarray):
        values = np.asarray(sensitive, dtype=object)  # or NaN would become the text "nan"
    if values.shape != (n,):
        raise DecisionLogError(
            f"sensitive has shape {values.shape} but features has {n} rows: "
            "one value a row is needed"
        )
    if values.dtype == object or values.dtype.kind == "f":
        _fail(
            _missing(values),
            "no sensitive group",
            "Name a group for people whose group is not known; do not drop them silently.",
        )
    if groups is not None:
        try:
            names = plain_groups(groups)
            return group_codes(values, names), names
        except PolicyError as error:
            raise DecisionLogError(str(error)) from None
    seen, codes = np.unique(values, return_inverse=True)
    return codes.astype(np.intp), tuple(seen.tolist())


def _time_step(time_step: ArrayLike | int, n: int) -> NDArray[np.int64]:
    if np.ndim(time_step) == 0:
        time_step = np.full(n, time_step)
    steps = _column("time_step", time_step, n)
    _fail(
        ~np.isfinite(steps) | (steps != np.floor(steps)),
        "a time step that is not a whole number",
        "Number the periods (months, rounds) in which decisions were taken.",
    )
    return steps.astype(np.int64)


def _positive(name: str, values: ArrayLike, n: int) -> Floats:
    column = _column(name, values, n)
    _fail(~np.isfinite(column) | (column <= 0), f"an {name} that is not above 0", "Fix or drop.")
    return column


def _cost(values: ArrayLike, n: int) -> Floats:
    column = _column("cost", values, n)
    _fail(
        ~((column > 0) & (column < 1)),
        "a cost outside (0, 1)",
        "Accepting somebody whose label is 1 is worth 1 - cost, label 0 costs `cost`.",
    )
    return column
