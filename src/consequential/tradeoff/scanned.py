"""A frontier from a log larger than memory: a sample teaches, all other rows judge."""

from __future__ import annotations

from typing import Any

from consequential.evaluation.evaluate import evaluation
from consequential.evaluation.intervals import Normal
from consequential.evaluation.out_of_core import ScannedRatios, measured
from consequential.log import DecisionLogError, LogScan
from consequential.objective import Objective
from consequential.policies import DecisionRule
from consequential.tradeoff.band import Trace, band, combinations_of, covariance_of_sums
from consequential.tradeoff.points import Frontier, points_of, reference_of

TAUGHT = 500_000  # rows that are learned from, half of the log where it has fewer than twice that


def scanned_frontier(
    scan: LogScan,
    learner: Any,
    objective: Objective,
    bounds: list[float | None],
    references: list[tuple[str, Any]],
    confidence: float,
    seed: int,
) -> Frontier:
    """Fit the learner at each bound on a sample; judge all on the rest, in two passes."""
    from sklearn.base import clone

    assert objective.fairness is not None
    sample, rest = scan.split(min(TAUGHT, len(scan) // 2), seed)
    notes = [
        f"learned from a sample of {len(sample)} rows, judged on all others: no row judges a "
        "policy that was learned from it"
    ]
    rules: list[DecisionRule] = [
        clone(learner).set_params(max_gap=bound).fit_log(sample).policy_ for bound in bounds
    ]
    shown = []
    for name, rule in references:
        try:
            fitted = rule if isinstance(rule, DecisionRule) else rule.fit_log(sample).policy_
        except DecisionLogError as reason:
            notes.append(f"{name} is left out: {reason}")
            continue
        shown.append(name)
        rules.append(fitted)
    found = measured(rest, objective, tuple(rules))
    traces = [Trace.of(measure, measure.weights.effective_size) for measure in found[: len(bounds)]]
    first = found[0].utility.low
    assert isinstance(first, ScannedRatios)
    combined = [combinations_of(measure) for measure in found[: len(bounds)]]
    covariance = covariance_of_sums(combined, first.gram)
    points = points_of(bounds, traces, band(traces, covariance, first.gram.n, confidence, seed))
    beside = []
    for name, measure in zip(shown, found[len(bounds) :], strict=True):
        judged = evaluation(objective, measure, Normal(measure.ratios, confidence, seed))
        beside.append(reference_of(name, judged))
    return Frontier(points, tuple(beside), objective.fairness.name, float(confidence), tuple(notes))
