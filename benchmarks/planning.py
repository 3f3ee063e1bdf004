"""Whether plans keep their promises: how often `compare` says better after the decisions planned.

    python benchmarks/planning.py [LOGS] [CASE ...]

A plan is made from a log of 100 000 decisions. Then LOGS logs (400 by default) of the planned
length are collected under the floor, and `compare` is asked about each. The promise is 80 %.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

import numpy as np

import consequential as cq

FIRST, SECOND = cq.worlds.first_setting(), cq.worlds.second_setting()


def cut_at(x: float) -> cq.DecisionRule:
    """Accept where the only feature is at least x."""
    return cq.ThresholdPolicy(cq.logistic_model([-x, 1.0]), 0.5)


@dataclass(frozen=True)
class Case:
    """Two rules in a world, at a cost that need not be the world's own."""

    world: cq.worlds.World
    cost: float
    incumbent: cq.DecisionRule
    candidate: cq.DecisionRule
    floor: float
    method: Literal["normal", "any_time"] = "normal"

    @property
    def advantage(self) -> float:
        """The truth, by quadrature."""
        new, old = (
            (found.utility + (self.world.cost - self.cost) * found.acceptance)
            for found in (self.world.exact(rule) for rule in (self.candidate, self.incumbent))
        )
        return new - old

    def decisions(self) -> int:
        """Return the planned number."""
        known = self.world.collect(
            self.incumbent.with_floor(0.2), 100_000, np.random.default_rng(0)
        )
        found = cq.plan(
            known,
            cost=self.cost,
            improvement=self.advantage,
            incumbent=self.incumbent,
            candidate=self.candidate,
            floors=[self.floor],
            method=self.method,
        )
        return found.options[0].decisions

    def share_better(self, decisions: int, logs: int, seed: int = 1) -> float:
        """Return how often `compare` says better on later logs of this length."""
        rng = np.random.default_rng(seed)
        deployed = self.incumbent.with_floor(self.floor)
        better = 0
        for _ in range(logs):
            log = self.world.collect(deployed, decisions, rng)
            found = cq.compare(
                self.candidate, self.incumbent, log, cost=self.cost, method=self.method
            )
            better += found.better
        return better / logs


FIRST_RULE = cq.ThresholdPolicy(cq.logistic_model([-3.0, 5.0]), FIRST.cost)
SECOND_RULE = cq.ThresholdPolicy(cq.logistic_model([-3.5, 0.6]), SECOND.cost)
CASES = {
    "first setting": Case(FIRST, FIRST.cost, FIRST_RULE, cut_at(-0.3), 0.1),
    "first setting, small floor": Case(FIRST, FIRST.cost, FIRST_RULE, cut_at(-0.3), 0.02),
    "second setting": Case(SECOND, SECOND.cost, SECOND_RULE, cut_at(-1.6978), 0.1),
    "cost .85, accepts more": Case(FIRST, 0.85, cut_at(0.75), cut_at(0.6), 0.1),
    "cost .85, accepts more, small floor": Case(FIRST, 0.85, cut_at(0.75), cut_at(0.6), 0.02),
    "cost .85, rejects more": Case(FIRST, 0.85, cut_at(0.4), cut_at(0.6), 0.05),
    "first setting, any time": Case(FIRST, FIRST.cost, FIRST_RULE, cut_at(-0.3), 0.1, "any_time"),
    "second setting, any time": Case(
        SECOND, SECOND.cost, SECOND_RULE, cut_at(-1.6978), 0.1, "any_time"
    ),
    "cost .85, rejects more, any time": Case(
        FIRST, 0.85, cut_at(0.4), cut_at(0.6), 0.05, "any_time"
    ),
}


def main(logs: int, names: list[str]) -> None:
    """Print a table."""
    print(f"{'':36}{'advantage':>10}{'decisions':>11}{'better':>8}   of {logs} logs, .80 promised")
    for name in names or CASES:
        case = CASES[name]
        decisions = case.decisions()
        share = case.share_better(decisions, logs)
        print(f"{name:36}{case.advantage:10.4f}{decisions:11d}{share:8.3f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400, sys.argv[2:])
