"""A world of your own: a cost and two short methods."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

import consequential as cq


class OddHours(cq.worlds.World):
    """Applications by the hour; people who apply at odd hours repay differently."""

    cost = 0.5

    def propose(self, n, rng):
        hour = 24 * rng.random(n)
        night = rng.random(n) < 0.25
        return hour[:, None], np.where(night, "shift worker", "day worker")

    def label_probability(self, features, sensitive):
        odd = np.abs(features[:, 0] - 12) / 12
        return np.where(sensitive == "shift worker", 0.7, 0.9 - 0.8 * odd)


class Plain(cq.worlds.World):
    """The same interface in lists and plain vectors."""

    cost = 0.5
    n_held_out = 2_000

    def propose(self, n, rng):
        return rng.random(n).tolist(), [int(u < 0.5) for u in rng.random(n)]

    def label_probability(self, features, sensitive):
        return features[:, 0].tolist()


def by_hand(policy: cq.Policy) -> dict[str, tuple[float, float]]:
    """Utility and acceptance of each group, by quadrature over the day."""
    curves = {"shift worker": lambda h: 0.7, "day worker": lambda h: 0.9 - 0.8 * abs(h - 12) / 12}

    def mean(curve):
        return quad(lambda h: curve(h) * policy.propensity([[h]])[0] / 24, 0, 24, points=[12])[0]

    return {
        group: (mean(lambda h, p=p: p(h) - 0.5), mean(lambda h: 1.0)) for group, p in curves.items()
    }


def test_groups_are_detected_and_sorted():
    assert OddHours().groups == ("day worker", "shift worker")
    assert Plain().groups == (0, 1)


def test_groups_can_be_stated_where_one_of_them_is_rare():
    class Rare(OddHours):
        groups = ("day worker", "nobody yet", "shift worker")

    log = Rare().collect(cq.AcceptAll(), 100, np.random.default_rng(0))
    assert log.groups == ("day worker", "nobody yet", "shift worker")
    assert log.group_counts[1] == 0
    assert set(log.sensitive) == {"day worker", "shift worker"}


def test_people_measured_on_are_close_to_the_integrals():
    """Held-out people are a sample: four standard errors of 20 000."""
    world, policy = OddHours(), cq.Policy([2.0, -0.2])
    truth, found = by_hand(policy), world.measure(policy)
    shares = {"day worker": 0.75, "shift worker": 0.25}
    utility = sum(shares[group] * truth[group][0] for group in shares)
    acceptance = sum(shares[group] * truth[group][1] for group in shares)
    assert found.utility == pytest.approx(utility, abs=4 * 0.5 / np.sqrt(20_000))
    assert found.acceptance == pytest.approx(acceptance, abs=4 * 0.5 / np.sqrt(20_000))
    for group, share in shares.items():
        tolerance = 4 * 0.5 / np.sqrt(share * 20_000)
        assert found.benefits[group] == pytest.approx(truth[group][1], abs=tolerance)
    gap = truth["day worker"][1] - truth["shift worker"][1]
    assert found.benefit_gap == pytest.approx(gap, abs=4 / np.sqrt(0.25 * 20_000))


def test_measuring_needs_no_draws_of_labels_and_gives_the_same_every_time():
    policy = cq.Policy([2.0, -0.2])
    one, other = OddHours().measure(policy), OddHours().measure(policy)
    assert one == other
    held_out = OddHours().held_out
    assert held_out.mass.sum() == pytest.approx(1.0)
    assert np.unique(held_out.label_probability[:, 0]).size > 1000


@pytest.mark.parametrize("notion", ["demographic_parity", "equal_opportunity"])
def test_measure_takes_any_fairness_notion(notion):
    world = OddHours()
    group = cq.Policy([2.0, -0.2, -1.0, 0.1], groups=world.groups)
    people = world.held_out
    known = people.metrics(group, world.cost, cq.fairness.fairness_named(notion))
    assert world.measure(group, notion) == known
    assert world.measure(group, cq.fairness.fairness_named(notion)) == known


@pytest.mark.parametrize("n", [1, 7, 500])
def test_a_log_has_one_row_a_person(n):
    log = OddHours().collect(cq.AcceptAll(), n, np.random.default_rng(1))
    assert len(log) == n
    assert log.features.shape == (n, 1)
    assert set(log.sensitive) <= {"day worker", "shift worker"}


def test_features_are_numbered_unless_the_world_names_them():
    class Named(OddHours):
        feature_names = ("hour",)

    names = [
        world.collect(cq.AcceptAll(), 5, np.random.default_rng(0)).feature_names
        for world in (OddHours(), Named())
    ]
    assert names == [("x0",), ("hour",)]


def test_lists_and_vectors_do_as_well_as_arrays():
    world = Plain()
    log = world.collect(cq.Policy([0.0, 1.0]), 200, np.random.default_rng(2))
    assert log.features.shape == (200, 1)
    assert world.measure(cq.AcceptAll()).utility == pytest.approx(0.0, abs=4 * 0.29 / np.sqrt(2000))


def test_the_initial_policy_is_fitted_on_500_labelled_people_and_cuts_at_the_cost():
    world = Plain()
    world.cost = 0.3
    policy = world.initial_policy("semi_logistic", rng=np.random.default_rng(3))
    assert policy.link.name == "semi_logistic"
    # labels are 1 with probability x, so a good model predicts the cost near x = cost
    cut = -policy.theta[0] / policy.theta[1]
    assert cut == pytest.approx(0.3, abs=0.12)
    model = cq.logistic_model(world.initial_theta(np.random.default_rng(3)))
    assert model.predict_proba([[cut]])[0, 1] == pytest.approx(0.3)


def test_the_initial_policy_is_a_function_of_its_generator():
    world = OddHours()
    default = world.initial_policy().theta.tolist()
    assert default == world.initial_policy(rng=np.random.default_rng(0)).theta.tolist()
    assert default != world.initial_policy(rng=np.random.default_rng(1)).theta.tolist()


def test_a_world_of_your_own_has_algorithm_1s_usual_sizes():
    assert OddHours().parameters == cq.worlds.Parameters()
    assert cq.worlds.Parameters().time_steps == 200


def test_strategies_can_be_simulated_in_it():
    strategies = [cq.lab.LearnToDecide("logistic"), cq.lab.LearnToPredict()]
    runs = cq.simulate(
        OddHours(), strategies, seeds=2, time_steps=3, n_proposals=200, progress=False
    )
    for strategy in strategies:
        for seed in range(2):
            utility = runs.metric("utility", strategy.name)[seed, -1]
            final = runs.final_policy(strategy.name, seed=seed)
            assert utility == pytest.approx(OddHours().measure(final).utility)


@pytest.mark.parametrize("missing", ["propose", "label_probability"])
def test_a_world_needs_both_methods(missing):
    methods = {"propose": Plain.propose, "label_probability": Plain.label_probability}
    del methods[missing]
    unfinished = type("Unfinished", (cq.worlds.World,), methods)
    with pytest.raises(TypeError, match=f"abstract.*{missing}"):
        unfinished()


def test_a_group_that_was_not_known_is_an_error_that_names_it():
    class Newcomers(Plain):
        groups = (0,)

    with pytest.raises(cq.PolicyError, match="unknown sensitive group 1"):
        Newcomers().collect(cq.AcceptAll(), 50, np.random.default_rng(0))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: 3.0 * x[:, 0],
        lambda x: np.nan * x[:, 0],
        lambda x: x,
        lambda x: -x[:, 0],
    ],
    ids=["above one", "missing", "a matrix", "negative"],
)
def test_label_probabilities_that_are_none_are_an_error(wrong):
    class Wrong(Plain):
        def label_probability(self, features, sensitive):
            return wrong(features)

    with pytest.raises(ValueError, match="label_probability"):
        Wrong().collect(cq.AcceptAll(), 50, np.random.default_rng(0))
    with pytest.raises(ValueError, match="label_probability"):
        Wrong().measure(cq.AcceptAll())
