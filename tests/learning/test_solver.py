"""The solver: its gradient, its optimum, and what it certifies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import approx_fprime, minimize

import consequential as cq
from consequential.learning import solver
from consequential.learning.constraints import Constraint
from consequential.learning.fitting import fit_policy, problem_in_memory
from consequential.learning.problem import Price
from consequential.learning.rows import moments
from consequential.policy import link_numbers
from covering import covering
from exploring_logs import exploring_log

NOTIONS = ["demographic_parity", "equal_opportunity", "equalised_odds", "predictive_parity"]


def fitted(log, template, objective, constraint=None, **options):
    return fit_policy(
        log,
        template,
        objective,
        constraint or Constraint(),
        **{"l2": 1e-8, "rng": np.random.default_rng(0)} | options,
    )


def somewhere(notion, link, apart, n_groups):
    """A problem with all that it can have, a price that is to be paid, and where to look."""
    log = exploring_log(n=300, n_groups=n_groups)
    size = 3 * (n_groups if apart else 1)
    template = cq.Policy(np.zeros(size), link, floor=0.05, groups=log.groups if apart else ())
    objective = cq.Objective(0.4, notion, 0.7)
    problem, _ = problem_in_memory(
        log, template, objective, link_numbers(template), 0.01, counts=True
    )
    beta = np.random.default_rng(3).normal(size=size)
    most = (*[0.3] * n_groups, 0.2)
    return problem, Price(Constraint(max_gap=0.01, most=most), 3.0, 0.4), beta


@pytest.mark.parametrize(
    ("notion", "link", "apart", "n_groups"),
    covering(NOTIONS, ["logistic", "smooth_semi_logistic"], [False, True], [2, 3]),
)
def test_the_loss_has_the_gradient_it_says(notion, link, apart, n_groups):
    problem, price, beta = somewhere(notion, link, apart, n_groups)
    numeric = approx_fprime(beta, lambda at: problem.loss(at, price)[0], 1e-7)
    assert_allclose(problem.loss(beta, price)[1], numeric, atol=2e-6)


@pytest.mark.parametrize(
    ("notion", "link", "apart", "n_groups"),
    covering(NOTIONS, ["logistic", "semi_logistic", "smooth_semi_logistic"], [False, True], [2, 3]),
)
def test_the_loss_has_the_curvature_it_says(notion, link, apart, n_groups):
    problem, price, beta = somewhere(notion, link, apart, n_groups)
    step = 1e-6 * np.eye(len(beta))  # nobody's score passes 0 on so short a way
    numeric = [
        (problem.loss(beta + by, price)[1] - problem.loss(beta - by, price)[1]) / 2e-6
        for by in step
    ]
    assert_allclose(problem.curvature(beta, price), numeric, atol=1e-5)


@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.parametrize("apart", [False, True])
def test_everybody_alike_is_what_a_pass_says(notion, apart):
    problem, _, _ = somewhere(notion, "smooth_semi_logistic", apart, 3)
    scores = [30.0, -0.7, -30.0]
    for score, (sums, value) in zip(
        scores, problem.alike(problem.passes.totals(), scores), strict=True
    ):
        theta = np.zeros((problem.n_blocks, 3))
        theta[:, 0] = score
        expected, objective = problem.at(theta.ravel())
        assert_allclose(sums.benefits, expected.benefits, rtol=1e-9, atol=1e-12)
        assert_allclose(sums.acceptance, expected.acceptance, rtol=1e-9, atol=1e-12)
        assert_allclose([sums.utility, value], [expected.utility, objective], rtol=1e-9)


@pytest.mark.parametrize(
    ("notion", "constraint"),
    [
        *((notion, Constraint(max_gap=0.01)) for notion in NOTIONS),
        (None, Constraint(most=(0.1, 0.2, 0.3, 0.5))),
        (None, Constraint(most=(np.inf, np.inf, np.inf, 0.1))),
    ],
)
def test_the_worst_excess_has_the_gradient_it_says(notion, constraint):
    log = exploring_log(n=300, n_groups=3)
    template = cq.Policy(np.zeros(3))
    problem, _ = problem_in_memory(
        log, template, cq.Objective(0.4, notion), link_numbers(template), 0.01, counts=True
    )
    beta = np.random.default_rng(3).normal(size=3)
    numeric = approx_fprime(beta, lambda at: problem.worst(at, constraint)[0], 1e-7)
    assert_allclose(problem.worst(beta, constraint)[1], numeric, atol=2e-6)


def test_a_policy_too_steep_to_be_moved_stays_where_it_is():
    # nobody is near the cut, so that the gradient is all but 0 and the way it says endless
    log, template = exploring_log(n=300), cq.Policy(np.zeros(3))
    problem, _ = problem_in_memory(
        log, template, cq.Objective(0.4, "demographic_parity"), link_numbers(template), 0.0
    )
    for steepness in np.geomspace(1e4, 1e6, 41):
        theta = problem.original(steepness * np.array([0.1, 1.0, 0.3]))
        gap, _ = problem.worst(problem.standardised(theta), Constraint(max_gap=0.0))
        climb = solver.Climb.of(problem, theta, Price(Constraint(max_gap=gap - 0.01)), 10)
        climb.restore()
        assert_allclose(climb.theta, theta)


def test_the_loss_is_the_objective_less_shrinkage():
    log = exploring_log(n=300)
    policy = cq.Policy([0.3, -1.0, 0.5])
    objective = cq.Objective(0.4, "equal_opportunity", 2.0)
    problem, _ = problem_in_memory(log, policy, objective, link_numbers(policy), 0.0)
    loss, _ = problem.loss(problem.standardised(policy.theta), Price(Constraint()))
    assert_allclose(-loss * problem.unit, objective.value(policy, log), rtol=1e-12)


def test_standardising_parameters_can_be_undone():
    log = exploring_log(n=100)
    policy = cq.Policy(np.arange(6.0), groups=log.groups)
    problem, _ = problem_in_memory(log, policy, cq.Objective(0.4), link_numbers(policy), 0.0)
    there = problem.standardised(policy.theta)
    assert_allclose(problem.original(there), policy.theta, atol=1e-12)


def test_moments_of_inputs_that_vary_and_of_those_that_do_not():
    inputs = np.column_stack([np.arange(5.0), np.full(5, 3.0)])
    centre, scale = moments(inputs)
    assert_allclose(centre, [2.0, 3.0])
    assert_allclose(scale, [np.sqrt(2.0), 1.0])


def test_moments_of_many_rows_far_from_zero_and_in_order():
    rng = np.random.default_rng(0)
    inputs = np.sort(rng.normal(size=(100_000, 2)), axis=0) + np.array([1e6, 0.0])
    centre, scale = moments(inputs)
    assert_allclose(centre, inputs.mean(axis=0), rtol=1e-12, atol=1e-12)
    assert_allclose(scale, inputs.std(axis=0), rtol=1e-8)


def test_policies_of_many_parameters_end_where_others_do(monkeypatch):
    # with many, the curvature is not looked for but found on the way
    log = exploring_log(n=4000, seed=6)
    asked = log, cq.Policy(np.zeros(3)), cq.Objective(0.5, "demographic_parity")
    looked = fitted(*asked, Constraint(max_gap=0.01), l2=1e-3)
    monkeypatch.setattr(solver, "_MANY_PARAMETERS", 0)
    monkeypatch.setattr(solver.Climb, "look_around", None)  # calling it would fail
    found = fitted(*asked, Constraint(max_gap=0.01), l2=1e-3)
    assert found.violation <= 1e-3
    assert found.utility == pytest.approx(looked.utility, abs=1e-4)


def test_the_best_of_a_fine_grid_is_not_better():
    log = exploring_log(n=500, n_features=1, seed=2)
    objective = cq.Objective(0.5, "demographic_parity", 3.0)
    best = fitted(log, cq.Policy([0.0, 0.0]), objective, l2=1e-3)
    grid = [
        objective.value(cq.Policy([a, b]), log) - shrinkage(b, log, objective)
        for a in np.linspace(-6, 6, 61)
        for b in np.linspace(-8, 8, 81)
    ]
    found = objective.value(best.policy, log) - shrinkage(best.policy.theta[1], log, objective)
    assert found >= max(grid) - 1e-9


def shrinkage(slope, log, objective):
    unit = np.abs(objective.coefficients(log).utility).sum()
    return unit * 0.5 * 1e-3 * (slope * log.features[:, 0].std()) ** 2


@pytest.mark.parametrize("notion", NOTIONS)
def test_a_constraint_is_kept_on_the_log(notion):
    # groups of noise alone: with three, no policy of three parameters has equal predictive values
    log = exploring_log(n=4000, n_groups=2 if notion == "predictive_parity" else 3, seed=3)
    free = fitted(log, cq.Policy(np.zeros(3)), cq.Objective(0.5, notion))
    bound = fitted(
        log, cq.Policy(np.zeros(3)), cq.Objective(0.5, notion), Constraint(max_gap=0.004)
    )
    assert abs(bound.benefit_gap) <= 0.004 + 1e-3
    assert bound.violation <= 1e-3
    assert bound.utility <= free.utility + 1e-6
    assert bound.cost_of_fairness >= -1e-12


def test_four_fifths_are_kept():
    world = cq.worlds.first_setting()
    log = world.collect(world.initial_policy().with_floor(0.1), 20_000, np.random.default_rng(0))
    found = fitted(
        log,
        cq.Policy([0.0, 0.0]),
        cq.Objective(0.3, "demographic_parity"),
        Constraint(min_ratio=0.8),
    )
    low, high = sorted(found.benefits.values())
    assert low / high >= 0.8 - 2e-3
    assert high > 0.1  # nobody accepted would keep it, too


def test_it_is_never_worse_than_accepting_or_rejecting_everybody():
    log = exploring_log(n=200, seed=7)
    for cost in (0.02, 0.98):
        objective = cq.Objective(cost, "demographic_parity")
        found = fitted(log, cq.Policy(np.zeros(3)), objective, Constraint(max_gap=0.0), l2=1e-2)
        for rule in (cq.AcceptAll(), cq.RejectAll()):
            worth = objective.coefficients(log).sums(log.propensity_of(rule)).utility
            assert found.utility >= worth - 1e-9


def test_the_result_says_where_it_comes_from():
    log = exploring_log(n=300)
    found = fitted(log, cq.Policy(np.zeros(3)), cq.Objective(0.5), n_starts=3)
    assert {"prediction"} <= set(found.values) <= {"prediction", "even chance", "random 1"}
    assert found.start in {*found.values, "accept all", "reject all"}
    assert found.policy.learned_from == log.fingerprint
    assert_allclose(found.utility, cq.Objective(0.5).value(found.policy, log), rtol=1e-9)


def test_the_same_seed_gives_the_same_policy():
    log = exploring_log(n=2000)
    objective = cq.Objective(0.5, "demographic_parity", 1.0)
    one, two = (fitted(log, cq.Policy(np.zeros(3)), objective, l2=1e-4) for _ in range(2))
    assert one.policy.theta.tolist() == two.policy.theta.tolist()
    assert max(one.values.values()) == one.values[one.start]


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_under_a_capacity_the_best_cells_of_a_finite_log_are_accepted(share):
    # with a parameter for each cell the best policy fills the capacity from the best cell on
    rng = np.random.default_rng(4)
    cell = rng.integers(5, size=600)
    label = (rng.random(600) < np.linspace(0.2, 0.9, 5)[cell]).astype(float)
    ones = np.ones(600)
    log = cq.DecisionLog.from_arrays(np.eye(5)[cell], ones, ones, label)
    gains = np.sort(np.array([(label[cell == k] - 0.4).mean() for k in cell]))[::-1]
    room = np.clip(share * 600 - np.arange(600), 0.0, 1.0)
    best = (np.maximum(gains, 0.0) * room).mean()
    found = fitted(
        log, cq.Policy(np.zeros(6)), cq.Objective(0.4), Constraint(most=(np.inf, share)), l2=1e-9
    )
    assert log.propensity_of(found.policy).mean() <= share + 1e-4
    assert found.utility == pytest.approx(best, abs=2e-3)


def test_a_start_that_is_given_is_the_only_one():
    log = exploring_log(n=500)
    start = cq.Policy([0.1, 0.2, 0.3])
    found = fitted(log, start, cq.Objective(0.5), starts={"the policy so far": start.theta})
    assert list(found.values) == ["the policy so far"]


@pytest.mark.parametrize(
    ("log", "objective", "constraint", "message"),
    [
        ("one group", cq.Objective(0.5, "demographic_parity"), 0.1, "two groups"),
        ("two groups", cq.Objective(0.5), 0.1, "a constraint needs a fairness notion"),
        ("all rejected", cq.Objective(0.5), None, "nobody was accepted"),
    ],
)
def test_what_cannot_be_fitted(log, objective, constraint, message):
    log = {
        "one group": exploring_log(n_groups=1),
        "two groups": exploring_log(),
        "all rejected": cq.DecisionLog.from_arrays([[0], [1]], [0, 0], [0.5] * 2, [None, None]),
    }[log]
    size = log.features.shape[1] + 1
    with pytest.raises(ValueError, match=message):
        fitted(log, cq.Policy(np.zeros(size)), objective, Constraint(constraint))


def test_a_link_of_ones_own_has_no_compiled_pass():
    own = cq.links.Link("own", *(cq.Policy([0.0]).link.probability for _ in range(3)))
    with pytest.raises(ValueError, match="does not know the link 'own'"):
        fitted(exploring_log(), cq.Policy(np.zeros(3), own), cq.Objective(0.5))


SIGNS = np.array([0.0, 1.0, 1.0, -1.0, 0.0])


def signed_problem():
    """A smooth problem, without the given signs and with them; one of them binds."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(500, 4))
    chance = 1.0 / (1.0 + np.exp(-features @ [1.0, -0.5, -0.3, 0.2]))
    label, group = rng.random(500) < chance, features[:, 0] + rng.normal(size=500) > 0.0
    log = cq.DecisionLog.from_arrays(features, np.ones(500), np.ones(500), label, group)
    template = cq.Policy(np.zeros(5))
    objective = cq.Objective(0.5, "demographic_parity")
    problem, _ = problem_in_memory(log, template, objective, link_numbers(template), 0.02)
    return problem, replace(problem, signs=SIGNS)


