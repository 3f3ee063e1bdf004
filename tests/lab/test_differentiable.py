from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import consequential as cq
from exploring_logs import exploring_log

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")

from consequential.lab.differentiable import (  # noqa: E402
    DifferentiablePolicy,
    UpdateDifferentiable,
    columns_of,
    estimate,
)

NOTIONS = ["demographic_parity", "equal_opportunity", "equalised_odds", "predictive_parity"]
SGD = optax.sgd(0.3)
THETA = (-0.5, np.array([0.4, -0.2]))
LEARN = UpdateDifferentiable(cq.Objective(0.5), 20, 50, optimiser=SGD)


def logistic(theta, x):
    return jax.nn.sigmoid(theta[0] + x @ theta[1])


def logistic_by_group(theta, x, z):
    return jax.nn.sigmoid(theta[z, 0] + (x * theta[z, 1:]).sum(axis=1))


def network(theta, x):
    hidden = jax.numpy.tanh(x / 3.5 @ theta["in"] + theta["shift"])
    return jax.nn.sigmoid(hidden @ theta["out"] + theta["level"])


def undecided_network(n_hidden=16):
    """Steps spread over the scores, none of which counts yet: everybody has an even chance."""
    slopes = np.full(n_hidden, 20.0)
    shift = -slopes * np.linspace(-2.0, 2.0, n_hidden)
    return {"in": slopes[None], "shift": shift, "out": np.zeros(n_hidden), "level": 0.0}


def flat(theta):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(theta)])


def learned(learn, policy, log, seed=0):
    return learn(policy, log, rng=np.random.default_rng(seed)).policy


def whole_log(policy, objective, log):
    """The estimate and its gradient where both minibatches are the whole log."""
    rows, penalised = objective.rows(log), objective.penalty > 0
    people = policy.inputs(rows.features, rows.sensitive if policy.groups else None)
    read = columns_of(people, objective.coefficients(log), penalised=penalised)
    drawn = np.tile(np.arange(len(rows)), (2 if penalised else 1, 1))
    with jax.enable_x64(True):
        return jax.value_and_grad(estimate)(
            policy.theta, read, drawn, policy.floor, objective.penalty, policy.function
        )


# The gradient


@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.parametrize("penalty", [0.0, 3.0])
@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("normalisation", ["applicants", "paper"])
def test_on_the_whole_log_value_and_gradient_are_the_objectives(
    notion, penalty, n_groups, normalisation
):
    log = exploring_log(300, n_groups)
    objective = cq.Objective(0.4, notion, penalty, normalisation=normalisation)
    linear = cq.Policy([-0.5, 0.4, -0.2], floor=0.1)
    value, gradient = whole_log(DifferentiablePolicy(THETA, logistic, floor=0.1), objective, log)
    assert float(value) == pytest.approx(objective.value(linear, log), abs=1e-12)
    assert_allclose(flat(gradient), objective.gradient(linear, log), rtol=0, atol=1e-12)


def test_a_benefit_of_an_absent_group_is_left_out_of_the_gradient_and_named():
    log = exploring_log(600, 3)
    log = log.take(log.group != 1)
    objective = cq.Objective(0.4, "equal_opportunity", 3.0)
    _, gradient = whole_log(DifferentiablePolicy(THETA, logistic), objective, log)
    expected = objective.gradient(cq.Policy([-0.5, 0.4, -0.2]), log)
    assert_allclose(flat(gradient), expected, rtol=0, atol=1e-12)
    learn = UpdateDifferentiable(objective, 20, 50, optimiser=SGD)
    update = learn(DifferentiablePolicy(THETA, logistic), log, rng=np.random.default_rng(0))
    assert "benefit of 1" in update.notes[0]


