from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import consequential as cq
from ascent_means import means_at
from consequential.lab.algorithm.ascent import Means, Minibatch, Schedule, group_benefits
from consequential.lab.algorithm.update import compiled_rows
from consequential.lab.kernels.random import UniformStream
from consequential.objective.fairness import benefit_gap
from consequential.objective.objective import deviations
from exploring_logs import exploring_log

LINKS = ["logistic", "semi_logistic", "smooth_semi_logistic"]
NOTIONS = ["demographic_parity", "equal_opportunity", "equalised_odds", "predictive_parity"]


def learner(objective, **options):
    return cq.UpdatePolicy(objective, **({"n_iterations": 64, "batch_size": 64} | options))


def repeated(update, policy, log, times=20):
    for step in range(times):
        policy = update(policy, log, rng=np.random.default_rng(step), time_step=step).policy
    return policy


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("decisions", ["expected", "sampled"])
@pytest.mark.parametrize("normalisation", ["applicants", "paper"])
def test_an_update_raises_the_estimated_objective(link, decisions, normalisation):
    log = exploring_log(4000)
    objective = cq.Objective(0.5, decisions=decisions, normalisation=normalisation)
    policy = cq.Policy([-1.0, 0.1, 0.1], link)
    learned = repeated(learner(objective), policy, log)
    measured = cq.Objective(0.5, normalisation=normalisation)
    assert measured.value(learned, log) > measured.value(policy, log) + 0.02


@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.parametrize("n_groups", [2, 3])
def test_a_penalty_closes_the_gap_of_its_notion(notion, n_groups):
    # features differ by group, so that utility alone makes a gap
    log = exploring_log(6000, n_groups=n_groups)
    shifted = cq.DecisionLog.from_arrays(
        log.features + log.group[:, None], log.decision, log.propensity, log.label, log.group
    )
    policy = cq.Policy([0.0, 0.1, 0.0])

    # a ratio of weighted sums is noisy: of 1024 rows it misleads some seeds
    n_reference = 2048 if notion == "predictive_parity" else 1024

    def gap(penalty):
        objective = cq.Objective(0.5, notion, penalty)
        learned = repeated(learner(objective, n_reference=n_reference), policy, shifted)
        sums = objective.coefficients(shifted).sums(learned.propensity(shifted.features))
        return abs(benefit_gap(sums.benefits))

    assert gap(10.0) < 0.75 * gap(0.0)


def test_an_update_depends_on_its_generator_alone():
    log = exploring_log()
    update = learner(cq.Objective(0.5, "demographic_parity", 1.0, decisions="sampled"))
    policy = cq.Policy([0.0, 0.1, 0.0])
    first, again = (update(policy, log, rng=np.random.default_rng(1)).policy for _ in range(2))
    other = update(policy, log, rng=np.random.default_rng(2)).policy
    assert_array_equal(first.theta, again.theta)
    assert not np.array_equal(first.theta, other.theta)


def test_the_policy_given_is_left_as_it_was():
    policy = cq.Policy([0.0, 0.1, 0.0])
    learner(cq.Objective(0.5))(policy, exploring_log(), rng=np.random.default_rng(0))
    assert_array_equal(policy.theta, [0.0, 0.1, 0.0])


def test_the_floor_the_link_and_the_map_stay():
    policy = cq.Policy([0.0, 0.1, 0.0], "smooth_semi_logistic", floor=0.1)
    learned = learner(cq.Objective(0.5))(policy, exploring_log(), rng=np.random.default_rng(0))
    assert (learned.policy.floor, learned.policy.link) == (0.1, policy.link)


def test_a_policy_that_uses_the_sensitive_attribute_learns_too():
    log = exploring_log(4000)
    policy = cq.Policy([-1.0, 0.1, 0.1] * 2, groups=[0, 1])
    objective = cq.Objective(0.5, "demographic_parity", 1.0)
    learned = repeated(learner(objective), policy, log)
    assert objective.value(learned, log) > objective.value(policy, log) + 0.02


@pytest.mark.parametrize("normalisation", ["applicants", "paper"])
def test_a_step_that_accepts_nobody_leaves_the_policy_and_says_so(normalisation):
    n = 20
    log = cq.DecisionLog.from_arrays(np.zeros((n, 2)), [0] * n, [0.1] * n, [None] * n, [0, 1] * 10)
    policy = cq.Policy([0.0, 0.1, 0.0])
    objective = cq.Objective(0.5, "demographic_parity", 1.0, normalisation=normalisation)
    update = learner(objective)(policy, log, rng=np.random.default_rng(0))
    assert update.policy is policy
    assert "nobody was accepted" in update.notes[0]


@pytest.mark.parametrize("notion", NOTIONS)
def test_a_group_that_is_absent_is_left_out_and_named(notion):
    log = exploring_log(600)
    only_first = log.take(log.group == 0)
    objective = cq.Objective(0.5, notion, 10.0)
    update = learner(objective)(
        cq.Policy([0.0, 0.1, 0.0]), only_first, rng=np.random.default_rng(0)
    )
    assert np.isfinite(update.policy.theta).all()
    assert any("benefit of 1" in note for note in update.notes)


