"""Frontier: one learner at one constraint after another."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from sklearn.base import clone

from consequential.evaluation import Estimate
from consequential.evaluation.contrasts import sup_t_quantile
from consequential.evaluation.cross_fitting import (
    cross_fitted_propensities,
    is_learner,
    objective_of,
)
from consequential.evaluation.evaluate import evaluation
from consequential.evaluation.intervals import Normal
from consequential.evaluation.out_of_core import ScannedRatios, measured
from consequential.evaluation.rates import Floats
from consequential.evaluation.weighted_log import Measurement, WeightedLog
from consequential.learning import FairPolicyLearner
from consequential.learning.training import cross_fitted_under
from consequential.log import DecisionLog, DecisionLogError, LogScan
from consequential.objective.fairness import Fairness, fairness_named
from consequential.objective.objective import Objective
from consequential.objective.weightings import Weighting
from consequential.policy import AcceptAll, Logged, RejectAll
from consequential.shares import checked_share
from consequential.tradeoff.baseline import Predictor, inverse_propensity
from consequential.tradeoff.points import Frontier, Point
from consequential.workers import spread

Four = tuple[float, float, float, float]
# a signed sum of ratios, each of one group: a utility, or the difference between two benefits
Contrast = list[tuple[float, Any, int]]

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
        found = evaluation(objective, measure, Normal(confidence, seed))
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


# --- the band: the utilities and gaps of several policies, bounded at once


def band(
    measures: Sequence[Measurement], confidence: float, seed: int
) -> list[tuple[Estimate, Estimate]]:
    """Return utility and gap of each policy with intervals that all hold at once.

    Each is its estimate plus and minus q standard errors; q is the quantile of the largest of all
    standardised errors, of utilities and of differences between groups alike. Policies fitted to
    the same log err together, so q is below what as many separate intervals would need.
    """
    contrasts = [_contrasts(measure) for measure in measures]
    covariance = _covariance([each for sides in contrasts for side in sides for each in side])
    q = sup_t_quantile(covariance, confidence, seed=seed)
    errors = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    found, start = [], 0
    for measure, sides in zip(measures, contrasts, strict=True):
        values = np.array([[_value(each) for each in side] for side in sides])
        own = errors[start : start + values.size].reshape(values.shape)
        start += values.size
        lows, highs = values[0] - q * own[0], values[-1] + q * own[-1]
        columns = np.stack([values.mean(axis=0), lows, highs, own.max(axis=0)])
        signed = len(measure.benefits) == 1 and measure.benefits[0].low.n_groups == 2
        rest = (measure.n, measure.weights.effective_size, confidence, "simultaneous")
        utility, gap = _first(columns), _gap(signed, columns[:, 1:])
        found.append((Estimate(*utility, *rest), Estimate(*gap, *rest)))
    return found


def _contrasts(measure: Measurement) -> list[list[Contrast]]:
    """Return a policy's utility and its differences between groups, of every benefit.

    Once, or twice where labels that nobody knows matter: all at their lowest, then at their
    highest. Without two groups to measure there are no differences.
    """
    exact = all(each.exact for each in (measure.utility, *measure.benefits))
    sides = []
    for highest in (False,) if exact else (False, True):
        utility = measure.utility.high if highest else measure.utility.low
        side: list[Contrast] = [[(1.0, utility, 0)]]
        for benefit in measure.benefits:
            one, other = (benefit.high, benefit.low) if highest else (benefit.low, benefit.high)
            groups = combinations(benefit.known, 2)
            side += [[(1.0, one, k), (-1.0, other, m)] for k, m in groups]
        sides.append(side)
    return sides


def _value(contrast: Contrast) -> float:
    return float(sum(sign * ratios.values[k] for sign, ratios, k in contrast))


def _covariance(contrasts: list[Contrast]) -> Floats:
    """Return the covariance of the contrasts from influences of rows, or from sums of a scan."""
    first = contrasts[0][0][1]
    n = len(first)
    if not isinstance(first, ScannedRatios):
        influence = np.column_stack(
            [
                sum(sign * ratios.influence * (ratios.group == k) for sign, ratios, k in contrast)
                for contrast in contrasts
            ]
        )
        products = influence.T @ influence
    else:
        groups = np.arange(len(first.gram.products))[:, None]
        mixed = np.stack(
            [
                sum(
                    sign * ratios.combination * ((groups == k) | (ratios.n_groups == 1))
                    for sign, ratios, k in contrast
                )
                for contrast in contrasts
            ]
        )
        gram = first.gram.products
        products = np.einsum("azc,zcd,bzd->ab", mixed, gram, mixed, optimize=True)
    covariance: Floats = products / (n * max(n - 1, 1))
    return covariance


def _first(columns: Floats) -> Four:
    value, low, high, error = columns[:, 0].tolist()
    return value, low, high, error


def _gap(signed: bool, columns: Floats) -> Four:
    """Return `b0 - b1` for two groups and one benefit, else the largest difference there is.

    Each column is a difference: its value, low end, high end and standard error.
    """
    if columns.shape[1] == 0:
        return np.nan, np.nan, np.nan, np.nan
    if signed:
        return _first(columns)
    middle, lows, highs, errors = columns
    widest = int(np.abs(middle).argmax())
    low = max(float(np.maximum(lows, -highs).max()), 0.0)
    high = float(np.maximum(highs, -lows).max())
    return float(abs(middle[widest])), low, high, float(errors[widest])
