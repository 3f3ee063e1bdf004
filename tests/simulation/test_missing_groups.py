"""Groups of which nobody was accepted, or nobody with a label: every engine leaves them out.

A benefit that cannot be measured must not count as measured: rounding errors in place of an exact
0 would make up a benefit of any size. Engines are compared on many short runs with few people;
short, because steps amplify rounding. Parameters and metrics agree to 1e-9 and notes exactly.
"""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tiny_worlds import TINY, Watched

import consequential as cq
from consequential.learning import ascent
from consequential.worlds import Parameters

NOTIONS = {
    "demographic_parity": "demographic_parity",
    "equal_opportunity": "equal_opportunity",
    "equalised_odds": "equalised_odds",
    "predictive_parity": "predictive_parity",
    "judged_correctly": cq.fairness.BenefitParity(lambda d, y: float(d == y)),
}
N_PROPOSALS = 30
FEW = cq.sequences.Aggregated(50)  # less than two steps of people: it overflows
STRATEGIES = [
    cq.LearnToDecide("logistic"),
    cq.LearnToDecide("semi_logistic", FEW, named="few"),
    cq.LearnToDecide(
        "logistic", FEW, weighting=cq.weightings.SelfNormalised(), named="self-normalised"
    ),
    cq.LearnToDecide("logistic", step=cq.steps.GradientStep(0.4, max_step=0.2), named="gradient"),
    cq.LearnToDecide("logistic", decisions="sampled", floor=0.05, named="sampled"),
    cq.LearnToDecide("logistic", FEW, "paper", named="paper, few"),
    cq.LearnToDecide("logistic", "iterative", "paper", "sampled", named="paper, sampled"),
]


class FewOfAKind(cq.worlds.TableWorld):
    """Three groups: one is rare, and one has few people with label 1."""

    def __init__(self) -> None:
        rng, n = np.random.default_rng(7), 400
        group = rng.choice(["common", "failing", "rare"], size=n, p=[0.7, 0.22, 0.08])
        features = rng.normal(size=(n, 2))
        chance = np.where(group == "failing", 0.3, 1 / (1 + np.exp(-2 * features[:, 0])))
        parameters = Parameters(
            **{name: getattr(TINY, name) for name in TINY.__slots__}
            | {"n_iterations": 4, "batch_size": 8, "learning_rate": 0.1}
        )
        label = rng.random(n) < chance
        super().__init__(features, group, label, cost=0.4, parameters=parameters)

    def initial_theta(self, rng):
        return np.array([-0.4, 1.0, -0.3])


WORLD = FewOfAKind()


def simulated(strategies, notion, engine, n_seeds, time_steps=3):
    return cq.simulate(
        WORLD,
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


def assert_alike(runs, others):
    for run, other in zip(runs, others, strict=True):
        about = f"{run.strategy}, seed {run.seed}"
        assert about == f"{other.strategy}, seed {other.seed}"
        assert run.notes == other.notes, about
        assert_allclose(run.thetas, other.thetas, rtol=1e-9, atol=1e-9, err_msg=about)
        for name, values in run.metrics.items():
            there = other.metrics[name]
            assert_allclose(values, there, rtol=1e-9, atol=1e-9, err_msg=f"{about}, {name}")


def missing(notion, log, paper):
    """Return the groups of a log that have nobody to measure a benefit on, by looking."""
    known = log.decision if paper else np.ones(len(log), dtype=bool)
    needed = {
        "demographic_parity": [known],
        "judged_correctly": [known],
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
            yield f"step {step}: {ascent.NOBODY_ACCEPTED}"
        elif groups:
            yield f"step {step}: {ascent.absent_note(groups)}"


@pytest.mark.parametrize("notion", NOTIONS)
def test_groups_are_said_to_be_missing_exactly_where_they_are(notion):
    n_seeds, said, in_full = 8, 0, 0
    for strategy in STRATEGIES:
        watched = Watched(strategy)
        runs = simulated([watched], notion, "compiled", n_seeds)
        logs = iter(watched.logs)
        for run in runs.runs:
            here = [next(logs) for _ in range(3)]
            expected = list(expected_notes(notion, here, strategy.normalisation == "paper"))
            found = [note for note in run.notes if "lowered" not in note]
            assert found == expected, (strategy.name, run.seed)
            said, in_full = said + len(expected), in_full + 3 - len(expected)
        assert next(logs, None) is None
    assert min(said, in_full) > 10  # both happen


@pytest.mark.parametrize("notion", NOTIONS)
def test_compiled_runs_with_missing_groups_are_the_runs_of_numpy(notion):
    others = simulated(STRATEGIES, notion, "numpy", 30)
    assert len(others.runs) >= 200
    assert_alike(simulated(STRATEGIES, notion, "compiled", 30).runs, others.runs)
    notes = list(chain.from_iterable(run.notes for run in others.runs))
    assert sum("no row to measure the benefit" in note for note in notes) > 20


def test_a_devices_runs_with_missing_groups_are_the_runs_of_numpy():
    # One small program: compiling takes seconds. tests/accelerated has every notion's functionals.
    pytest.importorskip("jax")
    gradient = [strategy for strategy in STRATEGIES if strategy.name == "gradient"]
    others = simulated(gradient, "equalised_odds", "numpy", 200, time_steps=2)
    runs = simulated(gradient, "equalised_odds", "jax", 200, time_steps=2)
    assert_alike(runs.runs, others.runs)
    assert sum(len(run.notes) for run in runs.runs) > 100


@pytest.mark.slow
@pytest.mark.parametrize("notion", NOTIONS)
def test_hundreds_of_runs_with_missing_groups_are_alike_on_every_engine(notion):
    pytest.importorskip("jax")
    others = simulated(STRATEGIES, notion, "numpy", 200)
    for engine in ("compiled", "jax"):
        assert_alike(simulated(STRATEGIES, notion, engine, 200).runs, others.runs)
