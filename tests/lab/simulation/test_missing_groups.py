"""Groups of which nobody was accepted, or nobody with a label: either engine leaves them out.

A benefit that cannot be measured must not count as measured: rounding errors in place of an exact
0 would make up a benefit of any size. Engines are compared on many short runs with few people;
short, because steps amplify rounding. Metrics agree to 1e-9 and notes exactly.
"""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from tiny_worlds import FewOfAKind, Watched, assert_alike

import consequential as cq
from consequential.lab.algorithm import update

NOTIONS = {
    "demographic_parity": "demographic_parity",
    "equal_opportunity": "equal_opportunity",
    "equalised_odds": "equalised_odds",
    "predictive_parity": "predictive_parity",
    "benefit_parity": cq.fairness.BenefitParity(lambda d, y: float(d == y)),
}
N_PROPOSALS = 30
FEW = cq.lab.sequences.Aggregated(50)  # less than two steps of people: it overflows
STRATEGIES = [
    cq.lab.LearnToDecide("logistic"),
    cq.lab.LearnToDecide("semi_logistic", FEW, named="few"),
    cq.lab.LearnToDecide(
        "logistic", FEW, weighting=cq.weightings.SelfNormalised(), named="self-normalised"
    ),
    cq.lab.LearnToDecide(
        "logistic", step=cq.lab.steps.GradientStep(0.4, max_step=0.2), named="gradient"
    ),
    cq.lab.LearnToDecide("logistic", decisions="sampled", floor=0.05, named="sampled"),
    cq.lab.LearnToDecide("logistic", FEW, "paper", named="paper, few"),
    cq.lab.LearnToDecide("logistic", "iterative", "paper", "sampled", named="paper, sampled"),
]


@pytest.fixture(scope="module")
def world():
    return FewOfAKind()


def simulated(world, strategies, notion, engine, n_seeds, time_steps=3):
    return cq.simulate(
        world,
        strategies,
        seeds=n_seeds,
        penalties=[2.0],
        time_steps=time_steps,
        n_proposals=N_PROPOSALS,
        fairness=NOTIONS[notion],
        engine=engine,
        progress=False,
        n_jobs=1,
    )


def missing(notion, log, paper):
    """Return the groups of a log that have nobody to measure a benefit on, by looking."""
    known = log.decision if paper else np.ones(len(log), dtype=bool)
    needed = {
        "demographic_parity": [known],
        "benefit_parity": [known],
        "equal_opportunity": [log.decision & (log.label == 1)],
        "equalised_odds": [log.decision & (log.label == y) for y in (0, 1)],
        "predictive_parity": [log.decision],
    }[notion]
    return [
        str(name)
        for code, name in enumerate(log.groups)
        if not all((rows & (log.group == code)).any() for rows in needed)
    ]


def expected_notes(notion, logs, paper):
    """Return what must be said about groups of each step's log."""
    for step, log in enumerate(logs):
        groups = missing(notion, log, paper)
        if not log.decision.any():
            yield f"step {step}: {update.NOBODY_ACCEPTED}"
        elif groups:
            yield f"step {step}: {update.absent_note(groups)}"


@pytest.mark.parametrize("notion", NOTIONS)
def test_groups_are_said_to_be_missing_exactly_where_they_are(world, notion):
    n_seeds, said, in_full = 5, 0, 0
    for strategy in STRATEGIES:
        watched = Watched(strategy)
        runs = simulated(world, [watched], notion, "compiled", n_seeds)
        logs = iter(watched.logs)
        for run in runs.runs:
            here = [next(logs) for _ in range(3)]
            expected = list(expected_notes(notion, here, strategy.normalisation == "paper"))
            found = [note for note in run.notes if "lowered" not in note]
            assert found == expected, (strategy.name, run.seed)
            said, in_full = said + len(expected), in_full + 3 - len(expected)
        assert next(logs, None) is None
    assert min(said, in_full) > 5  # both happen


@pytest.mark.parametrize("notion", NOTIONS)
def test_compiled_runs_with_missing_groups_are_the_runs_of_numpy(world, notion):
    others = simulated(world, STRATEGIES, notion, "numpy", 5)
    assert_alike(simulated(world, STRATEGIES, notion, "compiled", 5), others, 1e-9)
    notes = list(chain.from_iterable(run.notes for run in others.runs))
    assert sum("no row to measure the benefit" in note for note in notes) > 3
