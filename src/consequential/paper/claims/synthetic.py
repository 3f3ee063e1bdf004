"""Claims about the synthetic settings over time, without a penalty."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consequential.paper import truths
from consequential.paper.claims.claim import Claim, Finding, Measure, above, lower, upper

if TYPE_CHECKING:
    from consequential.paper.results import Results
    from consequential.simulation import Runs

Floats = NDArray[np.float64]
RunsTest = Callable[["Runs"], Finding]


def exploring(runs: Runs) -> list[str]:
    """Return the strategies that learn to decide."""
    return [name for name in runs.strategies if not truths.is_predicting(name)]


def predicting(runs: Runs) -> list[str]:
    """Return the strategies that learn to predict."""
    return [name for name in runs.strategies if truths.is_predicting(name)]


def last(runs: Runs, metric: str, strategy: str) -> Floats:
    """Return a metric at the end, one value per seed."""
    return runs.metric(metric, strategy)[:, -1]


def on_runs(name: str, test: RunsTest) -> Measure:
    """Return the measure that tests the runs of one study."""
    return lambda results, column: test(results.runs(f"{name}-time", column))


def _highest(candidates: Iterable[Floats]) -> Floats:
    """Return the values with the highest median."""
    return max(candidates, key=lambda values: float(np.median(values)))


def _cuts(runs: Runs, strategy: str, name: str) -> Floats:
    """Return where policies of a setting cut, one row per seed and one column per step."""
    cost = truths.setting(name).cost
    paths = [run.thetas for run in runs.select(strategy)]
    return np.stack([truths.boundaries(strategy, p, cost) for p in paths if p is not None])


def _near(values: Floats, target: float, distance: float) -> bool:
    """Whether both quartiles are within a distance of the target."""
    return max(abs(lower(values) - target), abs(upper(values) - target)) <= distance


def _outperforms(results: Results, column: str) -> Finding:
    finding = Finding()
    for name, where in truths.SETTINGS.items():
        runs = results.runs(f"{name}-time", column)
        rival = _highest(last(runs, "utility", strategy) for strategy in predicting(runs))
        finding.measure({f"{where}, better deterministic rule": rival})
        for strategy in exploring(runs):
            utility = last(runs, "utility", strategy)
            numbers = {f"{where}, {strategy}": utility}
            finding.add(strategy, above(utility, rival), numbers, where)
    return finding


def _locates(name: str, distance: float, share: float) -> RunsTest:
    """Return the test that exploring policies find the best cut, and most of its utility."""

    def test(runs: Runs) -> Finding:
        finding, best = Finding(), truths.best_cut(name).utility
        threshold = truths.best_threshold(name)
        for strategy in exploring(runs):
            boundary = _cuts(runs, strategy, name)[:, -1]
            utility = last(runs, "utility", strategy)
            finding.add(
                strategy,
                _near(boundary, threshold, distance) and lower(utility) >= share * best,
                {
                    f"{strategy}: boundary, best {threshold:.2f}": boundary,
                    f"{strategy}: utility, best {best:.4f}": utility,
                },
            )
        return finding

    return test


def _stuck(runs: Runs) -> Finding:
    finding, start, best = Finding(), truths.start_cut("first"), truths.best_threshold("first")
    for strategy in predicting(runs):
        way = (start - _cuts(runs, strategy, "first")[:, -1]) / (start - best)
        numbers = {f"{strategy}: share of the way to the best cut": way}
        finding.add(strategy, upper(way) < 0.1, numbers)
    return finding


def _at_five(runs: Runs) -> Finding:
    finding = Finding()
    for strategy in predicting(runs):
        end = _cuts(runs, strategy, "second")[:, -1]
        finding.add(strategy, _near(end, 5.0, 0.5), {f"{strategy}: last cut": end})
    return finding


def _blind_below_four(runs: Runs) -> Finding:
    finding = Finding()
    for strategy in predicting(runs):
        lowest = _cuts(runs, strategy, "second")[:, :-1].min(axis=1)
        numbers = {f"{strategy}: lowest cut ever used": lowest}
        finding.add(strategy, lowest.min() > 4.0, numbers)
    return finding


def _fits_where_it_sees(runs: Runs) -> Finding:
    finding, world = Finding(), truths.setting("first")
    people = world.cells(2**10)
    score, mass = people.points[:, 0], people.mass.sum(axis=1)
    truth = world.score_probability(score)
    for strategy in predicting(runs):
        errors = np.ones((2, len(runs.select(strategy))))
        for k, run in enumerate(runs.select(strategy)):
            assert run.thetas is not None
            error = np.abs(truths.curves(strategy, run.thetas[-1:], score)[0] - truth)
            seen = score >= truths.boundaries(strategy, run.thetas[-1:], world.cost)[0]
            for row, part in zip(errors, (seen, ~seen), strict=True):
                # a rule that accepts nobody, or everybody, keeps the largest possible error
                if part.any():
                    row[k] = np.average(error[part], weights=mass[part])
        accepted, rejected = errors
        finding.add(
            strategy,
            upper(accepted) < 0.5 * lower(rejected),
            {
                f"{strategy}: error where it accepts": accepted,
                f"{strategy}: error where it does not": rejected,
            },
        )
    return finding


def _amplifies(runs: Runs) -> Finding:
    finding, best = Finding(), truths.optimum("first").benefit_gap
    for strategy in predicting(runs):
        gap = last(runs, "benefit_gap", strategy)
        finding.add(
            strategy, lower(gap) > best, {f"{strategy}: gap, optimal policy {best:.4f}": gap}
        )
    return finding


def _comparable(runs: Runs) -> Finding:
    finding, best = Finding(), truths.optimum("first").benefit_gap
    for strategy in exploring(runs):
        gap = last(runs, "benefit_gap", strategy)
        numbers = {f"{strategy}: gap, optimal policy {best:.4f}": gap}
        finding.add(strategy, upper(np.abs(gap)) <= 1.1 * best, numbers)
    return finding


def _linked(runs: Runs) -> Finding:
    finding, rivals = Finding(), predicting(runs)
    utility = _highest(last(runs, "utility", strategy) for strategy in rivals)
    gap = _highest(np.abs(last(runs, "benefit_gap", strategy)) for strategy in rivals)
    finding.measure({"wider deterministic gap": gap})
    for strategy in exploring(runs):
        own = np.abs(last(runs, "benefit_gap", strategy))
        holds = above(own, gap) and above(last(runs, "utility", strategy), utility)
        finding.add(strategy, holds, {f"{strategy}: gap": own})
    return finding


def _claim(id_: str, section: str, text: str, criterion: str, test: RunsTest) -> Claim:
    """Return a claim about one setting, whose name the claim's begins with."""
    name = id_.partition("-")[0]
    return Claim(id_, section, text, criterion, (f"{name}-time",), on_runs(name, test))


