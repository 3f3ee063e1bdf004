"""Claims about strategies over time, without a penalty: the settings and COMPAS."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consequential.paper import truths
from consequential.paper.claims.claim import (
    Case,
    Claim,
    Measure,
    StrategyTest,
    Verdict,
    above,
    each_strategy,
    lower,
    upper,
)
from consequential.paper.truths import is_predicting

if TYPE_CHECKING:
    from consequential.paper.results import Results
    from consequential.simulation import Runs

Floats = NDArray[np.float64]
RunsTest = Callable[["Runs"], Iterator[Case]]


def _exploring(runs: Runs) -> list[str]:
    return [strategy for strategy in runs.strategies if not is_predicting(strategy)]


def _predicting(runs: Runs) -> list[str]:
    return [strategy for strategy in runs.strategies if is_predicting(strategy)]


def _last(runs: Runs, metric: str, strategy: str) -> Floats:
    return runs.metric(metric, strategy)[:, -1]


def _highest(ends: Iterable[Floats]) -> Floats:
    """Return the values with the highest median."""
    return max(ends, key=lambda values: float(np.median(values)))


def _cuts(name: str, runs: Runs, strategy: str) -> Floats:
    """Return where policies of a setting cut, one row per seed and one column per step."""
    cost = truths.setting(name).cost
    paths = [run.thetas for run in runs.select(strategy)]
    return np.stack([truths.boundaries(strategy, p, cost) for p in paths if p is not None])


def _near(values: Floats, target: float, distance: float) -> bool:
    """Whether both quartiles are within a distance of the target."""
    return max(abs(lower(values) - target), abs(upper(values) - target)) <= distance


# --- the synthetic settings


def _outperforms(results: Results, column: str) -> Iterator[Case]:
    for name, where in truths.SETTINGS.items():
        runs = results.runs(f"{name}-time", column)
        rival = _highest(_last(runs, "utility", strategy) for strategy in _predicting(runs))
        yield Case("", None, {f"{where}, better deterministic rule": rival})
        for strategy in _exploring(runs):
            utility = _last(runs, "utility", strategy)
            yield Case(strategy, above(utility, rival), {f"{where}, {strategy}": utility}, where)


def _locates(distance: float, share: float) -> StrategyTest:
    """Return the test that a policy finds the best cut, and this share of its utility."""

    def test(name: str, runs: Runs, strategy: str) -> Verdict:
        best, threshold = truths.best_cut(name).utility, truths.best_threshold(name)
        boundary, utility = _cuts(name, runs, strategy)[:, -1], _last(runs, "utility", strategy)
        found = _near(boundary, threshold, distance) and lower(utility) >= share * best
        return found, {
            f"boundary, best {threshold:.2f}": boundary,
            f"utility, best {best:.4f}": utility,
        }

    return test


def _stuck(name: str, runs: Runs, strategy: str) -> Verdict:
    start, best = truths.start_cut(name), truths.best_threshold(name)
    way = (start - _cuts(name, runs, strategy)[:, -1]) / (start - best)
    return upper(way) < 0.1, {"share of the way to the best cut": way}


def _at_five(name: str, runs: Runs, strategy: str) -> Verdict:
    end = _cuts(name, runs, strategy)[:, -1]
    return _near(end, 5.0, 0.5), {"last cut": end}


def _blind_below_four(name: str, runs: Runs, strategy: str) -> Verdict:
    lowest = _cuts(name, runs, strategy)[:, :-1].min(axis=1)
    return lowest.min() > 4.0, {"lowest cut ever used": lowest}


def _fits_where_it_sees(name: str, runs: Runs, strategy: str) -> Verdict:
    world = truths.setting(name)
    people = world.cells(2**10)
    score, mass = people.points[:, 0], people.mass.sum(axis=1)
    thetas = np.array([run.thetas[-1] for run in runs.select(strategy) if run.thetas is not None])
    error = np.abs(truths.curves(strategy, thetas, score) - world.score_probability(score))
    seen = score >= truths.boundaries(strategy, thetas, world.cost)[:, None]

    def mean(part: NDArray[np.bool_]) -> Floats:
        """Return each run's mean error; the largest possible one where nobody is in the part."""
        n_people = np.where(part, mass, 0.0).sum(axis=1)
        total = np.where(part, mass * error, 0.0).sum(axis=1)
        return np.asarray(np.divide(total, n_people, np.ones(len(part)), where=n_people > 0))

    accepted, rejected = mean(seen), mean(~seen)
    return upper(accepted) < 0.5 * lower(rejected), {
        "error where it accepts": accepted,
        "error where it does not": rejected,
    }


