from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import consequential as cq
from exploring_logs import exploring_log

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")

from consequential.lab.differentiable import DifferentiablePolicy, UpdateDifferentiable  # noqa: E402
from consequential.objective.objective import deviations  # noqa: E402

NOTIONS = ["demographic_parity", "equal_opportunity", "equalised_odds", "predictive_parity"]
RATE = 0.3
SGD = optax.sgd(RATE)
UNIT_STEP = optax.sgd(1.0)
THETA = (0.0, np.array([0.1, 0.0]))
SIZES = {"n_iterations": 40, "batch_size": 50, "n_reference": 120}


def logistic(theta, x):
    return jax.nn.sigmoid(theta[0] + x @ theta[1])


def logistic_by_group(theta, x, z):
    return jax.nn.sigmoid(theta[z, 0] + (x * theta[z, 1:]).sum(axis=1))


def network(theta, x):
    hidden = jax.numpy.tanh(x / 3.5 @ theta["in"] + theta["shift"])
    return jax.nn.sigmoid(hidden @ theta["out"] + theta["level"])


def small_network(n_features, n_hidden):
    rng = np.random.default_rng(0)
    return {
        "in": rng.normal(size=(n_features, n_hidden)),
        "shift": rng.normal(size=n_hidden),
        "out": rng.normal(size=n_hidden),
        "level": 0.0,
    }


def undecided_network(n_hidden=16):
    """Steps spread over the scores, none of which counts yet: everybody has an even chance."""
    slopes = np.full(n_hidden, 20.0)
    return {
        "in": slopes[None],
        "shift": -slopes * np.linspace(-2.0, 2.0, n_hidden),
        "out": np.zeros(n_hidden),
        "level": 0.0,
    }


def both_learned(objective, log, floor=0.0, **options):
    """The same update in NumPy for the linear policy and by autodiff for its twin."""
    options = SIZES | options
    linear = cq.Policy([-0.5, 0.4, -0.2], floor=floor)
    twin = DifferentiablePolicy((-0.5, np.array([0.4, -0.2])), logistic, floor=floor)
    step = cq.lab.steps.GradientStep(RATE)
    by_hand = cq.UpdatePolicy(objective, step=step, engine="numpy", **options)
    by_autodiff = UpdateDifferentiable(objective, optimiser=SGD, **options)
    return (
        by_hand(linear, log, rng=np.random.default_rng(7)),
        by_autodiff(twin, log, rng=np.random.default_rng(7)),
    )


def flat(theta):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(theta)])


# The same update as UpdatePolicy


@pytest.mark.parametrize(
    ("notion", "penalty", "normalisation", "n_groups"),
    [
        ("demographic_parity", 2.0, "paper", 3),
        ("equal_opportunity", 2.0, "applicants", 3),
        ("equalised_odds", 2.0, "paper", 2),
        ("predictive_parity", 2.0, "applicants", 2),
        ("predictive_parity", 0.0, "paper", 3),
    ],
)
def test_a_logistic_policy_learns_what_the_numpy_ascent_learns(
    notion, penalty, normalisation, n_groups
):
    objective = cq.Objective(0.4, notion, penalty, normalisation=normalisation)
    by_hand, by_autodiff = both_learned(objective, exploring_log(900, n_groups))
    assert_allclose(flat(by_autodiff.policy.theta), by_hand.policy.theta, rtol=0, atol=1e-9)
    assert by_autodiff.objective_before == pytest.approx(by_hand.objective_before, abs=1e-12)
    assert by_autodiff.objective_after == pytest.approx(by_hand.objective_after, abs=1e-9)
    assert by_autodiff.notes == by_hand.notes


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": False},
        {"batch_size": 400, "n_reference": 64},
        {"batch_size": 7, "n_reference": 100},
        {"batch_size": 5, "n_reference": 180},
        {"n_reference": 0},
        {"n_iterations": 3},
    ],
)
def test_every_choice_of_rows_is_the_numpy_ascents(options):
    objective = cq.Objective(0.4, "equalised_odds", 2.0)
    by_hand, by_autodiff = both_learned(objective, exploring_log(700), floor=0.1, **options)
    assert_allclose(flat(by_autodiff.policy.theta), by_hand.policy.theta, rtol=0, atol=1e-9)


