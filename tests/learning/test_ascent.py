from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import consequential as cq
from conftest import exploring_log
from consequential.objective import benefit_gap

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

    def gap(penalty):
        objective = cq.Objective(0.5, notion, penalty)
        learned = repeated(learner(objective), policy, shifted)
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
    update = learner(objective, step=cq.GradientStep(rate))(
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


@pytest.mark.parametrize("name", ["n_iterations", "batch_size", "n_reference"])
def test_an_update_of_nothing_is_refused(name):
    with pytest.raises(ValueError, match=f"{name} is at least 1"):
        learner(cq.Objective(0.5), **{name: 0})


def test_the_residuals_and_their_slopes_come_from_other_rows_than_the_gradient(monkeypatch):
    from consequential.learning.reference import Circle

    rows_seen = []
    original = Circle.rows

    def spy(self, start, length):
        rows = original(self, start, length)
        whole = np.arange(len(self.phi))[rows]
        rows_seen.append(set(whole.tolist()))
        return rows

    monkeypatch.setattr(Circle, "rows", spy)
    objective = cq.Objective(0.5, "demographic_parity", 1.0)
    update = learner(objective, n_iterations=1, batch_size=100, n_reference=90, engine="numpy")
    update(cq.Policy([0.0, 0.1, 0.0]), exploring_log(400), rng=np.random.default_rng(0))
    residuals, slopes, minibatch = rows_seen
    assert [len(rows) for rows in rows_seen] == [90, 90, 100]
    assert len(slopes | residuals | minibatch) == 280
