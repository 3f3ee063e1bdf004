"""Frontier: one learner at one constraint after another."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from sklearn.base import clone

from consequential.baseline import Predictor, inverse_propensity
from consequential.estimator import FairPolicyLearner
from consequential.estimator.training import cross_fitted_under
from consequential.evaluation.evaluate import evaluation
from consequential.evaluation.intervals import Normal
from consequential.evaluation.out_of_core import measured
from consequential.evaluation.rates import Floats
from consequential.evaluation.rules import cross_fitted_propensities, is_learner, objective_of
from consequential.evaluation.weighted_log import Measurement, WeightedLog
from consequential.fairness import Fairness, fairness_named
from consequential.log import DecisionLog, DecisionLogError, LogScan
from consequential.objective import Objective
from consequential.policies import AcceptAll, Logged, RejectAll
from consequential.shares import checked_share
from consequential.tradeoff.band import band
from consequential.tradeoff.points import Frontier, Point
from consequential.weightings import Weighting
from consequential.workers import spread

_LEARNED = 500_000  # rows of a scan to learn from; half of it where it has fewer than twice that


def frontier(
    log: DecisionLog | LogScan,
    *,
    cost: float | None = None,
    fairness: str | Fairness = "demographic_parity",
    learner: Any = None,
    max_gaps: Sequence[float | None] = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, None),
    max_acceptance: float | Mapping[Hashable, float] | None = None,
    min_acceptance: float | Mapping[Hashable, float] | None = None,
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
        What accepting costs; not needed where the log has a cost for each row, or values.
    fairness
        The notion whose gap is bounded.
    learner
        An unfitted learner with a parameter `max_gap`; a `FairPolicyLearner` by default.
    max_gaps
        The bounds to try; None for no bound.
    max_acceptance, min_acceptance
        What share may and must be accepted, at every bound on the gap: see `FairPolicyLearner`.
        Only for the default learner; another one has shares of its own.
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
    >>> found = cq.frontier(log, cost=world.cost, max_gaps=[0.02, None])
    >>> fair, free = found.points
    >>> abs(fair.benefit_gap.value) < 0.05 < abs(free.benefit_gap.value)
    True
    """
    if not isinstance(log, DecisionLog | LogScan):
        raise TypeError(f"a frontier is traced on a DecisionLog, not on {type(log).__name__}")
    objective = objective_of(log, cost, fairness, weighting)
    notion, cost = fairness_named(fairness), objective.cost
    if len(log.groups) < 2:
        raise DecisionLogError("the log has one group: a gap needs a sensitive attribute with two")
    checked_share("confidence", confidence)
    if learner is None:
        learner = FairPolicyLearner(
            cost=cost,
            fairness=fairness,
            max_acceptance=max_acceptance,
            min_acceptance=min_acceptance,
            feature_map=feature_map,
            weighting=weighting,
            random_state=seed,
        )
    elif (max_acceptance, min_acceptance) != (None, None):
        raise ValueError(
            "max_acceptance= and min_acceptance= are for the default learner: set them in the "
            "learner itself"
        )
    _check_learner(learner, None if log.has_costs else cost, notion)
    bounds = _checked_bounds(max_gaps)
    learners = [clone(learner).set_params(max_gap=bound) for bound in bounds]
    rules: dict[str, Any] = {
        "what the log did": Logged(),
        "accept all": AcceptAll(),
        "reject all": RejectAll(),
        "accepted only": Predictor(cost, feature_map),
        "inverse propensity": Predictor(cost, feature_map, weigh=inverse_propensity),
    }
    if isinstance(log, LogScan):
        measures, references, notes = _measured_on_scan(log, objective, learners, rules, seed)
    else:
        measures, references, notes = _measured_on_log(
            log, objective, learners, rules, folds=folds, seed=seed, progress=progress
        )
        if len(measures) < len(bounds):
            missing = ", ".join(_bound_name(bound) for bound in bounds[len(measures) :])
            notes.insert(0, f"interrupted: {missing} not traced")
    points = [
        Point(_bound_name(bound), bound, utility, gap, float(measure.acceptance.low.values[0]))
        for bound, measure, (utility, gap) in zip(
            bounds, measures, band(measures, confidence, seed), strict=False
        )
    ]
    beside = []
    for name, measure in references.items():
        found = evaluation(objective, measure, Normal(measure.ratios, confidence, seed))
        beside.append(Point(name, None, found.utility, found.benefit_gap, found.acceptance.value))
    return Frontier(tuple(points), tuple(beside), notion.name, float(confidence), tuple(notes))


