"""Checks of a log's columns, each with an error that says what is wrong, where and what to do."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.log.columns import (
    DecisionLogError,
    Floats,
    Period,
    PositiveLabel,
    Role,
    as_array,
    column_name,
    fail,
    is_doubtful,
    listed,
    numbers,
    title,
    yes_or_no,
)
from consequential.policy import PolicyError, as_features, group_codes
from consequential.policy.cells import as_dates, missing_values
from consequential.policy.features import numbered_names, unmasked
from consequential.policy.group_codes import plain_groups

Bools = NDArray[np.bool_]
Notes = tuple[str, ...]
Ends = tuple[float, float]
LEAST = 1e-38  # smaller probabilities count as 0: powers of their inverse would overflow
MOST = 1e38  # larger features, amounts and values count as infinite


class Outcomes(NamedTuple):
    """Labels between 0 and 1, NaN where there is none, and what they are worth.

    Accepting somebody brings `amount * (label - cost)`; for values this is the value itself.
    """

    label: Floats
    amount: Floats | None
    cost: Floats | None
    value_range: Ends | None
    notes: Notes


def checked_features(
    features: ArrayLike, names: Sequence[str] | None, *, copy: bool
) -> tuple[Floats, tuple[str, ...]]:
    """Return a matrix of finite numbers, and the names of its columns."""
    names = getattr(features, "names", ()) or None if names is None else names
    features = unmasked(features)
    if not copy and isinstance(features, np.ndarray) and features.dtype == np.float64:
        # a view, so that making the log's columns read-only leaves the caller's array writeable
        matrix = features.view(np.ndarray)
    else:
        matrix = numbers("features", features, names)
    try:
        matrix = as_features(matrix)
    except PolicyError as error:
        raise DecisionLogError(str(error)) from None
    if len(matrix) == 0:
        raise DecisionLogError("the log is empty: it needs at least one decision")
    found = _feature_names(names, matrix.shape[1])
    missing = ~((matrix > -MOST) & (matrix < MOST))
    if missing.any():
        which = [
            f"{found[k]!r} in {missing[:, k].sum()} (first: row {missing[:, k].argmax()})"
            for k in np.flatnonzero(missing.any(axis=0))[:5]
        ]
        fail(
            np.asarray(missing.any(axis=1)),
            "a feature that is missing or infinite",
            f"By column: {', '.join(which)}. Build the log of a data frame, which may have blanks, "
            "or impute them, for accepted and rejected alike. "
            f"{MOST:g} and more counts as infinite.",
        )
    return matrix, found


def _feature_names(given: Sequence[str] | None, n_features: int) -> tuple[str, ...]:
    if given is None:
        return numbered_names(n_features)
    names = tuple(str(name) for name in given)
    if len(names) != n_features:
        raise DecisionLogError(f"{len(names)} feature names were given for {n_features} features")
    for k, name in enumerate(names):
        if name in names[:k]:
            raise DecisionLogError(f"two features have the name {name!r}")
    return names


def checked_decision(values: ArrayLike, n: int) -> tuple[Bools, Notes]:
    """Return decisions as booleans, and a note that says which word means which."""
    decision, notes = _coded("decision", values, n)
    neither = np.isin(decision, (0.0, 1.0), invert=True)
    fail(
        neither,
        "a decision that is not 0 or 1",
        "1 is accepted, 0 is rejected; leave out people nobody has decided on."
        + _found(decision, neither),
    )
    return decision == 1, notes


def checked_outcomes(
    label: ArrayLike | None,
    value: ArrayLike | None,
    value_range: Ends | None,
    amount: ArrayLike | None,
    cost: ArrayLike | None,
    decision: Bools,
    *,
    positive: PositiveLabel | None = None,
) -> Outcomes:
    """Return the outcomes of decisions, from labels or from values."""
    n = len(decision)
    if positive is not None and label is None:
        raise DecisionLogError("positive_label is one of two labels: give label= too")
    if value is not None:
        if not (label is None and amount is None and cost is None):
            raise DecisionLogError(
                "a value is all that an accepted person brings: leave label, amount and cost out"
            )
        return _checked_values(value, value_range, decision)
    if label is None or value_range is not None:
        raise DecisionLogError(
            "outcomes are missing: give label=, 1 as hoped and 0 not, or value=, what each "
            "accepted person brought or took"
        )
    labels, notes = checked_label(label, decision, positive)
    return Outcomes(labels, checked_amount(amount, n), checked_cost(cost, n), None, notes)


def _checked_values(given: ArrayLike, value_range: Ends | None, decision: Bools) -> Outcomes:
    """Scale values to labels between 0 and 1; the range of the values includes 0."""
    n = len(decision)
    value = _column("value", given, n)
    known = ~np.isnan(value)
    fail(
        known & ~decision,
        "a value although decision is 0",
        "Rejected people have no outcome: leave the value missing.",
    )
    wrong = np.abs(value) >= MOST
    fail(wrong, "an infinite value", f"It is {value[wrong.argmax()]:g}: fix or drop.")
    low, high = value_range or (value[known].min(initial=0.0), value[known].max(initial=0.0))
    if not (-np.inf < low <= 0.0 <= high < np.inf) or (value_range and low == high):
        raise DecisionLogError(
            f"value_range is the smallest and the largest value there can be, with 0 between them, "
            f"not {value_range!r}"
        )
    outside = known & ((value < low) | (value > high))
    first = value[outside.argmax()]
    fail(outside, f"a value outside {low:g} to {high:g}", f"It is {first:g}: widen value_range.")
    size = high - low or 1.0  # where nothing but 0 is known
    label = np.where(known, (value - low) / size, np.nan)
    amount, cost = np.full(n, size), np.full(n, -low / size)
    return Outcomes(label, amount, cost, (float(low), float(high)), ())


def checked_label(
    values: ArrayLike, decision: Bools, positive: PositiveLabel | None = None
) -> tuple[Floats, Notes]:
    """Return labels, NaN where there is none, and a note that says which word means which."""
    label, notes = _coded("label", values, len(decision), positive)
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
    return np.where(known, label, np.nan), notes  # one bit pattern of NaN, for the fingerprint


def _coded(
    role: Role, given: ArrayLike, n: int, positive: PositiveLabel | None = None
) -> tuple[Floats, Notes]:
    values = as_array(role, given)
    words = positive is not None
    if values.dtype == object and values.ndim == 1 and not words:
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            words = True
    name = column_name(given)
    if not words and is_doubtful(role, name):
        raise DecisionLogError(
            f"the label {name!r} has numbers: is 1 the outcome hoped for, or 0? Say which with "
            "positive_label="
        )
    if not words:
        return _column(role, values, n), ()
    found, said = yes_or_no(role, name, _of_length(role, values, n), positive)
    return found, (said,)


def _column(role: str, values: Any, n: int) -> Floats:
    """Return a column of n numbers."""
    return _of_length(role, numbers(role, values), n)


def _of_length(role: str, column: NDArray[Any], n: int) -> NDArray[Any]:
    if column.shape != (n,):
        found = f"{column.shape[0]}" if column.ndim == 1 else f"shape {column.shape}"
        raise DecisionLogError(
            f"{role} has {found} values but features has {n} rows: one value per row is needed"
        )
    return column


def _found(column: Floats, bad: Bools) -> str:
    """Return a sentence that lists the values, if some are bad."""
    if not bad.any():
        return ""
    return f" Found: {listed(np.unique(column[~np.isnan(column)]).tolist())}."


def checked_propensity(values: ArrayLike | None, decision: Bools) -> Floats:
    """Return probabilities of acceptance; refuse those that the decisions rule out."""
    if values is None:
        raise DecisionLogError(
            "propensity is missing: the probability with which each person would be accepted "
            "by the rule then in force. Without it what was learned from accepted people says "
            "nothing about the rejected. If it was not logged but decisions left something to "
            "chance, give propensity=EstimatedPropensity()"
        )
    p = _column("propensity", values, len(decision))
    fail(np.isnan(p), "no propensity", "Every decision needs the probability it was drawn with.")
    fail(
        (p < 0) | (p > 1),
        "a propensity outside [0, 1]",
        f"It is a probability of acceptance.{_percentages(p)}",
    )
    impossible = decision & (p < LEAST)
    fail(
        impossible,
        f"propensity {p[impossible.argmax()]:g} although decision is 1",
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
    """Return advice for values that look like percentages."""
    percentages = values.min() >= 0.0 and 1.0 < values.max() <= 100.0
    return " These look like percentages: divide by 100." if percentages else ""


def checked_groups(
    sensitive: ArrayLike | None, groups: Sequence[Hashable] | None, n: int
) -> tuple[NDArray[np.intp], tuple[Hashable, ...]]:
    """Return each person's group code, and the names of the groups."""
    if sensitive is None:
        if groups is not None:
            raise DecisionLogError("groups are given but no sensitive attribute that has them")
        return np.zeros(n, dtype=np.intp), ("everyone",)
    sensitive = unmasked(sensitive)
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
    if groups is not None:
        try:
            names = plain_groups(groups)
            return group_codes(values, names), names
        except PolicyError as error:
            raise DecisionLogError(str(error)) from None
    try:
        names = tuple(sorted(set(values.tolist())))
    except TypeError:
        kinds = sorted({type(value).__name__ for value in values.tolist()})
        raise DecisionLogError(
            f"{title('sensitive', sensitive)} has values that cannot be put in order, of type "
            f"{' and '.join(kinds)}: make them words, or all of them numbers"
        ) from None
    place = {name: code for code, name in enumerate(names)}
    return np.array([place[name] for name in values.tolist()], dtype=np.intp), names


