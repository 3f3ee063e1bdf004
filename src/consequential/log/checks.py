"""The door of a log: each column checked once, with an error that teaches."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.log.errors import DecisionLogError, fail
from consequential.log.numbers import as_array, missing_values, numbers
from consequential.log.periods import Period, as_dates, numbered
from consequential.log.words import Role, coded, listed
from consequential.policies import (
    PolicyError,
    as_features,
    group_codes,
    numbered_names,
    plain_groups,
)

Floats = NDArray[np.float64]
Kind = TypeVar("Kind", bound=np.generic)


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
class Given:
    """What a user gives as a log; `titles` are the names of the columns in a frame, if any."""

    features: ArrayLike
    decision: ArrayLike
    propensity: ArrayLike | PropensityEstimator | None
    label: ArrayLike
    sensitive: ArrayLike | None = None
    time_step: ArrayLike | int = 0
    amount: ArrayLike | None = None
    cost: ArrayLike | None = None
    groups: Sequence[Hashable] | None = None
    feature_names: Sequence[str] | None = None
    horizon: int | None = None
    missing: Any = "refuse"
    observed: ArrayLike | None = None
    period: str | Period | None = None
    titles: Mapping[str, str] = field(default_factory=dict)

    def title(self, role: str) -> str:
        """Return how a column is called in an error."""
        name = self.titles.get(role, role)
        return role if name == role else f"{role} (column {name!r})"

    def column(self, role: str, n: int) -> Floats:
        """Return a column of n numbers."""
        return checked_length(role, numbers(self.title(role), getattr(self, role)), n)


@dataclass(frozen=True, slots=True)
class Columns:
    """The checked columns of a log, and what was understood on the way."""

    features: Floats
    feature_names: tuple[str, ...]
    decision: NDArray[np.bool_]
    propensity: Floats
    label: Floats
    group: NDArray[np.intp]
    groups: tuple[Hashable, ...]
    time_step: NDArray[np.int64]
    amount: Floats | None
    cost: Floats | None
    notes: tuple[str, ...]


def checked_columns(given: Given, *, copy: bool = True) -> Columns:
    """Turn what a user gives into checked, private, typed columns."""
    matrix = _features(given.features, given.feature_names, copy)
    n, notes = len(matrix), list[str]()
    decided = _decision(_coded(given, "decision", n, notes))
    codes, groups = _groups(given.sensitive, given.groups, n)
    horizon, propensity = given.horizon, given.propensity
    if horizon is not None and (horizon < 0 or horizon != int(horizon)):
        raise DecisionLogError(f"a horizon counts time steps; it cannot be {horizon!r}")
    if isinstance(propensity, PropensityEstimator):
        propensity = propensity.propensities(matrix, decided, codes, groups)
    elif "decision" in given.titles and given.titles.get("propensity") == given.titles["decision"]:
        propensity = decided.astype(np.float64)  # of a rule that left nothing to chance
    return Columns(
        features=matrix,
        feature_names=checked_names(given.feature_names, matrix.shape[1]),
        decision=decided,
        propensity=_propensity(propensity, given.title("propensity"), decided),
        label=_label(_coded(given, "label", n, notes), decided),
        group=codes,
        groups=groups,
        time_step=_time_step(given, n, notes),
        amount=None if given.amount is None else _positive("amount", given.column("amount", n)),
        cost=None if given.cost is None else _cost(given.column("cost", n)),
        notes=tuple(notes),
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


def checked_length(name: str, column: NDArray[Kind], n: int) -> NDArray[Kind]:
    """Return a column that has one value per row."""
    if column.shape != (n,):
        found = f"{column.shape[0]}" if column.ndim == 1 else f"shape {column.shape}"
        raise DecisionLogError(
            f"{name} has {found} values but features has {n} rows: one value a row is needed"
        )
    return column


def _coded(given: Given, role: Role, n: int, notes: list[str]) -> Floats:
    """Return decisions or labels as numbers, and note what words were taken for."""
    values = as_array(given.title(role), getattr(given, role))
    if values.dtype == object and values.ndim == 1:
        try:
            return checked_length(role, values.astype(np.float64), n)
        except (TypeError, ValueError):
            found, said = coded(role, given.titles.get(role, ""), values)
            notes.append(said)
            return checked_length(role, found, n)
    return given.column(role, n)


def _features(features: ArrayLike, names: Sequence[str] | None, copy: bool) -> Floats:
    as_is = not copy and isinstance(features, np.ndarray) and features.dtype == np.float64
    # a view, so that closing the log's columns to writing does not close the caller's array
    matrix = features.view() if as_is else numbers("features", features, names)  # type: ignore[union-attr]
    if matrix.ndim not in (1, 2):
        raise DecisionLogError(f"features is one row a person, not of shape {matrix.shape}")
    matrix = as_features(matrix)
    if len(matrix) == 0:
        raise DecisionLogError("the log is empty: it needs at least one decision")
    known = np.isfinite(matrix)
    if not known.all():
        missing = ~known
        called = checked_names(names, matrix.shape[1])
        which = [
            f"{called[k]!r} in {missing[:, k].sum()} (first: row {missing[:, k].argmax()})"
            for k in np.flatnonzero(missing.any(axis=0))[:5]
        ]
        fail(
            np.asarray(missing.any(axis=1)),
            "a feature that is missing or infinite",
            f"By column: {', '.join(which)}. Impute or drop them before building the log, for "
            "accepted and rejected alike.",
        )
    return matrix


def _decision(decision: Floats) -> NDArray[np.bool_]:
    neither = np.isin(decision, (0.0, 1.0), invert=True)
    fail(
        neither,
        "a decision that is not 0 or 1",
        "1 is accepted, 0 is rejected; leave out people nobody has decided on."
        + _found(decision, neither),
    )
    accepted: NDArray[np.bool_] = decision == 1
    return accepted


def _found(column: Floats, bad: NDArray[np.bool_]) -> str:
    """Say which values there are, if some are bad."""
    if not bad.any():
        return ""
    return f" Found: {listed(np.unique(column[~np.isnan(column)]).tolist())}."


def _propensity(propensity: ArrayLike | None, title: str, decision: NDArray[np.bool_]) -> Floats:
    if propensity is None:
        raise DecisionLogError(
            "propensity is missing: the probability with which each person would be accepted "
            "by the rule then in force. Without it what was learned from accepted people says "
            "nothing about the rejected. If it was not logged but decisions left something to "
            "chance, give propensity=EstimatedPropensity()"
        )
    p = checked_length("propensity", numbers(title, propensity), len(decision))
    fail(np.isnan(p), "no propensity", "Every decision needs the probability it was drawn with.")
    advice = " These look like percentages: divide by 100." if _percentages(p) else ""
    fail(
        (p < 0) | (p > 1),
        "a propensity outside [0, 1]",
        f"It is a probability of acceptance.{advice}",
    )
    fail(
        decision & (p == 0),
        "propensity 0 although decision is 1",
        "What was done cannot have had no chance; propensity is that of *acceptance*. If these "
        "are probabilities of rejection, use 1 - p.",
    )
    fail(
        ~decision & (p == 1),
        "propensity 1 although decision is 0",
        "What was sure cannot have failed to happen; propensity is that of *acceptance*. If these "
        "are probabilities of the action taken, use 1 - p for the rejected.",
    )
    return p


def _percentages(values: Floats) -> bool:
    return bool(values.min() >= 0.0 and 1.0 < values.max() <= 100.0)


def _label(label: Floats, decision: NDArray[np.bool_]) -> Floats:
    known = ~np.isnan(label)
    fail(
        known & ~decision,
        "a label although decision is 0",
        "Rejected people have no outcome: leave the label missing.",
    )
    neither = known & (label != 0) & (label != 1)
    fail(
        neither,
        "a label that is not 0 or 1",
        "1 is the outcome hoped for (repaid, no claim), 0 the other." + _found(label, neither),
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
        fail(
            missing_values(values),
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


def _time_step(given: Given, n: int, notes: list[str]) -> NDArray[np.int64]:
    values = given.time_step
    if np.ndim(values) == 0:
        values = np.full(n, values)
    title, period = given.title("time_step"), given.period
    dates = as_dates(values)
    if period is not None:
        if dates is None:
            raise DecisionLogError(
                f"period numbers dates, but {title} has {np.asarray(values).tolist()[0]!r}: write "
                "dates as 2024-03-01, or leave period out where time steps are numbers already"
            )
        asked = Period(period) if isinstance(period, str) else period
        steps, counted = numbered(checked_length("time_step", dates, n), asked)
        if asked.first is None:
            notes.append(counted.said)
        return steps
    if dates is not None:
        raise DecisionLogError(
            f"{title} has dates, such as {dates[0]}: say period='month' (--period month; or day, "
            "week, quarter, year), and time steps number the months from the first"
        )
    found = checked_length("time_step", numbers(title, values), n)
    fail(
        ~np.isfinite(found) | (found != np.floor(found)),
        "a time step that is not a whole number",
        "Number the periods (months, rounds) in which decisions were taken.",
    )
    return found.astype(np.int64)


def _positive(name: str, column: Floats) -> Floats:
    fail(~np.isfinite(column) | (column <= 0), f"an {name} that is not above 0", "Fix or drop.")
    return column


def _cost(column: Floats) -> Floats:
    advice = " These look like percentages: divide by 100." if _percentages(column) else ""
    fail(
        ~((column > 0) & (column < 1)),
        "a cost outside (0, 1)",
        f"Accepting somebody whose label is 1 is worth 1 - cost, label 0 costs `cost`.{advice}",
    )
    return column