@pytest.mark.parametrize("notion", NOTIONS)
def test_an_absent_group_is_left_out_and_named_alike(notion):
    log = exploring_log(600, 3)
    objective = cq.Objective(0.4, notion, 2.0)
    by_hand, by_autodiff = both_learned(objective, log.take(log.group != 1))
    assert_allclose(flat(by_autodiff.policy.theta), by_hand.policy.theta, rtol=0, atol=1e-9)
    assert by_autodiff.notes == by_hand.notes
    assert "benefit of 1" in by_autodiff.notes[0]


def test_a_policy_that_uses_the_sensitive_attribute_learns_the_same_too():
    log = exploring_log(800, 2)
    objective = cq.Objective(0.4, "demographic_parity", 2.0)
    theta = np.array([[-0.5, 0.4, -0.2], [0.1, 0.3, 0.0]])
    by_hand = cq.UpdatePolicy(
        objective, step=cq.lab.steps.GradientStep(RATE), engine="numpy", **SIZES
    )
    by_autodiff = UpdateDifferentiable(objective, optimiser=SGD, **SIZES)
    blocks = cq.Policy(theta.ravel(), groups=[1, 0])
    twin = DifferentiablePolicy(theta, logistic_by_group, groups=[1, 0])
    expected = by_hand(blocks, log, rng=np.random.default_rng(7)).policy
    learned = by_autodiff(twin, log, rng=np.random.default_rng(7)).policy
    assert_allclose(learned.theta.ravel(), expected.theta, rtol=0, atol=1e-9)
    assert_allclose(
        learned.propensity(log.features, log.sensitive),
        expected.propensity(log.features, log.sensitive),
        rtol=0,
        atol=1e-9,
    )


# The gradient


@pytest.mark.parametrize("notion", NOTIONS)
def test_a_networks_step_is_the_finite_difference_of_its_sums(notion):
    log = exploring_log(600, 3)
    objective = cq.Objective(0.4, notion, 3.0)
    start = DifferentiablePolicy(small_network(2, 3), network, floor=0.05)
    update = UpdateDifferentiable(objective, 1, 200, n_reference=150, optimiser=UNIT_STEP)
    learned = update(start, log, rng=np.random.default_rng(3)).policy
    # two minibatches: residuals come from the first, their slopes from the second
    order = np.random.default_rng(3).choice(600, 400, replace=False)
    coefficients = objective.coefficients(log).take(order)
    shares = np.bincount(log.group) / 600

    def sums(policy, rows):
        here = coefficients.take(rows)
        by_group = (shares / here.shares())[here.group]
        scaled = tuple(
            replace(
                benefit,
                values=benefit.values * by_group,
                denominator=None if benefit.denominator is None else benefit.denominator * by_group,
            )
            for benefit in here.benefits
        )
        propensity = policy.propensity(log.features[order][rows])
        return replace(here, benefits=scaled).sums(propensity)

    def utility(policy):
        return sums(policy, slice(0, 200)).utility

    def spread(policy, rows):
        return deviations(sums(policy, rows).benefits)

    elsewhere = spread(start, slice(0, 200))

    def ascended(policy):
        return utility(policy) - 2 * 3.0 * (elsewhere * spread(policy, slice(200, 400))).sum()

    expected = finite_difference(ascended, start)
    assert_allclose(flat(learned.theta) - flat(start.theta), expected, rtol=1e-6, atol=1e-8)


def finite_difference(f, policy, width=1e-5):
    leaves, structure = jax.tree.flatten(policy.theta)
    slopes = []
    for k, leaf in enumerate(leaves):
        for index in np.ndindex(leaf.shape):
            ends = []
            for change in (width, -width):
                moved = [np.array(each) for each in leaves]
                moved[k][index] += change
                ends.append(f(policy.at(jax.tree.unflatten(structure, moved))))
            slopes.append((ends[0] - ends[1]) / (2 * width))
    return np.array(slopes)


# In a world


def test_a_small_network_beats_the_best_single_threshold_in_the_second_setting():
    # near the best policy there is, 0.0920, and far above 0.0651
    world = cq.worlds.second_setting()
    assert world.optimal(among="thresholds").utility == pytest.approx(0.0651, abs=1e-4)
    policy = DifferentiablePolicy(undecided_network(), network)
    learner = UpdateDifferentiable(cq.Objective(world.cost), 100, 4096)
    steps = cq.consequential_learning(
        world, policy, learner, time_steps=10, n_proposals=32_768, rng=np.random.default_rng(0)
    )
    learned = [step.learned for step in steps][-1]
    assert world.exact(learned).utility > 0.08


