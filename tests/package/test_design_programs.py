"""Programs of the design that must run as they stand, with smaller numbers."""

from __future__ import annotations

import numpy as np
import pytest

import consequential as cq
from consequential.lab.worlds import Parameters
from consequential.lab.worlds.synthetic import FirstSetting

TINY = Parameters(time_steps=3, n_proposals=600, n_iterations=4, batch_size=64)


def test_the_first_program_runs(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(FirstSetting, "parameters", TINY)
    monkeypatch.chdir(tmp_path)

    world = cq.worlds.first_setting()
    runs = cq.simulate(world, cq.paper_strategies(), seeds=2, penalties=[0.0], time_steps=2)
    print(runs.summary())
    runs.plot("utility").figure.savefig("utility.png")
    policy = runs.final_policy("semi-logistic, aggregated", seed=0)
    print(world.optimal().utility, world.exact(policy).benefit_gap)

    *table, numbers = capsys.readouterr().out.splitlines()
    for strategy, line in zip(cq.paper_strategies(), table[2:8], strict=True):
        assert line.startswith(f"{strategy.name} ")
    best, gap = map(float, numbers.split())
    assert best == pytest.approx(0.178, abs=5e-4)
    found = runs.select("semi-logistic, aggregated")[0].metrics["benefit_gap"][-1]
    assert gap == pytest.approx(found, abs=1e-9)
    assert (tmp_path / "utility.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("make", ["first_setting", "second_setting", "lending", "compas", "german"])
def test_the_worlds_the_first_program_names_can_take_its_place(make):
    world = getattr(cq.worlds, make)()
    world.parameters = TINY
    strategy = cq.lab.LearnToDecide("semi_logistic", "aggregated")
    runs = cq.simulate(world, strategy, seeds=1, time_steps=1, n_proposals=200, progress=False)
    assert np.isfinite(runs.metric("utility", strategy.name)).all()


class OddHours(cq.worlds.World):
    """The third program, its two methods filled in."""

    cost = 0.5

    def propose(self, n, rng):
        hour = rng.integers(24, size=n)
        return np.cos(2 * np.pi * hour / 24), np.where(hour % 2, "odd", "even")

    def label_probability(self, features, sensitive):
        return 0.5 + 0.4 * features[:, 0]


def test_the_third_program_makes_a_world_to_learn_in():
    world = OddHours()
    assert world.groups == ("even", "odd")
    runs = cq.simulate(
        world,
        cq.lab.LearnToDecide("logistic"),
        seeds=2,
        time_steps=8,
        n_proposals=1000,
        progress=False,
    )
    utility = runs.metric("utility", "logistic, iterative")
    # accepting where the cosine is positive gains E[0.4 max(cos, 0)]
    best = np.maximum(0.4 * np.cos(2 * np.pi * np.arange(24) / 24), 0).mean()
    assert (utility[:, -1] > 0.8 * best).all()
    assert (utility <= best + 0.01).all()
    assert world.measure(cq.AcceptAll()).utility == pytest.approx(0.0, abs=0.01)


def test_the_fourth_program_learns_as_scikit_learn_does():
    world = OddHours()
    log = world.collect(cq.Policy([0.0, 1.0]), 2000, np.random.default_rng(0))
    X, y, z, d, p = log.features, log.outcome, log.sensitive, log.decision, log.propensity
    X_new = np.array([[-0.9], [0.9]])

    learner = cq.FairPolicyLearner(method="direct", cost=0.6, penalty=5.0)
    learner.fit(X, y, sensitive_features=z, decisions=d, propensities=p)
    decided = learner.decide(X_new, random_state=7)

    assert decided.tolist() == [0, 1]
    assert learner.predict(X_new).tolist() == [0, 1]
    assert learner.predict_proba(X_new)[:, 1] == pytest.approx([0.0, 1.0], abs=0.05)
