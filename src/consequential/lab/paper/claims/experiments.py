"""Tests of what strategies do in the settings and on COMPAS, over time and under a penalty."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consequential.lab.paper import truths
from consequential.lab.paper.claims.claim import (
    Case,
    ClaimedEffect,
    Effects,
    Names,
    StrategyTest,
    above,
    at_most,
    each_strategy,
    on_runs,
    shown,
)
from consequential.lab.paper.results import last_values
from consequential.lab.paper.truths import SMALL_GAP, is_predicting
from consequential.policy import AcceptAll, RejectAll

if TYPE_CHECKING:
    from consequential.lab.paper.results import Results
    from consequential.lab.simulation import Runs

Floats = NDArray[np.float64]

MATERIAL = 0.002  # utility per applicant: about a hundredth of the first setting's best
VISIBLE = 0.005  # of a gap: one decision in two hundred
_NOISE_OF_A_GAP, _NOISE_OF_UTILITY = 0.02, 0.005  # of a single run, along the penalties
_TOLERATED = 0.1  # of the best utility
_CLOSE = 0.05  # mean difference of two curves, of a figure's height


def _exploring(runs: Runs) -> list[str]:
    return [strategy for strategy in runs.strategies if not is_predicting(strategy)]


def _predicting(runs: Runs) -> list[str]:
    return [strategy for strategy in runs.strategies if is_predicting(strategy)]


def _last(runs: Runs, metric: str, strategy: str) -> Floats:
    return runs.metric(metric, strategy)[:, -1]


def _last_tenth(paths: Floats) -> Floats:
    """Return the last tenth of the steps: a rule that oscillates has no last one."""
    return paths[:, -max(1, paths.shape[1] // 10) :]


def _highest(candidates: Iterable[Floats]) -> Floats:
    """Return the values with the highest median."""
    return max(candidates, key=lambda values: float(np.median(values)))


# --- the settings over time; runs of a seed saw the same people, so differences are by seed


@each_strategy(_exploring)
def outperform(name: str, runs: Runs, strategy: str) -> Effects:
    """Test whether a policy ends above the better deterministic rule."""
    rival = _highest(_last(runs, "utility", rule) for rule in _predicting(runs))
    own = _last(runs, "utility", strategy)
    return [above("utility beyond the better deterministic rule", own - rival, MATERIAL)]


def _cuts(name: str, runs: Runs, strategy: str) -> Floats:
    """Return the lowest score that policies of a setting accept, by seed and step."""
    cost = truths.setting(name).cost
    paths = [run.thetas for run in runs.select(strategy) if run.thetas is not None]
    # one that falls with the score accepts the lowest there is
    cuts = [np.where(p[:, 1] < 0, -np.inf, truths.boundaries(strategy, p, cost)) for p in paths]
    return np.stack(cuts)


def _locates(distance: float, share: float) -> StrategyTest:
    """Return the test that a policy finds the best cut, and this share of its utility."""

    def test(name: str, runs: Runs, strategy: str) -> Effects:
        best, threshold = truths.best_cut(name).utility, truths.best_threshold(name)
        cut, utility = _cuts(name, runs, strategy)[:, -1], _last(runs, "utility", strategy)
        return [
            shown("boundary", cut),
            at_most(f"distance to the best, {threshold:.2f}", np.abs(cut - threshold), distance),
            above(f"share of the best cut's utility, {best:.4f}", utility / best, share),
        ]

    return test


boundary_found = each_strategy(_exploring)(_locates(0.1, 0.98))
threshold_found = each_strategy(_exploring)(_locates(0.5, 0.9))


@each_strategy(_predicting)
def stuck(name: str, runs: Runs, strategy: str) -> Effects:
    """Test whether rules stay where they start, and do not move away either."""
    start, best = truths.start_cut(name), truths.best_threshold(name)
    way = np.abs(start - _cuts(name, runs, strategy)[:, -1]) / (start - best)
    return [at_most("way from the start, relative to that to the best cut", way, 0.1)]


@each_strategy(_predicting)
def at_five(name: str, runs: Runs, strategy: str) -> Effects:
    """Test whether rules come to a threshold at 5 and stay there."""
    last = _last_tenth(_cuts(name, runs, strategy))
    away = np.abs(last - 5.0).mean(axis=1)
    return [shown("last cut", last[:, -1]), at_most("distance to 5, last tenth", away, 0.5)]


@each_strategy(_predicting)
def blind_below_four(name: str, runs: Runs, strategy: str) -> Effects:
    """Test whether no run ever uses a cut of 4 or less: one run that does refutes "never"."""
    lowest = _cuts(name, runs, strategy)[:, :-1].min(axis=1)
    return [
        above("lowest cut of a run", lowest, 4.0),
        above("lowest cut of all runs", float(lowest.min()), 4.0),
    ]


@each_strategy(_predicting)
def fits_where_it_sees(name: str, runs: Runs, strategy: str) -> Effects:
    """Test whether models are right only where they accept."""
    world = truths.setting(name)
    people = world.cells(2**10)
    score, mass = people.points[:, 0], people.mass.sum(axis=1)
    thetas = np.array([run.thetas[-1] for run in runs.select(strategy) if run.thetas is not None])
    model = truths.curves(strategy, thetas, score)
    error, seen = np.abs(model - world.score_probability(score)), model >= world.cost

    def mean(part: NDArray[np.bool_]) -> Floats:
        """Return each run's mean error; the largest possible one where nobody is in the part."""
        weight = np.where(part, mass, 0.0)
        total, people_there = (weight * error).sum(axis=1), weight.sum(axis=1)
        return np.asarray(
            np.divide(total, people_there, np.ones(len(part)), where=people_there > 0)
        )

    accepted, rejected = mean(seen), mean(~seen)
    return [
        at_most("mean error where it accepts", accepted, _CLOSE),
        shown("mean error where it does not", rejected),
        at_most("the former, relative to the latter", accepted / rejected, 0.5),
    ]