@pytest.mark.parametrize("rows", [1, 2, 3, 5])
@pytest.mark.parametrize("notion", NOTIONS)
def test_a_handful_of_rows_is_enough_to_stay_finite(rows, notion):
    log = exploring_log(400)
    accepted = np.flatnonzero(log.decision)[:rows]
    objective = cq.Objective(0.5, notion, 100.0)
    update = learner(objective)(
        cq.Policy([0.0, 0.1, 0.0]), log.take(accepted), rng=np.random.default_rng(0)
    )
    assert np.isfinite(update.policy.theta).all()


@pytest.mark.parametrize("rate", [1e3, 1e200])
def test_a_step_too_long_for_its_penalty_is_reported_and_never_gives_nan(rate):
    log = exploring_log(2000)
    shifted = cq.DecisionLog.from_arrays(
        log.features + log.group[:, None], log.decision, log.propensity, log.label, log.group
    )
    objective = cq.Objective(0.5, "demographic_parity", 1e4)
    update = learner(objective, step=cq.lab.steps.GradientStep(rate))(
        cq.Policy([0.0, 0.0, 0.0]), shifted, rng=np.random.default_rng(0)
    )
    assert np.isfinite(update.policy.theta).all()
    assert update.notes


def test_collinear_features_do_no_harm():
    log = exploring_log(2000)
    doubled = cq.DecisionLog.from_arrays(
        np.hstack([log.features, log.features]), log.decision, log.propensity, log.label
    )
    update = learner(cq.Objective(0.5))(
        cq.Policy(np.zeros(5)), doubled, rng=np.random.default_rng(0)
    )
    assert update.objective_after > update.objective_before


@pytest.mark.parametrize(
    ("name", "least"), [("n_iterations", 1), ("batch_size", 1), ("n_reference", 0)]
)
def test_an_update_of_nothing_is_refused(name, least):
    with pytest.raises(ValueError, match=f"{name} is at least {least}"):
        learner(cq.Objective(0.5), **{name: least - 1})


def absorbed(monkeypatch, n_reference, n_rows=700):
    """Return which minibatches say how large residuals are, and which their slopes."""
    from consequential.lab.algorithm.ascent import Means

    seen = {"absorb_levels": [], "absorb_slopes": []}

    def spy_on(name):
        original = getattr(Means, name)

        def spy(self, batch, weight):
            seen[name].append((batch.number, weight))
            original(self, batch, weight)

        monkeypatch.setattr(Means, name, spy)

    for name in seen:
        spy_on(name)
    objective = cq.Objective(0.5, "demographic_parity", 1.0)
    update = learner(
        objective, n_iterations=5, batch_size=100, n_reference=n_reference, engine="numpy"
    )
    update(cq.Policy([0.0, 0.1, 0.0]), exploring_log(n_rows), rng=np.random.default_rng(0))
    return seen["absorb_levels"], seen["absorb_slopes"]


def test_residuals_and_their_slopes_come_from_different_rows(monkeypatch):
    levels, slopes = absorbed(monkeypatch, 400)
    # six minibatches in a circle; four are looked at before the five steps
    assert [number for number, _ in levels] == [2, 4, 0, 2, 4]
    assert [number for number, _ in slopes] == [3, 5, 1, 3]
    assert_allclose([weight for _, weight in levels], [1, 0.5, 0.4, 0.4, 0.4])
    assert_allclose([weight for _, weight in slopes], [1, 0.5, 0.4, 0.4])


def test_on_the_spot_residuals_and_slopes_come_from_the_minibatch_itself(monkeypatch):
    levels, slopes = absorbed(monkeypatch, 0)
    assert levels == slopes == [(number, 1.0) for number in (0, 1, 2, 3, 4)]


def test_running_means_follow_theta():
    """Means of the whole log, taken to another theta, are those at that theta, to first order."""
    log = exploring_log(400, 3)
    objective = cq.Objective(0.5, "predictive_parity", 1.0)
    policy = cq.Policy([0.2, 0.4, -0.3])

    change = np.array([1e-4, -2e-4, 1e-4])
    means = means_at(objective, policy, log)
    here = means.residuals()
    there = means_at(objective, policy.at(policy.theta + change), log).residuals()
    assert_allclose(here + means.residual_slopes() @ change, there, atol=1e-8)
    means.follow(change)
    assert_allclose(means.residuals(), there, atol=1e-8)
    whole = deviations(objective.coefficients(log).sums(policy.propensity(log.features)).benefits)
    assert_allclose(here, np.sqrt(2.0) * whole.ravel(), atol=1e-12)


@pytest.mark.parametrize("notion", NOTIONS)
def test_how_many_of_a_group_are_in_a_minibatch_does_not_matter(notion):
    """Doubling the rows of one group in a minibatch leaves benefits as they are."""
    log = exploring_log(300)
    objective = cq.Objective(0.5, notion, 1.0)
    policy = cq.Policy([0.2, 0.4, -0.3])
    coefficients = objective.coefficients(log)
    twice = np.concatenate([np.arange(300), np.flatnonzero(log.group == 1)])

    def benefits(rows):
        phi, n = policy.inputs(log.features[rows]), len(rows)
        batches = compiled_rows(phi, coefficients.take(rows), coefficients.shares(), n)
        means = Means(batches, Schedule(1, n, 0), penalised=True)
        ascent = learner(objective).numbers(n, 0.1)
        means.absorb(Minibatch(batches, 0, policy, policy.theta, ascent, UniformStream(0)))
        return group_benefits(batches.benefits, means.levels, means.level_shares)[0]

    assert_allclose(benefits(twice), benefits(np.arange(300)), rtol=1e-12)
