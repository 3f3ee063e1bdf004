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
from consequential.evaluation import cross_fitted_propensities, evaluate
from consequential.evaluation.measurement import Measurement
from consequential.evaluation.weighted_log import WeightedLog
from consequential.log import DecisionLog, DecisionLogError, LogScan
from consequential.objective import Fairness, Objective, Weighting, fairness_named
from consequential.policies import AcceptAll, DecisionRule, Logged, RejectAll
from consequential.tradeoff.band import Trace, band, covariance_of_rows, influences
from consequential.tradeoff.points import Frontier, bound_name, points_of, reference_of
from consequential.tradeoff.scanned import scanned_frontier
from consequential.workers import in_order

Floats = NDArray[np.float64]


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

    For each bound the learner is fitted on all folds but one and judged on that one, so no figure
    comes from rows that its policy was learned from; a point is about the policies that so many
    rows lead to. A bound holds where a policy was fitted; on other rows the gap can be a little
    wider, which the figure shows. Interrupted, it keeps the points that are done.

    Parameters
    ----------
    log
        The log; decisions younger than its horizon are left out. Of a scan a sample is learned
        from, and all other rows judge: `folds` then plays no part.
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
        How accepted people stand in for the rejected when policies are judged, and where the
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
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence lies strictly between 0 and 1, not {confidence!r}")
    bounds = _checked_bounds(max_gaps)
    unfitted = learner
    if unfitted is None:
        unfitted = FairPolicyLearner(
            cost=cost,
            fairness=fairness,
            feature_map=feature_map,
            weighting=weighting,
            random_state=seed,
        )
    _check_learner(unfitted, cost, notion)

    if isinstance(log, LogScan):
        return scanned_frontier(
            log, unfitted, objective, bounds, _references(cost, feature_map), confidence, seed
        )
    rows = log.settled()
    weighted = WeightedLog.of(objective, rows)
    measures, notes = _measured(unfitted, weighted, bounds, folds, seed, progress)
    if log.estimated_propensity:
        notes.append("propensities are estimates, and so is everything made from them")
    traces = [Trace.of(measure, effective) for measure, effective in measures]
    covariance = covariance_of_rows([influences(measure) for measure, _ in measures])
    found = band(traces, covariance, len(rows), confidence, seed)
    points = points_of(bounds, traces, found)
    references = []
    for name, rule in _references(cost, feature_map):
        try:
            judged = evaluate(
                rule,
                rows,
                cost=cost,
                fairness=fairness,
                weighting=weighting,
                confidence=confidence,
                folds=folds if isinstance(rule, FittedRule) else None,
                seed=seed,
            )
        except DecisionLogError as reason:
            notes.append(f"{name} is left out: {reason}")
            continue
        references.append(reference_of(name, judged))
    return Frontier(points, tuple(references), notion.name, float(confidence), tuple(notes))


def _propensities(
    learner: Any, rows: DecisionLog, folds: int, seed: int, bound: float | None
) -> Floats:
    from sklearn.base import clone

    bounded = clone(learner).set_params(max_gap=bound)
    return cross_fitted_propensities(bounded, rows, folds, seed=seed)


@dataclass
class FittedRule:
    """A learner made of a function from a log and a cost to a rule."""

    fit: Callable[..., DecisionRule]
    cost: float
    feature_map: Any

    def fit_log(self, log: DecisionLog) -> FittedRule:
        """Fit the rule."""
        self.policy_ = self.fit(log, self.cost, feature_map=self.feature_map)
        return self


def _references(cost: float, feature_map: Any) -> list[tuple[str, Any]]:
    return [
        ("what the log did", Logged()),
        ("accept all", AcceptAll()),
        ("reject all", RejectAll()),
        ("accepted only", FittedRule(accepted_only, cost, feature_map)),
        ("inverse propensity", FittedRule(inverse_propensity, cost, feature_map)),
    ]


def _measured(
    learner: Any,
    weighted: WeightedLog,
    bounds: list[float | None],
    folds: int,
    seed: int,
    progress: bool,
) -> tuple[list[tuple[Measurement, float]], list[str]]:
    """Measure the learner at each bound; an interruption keeps what is done."""
    from tqdm import tqdm

    found: list[tuple[Measurement, float]] = []
    # None: shown where somebody can see it
    bar = tqdm(total=len(bounds), desc="frontier", leave=False, disable=None if progress else True)
    at_bound = partial(_propensities, learner, weighted.log, folds, seed)
    try:
        for propensity in in_order(at_bound, bounds):
            bar.update()
            measure = weighted.measure(propensity)
            found.append((measure, measure.weights.effective_size))
    except KeyboardInterrupt:
        if not found:
            raise
        missing = ", ".join(bound_name(bound) for bound in bounds[len(found) :])
        return found, [f"interrupted: {missing} not traced"]
    finally:
        bar.close()
    return found, []


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