@each_strategy(_predicting)
def less_fair(name: str, runs: Runs, strategy: str) -> Effects:
    """Test whether the gap is wider than that of the optimal policy."""
    gap, best = np.abs(_last(runs, "benefit_gap", strategy)), truths.optimum(name).benefit_gap
    return [above(f"gap beyond the optimal policy's, {best:.4f}", gap - best, VISIBLE)]


@each_strategy(_exploring)
def as_fair(name: str, runs: Runs, strategy: str) -> Effects:
    """Test whether the gap is about that of the optimal policy, or smaller, and worth it."""
    gap, best = np.abs(_last(runs, "benefit_gap", strategy)), truths.optimum(name)
    words = f"gap beyond the optimal policy's, {best.benefit_gap:.4f}"
    share = _last(runs, "utility", strategy) / best.utility
    return [
        at_most(words, gap - best.benefit_gap, VISIBLE),
        above("share of its utility", share, 1.0 - _TOLERATED),
    ]


@each_strategy(_exploring)
def utility_costs_parity(name: str, runs: Runs, strategy: str) -> Effects:
    """Test whether a policy has both more utility and a wider gap."""
    utility = _highest(_last(runs, "utility", rival) for rival in _predicting(runs))
    gap = _highest(np.abs(_last(runs, "benefit_gap", rival)) for rival in _predicting(runs))
    own, own_gap = _last(runs, "utility", strategy), np.abs(_last(runs, "benefit_gap", strategy))
    return [
        above("utility beyond the better deterministic rule", own - utility, MATERIAL),
        above("gap beyond the less fair deterministic rule", own_gap - gap, VISIBLE),
    ]


# --- COMPAS over time; seeds have splits of their own


def head_start(results: Results, column: str, names: Names) -> Iterator[Case]:
    """Test whether policies are behind at the start, and how far."""
    name, runs = names[0].rpartition("-")[0], results.runs(names[0], column)
    rival = runs.metric("utility", _predicting(runs)[0])[:, 0]  # both start from the same rule
    for strategy in _exploring(runs):
        behind, words = rival - runs.metric("utility", strategy)[:, 0], "behind at the start"
        yield Case(strategy, [above(words, behind, 0.0)], "an advantage")
        yield Case(strategy, [at_most(words, behind, _TOLERATED * _scale(name))], "a slight one")


