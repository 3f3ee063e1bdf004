"""Tests of what strategies do in the settings and on COMPAS, over time and under a penalty."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consequential.paper import truths
from consequential.paper.claims.claim import (
    Case,
    Names,
    StrategyTest,
    Verdict,
    above,
    each_strategy,
    lower,
    on_runs,
    upper,
)
from consequential.paper.limits import SMALL_GAP
from consequential.paper.results import last_values
from consequential.paper.truths import is_predicting
from consequential.policies import AcceptAll, RejectAll

if TYPE_CHECKING:
    from consequential.paper.results import Results
    from consequential.simulation import Runs

Floats = NDArray[np.float64]

_SLACK_GAP, _SLACK_UTILITY = 0.02, 0.005


def _exploring(runs: Runs) -> list[str]:
    return [strategy for strategy in runs.strategies if not is_predicting(strategy)]


def _predicting(runs: Runs) -> list[str]:
    return [strategy for strategy in runs.strategies if is_predicting(strategy)]


def _last(runs: Runs, metric: str, strategy: str) -> Floats:
    return runs.metric(metric, strategy)[:, -1]


def _highest(candidates: Iterable[Floats]) -> Floats:
    """Return the values with the highest median."""
    return max(candidates, key=lambda values: float(np.median(values)))


# --- the settings over time


def outperform(results: Results, column: str, names: Names) -> Iterator[Case]:
    """Test whether exploring policies end above the better deterministic rule."""
    for name, where in truths.SETTINGS.items():
        runs = results.runs(f"{name}-time", column)
        rival = _highest(_last(runs, "utility", strategy) for strategy in _predicting(runs))
        yield Case("", None, {f"{where}, better deterministic rule": rival})
        for strategy in _exploring(runs):
            utility = _last(runs, "utility", strategy)
            yield Case(strategy, above(utility, rival), {f"{where}, {strategy}": utility}, where)


def _cuts(name: str, runs: Runs, strategy: str) -> Floats:
    """Return where policies of a setting cut, one row per seed and one column per step."""
    cost = truths.setting(name).cost
    paths = [run.thetas for run in runs.select(strategy)]
    return np.stack([truths.boundaries(strategy, p, cost) for p in paths if p is not None])


def _near(values: Floats, target: float, distance: float) -> bool:
    """Whether both quartiles are within a distance of the target."""
    return max(abs(lower(values) - target), abs(upper(values) - target)) <= distance


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


boundary_found = each_strategy(_exploring)(_locates(0.1, 0.98))
threshold_found = each_strategy(_exploring)(_locates(0.5, 0.9))


@each_strategy(_predicting)
def stuck(name: str, runs: Runs, strategy: str) -> Verdict:
    """Test whether rules stay where they start."""
    start, best = truths.start_cut(name), truths.best_threshold(name)
    way = (start - _cuts(name, runs, strategy)[:, -1]) / (start - best)
    return upper(way) < 0.1, {"share of the way to the best cut": way}


@each_strategy(_predicting)
def at_five(name: str, runs: Runs, strategy: str) -> Verdict:
    """Test whether rules end with a threshold at 5."""
    end = _cuts(name, runs, strategy)[:, -1]
    return _near(end, 5.0, 0.5), {"last cut": end}


@each_strategy(_predicting)
def blind_below_four(name: str, runs: Runs, strategy: str) -> Verdict:
    """Test whether rules reject everybody below 4."""
    lowest = _cuts(name, runs, strategy)[:, :-1].min(axis=1)
    return lowest.min() > 4.0, {"lowest cut ever used": lowest}


@each_strategy(_predicting)
def fits_where_it_sees(name: str, runs: Runs, strategy: str) -> Verdict:
    """Test whether models are right only where they accept."""
    world = truths.setting(name)
    people = world.cells(2**10)
    score, mass = people.points[:, 0], people.mass.sum(axis=1)
    thetas = np.array([run.thetas[-1] for run in runs.select(strategy) if run.thetas is not None])
    error = np.abs(truths.curves(strategy, thetas, score) - world.score_probability(score))
    seen = score >= truths.boundaries(strategy, thetas, world.cost)[:, None]

    def mean(part: NDArray[np.bool_]) -> Floats:
        """Return each run's mean error; the largest possible one where nobody is in the part."""
        weight = np.where(part, mass, 0.0)
        total, people_there = (weight * error).sum(axis=1), weight.sum(axis=1)
        return np.asarray(
            np.divide(total, people_there, np.ones(len(part)), where=people_there > 0)
        )

    accepted, rejected = mean(seen), mean(~seen)
    return upper(accepted) < 0.5 * lower(rejected), {
        "error where it accepts": accepted,
        "error where it does not": rejected,
    }


