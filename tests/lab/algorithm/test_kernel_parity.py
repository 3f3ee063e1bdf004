"""The compiled ascent is the NumPy one; Newton's fit is the maximum.

Thetas of the two engines agree to 1e-9 (relative, or absolute near 0), notes exactly. Seeds are
fixed; statistical tests ask for a p-value above one in a thousand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression

import consequential as cq
from consequential.lab.algorithm.steps import StepRule
from consequential.lab.algorithm.update import is_compiled
from consequential.lab.kernels.matrices import RIDGE, fit_logistic
from consequential.policy import link_numbers
from consequential.policy.links import LINKS
from covering import covering
from exploring_logs import exploring_log

NOTIONS = [
    "demographic_parity",
    "equal_opportunity",
    "equalised_odds",
    "predictive_parity",
    cq.fairness.BenefitParity(lambda d, y: float(d == y)),
]
WEIGHTINGS = [
    cq.weightings.InversePropensity(),
    cq.weightings.Clipped(2.0),
    cq.weightings.SelfNormalised(),
    cq.weightings.BalanceHeuristic(),
    cq.weightings.Unweighted(),
]
STEPS = [cq.lab.steps.PreconditionedStep(), cq.lab.steps.GradientStep(0.3, max_step=0.5)]
FLAVOURS = (["applicants", "paper"], ["expected", "sampled"], STEPS)
SIZES = [(7, 48, 90), (30, 7, 64), (9, 100, 30), (3, 400, 512), (20, 64, 0), (1, 1, 1)]


def log_with_policies(n=500, n_groups=2, n_features=2, seed=0):
    """Rows that two known policies decided on, half each."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, n_features))
    group = rng.integers(n_groups, size=n)
    step = np.arange(n) % 2
    policies = {
        t: cq.Policy(np.concatenate([[0.4 * t], np.linspace(0.8, -0.5, n_features)]), floor=0.1)
        for t in (0, 1)
    }
    chances = np.array([policies[t].propensity(features) for t in (0, 1)])
    propensity = chances[step, np.arange(n)]
    decision = rng.random(n) < propensity
    label = np.where(decision, rng.random(n) < 1 / (1 + np.exp(-features[:, 0] - group)), np.nan)
    return cq.DecisionLog.from_arrays(
        features,
        decision,
        propensity,
        label,
        group,
        groups=range(n_groups),
        time_step=step,
        policies=policies,
    )


@pytest.fixture(scope="module")
def log():
    return log_with_policies()


def both(update, policy, log, time_step=3):
    """Return what the two engines make of a log."""
    return tuple(
        replace(update, engine=engine)(
            policy, log, rng=np.random.default_rng(1), time_step=time_step
        )
        for engine in ("compiled", "numpy")
    )


def assert_same_update(update, policy, log, about=""):
    compiled, defined = both(update, policy, log)
    assert_allclose(
        compiled.policy.theta, defined.policy.theta, rtol=1e-9, atol=1e-9, err_msg=str(about)
    )
    assert compiled.notes == defined.notes, about
    assert_allclose(compiled.objective_before, defined.objective_before, rtol=1e-12, atol=1e-12)
    assert_allclose(compiled.objective_after, defined.objective_after, rtol=1e-8, atol=1e-9)
    return defined


# --- the same ascent


@pytest.mark.parametrize("flavour", list(product(*FLAVOURS)), ids=lambda flavour: str(flavour[:2]))
def test_both_engines_ascend_alike(flavour, log):
    normalisation, decisions, step = flavour
    for link, weighting, notion, penalty, sizes, shuffle in covering(
        list(LINKS), WEIGHTINGS, NOTIONS, [0.0, 5.0, 1e3], SIZES, [True, False]
    ):
        objective = cq.Objective(
            0.4,
            notion,
            penalty,
            weighting=weighting,
            normalisation=normalisation,
            decisions=decisions,
        )
        n_iterations, batch_size, n_reference = sizes
        update = cq.UpdatePolicy(
            objective, n_iterations, batch_size, step, n_reference=n_reference, shuffle=shuffle
        )
        policy = cq.Policy([0.1, 0.5, -0.2], link)
        learned = assert_same_update(update, policy, log, (link, objective, sizes)).policy
        assert batch_size == 1 or not np.array_equal(learned.theta, policy.theta)