def checked_time_step(
    values: ArrayLike, period: str | Period | None, n: int
) -> tuple[NDArray[np.int64], Notes]:
    """Return time steps, counted from dates where a period is given, and notes on them."""
    values = np.full(n, values) if np.ndim(values) == 0 else unmasked(values)
    what, dates = title("time_step", values), as_dates(values)
    if period is not None:
        if dates is None:
            raise DecisionLogError(
                f"period numbers dates, but {what} has {np.asarray(values).tolist()[0]!r}: write "
                "dates as 2024-03-01, or leave period out where time steps are numbers already"
            )
        asked = Period(period) if isinstance(period, str) else period
        steps, counted = asked.time_steps(_of_length("time_step", dates, n))
        return steps, (counted.note,) if asked.first is None else ()
    if dates is not None:
        raise DecisionLogError(
            f"{what} has dates, such as {dates[0]}: say period='month' (or day, week, "
            "quarter, year), and time steps number the months from the first"
        )
    found = _column("time_step", values, n)
    wrong = (found != np.floor(found)) | ~(np.abs(found) < 2**53)  # beyond, floats skip integers
    fail(
        wrong,
        "a time step that is not a whole number",
        f"Number the periods (months, rounds) in which decisions were taken: it is "
        f"{found[wrong.argmax()]:g}.",
    )
    return found.astype(np.int64), ()


