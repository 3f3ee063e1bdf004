"""Memory stays flat: what an aggregated run keeps is its reservoir, however long it runs."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from tiny_worlds import tiny

import consequential as cq

ROOM, N = 4000, 4000
KEPT = 8 * ROOM * 6  # bytes of a full reservoir: inputs, group, label, weights and some room
STRATEGIES = {
    "deciding": cq.lab.LearnToDecide("logistic", cq.lab.sequences.Aggregated(ROOM)),
    "deciding as in the paper": cq.lab.LearnToDecide(
        "logistic", cq.lab.sequences.Aggregated(ROOM), "paper"
    ),
    "predicting": cq.lab.LearnToPredict(cq.lab.sequences.Aggregated(ROOM)),
}


@pytest.fixture(scope="module")
def world():
    return tiny(cq.worlds.second_setting())


def peak(work) -> int:
    """The most bytes that were held at once while working, above those before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def simulated(world, strategy, time_steps, n_seeds=1):
    cq.simulate(
        world,
        strategy,
        seeds=n_seeds,
        time_steps=time_steps,
        n_proposals=N,
        n_jobs=1,
        progress=False,
    )


@pytest.mark.parametrize("kind", STRATEGIES)
def test_a_longer_compiled_run_takes_no_more_memory(world, kind):
    strategy = STRATEGIES[kind]
    simulated(world, strategy, 2)  # whatever is kept for good is there before measuring
    short, long = (peak(lambda t=t: simulated(world, strategy, t)) for t in (3, 30))
    # all rows would be 27 reservoirs more; metrics and thetas are a few hundred bytes a step
    assert long < short + KEPT


def test_a_longer_run_through_python_takes_no_more_memory(world):
    policy = world.initial_policy()
    learner = cq.UpdatePolicy(cq.Objective(world.cost), 2, 32, engine="numpy")

    def run(time_steps):
        for _ in cq.consequential_learning(
            world,
            policy,
            learner,
            sequence=cq.lab.sequences.Aggregated(ROOM),
            time_steps=time_steps,
            n_proposals=N,
            rng=np.random.default_rng(0),
        ):
            pass

    run(2)
    short, long = (peak(lambda t=t: run(t)) for t in (3, 30))
    assert long < short + KEPT


def test_more_seeds_take_no_more_memory(world):
    # a thread takes one seed after the other, and keeps nothing of its people; what it hands back,
    # thetas and metrics, is some 9 kB a seed
    strategy = STRATEGIES["deciding"]
    simulated(world, strategy, 2)
    few, many = (peak(lambda n=n: simulated(world, strategy, 3, n)) for n in (2, 60))
    assert many < few + 4 * KEPT  # 58 reservoirs more, if they were kept


_TWO_RUNS = """
import resource
import consequential as cq

def largest(time_steps):
    cq.simulate(
        cq.worlds.second_setting(),
        cq.lab.LearnToDecide("logistic", cq.lab.sequences.Aggregated(20_000), n_iterations=4),
        seeds=1, time_steps=time_steps, n_proposals=20_000, n_jobs=1, progress=False,
    )
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

print(largest(4), largest(40))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux")
def test_a_process_does_not_grow_while_a_run_goes_on():
    # compiled code allocates where tracemalloc does not look
    done = subprocess.run(
        [sys.executable, "-c", _TWO_RUNS], capture_output=True, text=True, check=True
    )
    short, long = map(int, done.stdout.split())
    # all rows of 36 more steps would be 36 * 20 000 * 34 bytes: 24 000 kilobytes
    assert long - short < 8_000