@pytest.mark.parametrize(
    ("n_groups", "n_features", "floor", "by_group"),
    covering([2, 3], [1, 5], [0.0, 0.15], [False, True]),
)
def test_both_engines_agree_for_groups_features_and_floors(n_groups, n_features, floor, by_group):
    log = log_with_policies(450, n_groups, n_features, seed=n_features)
    theta = np.random.default_rng(4).normal(size=(n_groups if by_group else 1) * (n_features + 1))
    for link, notion, decisions, step in covering(list(LINKS), NOTIONS[2:4], *FLAVOURS[1:]):
        policy = cq.Policy(
            0.5 * theta, link, floor=floor, groups=range(n_groups) if by_group else ()
        )
        objective = cq.Objective(0.4, notion, 2.0, decisions=decisions)
        update = cq.UpdatePolicy(objective, 5, 40, step, n_reference=70)
        assert_same_update(update, policy, log, (link, notion, decisions, step))


def changed(log, *, keep=None, group=None, groups=None):
    """Return a log in which only some of those accepted stay so, or with other groups."""
    decision = log.decision if keep is None else log.decision & keep
    return cq.DecisionLog.from_arrays(
        log.features,
        decision,
        log.propensity,
        np.where(decision, log.label, np.nan),
        log.group if group is None else group,
        groups=range(len(log.groups)) if groups is None else groups,
    )


def odd_logs():
    rng, full = np.random.default_rng(8), exploring_log(300)
    three = exploring_log(300, n_groups=3)
    yield from ((f"{n} rows", exploring_log(n, n_groups=2, seed=n)) for n in (4, 20, 47))
    yield "groups 2 and 3 absent", changed(full, groups=range(4))
    yield "a group never accepted", changed(three, keep=three.group != 1)
    yield "one accepted", changed(full, keep=np.arange(300) == np.flatnonzero(full.decision)[7])
    yield "a rare group", changed(full, group=np.where(np.arange(300) % 60 == 0, full.group, 1))
    amounts = {"amount": rng.lognormal(size=300), "cost": 0.1 + 0.8 * rng.random(300)}
    yield "amounts and costs by row", exploring_log(300, **amounts)
    # a circle of few minibatches: at some steps a group has nobody to divide by
    yield from (
        (f"groups lack people, {k}", exploring_log(24, n_groups=4, seed=k)) for k in range(6)
    )


@pytest.mark.parametrize(("name", "log"), [pytest.param(*each, id=each[0]) for each in odd_logs()])
def test_both_engines_agree_on_logs_out_of_the_ordinary(name, log):
    sizes = [(7, 48, 70), (4, 6, 12), (20, 20, 0)]
    for notion, weighting, normalisation, decisions, step, size in covering(
        NOTIONS, WEIGHTINGS[:3], *FLAVOURS, sizes
    ):
        objective = cq.Objective(
            0.4,
            notion,
            2.0,
            weighting=weighting,
            normalisation=normalisation,
            decisions=decisions,
        )
        update = cq.UpdatePolicy(objective, *size[:2], step, n_reference=size[2])
        about = (objective, step, size)
        learned = assert_same_update(update, cq.Policy([0.1, 0.5, -0.2]), log, about)
        if name == "groups 2 and 3 absent":
            assert any("benefit of 2, 3" in note for note in learned.notes)


@pytest.mark.parametrize("normalisation", ["applicants", "paper"])
def test_both_engines_stay_where_nobody_was_accepted(normalisation):
    log = changed(exploring_log(40), keep=np.zeros(40, dtype=bool))
    policy = cq.Policy([0.1, 0.5, -0.2])
    objective = cq.Objective(0.4, "demographic_parity", 1.0, normalisation=normalisation)
    for update in both(cq.UpdatePolicy(objective, 5, 8), policy, log):
        assert_array_equal(update.policy.theta, policy.theta)
        assert "nobody was accepted" in update.notes[0]


def test_both_engines_agree_on_scores_of_hundreds():
    log = exploring_log(300)
    for link, decisions, step in product(LINKS, ("expected", "sampled"), STEPS):
        objective = cq.Objective(0.4, "demographic_parity", 2.0, decisions=decisions)
        update = cq.UpdatePolicy(objective, 7, 48, step, n_reference=70)
        policy = cq.Policy([-50.0, 900.0, 300.0], link)
        assert_same_update(update, policy, log, (link, decisions, step))