def checked_horizon(horizon: int | None) -> int | None:
    """Return a number of time steps, or None."""
    counts = isinstance(horizon, Real) and 0 <= horizon < 2**53 and horizon == int(horizon)
    if horizon is not None and not counts:
        raise DecisionLogError(f"a horizon counts time steps; it cannot be {horizon!r}")
    return horizon


def checked_amount(values: ArrayLike | None, n: int) -> Floats | None:
    """Return n positive amounts, or None."""
    if values is None:
        return None
    amount = _column("amount", values, n)
    wrong = ~((amount > 0) & (amount < MOST))
    first = amount[wrong.argmax()]
    fail(wrong, "an amount that is not above 0", f"It is {first:g}; amounts end at {MOST:g}.")
    return amount


def checked_cost(values: ArrayLike | None, n: int) -> Floats | None:
    """Return n costs between 0 and 1, or None."""
    if values is None:
        return None
    cost = _column("cost", values, n)
    fail(
        ~((cost > 0) & (cost < 1)),
        "a cost outside (0, 1)",
        "Accepting somebody whose label is 1 is worth 1 - cost, label 0 costs `cost`."
        + _percentages(cost),
    )
    return cost


def checked_observed(values: ArrayLike, decision: Bools) -> Floats:
    """Return the probability that each label becomes known, 1 for rejected people."""
    observed = _column("observed", values, len(decision))
    fail(
        decision & ~((observed >= LEAST) & (observed <= 1.0)),
        "an observed probability outside (0, 1] although decision is 1",
        "It is the probability that the label of an accepted person becomes known.",
    )
    return np.where(decision, observed, 1.0)