def test_a_penalty_closes_a_networks_gap():
    world = cq.worlds.second_setting()
    log = world.collect(cq.AcceptAll(), 20_000, np.random.default_rng(0))

    def gap(penalty):
        objective = cq.Objective(world.cost, "demographic_parity", penalty)
        learner = UpdateDifferentiable(objective, 300, 1024)
        policy = DifferentiablePolicy(undecided_network(), network)
        learned = learner(policy, log, rng=np.random.default_rng(1)).policy
        return abs(world.exact(learned).benefit_gap)

    assert gap(20.0) < 0.3 * gap(0.0)


# Updates and policies


def test_an_update_depends_on_its_generator_alone_and_leaves_its_policy():
    policy = DifferentiablePolicy(THETA, logistic)
    learn = UpdateDifferentiable(cq.Objective(0.5), 20, 50, optimiser=SGD)
    first, again, other = (
        learn(policy, exploring_log(), rng=np.random.default_rng(seed)).policy for seed in (1, 1, 2)
    )
    assert_array_equal(flat(first.theta), flat(again.theta))
    assert not np.array_equal(flat(first.theta), flat(other.theta))
    assert_array_equal(flat(policy.theta), [0.0, 0.1, 0.0])


def test_the_floor_and_the_groups_stay_while_learning():
    policy = DifferentiablePolicy(np.zeros((2, 3)), logistic_by_group, groups=[0, 1])
    learn = UpdateDifferentiable(cq.Objective(0.5), 20, 50)
    start = policy.with_floor(0.2)
    learned = learn(start, exploring_log(), rng=np.random.default_rng(0)).policy
    assert (learned.floor, learned.groups) == (0.2, (0, 1))
    assert repr(learned) == (
        "DifferentiablePolicy(logistic_by_group, 6 parameters, floor=0.2, "
        "uses the sensitive attribute, groups=[0, 1])"
    )


def test_logs_of_about_the_same_size_share_a_compiled_loop():
    traced = []

    def counting(theta, x):
        traced.append(len(x))
        return logistic(theta, x)

    def learn(n_rows, cost, penalty, n_iterations):
        objective = cq.Objective(cost, "equal_opportunity", penalty)
        update = UpdateDifferentiable(
            objective, n_iterations, 20, n_reference=60, optimiser=optimiser
        )
        start = DifferentiablePolicy(THETA, counting, floor=penalty / 10)
        update(start, exploring_log(n_rows), rng=np.random.default_rng(0))

    optimiser = optax.sgd(0.1)
    learn(300, cost=0.5, penalty=1.0, n_iterations=20)
    once = len(traced)
    learn(400, cost=0.3, penalty=2.0, n_iterations=30)
    assert len(traced) == once


def test_nothing_global_changes():
    policy = DifferentiablePolicy(THETA, logistic)
    learn = UpdateDifferentiable(cq.Objective(0.5), 20, 50, optimiser=SGD)
    learned = learn(policy, exploring_log(), rng=np.random.default_rng(0)).policy
    assert learned.propensity(np.zeros((3, 2))).dtype == np.float64
    assert not jax.config.jax_enable_x64


def test_steps_that_are_not_finite_are_not_taken_and_counted():
    def cliff(theta, x):
        # the square root's slope at 0 is infinite
        return jax.numpy.sqrt(theta * (x[:, 0] < 9.0))

    policy = DifferentiablePolicy(0.0, cliff)
    learn = UpdateDifferentiable(cq.Objective(0.5), 4, 50, optimiser=SGD)
    update = learn(policy, exploring_log(), rng=np.random.default_rng(0))
    assert update.policy.theta == 0.0
    assert update.notes == ("4 of 4 steps were not finite and not taken",)