def _amplifies(name: str, runs: Runs, strategy: str) -> Verdict:
    gap, best = _last(runs, "benefit_gap", strategy), truths.optimum(name).benefit_gap
    return lower(gap) > best, {f"gap, optimal policy {best:.4f}": gap}


def _comparable(name: str, runs: Runs, strategy: str) -> Verdict:
    gap, best = _last(runs, "benefit_gap", strategy), truths.optimum(name).benefit_gap
    return upper(np.abs(gap)) <= 1.1 * best, {f"gap, optimal policy {best:.4f}": gap}


def _linked(results: Results, column: str) -> Iterator[Case]:
    runs = results.runs("second-time", column)
    utility = _highest(_last(runs, "utility", rival) for rival in _predicting(runs))
    gap = _highest(np.abs(_last(runs, "benefit_gap", rival)) for rival in _predicting(runs))
    yield Case("", None, {"wider deterministic gap": gap})
    for strategy in _exploring(runs):
        own = np.abs(_last(runs, "benefit_gap", strategy))
        holds = above(own, gap) and above(_last(runs, "utility", strategy), utility)
        yield Case(strategy, holds, {f"{strategy}: gap": own})


# --- COMPAS


def _head_start(runs: Runs) -> Iterator[Case]:
    rival = runs.metric("utility", _predicting(runs)[0])[:, 0]  # both start from the same rule
    for strategy in _exploring(runs):
        ahead = rival - runs.metric("utility", strategy)[:, 0]
        numbers = {f"{strategy}: how far behind at the start": ahead}
        yield Case(strategy, lower(ahead) > 0, numbers)


def _against_rivals(
    runs: Runs, test: Callable[[str, str], tuple[bool, dict[str, float]]]
) -> Iterator[Case]:
    """Test every exploring strategy against every deterministic rule."""
    for rival in _predicting(runs):
        for strategy in _exploring(runs):
            holds, numbers = test(strategy, rival)
            named = {f"{strategy} against {rival}: {text}": each for text, each in numbers.items()}
            yield Case(strategy, holds, named, f"{rival} as the rival")


def _ends(runs: Runs, metric: str, words: str) -> Case:
    """Return every strategy's end, without a verdict."""
    numbers = {f"{s}: {words} at the end": _last(runs, metric, s) for s in runs.strategies}
    return Case("", None, numbers)


def _ends_above(metric: str) -> RunsTest:
    """Return the test that exploring strategies end above deterministic rules in a metric."""

    def test(runs: Runs) -> Iterator[Case]:
        yield _ends(runs, metric, metric.replace("_", " "))
        ends = {s: _last(runs, metric, s) for s in runs.strategies}
        yield from _against_rivals(runs, lambda one, rival: (above(ends[one], ends[rival]), {}))

    return test


