"""Weights, written out by hand, and how many rows they are worth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import consequential as cq
from consequential.objective.objective import Weighting
from exploring_logs import exploring_log

HALF, QUARTER = (cq.RejectAll().with_floor(share) for share in (0.5, 0.25))


@pytest.fixture
def log() -> cq.DecisionLog:
    """Two groups of three, decided by accepting one in two and then one in four."""
    return cq.DecisionLog.from_arrays(
        features=np.zeros((6, 1)),
        decision=[1, 0, 1, 1, 0, 1],
        propensity=[0.5, 0.5, 0.25, 0.5, 0.25, 0.25],
        label=[1, None, 0, 1, None, 0],
        sensitive=["a", "a", "a", "b", "b", "b"],
        time_step=[0, 0, 1, 0, 1, 1],
        policies={0: HALF, 1: QUARTER},
    )


@pytest.mark.parametrize(
    ("weighting", "in_all", "within_groups"),
    [
        (cq.weightings.InversePropensity(), [2, 0, 4, 2, 0, 4], [2, 0, 4, 2, 0, 4]),
        (cq.weightings.Clipped(3.0), [2, 0, 3, 2, 0, 3], [2, 0, 3, 2, 0, 3]),
        (cq.weightings.Clipped(1.0), [1, 0, 1, 1, 0, 1], [1, 0, 1, 1, 0, 1]),
        (cq.weightings.SelfNormalised(), [1, 0, 2, 1, 0, 2], [1, 0, 2, 1, 0, 2]),
        # half the rows by each policy: (1/2 + 1/4) / 2; in a 2/3 : 1/3, in b 1/3 : 2/3
        (
            cq.weightings.BalanceHeuristic(),
            [8 / 3, 0, 8 / 3, 8 / 3, 0, 8 / 3],
            [2.4, 0, 2.4, 3, 0, 3],
        ),
        (cq.weightings.Unweighted(), [1, 0, 1, 1, 0, 1], [1, 0, 1, 1, 0, 1]),
    ],
    ids=repr,
)
def test_weights_are_those_of_the_formula(log, weighting, in_all, within_groups):
    assert_allclose(weighting.weights(log), in_all)
    assert_allclose(weighting.group_weights(log), within_groups)


def test_self_normalised_weights_average_to_one_in_the_log_or_in_each_group():
    log = cq.DecisionLog.from_arrays(
        np.zeros((4, 1)), [1, 1, 1, 0], [0.5, 0.2, 0.1, 0.5], [1, 0, 1, None], ["a", "a", "b", "b"]
    )
    # 2 + 5 + 10 = 17 over four rows; within groups 7 over two and 10 over two
    assert_allclose(cq.weightings.SelfNormalised().weights(log), np.array([2, 5, 10, 0]) * 4 / 17)
    within = cq.weightings.SelfNormalised().group_weights(log)
    assert_allclose(within, [2 * 2 / 7, 5 * 2 / 7, 2, 0])


@pytest.mark.parametrize(
    "weighting",
    [
        cq.weightings.InversePropensity(),
        cq.weightings.Clipped(2.0),
        cq.weightings.SelfNormalised(),
        cq.weightings.BalanceHeuristic(),
    ],
    ids=repr,
)
def test_a_log_in_which_nobody_was_accepted_has_weight_zero(weighting):
    log = cq.DecisionLog.from_arrays(
        np.zeros((2, 1)), [0, 0], [0.5, 0.5], [None, None], ["a", "b"], policies={0: HALF}
    )
    for weights in (weighting.weights(log), weighting.group_weights(log)):
        assert_allclose(weights, np.zeros(2), atol=0)


def test_a_certain_acceptance_stands_for_itself_and_a_hopeless_rejection_for_nobody():
    log = cq.DecisionLog.from_arrays(np.zeros((2, 1)), [1, 0], [1.0, 0.0], [1, None])
    assert_allclose(cq.weightings.InversePropensity().weights(log), [1.0, 0.0], atol=0)


def test_balance_heuristic_of_one_policy_is_inverse_propensity():
    world = cq.worlds.first_setting()
    log = world.collect(world.initial_policy(), 500, np.random.default_rng(0))
    balance = cq.weightings.BalanceHeuristic()
    for balanced in (balance.weights(log), balance.group_weights(log)):
        assert_allclose(balanced, cq.weightings.InversePropensity().weights(log), rtol=1e-12)


def test_balance_heuristic_hands_policies_the_sensitive_attribute():
    by_group = cq.Policy([0.0, 0.0, np.log(3), 0.0], groups=["a", "b"])
    log = cq.DecisionLog.from_arrays(
        np.zeros((2, 1)), [1, 1], [0.5, 0.75], [1, 0], ["a", "b"], policies={0: by_group}
    )
    assert_allclose(cq.weightings.BalanceHeuristic().weights(log), [2, 4 / 3])


@pytest.mark.parametrize(
    ("weights", "size"),
    [
        (np.ones(7), 7.0),
        (np.array([0.0, 3.0, 0.0]), 1.0),
        (np.zeros(4), 0.0),
        (np.zeros(0), 0.0),
        (np.array([1.0, 2.0, 3.0]), 36 / 14),
        (np.array([1.0, 1e8]), 1.0),
    ],
    ids=["equal", "one", "none accepted", "no rows", "by hand", "one outweighs all"],
)
def test_effective_sample_size_at_its_extremes(weights, size):
    assert cq.weightings.effective_sample_size(weights) == pytest.approx(size, rel=1e-6)


@given(
    st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30),
    st.integers(0, 5),
    st.floats(1e-3, 1e3),
)
def test_effective_sample_size_lies_between_one_and_the_accepted_rows_whatever_the_scale(
    positive, n_rejected, scale
):
    weights = np.array(positive + [0.0] * n_rejected)
    size = cq.weightings.effective_sample_size(weights)
    assert 1 - 1e-9 <= size <= len(positive) * (1 + 1e-9)
    share = weights / weights.sum()
    assert size == pytest.approx(1 / (share**2).sum(), rel=1e-9)
    assert cq.weightings.effective_sample_size(scale * weights) == pytest.approx(size, rel=1e-9)


@pytest.mark.parametrize("maximum", [0.99, 0.0, -1.0, float("nan")])
def test_clipping_below_one_is_an_error(maximum):
    with pytest.raises(ValueError, match="clipped at 1 or above"):
        cq.weightings.Clipped(maximum)


@pytest.mark.parametrize(
    ("policies", "complaint"),
    [({}, r"none for \[0, 1, 2\] and more"), ({0: HALF, 2: HALF, 4: HALF}, r"none for \[1, 3\]$")],
    ids=["none", "some"],
)
def test_balance_heuristic_without_every_policy_is_an_error_that_names_the_time_steps(
    policies, complaint
):
    log = cq.DecisionLog.from_arrays(
        np.zeros((5, 1)), [1] * 5, [0.5] * 5, [1] * 5, time_step=range(5), policies=policies
    )
    with pytest.raises(cq.DecisionLogError, match=complaint):
        cq.weightings.BalanceHeuristic().weights(log)
    with pytest.raises(cq.DecisionLogError, match="balance heuristic needs the policy"):
        cq.Objective(0.5, weighting=cq.weightings.BalanceHeuristic()).value(
            cq.Policy([0.0, 0.0]), log
        )


def test_policies_that_cannot_have_filled_the_log_are_refused():
    log = cq.DecisionLog.from_arrays([[0.0]], [1], [0.5], [1], policies={0: cq.RejectAll()})
    with pytest.raises(cq.DecisionLogError, match="not the policies that decided"):
        cq.weightings.BalanceHeuristic().weights(log)


def test_the_balance_heuristic_knows_the_whole_log_under_the_papers_normalisation():
    world = cq.worlds.first_setting()
    rules = [world.initial_policy().with_floor(0.02), cq.Policy([1.5, -3.0], floor=0.3)]
    logs = [
        world.collect(rule, 100_000, np.random.default_rng(step), time_step=step)
        for step, rule in enumerate(rules)
    ]
    log = cq.DecisionLog.concatenate(logs)
    policy = cq.Policy([6.0, 20.0])
    objective = cq.Objective(
        world.cost,
        "equal_opportunity",
        weighting=cq.weightings.BalanceHeuristic(),
        normalisation="paper",
    )
    sums = objective.coefficients(log).sums(policy.propensity(objective.rows(log).features))
    truth = list(world.exact(policy, "equal_opportunity").benefits.values())
    # 20 such logs had a standard deviation of .003; rejected rows left out give .911 for .878
    np.testing.assert_allclose(sums.benefits[0], truth, atol=0.012)


# --- doubly robust


def test_a_doubly_robust_tally_counts_the_model_corrected_by_weighted_residuals():
    log = exploring_log(n=300, seed=4)
    robust = cq.weightings.DoublyRobust(folds=3)
    q, w = robust.predicted(log), log.decision / log.propensity
    overall, within = robust.tallies(log)
    for tally in (overall, within):
        np.testing.assert_allclose(tally.positives, q + w * (log.outcome - q))
        np.testing.assert_allclose(tally.positives + tally.negatives, 1.0)


def test_no_row_is_predicted_by_a_model_that_saw_it():
    # a nearest neighbour that saw the row would repeat its label
    from sklearn.neighbors import KNeighborsClassifier

    log = exploring_log(n=400, seed=5)
    predicted = cq.weightings.DoublyRobust(KNeighborsClassifier(1)).predicted(log)
    accepted = log.decision
    assert 0.5 < (predicted[accepted] == log.label[accepted]).mean() < 0.9


def test_doubly_robust_utility_is_unbiased_whatever_the_model_says():
    from sklearn.dummy import DummyClassifier

    world = cq.worlds.first_setting()
    start = world.initial_policy().with_floor(0.1)
    truth = world.exact(cq.Policy([0.3, 2.0])).utility
    objective = cq.Objective(
        world.cost, weighting=cq.weightings.DoublyRobust(DummyClassifier(strategy="prior"), folds=2)
    )
    values = [
        objective.value(
            cq.Policy([0.3, 2.0]), world.collect(start, 2000, np.random.default_rng(seed))
        )
        for seed in range(200)
    ]
    error = np.std(values) / np.sqrt(len(values))
    assert abs(np.mean(values) - truth) < 4 * error < 0.004


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folds": 1}, "at least 2 folds"),
        ({"folds": 2.5}, "at least 2 folds"),
        ({"classifier": object()}, "no predict_proba"),
    ],
)
def test_a_model_that_cannot_be_cross_fitted_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        cq.weightings.DoublyRobust(**options)


def test_a_log_without_accepted_people_has_no_label_to_model():
    log = cq.DecisionLog.from_arrays([[0.0], [1.0]], [0, 0], [0.5, 0.5], [None, None])
    with pytest.raises(cq.DecisionLogError, match="nobody was accepted outside fold 1 of 5"):
        cq.weightings.DoublyRobust().predicted(log)


# --- weightings of one's own


def weighting_of(formula):
    class Own(Weighting):
        def weights(self, log):
            return formula(log)

    return Own()


def test_a_weighting_of_ones_own_needs_nothing_but_weights(log):
    own = weighting_of(lambda log: np.where(log.labelled, 1.0 / log.propensity, 0.0))
    policy = cq.Policy([0.2, 0.5])
    for notion in ("demographic_parity", "equalised_odds"):
        ours = cq.Objective(0.4, notion, 1.0, weighting=own).value(policy, log)
        assert ours == pytest.approx(cq.Objective(0.4, notion, 1.0).value(policy, log), abs=1e-12)


WRONG = {
    "for rejected people": (lambda log: 1.0 / log.propensity, "Own.weights must be 0 where no lab"),
    "of accepted people": (
        lambda log: np.ones(int(log.decision.sum())),
        r"one weight per row, 0 where no label is known: shape \(6,\), not \(4,\)",
    ),
    "missing": (lambda log: np.where(log.decision, 1.0, np.nan), "finite .* but row 1 has nan"),
    "negative": (lambda log: -1.0 * log.decision, "not negative, but row 0 has -1.0"),
}


@pytest.mark.parametrize(("formula", "message"), WRONG.values(), ids=WRONG)
def test_weights_that_no_tally_can_be_made_of_are_refused(log, formula, message):
    with pytest.raises(ValueError, match=message):
        cq.Objective(0.4, weighting=weighting_of(formula)).coefficients(log)