def best_by_slsqp(problem, **options):
    """Where SciPy's own solver ends, at the parameters of standardised inputs."""
    bounds = [{0.0: (None, None), 1.0: (0.0, None), -1.0: (None, 0.0)}[sign] for sign in SIGNS]
    return minimize(
        problem.loss,
        np.zeros(5),
        (Price(Constraint()),),
        jac=True,
        method="SLSQP",
        bounds=bounds,
        options={"ftol": 1e-12, "maxiter": 500},
        **options,
    ).x


def test_the_best_policy_of_given_signs_is_found():
    problem, signed = signed_problem()
    free = solver.solve_free(problem, np.zeros(5), max_passes=400).theta
    assert free[2] < -0.1
    found = solver.solve_free(signed, np.zeros(5), max_passes=400)
    expected = best_by_slsqp(problem)
    assert (found.theta * SIGNS >= 0.0).all()
    assert_allclose(problem.standardised(found.theta), expected, atol=2e-3)
    assert np.isclose(expected[2], 0.0, atol=1e-9)


def test_the_best_policy_of_given_signs_within_a_bound_is_found():
    problem, signed = signed_problem()
    bound = Constraint(max_gap=0.05)
    free = solver.solve_free(signed, np.zeros(5), max_passes=400)
    assert bound.violation(free.sums) > 0.005
    found = solver.constrain(signed, free, bound, by_degrees=False, max_passes=400)

    def room(beta):
        return -bound.excess(problem.at(problem.original(beta))[0])

    expected = best_by_slsqp(problem, constraints={"type": "ineq", "fun": room})
    assert (found.theta * SIGNS >= 0.0).all()
    assert_allclose(problem.standardised(found.theta), expected, atol=5e-3)
    assert_allclose(
        found.sums.utility, problem.at(problem.original(expected))[0].utility, atol=1e-4
    )


def test_the_loss_has_the_derivatives_it_says_where_signs_are_given():
    _, signed = signed_problem()
    price = Price(Constraint(max_gap=0.01), 3.0, 0.4)
    free = np.random.default_rng(3).normal(size=5)
    numeric = approx_fprime(free, lambda at: signed.loss(at, price)[0], 1e-7)
    assert_allclose(signed.loss(free, price)[1], numeric, atol=2e-6)
    step = 1e-6 * np.eye(5)
    numeric = [
        (signed.loss(free + by, price)[1] - signed.loss(free - by, price)[1]) / 2e-6 for by in step
    ]
    assert_allclose(signed.curvature(free, price), numeric, atol=1e-5)
    constraint = price.constraint
    numeric = approx_fprime(free, lambda at: signed.worst(at, constraint)[0], 1e-7)
    assert_allclose(signed.worst(free, constraint)[1], numeric, atol=2e-6)