def _lead(runs: Runs, metric: str, strategy: str, rival: str) -> Floats:
    """Return how far a strategy is ahead of another, by seed and step."""
    one, other = runs.metric(metric, strategy), runs.metric(metric, rival)
    return np.abs(other) - np.abs(one) if metric == "benefit_gap" else one - other


def _against_rivals(test: Callable[[Runs, str, str], Effects]) -> Callable[[Runs], Iterator[Case]]:
    """Test every exploring strategy against every deterministic rule."""

    def cases(runs: Runs) -> Iterator[Case]:
        for rival in _predicting(runs):
            for strategy in _exploring(runs):
                yield Case(strategy, test(runs, strategy, rival), f"against {rival}")

    return cases


@on_runs
@_against_rivals
def overtaken(runs: Runs, strategy: str, rival: str) -> Effects:
    """Test whether a policy is ahead soon: from a tenth of the run to its middle."""
    lead = _lead(runs, "utility", strategy, rival)
    last = lead.shape[1] - 1
    early = lead[:, max(1, last // 10) : max(2, last // 2 + 1)]
    return [above("mean lead in utility, t = T/10 to T/2", early.mean(axis=1), 0.0)]


@on_runs
@_against_rivals
def dominates(runs: Runs, strategy: str, rival: str) -> Effects:
    """Test whether a policy leads in effective utility throughout the second half."""
    lead = _lead(runs, "effective_utility", strategy, rival)
    least = lead[:, (lead.shape[1] - 1) // 2 :].min(axis=1)
    return [above("least lead in effective utility, t >= T/2", least, 0.0)]


@on_runs
@_against_rivals
def exploring_pays(runs: Runs, strategy: str, rival: str) -> Effects:
    """Test whether a policy has gained more by the end."""
    lead = _lead(runs, "effective_utility", strategy, rival)[:, -1]
    return [above("lead in effective utility at the end", lead, 0.0)]


@on_runs
@_against_rivals
def exploring_fairer(runs: Runs, strategy: str, rival: str) -> Effects:
    """Test whether a policy's gap is smaller, and nearly always."""
    smaller = _lead(runs, "benefit_gap", strategy, rival)[:, 1:]
    return [
        above("gap smaller by, mean over steps", smaller.mean(axis=1), 0.0),
        above("share of steps at which it is smaller", (smaller > 0).mean(axis=1), 0.9),
    ]


@on_runs
@_against_rivals
def better_and_fairer(runs: Runs, strategy: str, rival: str) -> Effects:
    """Test whether a policy ends with both more utility and a smaller gap."""

    def end(metric: str) -> Floats:
        return np.asarray(_last_tenth(_lead(runs, metric, strategy, rival)).mean(axis=1))

    return [
        above("lead in utility, last tenth", end("utility"), 0.0),
        above("gap smaller by, last tenth", end("benefit_gap"), 0.0),
    ]


def best_not_linear(results: Results, column: str, names: Names) -> Iterator[Case]:
    """Test whether the best function of the features gains more than linear policies."""
    (name,) = names
    front, people = truths.pareto_front(name), truths.members(name)
    constants = [
        shown(f"{text}: utility", people.metrics(rule).utility)
        for text, rule in (("reject all", RejectAll()), ("accept all", AcceptAll()))
    ]
    for text, bound in (
        ("no bound on the gap", np.inf),
        (f"gap at most {SMALL_GAP}", SMALL_GAP),
    ):
        best, gap = front.within(bound)
        linear = people.metrics(truths.best_logistic(name, bound))
        yield Case(
            text,
            [
                *constants,
                shown(f"best function of x: utility (gap {gap:.3f})", best),
                shown(f"best linear one: utility (gap {linear.benefit_gap:.3f})", linear.utility),
                above("what linear policies miss", best - linear.utility, 5e-4),
            ],
        )


# --- under a penalty


def _exact(name: str, runs: Runs, strategy: str) -> tuple[Floats, Floats]:
    """Return utility and size of the gap by penalty and seed: of a table, on all people."""
    table = "" if name in truths.SETTINGS else "table_"
    utility, gap = (
        np.array(last_values(runs, f"{table}{metric}", strategy))
        for metric in ("utility", "benefit_gap")
    )
    return utility, np.abs(gap)


def _scale(name: str) -> float:
    """Return the best utility there is."""
    return truths.pareto_front(name).within(np.inf)[0]


def _constant(name: str) -> float:
    """Return the utility of the better rule without a gap: reject all, or accept all."""
    return max(0.0, truths.members(name).metrics(AcceptAll()).utility)


def _parity(name: str, utility: Floats, gap: Floats) -> list[ClaimedEffect]:
    """Test whether the largest penalty leaves no gap, and what a constant rule has anyhow."""
    constant = _constant(name)
    words = f"utility there, below the better constant rule's, {constant:.4f}"
    return [
        at_most("size of the gap at the largest λ", gap[-1], SMALL_GAP),
        at_most(words, constant - utility[-1], _TOLERATED * _scale(name)),
    ]


@each_strategy()
def fair(name: str, runs: Runs, strategy: str) -> Effects:
    """Test whether the largest penalty leaves no gap, and not by giving up utility for nothing."""
    utility, gap = _exact(name, runs, strategy)
    enough = np.flatnonzero(np.median(gap, axis=1) <= SMALL_GAP)
    first = int(enough[0]) if len(enough) else len(gap) - 1
    possible = truths.members(name).metrics(truths.best_logistic(name, SMALL_GAP)).utility
    words = f"utility below the best linear policy with so small a gap, {possible:.4f}, at λ = "
    words += f"{runs.penalties[first]:.3g}"
    found = _parity(name, utility, gap)
    found.append(at_most(words, possible - utility[first], _TOLERATED * _scale(name)))
    if name not in truths.SETTINGS:
        held_out = np.abs(last_values(runs, "benefit_gap", strategy)[-1])
        noise = 1.96 * truths.held_out_deviations(runs, name, strategy, runs.penalties[-1])
        words = "held-out people: gap beyond what sampling them does to none"
        found.append(at_most(words, held_out - np.maximum(noise, SMALL_GAP), 0.0))
    return found


@each_strategy()
def parity_costs(name: str, runs: Runs, strategy: str) -> Effects:
    """Test whether the largest penalty leaves no gap, and both utilities lower."""
    utility, gap = _exact(name, runs, strategy)
    effects = _parity(name, utility, gap)
    for words, paths in (
        ("utility", utility),
        ("effective utility", last_values(runs, "effective_utility", strategy)),
    ):
        effects.append(above(f"drop in {words}", paths[0] - paths[-1], MATERIAL))
    return effects


@each_strategy()
def no_more_than_needed(name: str, runs: Runs, strategy: str) -> Effects:
    """Test whether every penalty costs about as much utility as the best linear policy gives up."""
    utility, _ = _exact(name, runs, strategy)
    needed = truths.logistic_path(name, runs.penalties)
    # more utility than that policy has is no success: the gap is left
    away = [np.abs(best - own) for (best, _), own in zip(needed, utility, strict=True)]
    worst = int(np.argmax(np.median(away, axis=1)))
    words = (
        f"distance to the best linear one's utility, at its worst (λ = {runs.penalties[worst]:.3g})"
    )
    return [at_most(words, away[worst], _TOLERATED * _scale(name))]


@each_strategy()
def trades_off(name: str, runs: Runs, strategy: str) -> Effects:
    """Test whether gap and utility fall with the penalty, and not all at once."""
    utility, gap = _exact(name, runs, strategy)
    # the largest step the wrong way of each run, from any penalty to any larger one
    widening, rising = (
        (path - np.minimum.accumulate(path, axis=0)).max(axis=0) for path in (gap, utility)
    )
    free, constant = truths.members(name).metrics(truths.best_logistic(name)), _constant(name)
    removed = 1.0 - gap / abs(free.benefit_gap)
    kept = (utility - constant) / (free.utility - constant)
    between = np.minimum(removed, kept).max(axis=0)
    return [
        at_most("largest widening of the gap", widening, _NOISE_OF_A_GAP),
        at_most("largest rise of utility", rising, _NOISE_OF_UTILITY),
        above("gap removed and utility kept, shares: the smaller one at its best", between, 1 / 4),
    ]