def test_both_engines_refuse_the_same_steps_that_are_not_finite():
    log = exploring_log(300)
    objective = cq.Objective(0.4, "demographic_parity", 1e300)
    update = cq.UpdatePolicy(objective, 12, 48, cq.lab.steps.GradientStep(1e300), n_reference=70)
    learned = assert_same_update(update, cq.Policy([0.1, 0.5, -0.2]), log)
    assert "steps were not finite" in learned.notes[0]


# --- parts of one's own

RATIONAL = cq.links.Link(
    "rational",
    lambda eta: 0.5 + 0.5 * eta / (1 + np.abs(eta)),
    lambda eta: 0.5 / (1 + np.abs(eta)) ** 2,
    lambda eta: 0.5 / (1 + np.abs(eta)) ** 2 / (0.5 + 0.5 * eta / (1 + np.abs(eta))),
)


@dataclass(frozen=True)
class SignStep(StepRule):
    """Every parameter moves equally far."""

    length: float = 0.01
    looks_around = False

    def rate(self, time_step, effective_rows=float("inf")):
        return self.length

    def prepare(self, around, penalty, rate):
        return lambda gradient, theta: rate * np.sign(gradient)


class HalfStep(cq.lab.steps.PreconditionedStep):
    """A rule that inherits from ours is a rule of one's own."""

    def rate(self, time_step, effective_rows=float("inf")):
        return 0.5 * super().rate(time_step, effective_rows)


@pytest.mark.parametrize("decisions", ["expected", "sampled"])
@pytest.mark.parametrize(
    ("link", "step"),
    [
        (RATIONAL, cq.lab.steps.PreconditionedStep()),
        (RATIONAL, cq.lab.steps.GradientStep(0.2)),
        ("logistic", SignStep()),
        ("semi_logistic", HalfStep()),
    ],
    ids=["link, our step", "link, the paper's step", "step", "inherited step"],
)
def test_a_link_or_a_step_of_ones_own_runs_in_numpy_on_either_engine(link, step, decisions, log):
    policy = cq.Policy([0.1, 0.5, -0.2], link)
    assert link_numbers(policy) is None or not is_compiled(step)
    objective = cq.Objective(0.4, "equal_opportunity", 1.0, decisions=decisions)
    compiled, defined = both(cq.UpdatePolicy(objective, 12, 48, step), policy, log)
    assert_array_equal(compiled.policy.theta, defined.policy.theta)
    assert compiled.notes == defined.notes
    assert not np.array_equal(defined.policy.theta, policy.theta)


def test_the_kernel_knows_our_links_and_our_steps():
    for link, step in product(LINKS, STEPS):
        assert link_numbers(cq.Policy([0.0], link)) is not None
        assert is_compiled(step)


# --- Newton's fit


def labelled(n=400, m=3, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, m)) * np.array([1.0, 3.0, 0.2])[:m]
    truth = np.array([0.3, -1.0, 0.4, 2.0])[: m + 1]
    phi = np.vstack([np.ones(n), features.T])
    label = (rng.random(n) < 1 / (1 + np.exp(-truth @ phi))).astype(float)
    return phi, label


def fit(phi, label, weights=None, start=None, ridge=RIDGE, max_iterations=100):
    weights = np.ones(len(label)) if weights is None else weights
    start = np.zeros(len(phi)) if start is None else np.array(start, dtype=float)
    return fit_logistic(phi, label, weights, start, ridge, max_iterations)


def sklearn_fit(phi, label, weights=None, ridge=RIDGE):
    # scikit-learn minimises C sum w loss + |slopes|^2 / 2
    model = LogisticRegression(C=1 / ridge, tol=1e-12, max_iter=10_000, solver="newton-cholesky")
    model.fit(phi[1:].T, label, sample_weight=weights)
    return np.concatenate([model.intercept_, model.coef_[0]])


def gradient(phi, label, weights, theta, ridge):
    residual = weights * (label - 1 / (1 + np.exp(-theta @ phi)))
    return phi @ residual - ridge * np.concatenate([[0.0], theta[1:]])