# of the learner at each bound, of the rules to compare with, and notes
_Measured = tuple[list[Measurement], dict[str, Measurement], list[str]]


def _measured_on_log(
    log: DecisionLog,
    objective: Objective,
    learners: list[Any],
    rules: dict[str, Any],
    *,
    folds: int,
    seed: int,
    progress: bool,
) -> _Measured:
    """Cross-fit what learns; an interruption keeps the learners that are done."""
    from tqdm import tqdm

    weighted = WeightedLog.of(objective, log.settled())
    propensities = partial(cross_fitted_propensities, log=weighted.log, folds=folds, seed=seed)
    if isinstance(learners[0], FairPolicyLearner) and learners[0].method != "direct":
        # models of the label serve every bound
        bounds = [learner.max_gap for learner in learners]
        crossed = cross_fitted_under(learners[0], weighted.log, bounds, folds)
        traced: Iterator[Floats] = (each.values for each in crossed)
    else:
        traced = spread(propensities, learners, ordered=True)
    measures: list[Measurement] = []
    # None: shown where somebody can see it
    disable = None if progress else True
    with tqdm(total=len(learners), desc="frontier", leave=False, disable=disable) as bar:
        try:
            for propensity in traced:
                bar.update()
                measures.append(weighted.measure(propensity))
        except KeyboardInterrupt:
            if not measures:
                raise
    references, notes = {}, []
    if log.estimated_propensity:
        notes.append("propensities are estimates, and so is everything made from them")
    for name, rule in rules.items():
        try:
            learns = is_learner(rule)
            propensity = propensities(rule) if learns else weighted.log.propensity_of(rule)
        except DecisionLogError as reason:
            notes.append(f"{name} is left out: {reason}")
            continue
        references[name] = weighted.measure(propensity)
    return measures, references, notes


def _measured_on_scan(
    scan: LogScan, objective: Objective, learners: list[Any], rules: dict[str, Any], seed: int
) -> _Measured:
    """Fit what learns to a sample; evaluate all on the rest, in two passes."""
    sample, rest = scan.split(min(_LEARNED, len(scan) // 2), seed)
    notes = [
        f"learned from a sample of {len(sample)} rows and evaluated on all others: no policy "
        "is evaluated on a row that it was learned from"
    ]
    policies = [learner.fit_log(sample).policy_ for learner in learners]
    fixed = {}
    for name, rule in rules.items():
        try:
            fixed[name] = rule.fit_log(sample).policy_ if is_learner(rule) else rule
        except DecisionLogError as reason:
            notes.append(f"{name} is left out: {reason}")
    found = measured(rest, objective, (*policies, *fixed.values()))
    n = len(learners)
    return found[:n], dict(zip(fixed, found[n:], strict=True)), notes


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


def _check_learner(learner: Any, cost: float | None, notion: Fairness) -> None:
    if not (is_learner(learner) and hasattr(learner, "get_params")):
        raise TypeError(
            f"{learner!r} is not a learner: a frontier needs one with fit_log(log) and a parameter "
            "max_gap, such as FairPolicyLearner(cost=...)"
        )
    parameters = learner.get_params()
    if "max_gap" not in parameters:
        raise TypeError(f"{type(learner).__name__} has no parameter max_gap to be bounded by")
    if cost is not None and parameters.get("cost", cost) != cost:
        raise ValueError(
            f"the learner has cost {parameters['cost']!r} and the frontier {cost!r}: give both "
            "the same"
        )
    if "fairness" in parameters and fairness_named(parameters["fairness"]).name != notion.name:
        raise ValueError(
            f"the learner bounds {fairness_named(parameters['fairness']).name} and the frontier "
            f"shows {notion.name}: give both the same"
        )
    for what, name in {"a min_ratio": "min_ratio", "bounds": "bounds"}.items():
        if parameters.get(name) is not None:
            raise ValueError(f"the learner has {what} already: a frontier is traced by max_gap")
