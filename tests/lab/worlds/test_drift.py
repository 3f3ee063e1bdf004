"""Worlds that change over time: what `at` gives, and what it may not change."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad

import consequential as cq
from consequential.lab.worlds import Parameters
from consequential.lab.worlds.world import world_at


class Coins(cq.worlds.World):
    """Heads gets more likely by the step."""

    cost = 0.5
    n_held_out = 200

    def __init__(self, luck=0.0):
        self.luck = luck

    def propose(self, n, rng):
        return rng.random((n, 1)), rng.choice(["a", "b"], size=n)

    def label_probability(self, features, sensitive):
        return np.full(len(features), self.luck)

    def at(self, time_step):
        return Coins(time_step / 10)


# --- any world


def test_a_world_stands_still_unless_it_says_otherwise():
    world = cq.worlds.second_setting()
    assert world.at(0) is world.at(17) is world
    assert not world.drifts
    assert Coins().drifts


def test_a_world_drifts_too_when_its_at_is_given_to_the_object():
    world = cq.worlds.second_setting()
    world.at = lambda time_step: cq.worlds.second_setting()
    assert world.drifts


def test_people_of_a_step_come_from_the_world_at_that_step():
    log = Coins().collect(cq.AcceptAll(), 50, np.random.default_rng(0), time_step=10)
    assert_array_equal(log.label, np.ones(50))
    assert_array_equal(log.time_step, np.full(50, 10))


def test_without_a_step_people_come_from_the_world_as_it_stands():
    log = Coins().at(10).collect(cq.AcceptAll(), 50, np.random.default_rng(0))
    assert_array_equal(log.label, np.ones(50))
    assert_array_equal(log.time_step, np.zeros(50))


def test_algorithm_1_goes_through_the_worlds_of_its_steps():
    steps = cq.consequential_learning(
        Coins(),
        cq.AcceptAll(),
        None,
        time_steps=11,
        n_proposals=400,
        rng=np.random.default_rng(0),
    )
    shares = [step.log.label.mean() for step in steps]
    assert_allclose(shares, np.arange(11) / 10, atol=0.08)
    assert (shares[0], shares[-1]) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("fixed", "value"),
    [("cost", 0.4), ("groups", ("a", "b", "c")), ("parameters", Parameters(time_steps=3))],
)
def test_what_may_not_drift_is_named_when_it_does(fixed, value):
    class Moving(Coins):
        def at(self, time_step):
            there = Coins()
            if time_step == 2:
                setattr(there, fixed, value)
            return there

    world = Moving()
    assert isinstance(world_at(world, 1), Coins)
    with pytest.raises(ValueError, match=rf"at\(2\) has {fixed} .* Give both worlds the same"):
        world.collect(cq.AcceptAll(), 5, np.random.default_rng(0), time_step=2)


def test_at_must_give_a_world():
    class Forgetful(Coins):
        def at(self, time_step):
            pass

    with pytest.raises(TypeError, match=r"at\(3\) must give a world, not NoneType"):
        world_at(Forgetful(), 3)


# --- the one that is shipped


def test_the_drift_ends_as_the_first_setting():
    end, first = cq.worlds.drift().at(200), cq.worlds.first_setting()
    scores = np.linspace(-0.8, 0.8, 101)
    assert_array_equal(end.score_probability(scores), first.score_probability(scores))
    assert end.cost == first.cost == cq.worlds.drift().cost
    assert_array_equal(end.alias_table.cells, first.alias_table.cells)
    assert round(end.optimal().utility, 4) == 0.1780


def test_the_drift_as_it_stands_is_that_of_step_0_and_it_stays_where_it_ends():
    world = cq.worlds.drift(0.1, -0.2, steps=3)
    assert [world.at(t).shift for t in (0, 1, 3, 50)] == pytest.approx([0.1, 0.0, -0.2, -0.2])
    assert world.shift == 0.1
    assert not world.at(2).drifts


@pytest.mark.parametrize("ends", [(0.4, 0.0), (0.0, 0.4)])
def test_label_probabilities_stay_probabilities_all_along(ends):
    world = cq.worlds.drift(*ends)
    scores = np.linspace(-0.8, 0.8, 400)
    for time_step in (0, 50, 120, 200):
        probability = world.at(time_step).score_probability(scores)
        assert probability.min() >= 0.0
        assert probability.max() <= 1.0
        assert (np.diff(probability) >= 0).all()


@pytest.mark.parametrize("time_step", [0, 80, 200])
def test_the_truth_of_a_step_is_the_integral_over_its_people(time_step):
    there = cq.worlds.drift().at(time_step)
    policy = cq.Policy([0.4, 3.0])

    def integral(value):
        def over(group):
            mean = (0.5, -0.5)[group]
            mass = quad(lambda x: np.exp(-0.5 * (x - mean) ** 2), -0.8, 0.8)[0]
            kink = -0.8 + there.shift  # beyond it nobody has label 1
            return (
                quad(lambda x: np.exp(-0.5 * (x - mean) ** 2) * value(x), -0.8, 0.8, points=[kink])[
                    0
                ]
                / mass
            )

        return (over(0) + over(1)) / 2

    def gain(x):
        chance = policy.propensity([[x]])[0]
        return chance * (there.score_probability(np.array([x]))[0] - there.cost)

    assert there.exact(policy).utility == pytest.approx(integral(gain), abs=1e-7)
    cut = -0.3 + there.shift
    assert there.optimal(among="thresholds").threshold == pytest.approx(cut, abs=1e-4)


def test_people_of_a_step_are_as_its_curve_says():
    there = cq.worlds.drift().at(100)
    people = there.people(60_000, np.random.default_rng(1))
    accepted = people.features[:, 0] > 0.3
    expected = there.score_probability(people.features[accepted, 0]).mean()
    assert people.label[accepted].mean() == pytest.approx(expected, abs=0.01)


def test_a_drift_takes_time():
    with pytest.raises(ValueError, match="at least one step"):
        cq.worlds.drift(steps=0)
