"""Claims about the synthetic settings over time, without a penalty."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consequential.paper import truths
from consequential.paper.claims.claim import Claim, Finding, Measured, above, better_of

if TYPE_CHECKING:
    from consequential.paper.results import Results
    from consequential.simulation import Runs

Floats = NDArray[np.float64]

_SYNTHETIC = ("first-time", "second-time")


def exploring(runs: Runs) -> list[str]:
    """Return the strategies that learn to decide."""
    return [name for name in runs.strategies if not truths.is_predicting(name)]


def predicting(runs: Runs) -> list[str]:
    """Return the strategies that learn to predict."""
    return [name for name in runs.strategies if truths.is_predicting(name)]


def last(runs: Runs, metric: str, strategy: str) -> Floats:
    """Return a metric at the end, a value a seed."""
    return runs.metric(metric, strategy)[:, -1]


def cuts(runs: Runs, strategy: str, name: str) -> Floats:
    """Return where policies cut, a row a seed and a column a step."""
    cost = truths.setting(name).cost
    paths = [run.thetas for run in runs.select(strategy)]
    return np.stack([truths.boundaries(strategy, p, cost) for p in paths if p is not None])


def _outperforms(results: Results, column: str) -> Finding:
    finding = Finding()
    for name, where in truths.SETTINGS.items():
        runs = results.runs(f"{name}-time", column)
        rival = better_of(last(runs, "utility", strategy) for strategy in predicting(runs))
        finding.numbers.append(Measured.of(f"{where}, better deterministic rule", rival))
        for strategy in exploring(runs):
            utility = last(runs, "utility", strategy)
            finding.add(
                (where, strategy),
                above(utility, rival),
                Measured.of(f"{where}, {strategy}", utility),
            )
    return finding


def _locates(results: Results, column: str, name: str, close: float, share: float) -> Finding:
    finding, best = Finding(), truths.best_cut(name)
    runs, threshold = results.runs(f"{name}-time", column), truths.best_threshold(name)
    for strategy in exploring(runs):
        boundary = cuts(runs, strategy, name)[:, -1]
        utility = last(runs, "utility", strategy)
        near = bool(np.abs(np.percentile(boundary, [25, 75]) - threshold).max() <= close)
        good = bool(np.percentile(utility, 25) >= share * best.utility)
        finding.add(
            ("", strategy),
            near and good,
            Measured.of(f"{strategy}: boundary, best {threshold:.2f}", boundary),
            Measured.of(f"{strategy}: utility, best {best.utility:.4f}", utility),
        )
    return finding


def _stuck(results: Results, column: str) -> Finding:
    finding, best = Finding(), truths.best_threshold("first")
    runs, start = results.runs("first-time", column), truths.start_cut("first")
    for strategy in predicting(runs):
        way = (start - cuts(runs, strategy, "first")[:, -1]) / (start - best)
        finding.add(
            ("", strategy),
            bool(np.percentile(way, 75) < 0.1),
            Measured.of(f"{strategy}: share of the way to the best cut", way),
        )
    return finding


def _at_five(results: Results, column: str) -> Finding:
    finding, runs = Finding(), results.runs("second-time", column)
    for strategy in predicting(runs):
        path = cuts(runs, strategy, "second")
        end = path[:, -1]
        finding.add(
            ("", strategy),
            bool(np.abs(np.percentile(end, [25, 75]) - 5.0).max() <= 0.5),
            Measured.of(f"{strategy}: last cut", end),
        )
    return finding


def _blind_below_four(results: Results, column: str) -> Finding:
    finding, runs = Finding(), results.runs("second-time", column)
    for strategy in predicting(runs):
        lowest = cuts(runs, strategy, "second")[:, :-1].min(axis=1)
        finding.add(
            ("", strategy),
            bool(lowest.min() > 4.0),
            Measured.of(f"{strategy}: lowest cut ever used", lowest),
        )
    return finding


def _fits_where_it_sees(results: Results, column: str) -> Finding:
    finding, world = Finding(), truths.setting("first")
    runs, people = results.runs("first-time", column), world.cells(2**10)
    score, mass = people.points[:, 0], people.mass.sum(axis=1)
    truth = world.score_probability(score)
    for strategy in predicting(runs):
        seen: list[float] = []
        unseen: list[float] = []
        for run in runs.select(strategy):
            assert run.thetas is not None
            model = truths.curves(strategy, run.thetas[-1:], score)[0]
            right = score >= truths.boundaries(strategy, run.thetas[-1:], world.cost)[0]
            error = np.abs(model - truth)
            # who accepts nobody, or everybody, has nothing to compare: as wrong as can be
            for part, errors in ((right, seen), (~right, unseen)):
                errors.append(np.average(error[part], weights=mass[part]) if part.any() else 1.0)
        finding.add(
            ("", strategy),
            bool(np.percentile(seen, 75) < 0.5 * np.percentile(unseen, 25)),
            Measured.of(f"{strategy}: error where it accepts", np.array(seen)),
            Measured.of(f"{strategy}: error where it does not", np.array(unseen)),
        )
    return finding


def _amplifies(results: Results, column: str) -> Finding:
    finding, best = Finding(), truths.optimum("first").benefit_gap
    runs = results.runs("first-time", column)
    for strategy in predicting(runs):
        gap = last(runs, "benefit_gap", strategy)
        finding.add(
            ("", strategy),
            bool(np.percentile(gap, 25) > best),
            Measured.of(f"{strategy}: gap, optimal policy {best:.4f}", gap),
        )
    return finding


def _comparable(results: Results, column: str) -> Finding:
    finding, best = Finding(), truths.optimum("first").benefit_gap
    runs = results.runs("first-time", column)
    for strategy in exploring(runs):
        gap = last(runs, "benefit_gap", strategy)
        finding.add(
            ("", strategy),
            bool(np.percentile(np.abs(gap), 75) <= 1.1 * best),
            Measured.of(f"{strategy}: gap, optimal policy {best:.4f}", gap),
        )
    return finding


def _linked(results: Results, column: str) -> Finding:
    finding, runs = Finding(), results.runs("second-time", column)
    rivals = predicting(runs)
    utility = better_of(last(runs, "utility", strategy) for strategy in rivals)
    gap = better_of(np.abs(last(runs, "benefit_gap", strategy)) for strategy in rivals)
    finding.numbers.append(Measured.of("wider deterministic gap", gap))
    for strategy in exploring(runs):
        own = np.abs(last(runs, "benefit_gap", strategy))
        finding.add(
            ("", strategy),
            above(own, gap) and above(last(runs, "utility", strategy), utility),
            Measured.of(f"{strategy}: gap", own),
        )
    return finding


_MAIN, _APPENDIX = "5.1, synthetic data", "Appendix A.1, evolution of policies"
_FIRST, _SECOND = ("first-time",), ("second-time",)

CLAIMS = (
    Claim(
        "synthetic-outperform",
        _MAIN,
        "Without a penalty, exploring policies end with more utility than thresholded predictions "
        "in both settings.",
        "Lower quartile over runs above the upper quartile of the better deterministic rule: then "
        "chance between runs does not explain it.",
        _SYNTHETIC,
        _outperforms,
    ),
    Claim(
        "first-boundary-found",
        _MAIN + "; appendix",
        "In the first setting exploring policies locate the optimal decision boundary.",
        "Quartiles of the boundary within .1 of the best cut (a sixteenth of the scores' range) "
        "and lower quartile of utility at least 98 % of the best.",
        _FIRST,
        lambda results, column: _locates(results, column, "first", 0.1, 0.98),
    ),
    Claim(
        "first-deterministic-stuck",
        _MAIN + "; appendix",
        "In the first setting deterministic rules get stuck although the truth is monotone.",
        "Upper quartile of the way covered from the start to the best cut below a tenth.",
        _FIRST,
        _stuck,
    ),
    Claim(
        "first-models-fit-right",
        _APPENDIX,
        "Their models fit the right part of the curve well and ignore the left, unseen part.",
        "Mean error of the model where it accepts (upper quartile) below half of the error where "
        "it does not (lower quartile).",
        _FIRST,
        _fits_where_it_sees,
    ),
    Claim(
        "second-threshold-found",
        _MAIN + "; appendix",
        "In the second setting exploring policies identify the best single threshold.",
        "Quartiles of the boundary within .5 of it (a seventh of the scores' deviation) and lower "
        "quartile of utility at least 90 % of what it gains; policies stay stochastic, which costs "
        "some.",
        _SECOND,
        lambda results, column: _locates(results, column, "second", 0.5, 0.9),
    ),
    Claim(
        "second-deterministic-at-five",
        _MAIN + "; appendix",
        "In the second setting deterministic rules converge to a threshold at about 5.",
        "Quartiles of the last cut within .5 of 5: the paper's number has one digit.",
        _SECOND,
        _at_five,
    ),
    Claim(
        "second-blind-below-four",
        _APPENDIX,
        "They never receive data from scores of 4 and less.",
        "No run ever uses a cut of 4 or less.",
        _SECOND,
        _blind_below_four,
    ),
    Claim(
        "first-unfairness-amplified",
        _MAIN,
        "In the first setting suboptimal predictive models are less fair than the optimal policy.",
        "Lower quartile of the gap above that of the optimal policy.",
        _FIRST,
        _amplifies,
    ),
    Claim(
        "first-unfairness-comparable",
        _MAIN,
        "In the first setting exploring policies are about as fair as the optimal policy, or "
        "fairer.",
        "Upper quartile of the gap at most 110 % of the optimal policy's.",
        _FIRST,
        _comparable,
    ),
    Claim(
        "second-utility-costs-parity",
        _MAIN,
        "In the second setting higher utility comes with a larger gap.",
        "Exploring policies clearly above the better deterministic rule in utility, and above the "
        "wider one in the gap (quartiles apart).",
        _SECOND,
        _linked,
    ),
)