_MAIN, _APPENDIX = "5.1, synthetic data", "Appendix A.1, evolution of policies"
_BOTH = f"{_MAIN}; appendix"

CLAIMS = (
    Claim(
        "synthetic-outperform",
        _MAIN,
        "Without a penalty, exploring policies end with more utility than thresholded predictions "
        "in both settings.",
        "Lower quartile over runs above the upper quartile of the better deterministic rule: then "
        "chance between runs does not explain it.",
        ("first-time", "second-time"),
        _outperforms,
    ),
    _claim(
        "first-boundary-found",
        _BOTH,
        "In the first setting exploring policies locate the optimal decision boundary.",
        "Quartiles of the boundary within .1 of the best cut (a sixteenth of the scores' range) "
        "and lower quartile of utility at least 98 % of the best.",
        _locates("first", 0.1, 0.98),
    ),
    _claim(
        "first-deterministic-stuck",
        _BOTH,
        "In the first setting deterministic rules get stuck although the truth is monotone.",
        "Upper quartile of the way covered from the start to the best cut below a tenth.",
        _stuck,
    ),
    _claim(
        "first-models-fit-right",
        _APPENDIX,
        "Their models fit the right part of the curve well and ignore the left, unseen part.",
        "Mean error of the model where it accepts (upper quartile) below half of the error where "
        "it does not (lower quartile).",
        _fits_where_it_sees,
    ),
    _claim(
        "second-threshold-found",
        _BOTH,
        "In the second setting exploring policies identify the best single threshold.",
        "Quartiles of the boundary within .5 of it (a seventh of the scores' deviation) and lower "
        "quartile of utility at least 90 % of what it gains; policies stay stochastic, which costs "
        "some.",
        _locates("second", 0.5, 0.9),
    ),
    _claim(
        "second-deterministic-at-five",
        _BOTH,
        "In the second setting deterministic rules converge to a threshold at about 5.",
        "Quartiles of the last cut within .5 of 5: the paper's number has one digit.",
        _at_five,
    ),
    _claim(
        "second-blind-below-four",
        _APPENDIX,
        "They never receive data from scores of 4 and less.",
        "No run ever uses a cut of 4 or less.",
        _blind_below_four,
    ),
    _claim(
        "first-unfairness-amplified",
        _MAIN,
        "In the first setting suboptimal predictive models are less fair than the optimal policy.",
        "Lower quartile of the gap above that of the optimal policy.",
        _amplifies,
    ),
    _claim(
        "first-unfairness-comparable",
        _MAIN,
        "In the first setting exploring policies are about as fair as the optimal policy, or "
        "fairer.",
        "Upper quartile of the gap at most 110 % of the optimal policy's.",
        _comparable,
    ),
    _claim(
        "second-utility-costs-parity",
        _MAIN,
        "In the second setting higher utility comes with a larger gap.",
        "Exploring policies clearly above the better deterministic rule in utility, and above the "
        "wider one in the gap (quartiles apart).",
        _linked,
    ),
)
