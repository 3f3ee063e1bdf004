"""Frontier: one learner at one constraint after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.baseline import accepted_only, inverse_propensity
from consequential.estimator import FairPolicyLearner
from consequential.evaluation import Evaluation, evaluate
from consequential.evaluation.evaluate import evaluation
from consequential.evaluation.intervals import Normal
from consequential.evaluation.out_of_core import measured
from consequential.evaluation.rules import cross_fitted_propensities
from consequential.evaluation.weighted_log import Measurement, WeightedLog
from consequential.fairness import Fairness, fairness_named
from consequential.log import DecisionLog, DecisionLogError, LogScan
from consequential.objective import Objective
from consequential.policies import AcceptAll, DecisionRule, Logged, RejectAll
from consequential.shares import checked_share
from consequential.tradeoff.band import band
from consequential.tradeoff.points import Frontier, Point
from consequential.weightings import Weighting
from consequential.workers import in_order

Floats = NDArray[np.float64]

_LEARNED = 500_000  # rows of a scan to learn from; half of it where it has fewer than twice that


def frontier(
    log: DecisionLog | LogScan,
    *,
    cost: float,
    fairness: str | Fairness = "demographic_parity",
    learner: Any = None,
    max_gaps: Sequence[float | None] = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, None),
    feature_map: Any = None,
    folds: int = 5,
    weighting: Weighting | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    progress: bool = True,
) -> Frontier:
    """Trace how much utility each bound on the gap leaves.

    For each bound the learner is fitted on all folds but one and evaluated on that one, so no
    estimate comes from rows that its policy was learned from; a point is about the policies that so
    many rows lead to. A bound holds where a policy was fitted; on other rows the gap can be a
    little wider, which the estimate shows. Interrupted, it keeps the points that are done.

    Parameters
    ----------
    log
        The log; decisions younger than its horizon are left out. From a scan, policies are learned
        from a sample and evaluated on all other rows: `folds` then plays no part.
    cost
        What accepting costs.
    fairness
        The notion whose gap is bounded.
    learner
        An unfitted learner with a parameter `max_gap`; a `FairPolicyLearner` by default.
    max_gaps
        The bounds to try; None for no bound.
    feature_map
        A scikit-learn transformer for the default learner and the predictors beside it.
    folds
        How many parts the log is cut into.
    weighting
        How accepted people stand in for the rejected when policies are evaluated, and where the
        default learner learns.
    confidence
        With what probability the whole band holds.
    seed
        Of the folds, the band's draws and the default learner.
    progress
        Whether to show progress in a terminal.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.first_setting()
    >>> log = world.collect(world.initial_policy().with_floor(0.1), 2_000,
    ...                     np.random.default_rng(0))
    >>> found = cq.frontier(log, cost=world.cost, max_gaps=[0.02, None], folds=2)
    >>> fair, free = found.points
    >>> abs(fair.benefit_gap.value) < 0.05 < abs(free.benefit_gap.value)
    True
    """
    if not isinstance(log, DecisionLog | LogScan):
        raise TypeError(f"a frontier is traced on a DecisionLog, not on {type(log).__name__}")
    objective = Objective(cost, fairness, weighting=weighting)
    notion = fairness_named(fairness)
    if len(log.groups) < 2:
        raise DecisionLogError("the log has one group: a gap needs a sensitive attribute with two")
    checked_share("confidence", confidence)
    if learner is None:
        learner = FairPolicyLearner(
            cost=cost,
            fairness=fairness,
            feature_map=feature_map,
            weighting=weighting,
            random_state=seed,
        )
    _check_learner(learner, cost, notion)
    trace = _Trace(learner, objective, _checked_bounds(max_gaps), feature_map, confidence, seed)
    if isinstance(log, LogScan):
        measures, references, notes = trace.of_scan(log)
    else:
        measures, references, notes = trace.of_log(log, folds, progress)
    estimates = band(measures, confidence, seed)
    points = tuple(
        Point(_bound_name(bound), bound, utility, gap, float(measure.acceptance.low.values[0]))
        # an interruption leaves the last bounds out
        for bound, measure, (utility, gap) in zip(trace.bounds, measures, estimates, strict=False)
    )
    shown = tuple(
        Point(name, None, found.utility, found.benefit_gap, found.acceptance.value)
        for name, found in references
    )
    return Frontier(points, shown, notion.name, float(confidence), tuple(notes))


# measurements of the learner at each bound, the references, and notes
_Traced = tuple[list[Measurement], list[tuple[str, Evaluation]], list[str]]


@dataclass(frozen=True)
class _Trace:
    """A learner, the bounds to fit it under, and what to measure."""

    learner: Any
    objective: Objective
    bounds: list[float | None]
    feature_map: Any
    confidence: float
    seed: int

    @property
    def references(self) -> list[tuple[str, Any]]:
        """Rules to compare with, and learners of such rules."""
        predictors = (accepted_only, inverse_propensity)
        fitted = [_Predictor(fit, self.objective.cost, self.feature_map) for fit in predictors]
        return [
            ("what the log did", Logged()),
            ("accept all", AcceptAll()),
            ("reject all", RejectAll()),
            ("accepted only", fitted[0]),
            ("inverse propensity", fitted[1]),
        ]

    def of_log(self, log: DecisionLog, folds: int, progress: bool) -> _Traced:
        """Cross-fit the learner at each bound; an interruption keeps what is done."""
        from tqdm import tqdm

        weighted = WeightedLog.of(self.objective, log.settled())
        measures: list[Measurement] = []
        notes: list[str] = []
        # None: shown where somebody can see it
        disable = None if progress else True
        bar = tqdm(total=len(self.bounds), desc="frontier", leave=False, disable=disable)
        at_bound = partial(_propensities, self.learner, weighted.log, folds, self.seed)
        try:
            for propensity in in_order(at_bound, self.bounds):
                bar.update()
                measures.append(weighted.measure(propensity))
        except KeyboardInterrupt:
            if not measures:
                raise
            missing = ", ".join(_bound_name(bound) for bound in self.bounds[len(measures) :])
            notes.append(f"interrupted: {missing} not traced")
        finally:
            bar.close()
        if log.estimated_propensity:
            notes.append("propensities are estimates, and so is everything made from them")
        references = []
        assert self.objective.fairness is not None
        for name, rule in self.references:
            try:
                found = evaluate(
                    rule,
                    weighted.log,
                    cost=self.objective.cost,
                    fairness=self.objective.fairness,
                    weighting=self.objective.weighting,
                    confidence=self.confidence,
                    folds=folds if isinstance(rule, _Predictor) else None,
                    seed=self.seed,
                )
            except DecisionLogError as reason:
                notes.append(f"{name} is left out: {reason}")
                continue
            references.append((name, found))
        return measures, references, notes

    def of_scan(self, scan: LogScan) -> _Traced:
        """Fit the learner at each bound on a sample; evaluate all on the rest, in two passes."""
        from sklearn.base import clone

        sample, rest = scan.split(min(_LEARNED, len(scan) // 2), self.seed)
        notes = [
            f"learned from a sample of {len(sample)} rows and evaluated on all others: no policy "
            "is evaluated on a row that it was learned from"
        ]
        rules: list[DecisionRule] = [
            clone(self.learner).set_params(max_gap=bound).fit_log(sample).policy_
            for bound in self.bounds
        ]
        names = []
        for name, rule in self.references:
            try:
                rules.append(rule.fit_log(sample).policy_ if isinstance(rule, _Predictor) else rule)
            except DecisionLogError as reason:
                notes.append(f"{name} is left out: {reason}")
                continue
            names.append(name)
        found = measured(rest, self.objective, tuple(rules))
        n = len(self.bounds)
        references = []
        for name, measure in zip(names, found[n:], strict=True):
            intervals = Normal(measure.ratios, self.confidence, self.seed)
            references.append((name, evaluation(self.objective, measure, intervals)))
        return list(found[:n]), references, notes


@dataclass
class _Predictor:
    """A learner made of a function from a log and a cost to a rule."""

    fit: Callable[..., DecisionRule]
    cost: float
    feature_map: Any

    def fit_log(self, log: DecisionLog) -> _Predictor:
        """Fit the rule."""
        self.policy_ = self.fit(log, self.cost, feature_map=self.feature_map)
        return self


def _propensities(
    learner: Any, rows: DecisionLog, folds: int, seed: int, bound: float | None
) -> Floats:
    from sklearn.base import clone

    bounded = clone(learner).set_params(max_gap=bound)
    return cross_fitted_propensities(bounded, rows, folds, seed=seed)


def _bound_name(bound: float | None) -> str:
    return "no bound" if bound is None else f"gap at most {bound:g}"


def _checked_bounds(max_gaps: Sequence[float | None]) -> list[float | None]:
    bounds = list(max_gaps)
    if not bounds:
        raise ValueError("max_gaps is empty: give at least one bound, or None for no bound")
    for k, bound in enumerate(bounds):
        if bound is not None and not 0.0 <= bound <= 1.0:
            raise ValueError(f"a bound on the gap lies between 0 and 1, not {bound!r}")
        if bound in bounds[:k]:
            raise ValueError(f"max_gaps has {bound!r} twice")
    return [None if bound is None else float(bound) for bound in bounds]


def _check_learner(learner: Any, cost: float, notion: Fairness) -> None:
    if isinstance(learner, type) or not (
        hasattr(learner, "fit_log") and hasattr(learner, "get_params")
    ):
        raise TypeError(
            f"{learner!r} is not a learner: a frontier needs one with fit_log(log) and a parameter "
            "max_gap, such as FairPolicyLearner(cost=...)"
        )
    parameters = learner.get_params()
    if "max_gap" not in parameters:
        raise TypeError(f"{type(learner).__name__} has no parameter max_gap to be bounded by")
    if parameters.get("cost", cost) != cost:
        raise ValueError(
            f"the learner has cost {parameters['cost']!r} and the frontier {cost!r}: give both "
            "the same"
        )
    if "fairness" in parameters and fairness_named(parameters["fairness"]).name != notion.name:
        raise ValueError(
            f"the learner bounds {fairness_named(parameters['fairness']).name} and the frontier "
            f"shows {notion.name}: give both the same"
        )
    if parameters.get("min_ratio") is not None:
        raise ValueError("the learner has a min_ratio already: a frontier is traced by max_gap")