def _dominates(runs: Runs) -> Iterator[Case]:
    paths = {s: np.median(runs.metric("effective_utility", s), axis=0) for s in runs.strategies}

    def test(strategy: str, rival: str) -> tuple[bool, dict[str, float]]:
        lead = paths[strategy] - paths[rival]
        least = float(np.nanmin(lead[(len(lead) - 1) // 2 :]))
        return least > 0, {"least lead in the second half": least}

    return _against_rivals(runs, test)


def _fairer(runs: Runs) -> Iterator[Case]:
    yield _ends(runs, "benefit_gap", "gap")
    paths = {s: np.abs(np.median(runs.metric("benefit_gap", s), axis=0)) for s in runs.strategies}

    def test(strategy: str, rival: str) -> tuple[bool, dict[str, float]]:
        share = float((paths[strategy] < paths[rival])[1:].mean())
        return share >= 0.9, {"share of steps with less gap": share}

    yield from _against_rivals(runs, test)


def _better_and_fairer(runs: Runs) -> Iterator[Case]:
    for useful, fair in zip(_ends_above("utility")(runs), _fairer(runs), strict=True):
        both = {**useful.numbers, **fair.numbers}
        yield Case(useful.name, useful.holds and fair.holds, both, useful.group)


# --- the claims

_MAIN, _APPENDIX = "5.1, synthetic data", "Appendix A.1, evolution of policies"
_BOTH = f"{_MAIN}; appendix"


def _claim(id_: str, section: str, text: str, criterion: str, measure: Measure) -> Claim:
    """Return a claim about one setting, whose name the claim's begins with."""
    return Claim(id_, section, text, criterion, (f"{id_.partition('-')[0]}-time",), measure)


def _on_rules(name: str, test: StrategyTest) -> Measure:
    return each_strategy((name,), "time", test, is_predicting)


def _on_policies(name: str, test: StrategyTest) -> Measure:
    return each_strategy((name,), "time", test, lambda strategy: not is_predicting(strategy))


SYNTHETIC_CLAIMS = (
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
        _on_policies("first", _locates(0.1, 0.98)),
    ),
    _claim(
        "first-deterministic-stuck",
        _BOTH,
        "In the first setting deterministic rules get stuck although the truth is monotone.",
        "Upper quartile of the way covered from the start to the best cut below a tenth.",
        _on_rules("first", _stuck),
    ),
    _claim(
        "first-models-fit-right",
        _APPENDIX,
        "Their models fit the right part of the curve well and ignore the left, unseen part.",
        "Mean error of the model where it accepts (upper quartile) below half of the error where "
        "it does not (lower quartile).",
        _on_rules("first", _fits_where_it_sees),
    ),
    _claim(
        "second-threshold-found",
        _BOTH,
        "In the second setting exploring policies identify the best single threshold.",
        "Quartiles of the boundary within .5 of it (a seventh of the scores' deviation) and lower "
        "quartile of utility at least 90 % of what it gains; policies stay stochastic, which costs "
        "some.",
        _on_policies("second", _locates(0.5, 0.9)),
    ),
    _claim(
        "second-deterministic-at-five",
        _BOTH,
        "In the second setting deterministic rules converge to a threshold at about 5.",
        "Quartiles of the last cut within .5 of 5: the paper's number has one digit.",
        _on_rules("second", _at_five),
    ),
    _claim(
        "second-blind-below-four",
        _APPENDIX,
        "They never receive data from scores of 4 and less.",
        "No run ever uses a cut of 4 or less.",
        _on_rules("second", _blind_below_four),
    ),
    _claim(
        "first-unfairness-amplified",
        _MAIN,
        "In the first setting suboptimal predictive models are less fair than the optimal policy.",
        "Lower quartile of the gap above that of the optimal policy.",
        _on_rules("first", _amplifies),
    ),
    _claim(
        "first-unfairness-comparable",
        _MAIN,
        "In the first setting exploring policies are about as fair as the optimal policy, or "
        "fairer.",
        "Upper quartile of the gap at most 110 % of the optimal policy's.",
        _on_policies("first", _comparable),
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

_APART = "lower quartile above the upper quartile of the deterministic rule"

# about either orientation of the label: id, text, criterion and test
_COMPAS: tuple[tuple[str, str, str, RunsTest], ...] = (
    (
        "deterministic-head-start",
        "the deterministic rule has a slight advantage in utility at the start.",
        "Behind by more than 0 in three quarters of the runs, pairwise by seed.",
        _head_start,
    ),
    (
        "overtaken",
        "exploring policies soon have more utility than the deterministic rules.",
        f"Utility on held-out people at the end: {_APART}.",
        _ends_above("utility"),
    ),
    (
        "effective-utility-dominates",
        "in effective utility exploring policies lead from the middle of the run on.",
        "Median above the deterministic rule's at every step of the second half (the paper: "
        "from t = 100 of 200).",
        _dominates,
    ),
    (
        "exploring-pays",
        "exploring early reaps more during training as a whole.",
        f"Effective utility at the end: {_APART}.",
        _ends_above("effective_utility"),
    ),
    (
        "exploring-fairer",
        "exploring policies consistently violate parity less than deterministic rules.",
        "Median gap smaller than the deterministic rule's in 90 % of the steps.",
        _fairer,
    ),
    (
        "better-and-fairer",
        "even without a penalty exploring is both better and fairer.",
        "Both of: more utility at the end, a smaller gap in 90 % of the steps.",
        _better_and_fairer,
    ),
)


def compas_claims(name: str) -> Iterator[Claim]:
    """Yield the claims about COMPAS over time, in one orientation of the label."""
    study, where = f"{name}-time", f"COMPAS, {truths.ORIENTATIONS[name]}"
    for id_, text, criterion, test in _COMPAS:

        def measure(results: Results, column: str, test: RunsTest = test) -> Iterator[Case]:
            return test(results.runs(study, column))

        yield Claim(
            f"{name}-{id_}", "5.2, real data", f"{where}: {text}", criterion, (study,), measure
        )