@each_strategy(_predicting)
def less_fair(name: str, runs: Runs, strategy: str) -> Verdict:
    """Test whether the gap is wider than that of the optimal policy."""
    gap, best = _last(runs, "benefit_gap", strategy), truths.optimum(name).benefit_gap
    return lower(gap) > best, {f"gap, optimal policy {best:.4f}": gap}


@each_strategy(_exploring)
def as_fair(name: str, runs: Runs, strategy: str) -> Verdict:
    """Test whether the gap is about that of the optimal policy, or smaller."""
    gap, best = _last(runs, "benefit_gap", strategy), truths.optimum(name).benefit_gap
    return upper(np.abs(gap)) <= 1.1 * best, {f"gap, optimal policy {best:.4f}": gap}


@on_runs
def utility_costs_parity(runs: Runs) -> Iterator[Case]:
    """Test whether exploring policies have both more utility and a wider gap."""
    utility = _highest(_last(runs, "utility", rival) for rival in _predicting(runs))
    gap = _highest(np.abs(_last(runs, "benefit_gap", rival)) for rival in _predicting(runs))
    yield Case("", None, {"wider deterministic gap": gap})
    for strategy in _exploring(runs):
        own = np.abs(_last(runs, "benefit_gap", strategy))
        holds = above(own, gap) and above(_last(runs, "utility", strategy), utility)
        yield Case(strategy, holds, {f"{strategy}: gap": own})


# --- COMPAS over time


@on_runs
def head_start(runs: Runs) -> Iterator[Case]:
    """Test whether exploring policies are behind at the start."""
    rival = runs.metric("utility", _predicting(runs)[0])[:, 0]  # both start from the same rule
    for strategy in _exploring(runs):
        ahead = rival - runs.metric("utility", strategy)[:, 0]
        numbers = {f"{strategy}: how far behind at the start": ahead}
        yield Case(strategy, lower(ahead) > 0, numbers)


def _against_rivals(runs: Runs, test: Callable[[str, str], Verdict]) -> Iterator[Case]:
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


def _ends_above(runs: Runs, metric: str) -> Iterator[Case]:
    """Test whether exploring strategies end above deterministic rules in a metric."""
    yield _ends(runs, metric, metric.replace("_", " "))
    ends = {s: _last(runs, metric, s) for s in runs.strategies}
    yield from _against_rivals(runs, lambda one, rival: (above(ends[one], ends[rival]), {}))


def _fairer(runs: Runs) -> Iterator[Case]:
    """Test whether the gap is smaller most of the time."""
    yield _ends(runs, "benefit_gap", "gap")
    paths = {s: np.abs(np.median(runs.metric("benefit_gap", s), axis=0)) for s in runs.strategies}

    def test(strategy: str, rival: str) -> Verdict:
        share = float((paths[strategy] < paths[rival])[1:].mean())
        return share >= 0.9, {"share of steps with less gap": share}

    yield from _against_rivals(runs, test)


overtaken = on_runs(lambda runs: _ends_above(runs, "utility"))
exploring_pays = on_runs(lambda runs: _ends_above(runs, "effective_utility"))
exploring_fairer = on_runs(_fairer)


@on_runs
def better_and_fairer(runs: Runs) -> Iterator[Case]:
    """Test whether exploring policies have both more utility and a smaller gap."""
    for useful, fair in zip(_ends_above(runs, "utility"), _fairer(runs), strict=True):
        both = {**useful.numbers, **fair.numbers}
        yield Case(useful.name, useful.holds and fair.holds, both, useful.group)


