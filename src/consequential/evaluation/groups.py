"""Group metrics: rates by group, corrected for who was accepted."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation.bounds import (
    Range,
    intervals_of,
    largest_interval,
    measured_groups,
)
from consequential.evaluation.contrasts import largest
from consequential.evaluation.estimate import Estimate
from consequential.evaluation.influence import RatioSums
from consequential.evaluation.intervals import UNKNOWN, Interval, Normal
from consequential.evaluation.judged import checked_log, judge, needs_folds
from consequential.evaluation.measure import Facts, rate_notes
from consequential.evaluation.quantiles import checked_confidence, two_sided
from consequential.evaluation.simultaneous import Pairs, sup_t_quantile
from consequential.evaluation.yardstick import Yardstick
from consequential.log import DecisionLog
from consequential.objective import Objective, Shape, ShapedFairness, Weighting

Floats = NDArray[np.float64]

# how each metric weighs people, positives and negatives
METRICS: dict[str, Shape] = {
    "selection_rate": Shape((1.0, 0.0, 0.0)),
    "true_positive_rate": Shape((0.0, 1.0, 0.0), share_of=(0.0, 1.0, 0.0)),
    "false_positive_rate": Shape((0.0, 0.0, 1.0), share_of=(0.0, 0.0, 1.0)),
    "positive_predictive_value": Shape(
        (0.0, 1.0, 0.0), share_of=(0.0, 1.0, 1.0), denominator=(0.0, 1.0, 1.0)
    ),
    # positives are errors unless accepted, negatives where accepted
    "error_rate": Shape((0.0, -1.0, 1.0), constant=(0.0, 1.0, 0.0), share_of=(0.0, 1.0, 1.0)),
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
        """Return one row a metric and group; "overall", "difference" and "ratio" among groups.

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

        rows = list(self._rows())
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
        return {
            metric: {
                "overall": self.overall[metric].to_dict(),
                "by_group": {
                    str(group): each.to_dict() for group, each in self.by_group[metric].items()
                },
                "difference": self.difference[metric].to_dict(),
                "ratio": self.ratio[metric].to_dict(),
            }
            for metric in self.overall
        } | {"notes": list(self.notes)}

    def _rows(self) -> Any:
        for metric in self.overall:
            yield metric, "overall", None, self.overall[metric]
            for group, each in self.by_group[metric].items():
                yield metric, "group", str(group), each
            yield metric, "difference", None, self.difference[metric]
            yield metric, "ratio", None, self.ratio[metric]

    def __repr__(self) -> str:
        lines = []
        for metric in self.overall:
            lines.append(metric)
            lines.append(f"  {'overall':<16}{self.overall[metric]!r:>27}")
            for group, each in self.by_group[metric].items():
                lines.append(f"  {group!s:<16}{each!r:>27}")
            lines.append(f"  {'difference':<16}{self.difference[metric]!r:>27}")
            lines.append(f"  {'ratio':<16}{self.ratio[metric]!r:>27}")
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


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
    people somebody once accepted; a rule that accepts with a probability counts by it.

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
    level = checked_confidence(confidence)
    objective = Objective(0.5, weighting=weighting)  # no rate depends on a cost
    judged = judge(rule, log, folds=folds, seed=seed)
    rows, pi = judged.log, judged.propensity
    within = Yardstick.of(objective, rows)
    everybody = _pooled(within)
    facts = Facts.of(within, pi, judged.notes)
    by_group, total, difference, ratio = {}, {}, {}, {}
    rates: list[Range] = []
    for name, shape in METRICS.items():
        ranges = [
            replace(each, objective=replace(objective, fairness=_Rate(shape))).benefits(pi)[0]
            for each in (everybody, within)
        ]
        rates.append(ranges[1])
        made = _Made(level, seed, facts, shape.labelled)
        total[name] = made.overall(ranges[0])
        by_group[name] = made.by_group(ranges[1])
        difference[name], ratio[name] = made.spread(ranges[1])
    return GroupMetrics(
        total,
        by_group,
        difference,
        ratio,
        dict(zip(rows.groups, rows.group_counts.tolist(), strict=True)),
        (*facts.notes, *rate_notes(rates, rows.groups)),
    )


@dataclass(frozen=True, slots=True)
class _Rate(ShapedFairness):
    """One rate, as a notion of fairness that compares it."""

    shape: Shape
    name = "rate"

    def shapes(self) -> tuple[Shape, ...]:
        """Return the rate alone."""
        return (self.shape,)


def _pooled(yardstick: Yardstick) -> Yardstick:
    """Return the same rows as one group, with the same weights."""
    nobody_apart = np.zeros(len(yardstick.log), dtype=np.intp)
    return replace(
        yardstick,
        log=replace(yardstick.log, group=nobody_apart, groups=("everyone",)),
        within=replace(
            yardstick.overall, group=nobody_apart, sizes=np.array([float(len(yardstick.log))])
        ),
    )


