"""How often statements made from a log are true, over many logs of worlds whose truth is known.

    python benchmarks/honesty.py own-log totals value gap bounds --logs 300

Each section prints a table; docs/evaluation.md and docs/sign-off.md quote them.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from learner_worlds import WORLDS as LOGS
from learner_worlds import Log
from sklearn.preprocessing import SplineTransformer

import consequential as cq
from consequential.lab.worlds.synthetic import NormalScores, SecondSetting
from consequential.workers import spread

Rows = list[int]
FLOOR = 0.05
SHARES = (0.4, 0.35, 0.25)


class ThreeGroups(SecondSetting):
    """The second setting with three groups of different sizes."""

    n_groups = 3
    scores = NormalScores((1.5, -1.5, 0.0), 3.5, (-np.inf, np.inf))

    def propose(self, n, rng):
        group = rng.choice(3, size=n, p=SHARES)
        return self.scores.sample(group, rng)[:, None], group


WORLDS: dict[str, Callable[[], cq.worlds.World]] = {
    "first": cq.worlds.first_setting,
    "second": cq.worlds.second_setting,
    "three groups": ThreeGroups,
}
NOTIONS = {"parity": "demographic_parity", "opportunity": "equal_opportunity"}


def log_of(world, n: int, seed: int) -> cq.DecisionLog:
    start = world.initial_policy().with_floor(FLOOR)
    return world.collect(start, n, np.random.default_rng([seed, n]))


def learner_of(name: str, **options) -> cq.FairPolicyLearner:
    splines = None if name == "first" else SplineTransformer(n_knots=8)
    return cq.FairPolicyLearner(cost=WORLDS[name]().cost, feature_map=splines, **options)


def repeated(one: Callable[[int], tuple], logs: int) -> np.ndarray:
    """What one log says, for many of them, in several processes."""
    return np.array(list(spread(one, range(logs), ordered=True)), dtype=np.float64)


# --- a policy judged on the log it was learned from


def _own_log(name: str, n: int, seed: int) -> tuple:
    world = WORLDS[name]()
    log = log_of(world, n, seed)
    policy = learner_of(name).fit_log(log).policy_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cq.WinnersCurseWarning)
        found = cq.evaluate(policy, log, cost=world.cost, confidence=0.9)
    crossed = cq.evaluate(learner_of(name), log, cost=world.cost, confidence=0.9, folds=5)
    truth = world.exact(policy).utility
    return found.utility.low <= truth, crossed.utility.low <= truth


def own_log(logs: int, rows: Rows) -> Iterator[str]:
    yield "95% lower bounds of a learned policy's utility that hold: its own log, cross-fitted"
    for name in ("first", "second"):
        for n in rows:
            own, crossed = repeated(partial(_own_log, name, n), logs).mean(axis=0)
            yield f"  {name:14} {n:6d} rows   {own:.1%}   {crossed:.1%}"


# --- totals that are estimates too


def _totals(name: str, seed: int) -> tuple:
    world = WORLDS[name]()
    log = log_of(world, 5000, seed)
    policy = {"first": cq.Policy([1.5, 5.0]), "second": cq.Policy([1.0, 0.6])}[name]
    pi, ones = (
        log.propensity_of(policy),
        cq.weightings.InversePropensity().weights(log) * log.outcome,
    )
    ratios = []
    for z in range(2):
        counted = ones * (log.group == z)
        total = counted.sum()
        rate = counted @ pi / total
        ratios.append(np.std(counted * pi) / np.std(counted * (pi - rate)))
    return tuple(ratios)


def totals(logs: int, rows: Rows) -> Iterator[str]:
    yield "equal opportunity: how much wider intervals are if totals are taken for fixed, by group"
    for name in ("first", "second"):
        wider = repeated(partial(_totals, name), logs).mean(axis=0) - 1.0
        yield f"  {name:14} {wider[0]:.0%}   {wider[1]:.0%}"


# --- the value of the policy that is chosen


def _value(name: str, n: int, seed: int) -> tuple:
    if name in WORLDS:
        world = WORLDS[name]()
        learner = learner_of(name).fit_log(log_of(world, n, seed))
        truth = world.exact(learner.policy_).utility
    else:
        log = Log.of(LOGS[name], n, seed)
        learner = cq.FairPolicyLearner(cost=log.cost).fit_log(log.decisions)
        people = LOGS[name].evaluated()
        propensity = learner.policy_.propensity(people.features)
        truth = float(((people.chance - log.cost) * propensity).mean())
    found = learner.value_.utility
    return truth in found, found.low <= truth, found.value - truth


def value(logs: int, rows: Rows) -> Iterator[str]:
    yield "value_ of the chosen policy: covers its true utility, lower bound holds, mean error"
    for name in (*WORLDS, "nonlinear", "well-specified"):
        for n in rows:
            covered, above, error = repeated(partial(_value, name, n), logs).mean(axis=0)
            yield f"  {name:14} {n:6d} rows   {covered:.1%}   {above:.1%}   {error:+.4f}"


# --- the gap of the policy that is deployed


def _gap(name: str, notion: str, n: int, bound: float, seed: int) -> tuple:
    world = WORLDS[name]()
    learner = learner_of(name, fairness=notion, max_gap=bound)
    learner.fit_log(log_of(world, n, seed), folds=5)
    truth = world.exact(learner.policy_, fairness=notion).benefit_gap
    covered = truth in learner.value_.benefit_gap, truth in learner.policy_gap_
    return *covered, abs(truth) > bound + 1e-6, abs(truth) > bound + 0.01


def gap(logs: int, rows: Rows) -> Iterator[str]:
    yield (
        "the true gap of policy_ lies in: value_.benefit_gap, policy_gap_; it exceeds the bound, "
        "and by more than .01"
    )
    for name in WORLDS:
        for short, notion in NOTIONS.items():
            for n in rows:
                bound = 0.05 if n < 10_000 else 0.02
                one = partial(_gap, name, notion, n, bound)
                crossed, deployed, missed, far = repeated(one, logs).mean(axis=0)
                yield (
                    f"  {name:14} {short:12} {n:6d} rows, gap {bound:g}   {crossed:.1%}   "
                    f"{deployed:.1%}   {missed:.1%}   {far:.1%}"
                )


# --- bounds with a confidence


def _bounds(name: str, notion: str, n: int, bound: float, seed: int) -> tuple:
    world = WORLDS[name]()
    log = log_of(world, n, seed)
    plain = learner_of(name, fairness=notion, max_gap=bound).fit_log(log)
    truth = world.exact(plain.policy_, fairness=notion)
    missed = abs(truth.benefit_gap) > bound + 1e-6
    try:
        safe = learner_of(name, fairness=notion, max_gap=bound, confidence=0.95).fit_log(log)
    except cq.BoundNotShownError:
        return True, False, np.nan, missed, truth.utility
    found = world.exact(safe.policy_, fairness=notion)
    broken = abs(found.benefit_gap) > bound + 1e-6
    return False, broken, found.utility, missed, truth.utility


def bounds(logs: int, rows: Rows, max_gaps: tuple[float, ...] = (0.02, 0.05)) -> Iterator[str]:
    yield "confidence=.95: declined, bound broken; without it: bound broken; median utilities"
    for name in WORLDS:
        for short, notion in NOTIONS.items():
            for n in rows:
                for bound in max_gaps:
                    found = repeated(partial(_bounds, name, notion, n, bound), logs)
                    declined, broken, missed = found[:, [0, 1, 3]].mean(axis=0)
                    shown = np.isfinite(found[:, 2])
                    utility = np.median(found[shown, 2]) if shown.any() else np.nan
                    without = np.median(found[:, 4])
                    yield (
                        f"  {name:14} {short:12} {n:6d} rows, gap {bound:g}   {declined:.1%}   "
                        f"{broken:.1%}   {missed:.1%}   {utility:.4f} of {without:.4f}"
                    )


SECTIONS = {
    "own-log": own_log,
    "totals": totals,
    "value": value,
    "gap": gap,
    "bounds": bounds,
    "bounds-.05": partial(bounds, max_gaps=(0.05,)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", default=list(SECTIONS)[:5], choices=[*SECTIONS, []])
    parser.add_argument("--logs", type=int, default=300)
    parser.add_argument("--rows", type=int, nargs="+", default=[5000, 20_000])
    options = parser.parse_args()
    for section in options.sections:
        for line in SECTIONS[section](options.logs, options.rows):
            print(line, flush=True)


if __name__ == "__main__":
    main()