@pytest.mark.parametrize(("n", "m", "ridge"), covering([30, 400, 5000], [1, 3], [RIDGE, 1.0]))
def test_newton_finds_what_scikit_learn_finds(n, m, ridge):
    phi, label = labelled(n, m)
    theta, reached = fit(phi, label, ridge=ridge)
    assert reached
    assert_allclose(theta, sklearn_fit(phi, label, ridge=ridge), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "start", [(0, 0, 0, 0), (30, 0, 0, 0), (-20, 5, -5, 40), (1, -80, 3, 0), (-300, 0, 100, 9)]
)
def test_newton_reaches_the_maximum_from_far_away(start):
    phi, label = labelled()
    # a step changes scores by a logarithm of what Newton's would: it takes some to come back
    theta, reached = fit(phi, label, start=start, max_iterations=300)
    assert reached
    assert_allclose(theta, sklearn_fit(phi, label), rtol=1e-6, atol=1e-6)


def test_newton_starts_where_it_is_told_and_stays_at_the_maximum():
    phi, label = labelled()
    best, _ = fit(phi, label)
    again, reached = fit(phi, label, start=best, max_iterations=1)
    assert reached
    assert_allclose(again, best, rtol=1e-9)


def test_newton_says_when_it_stopped_before_the_maximum():
    phi, label = labelled()
    _, reached = fit(phi, label, start=[30, 0, 0, 0], max_iterations=1)
    assert not reached


@pytest.mark.parametrize("ridge", [RIDGE, 1e-2])
def test_newton_fits_labels_that_a_line_separates(ridge):
    phi, _ = labelled(200, 1)
    label = (phi[1] > 0.1).astype(float)
    theta, reached = fit(phi, label, ridge=ridge)
    assert reached
    assert np.isfinite(theta).all()
    assert ((theta @ phi > 0) == (label == 1)).mean() > 0.98  # a ridge costs a row or two
    assert_allclose(gradient(phi, label, np.ones(200), theta, ridge), 0.0, atol=1e-6)


def test_newton_fits_features_that_are_collinear():
    phi, label = labelled(300, 1)
    twice = np.vstack([phi, phi[1]])
    theta, reached = fit(twice, label)
    assert reached
    assert_allclose(theta[1], theta[2], rtol=1e-6)
    alone = sklearn_fit(phi, label, ridge=RIDGE / 2)
    assert_allclose([theta[0], theta[1] + theta[2]], alone, rtol=1e-6)


def test_newton_fits_a_feature_that_is_constant():
    phi, label = labelled(300, 1)
    theta, reached = fit(np.vstack([phi, np.ones(300)]), label)
    assert reached
    alone = sklearn_fit(phi, label)
    assert_allclose([theta[0] + theta[2], theta[1]], alone, rtol=1e-4)


def test_rows_of_weight_zero_are_absent():
    phi, label = labelled(2500)
    weights = (np.random.default_rng(1).random(2500) < 0.4).astype(float)
    there = weights > 0
    theta, reached = fit(phi, label, weights)
    alone, _ = fit(np.ascontiguousarray(phi[:, there]), label[there])
    assert reached
    assert_allclose(theta, alone, rtol=1e-6, atol=1e-6)
    assert_allclose(theta, sklearn_fit(phi[:, there], label[there]), rtol=1e-6, atol=1e-6)


def test_rows_of_weight_zero_do_not_shorten_the_steps():
    phi, label = labelled(40, 1)
    weights = np.ones(40)
    phi[1, 7], weights[7] = 1e6, 0.0
    there = weights > 0
    few, reached = fit(phi, label, weights, max_iterations=20)
    alone, reached_alone = fit(np.ascontiguousarray(phi[:, there]), label[there], max_iterations=20)
    assert reached == reached_alone
    assert_allclose(few, alone, rtol=1e-12)


def test_a_row_of_weight_two_is_two_rows():
    phi, label = labelled(200)
    weights = 1.0 + (np.arange(200) % 2)
    copies = np.repeat(np.arange(200), weights.astype(int))
    theta, _ = fit(phi, label, weights)
    assert_allclose(theta, fit(np.ascontiguousarray(phi[:, copies]), label[copies])[0], rtol=1e-6)