def test_the_gradient_in_the_parameters_of_each_group_is_the_objectives():
    log = exploring_log(300, 2)
    objective = cq.Objective(0.4, "demographic_parity", 2.0)
    theta = np.array([[-0.5, 0.4, -0.2], [0.1, 0.3, 0.0]])
    policy = DifferentiablePolicy(theta, logistic_by_group, groups=[1, 0])
    blocks = cq.Policy(theta.ravel(), groups=[1, 0])
    _, gradient = whole_log(policy, objective, log)
    assert_allclose(flat(gradient), objective.gradient(blocks, log), rtol=0, atol=1e-12)
    assert_allclose(
        policy.propensity(log.features, log.sensitive),
        blocks.propensity(log.features, log.sensitive),
        rtol=0,
        atol=1e-12,
    )


def test_small_minibatches_do_not_bias_the_penaltys_gradient():
    # Steps too short to move theta add up to the mean gradient. With both residuals from the same
    # 10 rows it is off by 0.08; with independent rows its standard error is 0.0004.
    log = exploring_log(300)
    objective = cq.Objective(0.4, "demographic_parity", 10.0)
    n, rate = 50_000, 1e-9
    learn = UpdateDifferentiable(objective, n, 10, optimiser=optax.sgd(rate))
    policy = DifferentiablePolicy(THETA, logistic)
    mean = (flat(learned(learn, policy, log).theta) - flat(THETA)) / (n * rate)
    expected = objective.gradient(cq.Policy([-0.5, 0.4, -0.2]), log)
    assert_allclose(mean, expected, rtol=0, atol=0.003)


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
    assert world.exact([step.learned for step in steps][-1]).utility > 0.085


@pytest.mark.parametrize(
    ("notion", "left"), [("demographic_parity", 0.2), ("equal_opportunity", 0.5)]
)
def test_a_penalty_closes_the_gap_in_the_first_setting(notion, left):
    world = cq.worlds.first_setting()
    log = world.collect(cq.AcceptAll(), 20_000, np.random.default_rng(0))

    def exact(penalty):
        learn = UpdateDifferentiable(cq.Objective(world.cost, notion, penalty), 1000, 512)
        policy = DifferentiablePolicy((0.0, np.zeros(1)), logistic)
        return world.exact(learned(learn, policy, log), fairness=notion)

    alone, fair = exact(0.0), exact(10.0)
    assert abs(fair.benefit_gap) < left * abs(alone.benefit_gap)
    assert 0.1 < fair.utility < alone.utility


# Updates and policies


def test_an_update_depends_on_its_generator_alone_and_leaves_its_policy():
    policy, log = DifferentiablePolicy(THETA, logistic), exploring_log()
    first, again, other = (learned(LEARN, policy, log, seed) for seed in (1, 1, 2))
    assert_array_equal(flat(first.theta), flat(again.theta))
    assert not np.array_equal(flat(first.theta), flat(other.theta))
    assert_array_equal(flat(policy.theta), flat(THETA))


def test_the_floor_and_the_groups_stay_while_learning():
    policy = DifferentiablePolicy(np.zeros((2, 3)), logistic_by_group, groups=[0, 1])
    after = learned(LEARN, policy.with_floor(0.2), exploring_log())
    assert (after.floor, after.groups, after.uses_sensitive) == (0.2, (0, 1), True)
    assert repr(after) == (
        "DifferentiablePolicy(logistic_by_group, 6 parameters, floor=0.2, groups=[0, 1])"
    )


def test_logs_of_about_the_same_size_share_a_compiled_loop():
    traced = []

    def counting(theta, x):
        traced.append(len(x))
        return logistic(theta, x)

    def learn(n_rows, cost, penalty, n_iterations):
        objective = cq.Objective(cost, "equal_opportunity", penalty)
        start = DifferentiablePolicy(THETA, counting, floor=penalty / 10)
        update = UpdateDifferentiable(objective, n_iterations, 20, optimiser=SGD)
        update(start, exploring_log(n_rows), rng=np.random.default_rng(0))

    learn(300, cost=0.5, penalty=1.0, n_iterations=20)
    once = len(traced)
    learn(400, cost=0.3, penalty=2.0, n_iterations=30)
    assert len(traced) == once


def test_numbers_are_float64_and_nothing_global_changes():
    after = learned(LEARN, DifferentiablePolicy(THETA, logistic), exploring_log())
    assert {leaf.dtype for leaf in jax.tree.leaves(after.theta)} == {np.dtype(np.float64)}
    assert after.propensity(np.zeros((3, 2))).dtype == np.float64
    assert not jax.config.jax_enable_x64


