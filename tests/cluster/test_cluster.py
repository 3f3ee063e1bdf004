"""A real cluster of processes: the same results, and workers that may be lost."""

from __future__ import annotations

import os
import signal
import threading
import time

import distributed
import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal

import consequential as cq
from consequential.cli import main
from consequential.workers import on_cluster, spread


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as workers,
        distributed.Client(workers) as client,
    ):
        yield client


def square(x):
    time.sleep(0.05)
    return x * x


def slow_square(x):
    time.sleep(0.4)
    return x * x


def simulated(seeds=4):
    return cq.simulate(
        cq.worlds.first_setting(),
        [cq.lab.LearnToDecide("logistic", "aggregated"), cq.lab.LearnToPredict("iterative")],
        seeds=seeds,
        penalties=[0.0, 10.0],
        time_steps=4,
        n_proposals=500,
        progress=False,
    )


def same_runs(one, other):
    assert [(r.strategy, r.seed, r.penalty) for r in one.runs] == [
        (r.strategy, r.seed, r.penalty) for r in other.runs
    ]
    for a, b in zip(one.runs, other.runs, strict=True):
        assert a.metrics.keys() == b.metrics.keys()
        for name in a.metrics:
            assert_array_equal(a.metrics[name], b.metrics[name])


def test_work_is_spread_within_the_block_and_nowhere_else(client):
    assert not on_cluster()
    with cq.cluster(client):
        assert on_cluster()
        assert sorted(spread(square, range(5))) == [0, 1, 4, 9, 16]
        assert list(spread(square, range(5), ordered=True)) == [0, 1, 4, 9, 16]
    assert not on_cluster()
    assert list(spread(square, range(3), ordered=True)) == [0, 1, 4]


def test_simulations_are_the_same_as_here(client):
    with cq.cluster(client):
        there = simulated()
    same_runs(there, simulated())


def test_an_address_will_do(client):
    with cq.cluster(client.scheduler.address):
        assert on_cluster()
        assert list(spread(square, [3], ordered=True)) == [9]


def test_frontiers_are_the_same_as_here(client):
    world = cq.worlds.first_setting()
    log = world.collect(world.initial_policy().with_floor(0.1), 3000, np.random.default_rng(0))

    def found():
        return cq.frontier(log, cost=world.cost, max_gaps=[0.05, None], folds=2).to_dict()

    with cq.cluster(client):
        there = found()
    assert there == found()


def test_partitions_return_their_sums(client, tmp_path):
    world = cq.worlds.first_setting()
    log = world.collect(world.initial_policy().with_floor(0.1), 4000, np.random.default_rng(0))
    pq.write_table(log.to_frame(), tmp_path / "log.parquet", row_group_size=700)
    names = {
        "features": ["x0"],
        "decision": "decision",
        "propensity": "propensity",
        "label": "label",
        "sensitive": "sensitive",
    }
    here = cq.DecisionLog.scan(tmp_path, **names)
    there = cq.DecisionLog.scan(tmp_path, **names, client=client)
    rule = cq.Policy([0.5, 1.0])
    one, two = (cq.evaluate(rule, scan, cost=world.cost).to_dict() for scan in (here, there))
    assert one == two
    learner = cq.FairPolicyLearner(method="direct", cost=world.cost, max_gap=0.02)
    thetas = [learner.fit_log(scan).policy_.theta for scan in (here, there)]
    assert_array_equal(thetas[0], thetas[1])


def test_a_command_can_send_its_work_to_a_cluster(client, tmp_path, capsys):
    arguments = ["simulate", "first_setting", "--seeds", "2", "--steps", "2"]
    outs = [tmp_path / "here", tmp_path / "there"]
    address = ["--cluster", client.scheduler.address]
    assert main([*arguments, "--out", str(outs[0])]) == 0
    assert main([*arguments, "--out", str(outs[1]), *address]) == 0
    same_runs(*(cq.Runs.load(next((out / "results").glob("runs*"))) for out in outs))
    assert "report:" in capsys.readouterr().out


def test_a_scheduler_that_does_not_answer_is_named(tmp_path, capsys):
    arguments = ["simulate", "first_setting", "--seeds", "1", "--steps", "1"]
    status = main([*arguments, "--out", str(tmp_path / "x"), "--cluster", "tcp://127.0.0.1:9"])
    assert status == 2
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in capsys.readouterr().err


def test_a_worker_that_is_killed_is_made_up_for(client):
    victims = list(client.run(os.getpid).values())

    def strike():
        time.sleep(0.6)
        os.kill(victims[0], signal.SIGKILL)

    threading.Thread(target=strike, daemon=True).start()
    with cq.cluster(client):
        assert sorted(spread(slow_square, range(8))) == [k * k for k in range(8)]
        there = simulated(3)
    same_runs(there, simulated(3))
    assert victims[0] not in client.run(os.getpid).values()


def where(_):
    return os.getpid()


def test_a_cluster_of_one_thread_does_the_work_itself():
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(**options, silence_logs=50) as workers,
        distributed.Client(workers) as client,
        cq.cluster(client),
    ):
        (worker,) = client.run(os.getpid).values()
        assert set(spread(where, range(3))) == {worker}
        assert list(spread(square, range(4), ordered=True)) == [0, 1, 4, 9]