@on_runs
def dominates(runs: Runs) -> Iterator[Case]:
    """Test whether exploring policies lead in effective utility throughout the second half."""
    paths = {s: np.median(runs.metric("effective_utility", s), axis=0) for s in runs.strategies}

    def test(strategy: str, rival: str) -> Verdict:
        lead = paths[strategy] - paths[rival]
        least = float(np.nanmin(lead[(len(lead) - 1) // 2 :]))
        return least > 0, {"least lead in the second half": least}

    return _against_rivals(runs, test)


def best_not_linear(results: Results, column: str, names: Names) -> Iterator[Case]:
    """Test whether the best function of the features gains more than linear policies."""
    (name,) = names
    front, world, people = truths.pareto_front(name), truths.table(name), truths.members(name)
    (best, gap), (fair, _) = front.within(np.inf), front.within(SMALL_GAP)
    numbers = {
        "reject all: utility": people.metrics(RejectAll()).utility,
        "accept all: utility": people.metrics(AcceptAll()).utility,
        f"best function of x: utility (gap {gap:.3f})": best,
        f"the same with a gap of at most {SMALL_GAP}": fair,
    }
    missed = []
    for text, bound, possible in (
        ("best linear logistic policy", np.inf, best),
        (f"the same, gap at most {SMALL_GAP}", SMALL_GAP, fair),
    ):
        policy = truths.best_logistic(name, bound)
        truth = people.metrics(policy)
        numbers[f"{text}: utility (gap {truth.benefit_gap:.3f})"] = truth.utility
        numbers[f"{text}, on held-out people"] = world.measure(policy).utility
        missed.append(possible - truth.utility)
    numbers["what linear policies miss"] = missed[0]
    yield Case("without a bound on the gap", missed[0] > 1e-4, numbers)
    yield Case(f"a gap of at most {SMALL_GAP}", missed[1] > 1e-4)


# --- under a penalty


def _exact(name: str, runs: Runs, metric: str, strategy: str) -> list[Floats]:
    """Return a metric by penalty, where it is exact: on a table, that of the training people."""
    return last_values(runs, metric if name in truths.SETTINGS else f"train_{metric}", strategy)


@each_strategy()
def fair(name: str, runs: Runs, strategy: str) -> Verdict:
    """Test whether the largest penalty leaves no gap."""
    gap = np.abs(last_values(runs, "benefit_gap", strategy)[-1])
    holds = np.median(gap) <= SMALL_GAP and upper(gap) <= 2 * SMALL_GAP
    return holds, {"size of the gap at the largest λ": gap}


@each_strategy()
def fair_on_table(name: str, runs: Runs, strategy: str) -> Verdict:
    """Test whether it leaves none among training people, and none but chance among others."""
    held_out = np.abs(last_values(runs, "benefit_gap", strategy)[-1])
    trained = np.abs(last_values(runs, "train_benefit_gap", strategy)[-1])
    noise = 1.96 * truths.held_out_deviation(runs, name, strategy, runs.penalties[-1])
    holds = np.median(trained) <= SMALL_GAP and np.median(held_out) <= max(noise, SMALL_GAP)
    return holds, {
        "size of the gap, training people": trained,
        f"held-out people, sampling alone {noise:.3f}": held_out,
    }


@each_strategy()
def parity_costs(name: str, runs: Runs, strategy: str) -> Verdict:
    """Test whether both utilities are lower under the largest penalty than under the smallest."""
    falls, numbers = [], dict[str, Floats]()
    for metric in ("utility", "effective_utility"):
        free, *_, bound = last_values(runs, metric, strategy)
        falls.append(above(free, bound))
        words = metric.replace("_", " ")
        numbers |= {f"{words}, smallest λ": free, f"{words}, largest λ": bound}
    return all(falls), numbers


@each_strategy()
def no_more_than_needed(name: str, runs: Runs, strategy: str) -> Verdict:
    """Test whether utility under the largest penalty is near that of the best linear policy."""
    utility = _exact(name, runs, "utility", strategy)[-1]
    needed, _ = truths.logistic_path(name, runs.penalties)[-1]
    scale = truths.pareto_front(name).within(np.inf)[0]
    words = f"utility at the largest λ, best linear policy {needed:.4f}"
    return lower(utility) >= needed - 0.1 * scale, {words: utility}


@each_strategy()
def trades_off(name: str, runs: Runs, strategy: str) -> Verdict:
    """Test whether gap and utility fall with the penalty."""
    gap, utility = (
        np.median(_exact(name, runs, metric, strategy), axis=1)
        for metric in ("benefit_gap", "utility")
    )
    # the largest step the wrong way, from any penalty to any larger one
    widening, rising = (
        float((path - np.minimum.accumulate(path)).max()) for path in (np.abs(gap), utility)
    )
    return widening <= _SLACK_GAP and rising <= _SLACK_UTILITY, {
        "largest widening of the gap": widening,
        "largest rise of utility": rising,
    }
