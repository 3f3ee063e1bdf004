"""Group metrics: rates by group, corrected for who was accepted."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.contrasts import Pairs
from consequential.evaluation.cross_fitting import apply_rule, checked_log, needs_folds
from consequential.evaluation.estimate import UNKNOWN, Estimate, Interval, json_ready
from consequential.evaluation.intervals import Normal
from consequential.evaluation.rates import Floats, Rates
from consequential.evaluation.ratios import Range
from consequential.evaluation.weighted_log import WeightedLog, rate_notes
from consequential.log import DecisionLog
from consequential.objective.fairness import ShapedFairness
from consequential.objective.functionals import LABELLED, NEGATIVES, PEOPLE, POSITIVES, Shape
from consequential.objective.objective import Objective
from consequential.objective.weightings import Weighting
from consequential.shares import checked_share

# how each metric weighs people, positives and negatives
METRICS: dict[str, Shape] = {
    "selection_rate": Shape(PEOPLE),
    "true_positive_rate": Shape(POSITIVES, share_of=POSITIVES),
    "false_positive_rate": Shape(NEGATIVES, share_of=NEGATIVES),
    "positive_predictive_value": Shape(POSITIVES, share_of=LABELLED, denominator=LABELLED),
    # positives are errors unless accepted, negatives where accepted
    "error_rate": Shape((0.0, -1.0, 1.0), constant=POSITIVES, share_of=LABELLED),
}


@dataclass(frozen=True, slots=True, repr=False)
class GroupMetrics:
    """Rates of each group and of all, their differences and ratios, each with its interval.

    Attributes
    ----------
    overall
        Each metric for all applicants.
    by_group
        Each metric for each group.
    difference
        Largest minus smallest group, with bounds that hold for all pairs of groups at once.
    ratio
        Smallest over largest group, likewise.
    group_sizes
        Applicants by group.
    notes
        What to know before relying on the figures.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.first_setting()
    >>> log = world.collect(world.initial_policy().with_floor(0.2), 4000, np.random.default_rng(3))
    >>> found = cq.group_metrics(cq.Policy([1.5, 5.0]), log)
    >>> found.by_group["true_positive_rate"][0]
    0.8837 [0.8540, 0.9083]
    >>> found.difference["selection_rate"]
    0.1245 [0.1057, 0.1433]
    """

    overall: dict[str, Estimate]
    by_group: dict[str, dict[Hashable, Estimate]]
    difference: dict[str, Estimate]
    ratio: dict[str, Estimate]
    group_sizes: dict[Hashable, int]
    notes: tuple[str, ...]

    def to_frame(self, backend: Literal["pyarrow", "pandas", "polars"] = "pyarrow") -> Any:
        """Return one row per metric and group; "overall", "difference" and "ratio" among groups.

        Examples
        --------
        >>> import consequential as cq
        >>> log = cq.DecisionLog.from_arrays(
        ...     [[0.0], [1.0]], [1, 1], [1.0, 1.0], [1, 0], ["a", "b"])
        >>> frame = cq.group_metrics(cq.AcceptAll(), log).to_frame()
        >>> frame.column_names
        ['metric', 'kind', 'group', 'value', 'low', 'high', 'standard_error', 'n']
        """
        from consequential.log.frames import make_frame

        rows = [(metric, *row) for metric in self.overall for row in self._rows(metric)]
        columns: dict[str, NDArray[Any]] = {
            name: np.array([row[k] for row in rows], dtype=object)
            for k, name in enumerate(("metric", "kind", "group"))
        }
        for name in ("value", "low", "high", "standard_error"):
            columns[name] = np.array([getattr(row[3], name) for row in rows], dtype=np.float64)
        columns["n"] = np.array([row[3].n for row in rows], dtype=np.int64)
        return make_frame(columns, backend)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        kinds = ("overall", "by_group", "difference", "ratio")
        return {
            metric: {kind: json_ready(getattr(self, kind)[metric]) for kind in kinds}
            for metric in self.overall
        } | {"notes": list(self.notes)}

    def _rows(self, metric: str) -> list[tuple[str, str | None, Estimate]]:
        """Return the kind of each figure, the group it is of, and the figure."""
        by_group = self.by_group[metric].items()
        return [
            ("overall", None, self.overall[metric]),
            *(("group", str(group), each) for group, each in by_group),
            ("difference", None, self.difference[metric]),
            ("ratio", None, self.ratio[metric]),
        ]

    def __repr__(self) -> str:
        lines = []
        for metric in self.overall:
            lines.append(metric)
            for kind, group, each in self._rows(metric):
                lines.append(f"  {kind if group is None else group:<16}{each!r:>27}")
        return "\n".join(lines + [f"note: {note}" for note in self.notes])


def group_metrics(
    rule: Any,
    log: DecisionLog,
    *,
    weighting: Weighting | None = None,
    confidence: float = 0.95,
    folds: int | None = None,
    seed: int = 0,
) -> GroupMetrics:
    """Estimate the rates of each group under a rule, for all applicants.

    Selection rates need no labels. True and false positive rates, predictive values and error
    rates weigh each accepted person, so they are those of all applicants and not only of the
    people somebody once accepted; a rule that accepts with a probability counts by it. A log of
    values has selection rates alone: no label says who is a positive.

    Parameters
    ----------
    rule, log, weighting, confidence, folds, seed
        As in `evaluate`.

    Examples
    --------
    >>> import consequential as cq
    >>> log = cq.DecisionLog.from_arrays(
    ...     [[0.1], [0.9], [0.2], [0.8]], [1] * 4, [1.0] * 4, [0, 1, 1, 1], ["a", "a", "b", "b"])
    >>> rule = cq.ThresholdPolicy(cq.logistic_model([-5.0, 10.0]), 0.5)
    >>> found = cq.group_metrics(rule, log)
    >>> found.by_group["true_positive_rate"]["b"].value, found.ratio["true_positive_rate"].value
    (0.5, 0.5)
    """
    checked_log(log)
    needs_folds((rule,), folds)
    intervals = Normal(checked_share("the confidence", confidence), seed)
    metrics = {
        name: shape
        for name, shape in METRICS.items()
        if log.value_range is None or not shape.labelled
    }
    rates = _Rates(tuple(metrics.values()))
    objective = Objective(0.5, rates, weighting=weighting)  # no rate depends on a cost
    applied = apply_rule(rule, log, folds=folds, seed=seed)
    weighted = WeightedLog.of(objective, applied.log)
    measurement = weighted.measure(applied.propensity, *applied.notes)
    total, by_group, difference, ratio = {}, {}, {}, {}
    everybody = _pooled(weighted).benefits(applied.propensity)
    for name, pooled, groups in zip(metrics, everybody, measurement.benefits, strict=True):
        total[name], difference[name], ratio[name] = (
            measurement.estimate(intervals, found, labelled=groups.labelled)
            for found in (
                intervals.of(pooled)[0],
                intervals.largest((groups,)),
                _quotient(intervals, groups),
            )
        )
        by_group[name] = measurement.by_group(intervals, groups)
    return GroupMetrics(
        total,
        by_group,
        difference,
        ratio,
        dict(zip(measurement.groups, measurement.sizes, strict=True)),
        (*measurement.notes, *rate_notes(measurement.benefits, measurement.groups)),
    )


@dataclass(frozen=True, slots=True)
class _Rates(ShapedFairness):
    """Some metrics, as a notion of fairness that compares them."""

    weighed: tuple[Shape, ...]
    name = "rates"

    def shapes(self) -> tuple[Shape, ...]:
        """Return how each metric weighs people."""
        return self.weighed


def _pooled(weighted: WeightedLog) -> WeightedLog:
    """Return the same rows as one group, with the same weights."""
    n = len(weighted.log)
    one_group = np.zeros(n, dtype=np.intp)
    return replace(
        weighted,
        log=replace(weighted.log, group=one_group, groups=("everyone",)),
        within=replace(weighted.overall, group=one_group, sizes=np.array([float(n)])),
    )


def _quotient(intervals: Normal, found: Range) -> Interval:
    """Bound smallest over largest group: the largest difference between logarithms."""
    if not found.exact:
        return _quotient_within(intervals, found)
    ratios, known = found.low, found.known
    values, errors = ratios.values[known], ratios.standard_errors[known]
    if len(values) < 2 or values.max() <= 0.0:
        return UNKNOWN
    smallest = max(float(values.min()), 0.0) / float(values.max())
    if values.min() <= 0.0 or not np.isfinite(errors).all():
        return Interval(smallest, 0.0, 1.0, float("inf"))
    bounds = None
    if ratios.rates is not None:
        errors = ratios.rates.standard_errors[known]
        bounds = partial(_log_bounds, ratios.rates, known)
    contrasts = Pairs([ratios]).contrasts
    spread = np.diag((errors / values) ** 2)
    apart = intervals.widest(contrasts, np.log(values), spread, bounds)
    ends = float(np.exp(-apart.high)), float(np.exp(-apart.low))
    return Interval(smallest, *ends, smallest * apart.standard_error)


def _log_bounds(rates: Rates, known: list[int], confidence: float) -> Floats:
    return np.log(np.maximum(rates.bounds(confidence)[:, known], 1e-300))


def _quotient_within(intervals: Normal, found: Range) -> Interval:
    """Bound smallest over largest by intervals of all groups that hold at once."""
    if len(found.known) < 2:
        return UNKNOWN
    shared = intervals.sharing(len(found.known)).of(found)
    lows, highs = (
        np.array([getattr(shared[k], end) for k in found.known]) for end in ("low", "high")
    )
    if highs.max() <= 0.0:
        return UNKNOWN
    low = max(float(lows.min()), 0.0) / float(highs.max())
    high = min(1.0, float(highs.min()) / max(float(lows.max()), 1e-300))
    return Interval((low + high) / 2.0, low, high, float("inf"))