def test_steps_that_are_not_finite_are_not_taken_and_counted():
    def cliff(theta, x):
        # the square root's slope at 0 is infinite
        return jax.numpy.sqrt(theta * (x[:, 0] < 9.0))

    update = LEARN(DifferentiablePolicy(0.0, cliff), exploring_log(), rng=np.random.default_rng(0))
    assert update.policy.theta == 0.0
    assert update.notes == ("20 of 20 steps were not finite and not taken",)


def test_an_update_that_lowers_the_objective_says_so():
    down = UpdateDifferentiable(cq.Objective(0.5), 20, 50, optimiser=optax.sgd(-0.3))
    policy = DifferentiablePolicy(THETA, logistic)
    update = down(policy, exploring_log(), rng=np.random.default_rng(0))
    assert update.objective_after < update.objective_before - 0.01
    assert "lowered the estimated objective" in update.notes[0]


def test_a_log_without_anybody_accepted_leaves_the_policy_and_says_so():
    log = cq.DecisionLog.from_arrays(np.zeros((9, 2)), [0] * 9, [0.1] * 9, [None] * 9)
    policy = DifferentiablePolicy(THETA, logistic)
    update = LEARN(policy, log, rng=np.random.default_rng(0))
    assert update.policy is policy
    assert "nobody was accepted" in update.notes[0]


def test_a_policy_survives_pickling_and_decides_on_nobody():
    policy = pickle.loads(pickle.dumps(DifferentiablePolicy((0.0, np.zeros(2)), logistic)))
    assert policy.propensity(np.zeros((0, 2))).shape == (0,)
    assert_array_equal(policy.propensity(np.zeros((3, 2))), [0.5] * 3)


# Errors


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda theta, x: theta + x, r"one probability per row: .* of shape \(4, 1\)"),
        (lambda theta, x: theta, r"of shape \(\)"),
        (lambda theta, x: theta + x[:, 0] / 0.0, "returned nan to nan"),
        (lambda theta, x: theta + x[:, 0], "returned 0.5 to 1.5"),
        (lambda theta, x: theta - x[:, 0], "returned -0.5 to 0.5"),
    ],
)
def test_what_a_function_returns_is_checked(function, message):
    # also where a floor would make a probability of it
    policy = DifferentiablePolicy(0.5, function, floor=0.5)
    with pytest.raises(cq.PolicyError, match=message):
        policy.propensity([[0.0], [0.0], [1.0]])


def test_parameters_and_people_are_checked():
    with pytest.raises(cq.PolicyError, match="theta must be finite"):
        DifferentiablePolicy([np.nan], logistic)
    with pytest.raises(cq.PolicyError, match="a function of theta and features is needed"):
        DifferentiablePolicy([0.0], 0.5)
    policy = DifferentiablePolicy(np.zeros((2, 2)), logistic_by_group, groups=["a", "b"])
    with pytest.raises(cq.PolicyError, match="pass `sensitive`"):
        policy.propensity([[0.0]])
    with pytest.raises(cq.PolicyError, match="unknown sensitive group 'c'"):
        policy.propensity([[0.0]], ["c"])
    with pytest.raises(cq.PolicyError, match="impute missing values"):
        policy.propensity([[np.nan]], ["a"])


def test_sampled_decisions_and_empty_minibatches_are_refused():
    with pytest.raises(ValueError, match="autodiff of the expectation is exact"):
        UpdateDifferentiable(cq.Objective(0.5, decisions="sampled"), 4, 50)
    with pytest.raises(ValueError, match="batch_size is at least 1"):
        UpdateDifferentiable(cq.Objective(0.5), 4, 0)


def test_without_jax_the_lab_can_be_imported_and_says_what_to_install():
    script = (
        "import sys; sys.modules['jax'] = None; import consequential.lab as lab\n"
        "try: lab.differentiable\n"
        "except ImportError as error: print(error)"
    )
    found = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert b"pip install 'consequential[jax]'" in found.stdout
