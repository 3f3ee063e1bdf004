"""Checks of a log's columns, each with an error that says what is wrong, where and what to do."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.log.columns import (
    Floats,
    Period,
    Role,
    as_array,
    as_dates,
    listed,
    missing_values,
    numbers,
    yes_or_no,
)
from consequential.log.errors import DecisionLogError, fail
from consequential.log.estimation import EstimatedPropensity
from consequential.policies import (
    PolicyError,
    as_features,
    group_codes,
    numbered_names,
    plain_groups,
)

Kind = TypeVar("Kind", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Given:
    """What a user gives as a log; `titles` are the names of the columns in a frame, if any."""

    features: ArrayLike
    decision: ArrayLike
    propensity: ArrayLike | EstimatedPropensity | None
    label: ArrayLike
    sensitive: ArrayLike | None = None
    time_step: ArrayLike | int = 0
    amount: ArrayLike | None = None
    cost: ArrayLike | None = None
    observed: ArrayLike | None = None
    groups: Sequence[Hashable] | None = None
    feature_names: Sequence[str] | None = None
    horizon: int | None = None
    missing: Any = "refuse"
    period: str | Period | None = None
    titles: Mapping[str, str] = field(default_factory=dict)

    def title(self, role: str) -> str:
        """Return how a column is called in an error."""
        name = self.titles.get(role, role)
        return role if name == role else f"{role} (column {name!r})"

    def column(self, role: str, n: int) -> Floats:
        """Return a column of n numbers."""
        return _of_length(role, numbers(self.title(role), getattr(self, role)), n)


def checked_columns(given: Given, *, copy: bool = True) -> dict[str, Any]:
    """Return what a user gives as checked, private, typed columns: a log's fields by name."""
    features = _features(given, copy)
    n, notes = len(features), list[str]()
    decision = _decision(_coded(given, "decision", n, notes))
    group, groups = _groups(given, n)
    horizon = given.horizon
    if horizon is not None and (horizon < 0 or horizon != int(horizon)):
        raise DecisionLogError(f"a horizon counts time steps; it cannot be {horizon!r}")
    if isinstance(given.propensity, EstimatedPropensity):
        propensity = given.propensity.propensities(features, decision, group, groups)
    elif "decision" in given.titles and given.titles.get("propensity") == given.titles["decision"]:
        propensity = decision.astype(np.float64)  # of a rule that left nothing to chance
    else:
        propensity = _propensity(given, decision)
    return {
        "features": features,
        "feature_names": _feature_names(given, features.shape[1]),
        "decision": decision,
        "propensity": propensity,
        "label": _label(_coded(given, "label", n, notes), decision),
        "group": group,
        "groups": groups,
        "time_step": _time_step(given, n, notes),
        "amount": _amount(given, n),
        "cost": _cost(given, n),
        "horizon": horizon,
        "notes": tuple(notes),
    }


def _of_length(name: str, column: NDArray[Kind], n: int) -> NDArray[Kind]:
    if column.shape != (n,):
        found = f"{column.shape[0]}" if column.ndim == 1 else f"shape {column.shape}"
        raise DecisionLogError(
            f"{name} has {found} values but features has {n} rows: one value per row is needed"
        )
    return column


def _features(given: Given, copy: bool) -> Floats:
    features = given.features
    if not copy and isinstance(features, np.ndarray) and features.dtype == np.float64:
        # a view, so that making the log's columns read-only leaves the caller's array writeable
        matrix = features.view()
    else:
        matrix = numbers("features", features, given.feature_names)
    try:
        matrix = as_features(matrix)
    except PolicyError as error:
        raise DecisionLogError(str(error)) from None
    if len(matrix) == 0:
        raise DecisionLogError("the log is empty: it needs at least one decision")
    missing = ~np.isfinite(matrix)
    if missing.any():
        names = _feature_names(given, matrix.shape[1])
        which = [
            f"{names[k]!r} in {missing[:, k].sum()} (first: row {missing[:, k].argmax()})"
            for k in np.flatnonzero(missing.any(axis=0))[:5]
        ]
        fail(
            np.asarray(missing.any(axis=1)),
            "a feature that is missing or infinite",
            f"By column: {', '.join(which)}. Impute or drop them before building the log, for "
            "accepted and rejected alike.",
        )
    return matrix