def test_a_log_without_anybody_accepted_leaves_the_policy_and_says_so():
    log = cq.DecisionLog.from_arrays(np.zeros((9, 2)), [0] * 9, [0.1] * 9, [None] * 9)
    policy = DifferentiablePolicy(THETA, logistic)
    learn = UpdateDifferentiable(cq.Objective(0.5), 4, 50, optimiser=SGD)
    update = learn(policy, log, rng=np.random.default_rng(0))
    assert update.policy is policy
    assert "nobody was accepted" in update.notes[0]


def test_a_policy_survives_pickling_and_decides_on_nobody():
    policy = pickle.loads(pickle.dumps(DifferentiablePolicy(THETA, logistic)))
    assert policy.propensity(np.zeros((0, 2))).shape == (0,)
    assert_array_equal(policy.propensity(np.zeros((3, 2))), [0.5] * 3)


# Errors


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda theta, x: theta + x, r"one number per row: for 4 rows it returned shape \(4, 1\)"),
        (lambda theta, x: theta, r"returned shape \(\)"),
        (lambda theta, x: theta + x[:, 0] / 0.0, "3 of 3 are not .first: nan in row 0"),
        (lambda theta, x: theta + x[:, 0], "1 of 3 are not .first: 1.5 in row 2"),
        (lambda theta, x: theta - x[:, 0], "1 of 3 are not .first: -0.5 in row 2"),
    ],
)
def test_what_a_function_returns_is_checked(function, message):
    policy = DifferentiablePolicy(0.5, function)
    with pytest.raises(cq.PolicyError, match=message):
        policy.propensity([[0.0], [0.0], [1.0]])


def test_a_floor_does_not_hide_a_negative_probability():
    policy = DifferentiablePolicy(-0.1, lambda theta, x: theta + x[:, 0], floor=0.5)
    with pytest.raises(cq.PolicyError, match="between 0 and 1"):
        policy.propensity([[0.0]])


@pytest.mark.parametrize(
    ("theta", "message"), [([np.nan], "finite"), ({"a": "b"}, "arrays of numbers")]
)
def test_theta_is_finite_numbers(theta, message):
    with pytest.raises(cq.PolicyError, match=message):
        DifferentiablePolicy(theta, logistic)


def test_propensity_is_a_function():
    with pytest.raises(cq.PolicyError, match="is a function"):
        DifferentiablePolicy([0.0], 0.5)


def test_people_are_checked():
    policy = DifferentiablePolicy(np.zeros((2, 2)), logistic_by_group, groups=["a", "b"])
    with pytest.raises(cq.PolicyError, match="pass `sensitive`"):
        policy.propensity([[0.0]])
    with pytest.raises(cq.PolicyError, match="one value per row"):
        policy.propensity([[0.0]], ["a", "b"])
    with pytest.raises(cq.PolicyError, match="unknown sensitive group 'c'"):
        policy.propensity([[0.0]], ["c"])
    with pytest.raises(cq.PolicyError, match="impute missing values"):
        policy.propensity([[np.nan]], ["a"])


def test_sampled_decisions_are_refused_with_the_reason():
    with pytest.raises(ValueError, match="autodiff of the expectation is exact"):
        UpdateDifferentiable(cq.Objective(0.5, decisions="sampled"), 4, 50)


def test_sizes_and_the_optimiser_are_checked():
    with pytest.raises(ValueError, match="batch_size is at least 1"):
        UpdateDifferentiable(cq.Objective(0.5), 4, 0)
    with pytest.raises(ValueError, match="an optax optimiser"):
        UpdateDifferentiable(cq.Objective(0.5), 4, 50, optimiser="adam")


def test_without_jax_the_error_says_what_to_install(monkeypatch):
    policy = DifferentiablePolicy(THETA, logistic)
    learn = UpdateDifferentiable(cq.Objective(0.5), 4, 50)
    monkeypatch.setitem(sys.modules, "jax", None)
    how = r"needs jax: pip install consequential\[jax\]"
    with pytest.raises(ImportError, match=how):
        DifferentiablePolicy(THETA, logistic)
    with pytest.raises(ImportError, match=how):
        policy.propensity(np.zeros((1, 2)))
    with pytest.raises(ImportError, match=how):
        learn(policy, exploring_log(), rng=np.random.default_rng(0))


def test_without_jax_the_package_can_still_be_imported():
    script = "import sys; sys.modules['jax'] = None; import consequential.lab.differentiable"
    subprocess.run([sys.executable, "-c", script], check=True)