@dataclass(frozen=True, slots=True)
class _Made:
    """Makes estimates of one rate on one log."""

    confidence: float
    seed: int
    facts: Facts
    labelled: bool

    def overall(self, found: Range) -> Estimate:
        """Return the estimate for all applicants."""
        return self._estimate(intervals_of(self._intervals(found), found)[0])

    def by_group(self, found: Range) -> dict[Hashable, Estimate]:
        """Return an estimate for each group."""
        facts = self.facts
        columns = (
            facts.groups,
            intervals_of(self._intervals(found), found),
            facts.sizes,
            facts.effective_sizes.tolist(),
            facts.unsupported_by_group.tolist(),
        )
        return {
            group: self._made(each, n, effective, share)
            for group, each, n, effective, share in zip(*columns, strict=True)
        }

    def spread(self, found: Range) -> tuple[Estimate, Estimate]:
        """Return largest minus smallest, and smallest over largest, over the groups."""
        apart = largest_interval(self._intervals(found), (found,))
        return self._estimate(apart), self._estimate(self._quotient(found))

    def _intervals(self, found: Range) -> Normal:
        return Normal(found.sides, self.confidence, self.seed)  # type: ignore[arg-type]

    def _estimate(self, found: Interval) -> Estimate:
        facts = self.facts
        return self._made(found, facts.n, facts.effective_size, facts.unsupported)

    def _made(self, found: Interval, n: int, effective: float, unsupported: float) -> Estimate:
        return Estimate(
            found.value,
            found.low,
            found.high,
            found.standard_error,
            n,
            effective if self.labelled else float(n),
            self.confidence,
            "normal",
            unsupported if self.labelled else 0.0,
        )

    def _quotient_within(self, found: Range) -> Interval:
        """Bound smallest over largest by intervals of all groups that hold at once."""
        known = measured_groups(found)
        if len(known) < 2:
            return UNKNOWN
        shared = self._intervals(found).at(1.0 - (1.0 - self.confidence) / len(known))
        ends = [intervals_of(shared, found)[k] for k in known]
        lows, highs = (np.array([getattr(each, end) for each in ends]) for end in ("low", "high"))
        if highs.max() <= 0.0:
            return UNKNOWN
        low = max(float(lows.min()), 0.0) / float(highs.max())
        high = min(1.0, float(highs.min()) / max(float(lows.max()), 1e-300))
        return Interval((low + high) / 2.0, low, high, float("inf"))

    def _rate_quotient(self, ratios: RatioSums, smallest: float) -> Interval:
        """Bound the logarithms of rates by those of their own bounds."""
        assert ratios.rates is not None
        known, errors = ratios.known, ratios.rates.standard_errors
        relative = errors[known] / ratios.values[known]
        contrast = Pairs((ratios,)).contrast[:, known]
        spread = contrast @ np.diag(relative**2) @ contrast.T
        level = two_sided(sup_t_quantile(spread, self.confidence, seed=self.seed))
        logs = [
            tuple(np.log(np.maximum(end[known], 1e-300)) for end in ratios.rates.bounds(at))
            for at in (self.confidence, level)
        ]
        (low, high), (surely_low, surely_high) = logs
        values = np.log(ratios.values[known])
        least, most = largest(values, (low, high), (surely_low, surely_high))
        error = smallest * float(np.sqrt(np.diag(spread).max()))
        ends = float(np.exp(-most)), float(np.exp(-least))
        return Interval(smallest, min(ends[0], smallest), max(ends[1], smallest), error)

    def _quotient(self, found: Range) -> Interval:
        """Bound the logarithms of all pairs' quotients at once."""
        if not found.exact:
            return self._quotient_within(found)
        ratios = found.low
        values, errors = ratios.values[ratios.known], ratios.standard_errors[ratios.known]
        if len(values) < 2 or values.max() <= 0.0:
            return UNKNOWN
        smallest = max(float(values.min()), 0.0) / float(values.max())
        if values.min() <= 0.0 or not np.isfinite(errors).all():
            return Interval(smallest, 0.0, 1.0, float("inf"))
        pairs = Pairs((ratios,))
        if ratios.rates is not None:
            return self._rate_quotient(ratios, smallest)
        logs = np.full((1, ratios.n_groups), np.nan)
        logs[0, ratios.known] = np.log(values)
        contrast = pairs.contrast[:, ratios.known]
        covariance = contrast @ np.diag((errors / values) ** 2) @ contrast.T
        q = sup_t_quantile(covariance, self.confidence, seed=self.seed)
        away, spread = np.abs(pairs.differences(logs)), np.sqrt(np.diag(covariance))
        high = float(np.exp(-max((away - q * spread).max(), 0.0)))
        low = float(np.exp(-(away + q * spread).max()))
        return Interval(smallest, low, high, smallest * float(spread[away.argmax()]))