def _feature_names(given: Given, n_features: int) -> tuple[str, ...]:
    if given.feature_names is None:
        return numbered_names(n_features)
    names = tuple(str(name) for name in given.feature_names)
    if len(names) != n_features:
        raise DecisionLogError(f"{len(names)} feature names were given for {n_features} features")
    for k, name in enumerate(names):
        if name in names[:k]:
            raise DecisionLogError(f"two features have the name {name!r}")
    return names


def _coded(given: Given, role: Role, n: int, notes: list[str]) -> Floats:
    """Return decisions or labels as numbers, and note what words were taken for."""
    values = as_array(given.title(role), getattr(given, role))
    if values.dtype == object and values.ndim == 1:
        try:
            found = values.astype(np.float64)
        except (TypeError, ValueError):
            found, said = yes_or_no(role, given.titles.get(role, ""), values)
            notes.append(said)
        return _of_length(role, found, n)
    return given.column(role, n)


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
    return np.where(known, label, np.nan)  # one bit pattern of NaN, for the fingerprint


def _found(column: Floats, bad: NDArray[np.bool_]) -> str:
    """Say which values there are, if some are bad."""
    if not bad.any():
        return ""
    return f" Found: {listed(np.unique(column[~np.isnan(column)]).tolist())}."


def _propensity(given: Given, decision: NDArray[np.bool_]) -> Floats:
    if given.propensity is None:
        raise DecisionLogError(
            "propensity is missing: the probability with which each person would be accepted "
            "by the rule then in force. Without it what was learned from accepted people says "
            "nothing about the rejected. If it was not logged but decisions left something to "
            "chance, give propensity=EstimatedPropensity()"
        )
    p = given.column("propensity", len(decision))
    fail(np.isnan(p), "no propensity", "Every decision needs the probability it was drawn with.")
    fail(
        (p < 0) | (p > 1),
        "a propensity outside [0, 1]",
        f"It is a probability of acceptance.{_percentages(p)}",
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


def _percentages(values: Floats) -> str:
    """Say what to do with values that look like percentages."""
    percentages = values.min() >= 0.0 and 1.0 < values.max() <= 100.0
    return " These look like percentages: divide by 100." if percentages else ""


def _groups(given: Given, n: int) -> tuple[NDArray[np.intp], tuple[Hashable, ...]]:
    sensitive = given.sensitive
    if sensitive is None:
        if given.groups is not None:
            raise DecisionLogError("groups are given but no sensitive attribute that has them")
        return np.zeros(n, dtype=np.intp), ("everyone",)
    values = np.asarray(sensitive)
    if values.dtype.kind == "U" and not isinstance(sensitive, np.ndarray):
        values = np.asarray(sensitive, dtype=object)  # or NaN would become the text "nan"
    if values.shape != (n,):
        raise DecisionLogError(
            f"sensitive has shape {values.shape} but features has {n} rows: "
            "one value per row is needed"
        )
    if values.dtype == object or values.dtype.kind == "f":
        fail(
            missing_values(values),
            "no sensitive group",
            "Name a group for people whose group is not known; do not drop them silently.",
        )
    if given.groups is not None:
        try:
            names = plain_groups(given.groups)
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
        steps, counted = asked.time_steps(_of_length("time_step", dates, n))
        if asked.first is None:
            notes.append(counted.said)
        return steps
    if dates is not None:
        raise DecisionLogError(
            f"{title} has dates, such as {dates[0]}: say period='month' (--period month; or day, "
            "week, quarter, year), and time steps number the months from the first"
        )
    found = _of_length("time_step", numbers(title, values), n)
    fail(
        ~np.isfinite(found) | (found != np.floor(found)),
        "a time step that is not a whole number",
        "Number the periods (months, rounds) in which decisions were taken.",
    )
    return found.astype(np.int64)


def _amount(given: Given, n: int) -> Floats | None:
    if given.amount is None:
        return None
    amount = given.column("amount", n)
    fail(~np.isfinite(amount) | (amount <= 0), "an amount that is not above 0", "Fix or drop.")
    return amount


def _cost(given: Given, n: int) -> Floats | None:
    if given.cost is None:
        return None
    cost = given.column("cost", n)
    fail(
        ~((cost > 0) & (cost < 1)),
        "a cost outside (0, 1)",
        "Accepting somebody whose label is 1 is worth 1 - cost, label 0 costs `cost`."
        + _percentages(cost),
    )
    return cost
