"""Benefits, gaps and the penalty, by hand and at the edges."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import consequential as cq
from ascent_means import residual_slopes
from consequential.objective.fairness import benefit_gap
from consequential.objective.objective import Sums, deviations
from exploring_logs import exploring_log

NOTIONS = {
    "demographic_parity": cq.fairness.DemographicParity(),
    "equal_opportunity": cq.fairness.EqualOpportunity(),
    "equalised_odds": cq.fairness.EqualisedOdds(),
    "predictive_parity": cq.fairness.PredictiveParity(),
    "benefit_parity": cq.fairness.BenefitParity(lambda d, y: float(d == y)),
}
NAN = float("nan")


def sums_of(benefits: list[list[float]], utility: float = 0.3) -> Sums:
    table = np.array(benefits)
    return Sums(utility, table, np.ones_like(table))


def benefits_of(
    notion: str, policy: cq.Policy, log: cq.DecisionLog, **options: object
) -> np.ndarray:
    objective = cq.Objective(0.4, NOTIONS[notion], **options)
    rows = objective.rows(log)
    propensity = policy.propensity(rows.features, rows.sensitive)
    return objective.coefficients(rows).sums(propensity).benefits


# Benefits by hand


@pytest.fixture
def log() -> cq.DecisionLog:
    return cq.DecisionLog.from_arrays(
        features=np.arange(6.0),
        decision=[1, 0, 1, 1, 1, 1],
        propensity=[0.5, 0.5, 0.25, 0.5, 0.25, 0.5],
        label=[1, None, 0, 1, 1, 0],
        sensitive=["a", "a", "a", "b", "b", "b"],
    )


# three quarters and one quarter by turns
TURNS = np.array([0.75, 0.25, 0.75, 0.25, 0.75, 0.25])


@pytest.mark.parametrize(
    ("notion", "by_hand"),
    [
        ("demographic_parity", [[1.75 / 3, 1.25 / 3]]),
        # a: one label 1 of weight 2; b: weights 2 and 4
        ("equal_opportunity", [[0.75, (2 * 0.25 + 4 * 0.75) / 6]]),
        ("equalised_odds", [[0.75, 3.5 / 6], [0.75, 0.25]]),
        # a: 2 of 6 weighted people have label 1; b: (2 .25 + 4 .75) of that and 2 .25
        ("predictive_parity", [[2 * 0.75 / (6 * 0.75), 3.5 / 4]]),
        # a: 2 pi + 4 (1 - pi); b: 2 pi + 4 pi + 2 (1 - pi)
        ("benefit_parity", [[(1.5 + 1.0) / 3, (0.5 + 3.0 + 1.5) / 3]]),
    ],
)
def test_benefits_are_those_of_the_definition(log, notion, by_hand):
    coefficients = cq.Objective(0.4, NOTIONS[notion]).coefficients(log)
    assert_allclose(coefficients.sums(TURNS).benefits, by_hand, rtol=1e-12)


def test_label_free_benefits_count_rejected_people_and_need_no_weights(log):
    for weighting in (
        cq.weightings.InversePropensity(),
        cq.weightings.Clipped(1.0),
        cq.weightings.Unweighted(),
    ):
        objective = cq.Objective(0.4, "demographic_parity", weighting=weighting)
        benefits = objective.coefficients(log).sums(TURNS).benefits
        assert_allclose(benefits, [[1.75 / 3, 1.25 / 3]])


@pytest.mark.parametrize("name", list(NOTIONS)[:4])
def test_a_notion_is_found_by_its_name_and_passes_through_as_itself(name):
    assert cq.fairness.fairness_named(name) == NOTIONS[name]
    assert cq.fairness.fairness_named(NOTIONS[name]) is NOTIONS[name]
    assert cq.Objective(0.4, name) == cq.Objective(0.4, NOTIONS[name])
    assert NOTIONS[name].name == name


@pytest.mark.parametrize(
    ("f", "like"),
    [(lambda d, y: d, "demographic_parity"), (lambda d, y: d + 5.0, "demographic_parity")],
    ids=["d", "d + 5"],
)
@pytest.mark.parametrize("n_groups", [2, 3])
def test_a_benefit_of_ones_own_that_is_acceptance_is_demographic_parity(f, like, n_groups):
    """Also up to a constant, which no gap can see."""
    log, policy = exploring_log(90, n_groups), cq.Policy([0.1, 0.5, -0.5])
    own, named = (
        cq.Objective(0.4, notion, penalty=2.0) for notion in (cq.fairness.BenefitParity(f), like)
    )
    assert own.value(policy, log) == pytest.approx(named.value(policy, log), abs=1e-12)
    assert_allclose(own.gradient(policy, log), named.gradient(policy, log), atol=1e-12)


# The penalty


@pytest.mark.parametrize("notion", list(NOTIONS))
def test_penalty_for_two_groups_is_half_lambda_times_the_squared_gap(notion):
    log, policy = exploring_log(200, 2), cq.Policy([0.1, 0.8, -0.5])
    utility = cq.Objective(0.4).value(policy, log)
    gaps = benefits_of(notion, policy, log) @ [1.0, -1.0]
    assert (np.abs(gaps) > 1e-3).all()
    value = cq.Objective(0.4, NOTIONS[notion], penalty=7.0).value(policy, log)
    # equalised odds adds the penalties of its two benefits
    assert value == pytest.approx(utility - 7.0 / 2 * float((gaps**2).sum()), abs=1e-12)


@pytest.mark.parametrize("n_groups", [3, 4])
@pytest.mark.parametrize("notion", list(NOTIONS))
def test_penalty_for_more_groups_is_lambda_over_k_times_the_squared_pair_differences(
    notion, n_groups
):
    log, policy = exploring_log(300, n_groups), cq.Policy([0.1, 0.8, -0.5])
    utility = cq.Objective(0.4).value(policy, log)
    pairs = sum(
        (one - other) ** 2
        for benefit in benefits_of(notion, policy, log)
        for one, other in combinations(benefit, 2)
    )
    assert pairs > 1e-4
    value = cq.Objective(0.4, NOTIONS[notion], penalty=7.0).value(policy, log)
    assert value == pytest.approx(utility - 7.0 / 2 * 2 / n_groups * pairs, abs=1e-12)


def test_penalty_leaves_an_undefined_group_out_as_if_there_were_one_fewer():
    objective = cq.Objective(0.4, "demographic_parity", penalty=7.0)
    with_gap, without = sums_of([[0.2, NAN, 0.5, 0.9]]), sums_of([[0.2, 0.5, 0.9]])
    assert objective.value_at(with_gap) == pytest.approx(objective.value_at(without), abs=1e-15)
    slopes = objective.slopes_at(with_gap)
    assert slopes.numerators[0, 1] == 0.0
    assert_allclose(
        np.delete(slopes.numerators, 1, axis=1), objective.slopes_at(without).numerators
    )


@pytest.mark.parametrize("benefits", [[[0.7]], [[NAN, 0.7]], [[NAN, NAN]], [[NAN, 0.7, NAN]]])
def test_fewer_than_two_groups_to_compare_cost_nothing(benefits):
    objective = cq.Objective(0.4, "demographic_parity", penalty=7.0)
    assert objective.value_at(sums_of(benefits)) == 0.3
    assert not objective.slopes_at(sums_of(benefits)).numerators.any()
    assert benefit_gap(np.array(benefits)) == 0.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_squared_deviations_are_squared_pair_differences_over_k(benefits):
    row = np.array([benefits])
    pairs = sum((one - other) ** 2 for one, other in combinations(benefits, 2))
    assert (deviations(row) ** 2).sum() == pytest.approx(pairs / len(benefits), abs=1e-12)
    assert deviations(row).sum() == pytest.approx(0.0, abs=1e-12)


# The gap


@pytest.mark.parametrize(
    ("benefits", "gap"),
    [
        ([[0.2, 0.5]], -0.3),
        ([[0.5, 0.2]], 0.3),
        ([0.5, 0.2], 0.3),  # one benefit may come without its axis
        ([[0.2, 0.5, 0.1]], 0.4),
        ([[0.2, NAN, 0.1]], 0.1),
        ([[0.1, NAN, 0.2]], 0.1),  # not b0 - b1: the log has three groups
        ([[0.2, 0.5], [0.9, 0.1]], 0.8),
        ([[0.2, 0.9], [0.5, 0.1]], -0.7),
        ([[0.2, NAN], [0.5, 0.1]], 0.4),
        ([[0.3, 0.3]], 0.0),
        (np.zeros((0, 2)), 0.0),
    ],
)
def test_gap_is_signed_for_two_groups_a_range_for_more_and_the_widest_of_several(benefits, gap):
    assert benefit_gap(np.array(benefits)) == pytest.approx(gap, abs=1e-12)


# Groups nobody can be measured on

POLICY = cq.Policy([0.3, 0.5])


def rows_without(what: str) -> cq.DecisionLog:
    """Groups a and b are complete; c lacks something."""
    c_decision, c_label = {
        "anybody": ([], []),
        "accepted people": ([0, 0], [None, None]),
        "label 1": ([1, 1], [0, 0]),
        "label 0": ([1, 1], [1, 1]),
    }[what]
    decision = [1, 1, 1, 0, 1, 1, 1, 0, *c_decision]
    label = [1, 0, 1, None, 1, 0, 0, None, *c_label]
    n = len(decision)
    return cq.DecisionLog.from_arrays(
        np.linspace(-1, 1, n),
        decision,
        np.linspace(0.3, 0.7, n),
        label,
        ["a"] * 4 + ["b"] * 4 + ["c"] * len(c_decision),
        groups=["a", "b", "c"],
    )


UNDEFINED = {
    "anybody": list(NOTIONS),
    "accepted people": ["equal_opportunity", "equalised_odds", "predictive_parity"],
    "label 1": ["equal_opportunity", "equalised_odds"],
    "label 0": ["equalised_odds"],
}


@pytest.mark.parametrize("normalisation", ["applicants", "paper"])
@pytest.mark.parametrize(
    ("what", "notion"),
    [(what, notion) for what, notions in UNDEFINED.items() for notion in notions],
)
def test_a_group_that_cannot_be_measured_is_left_out_and_nothing_turns_nan(
    what, notion, normalisation
):
    log = rows_without(what)
    benefits = benefits_of(notion, POLICY, log, normalisation=normalisation)
    assert np.isnan(benefits[:, 2]).any()
    assert np.isfinite(benefits[:, :2]).all()
    objective = cq.Objective(0.4, NOTIONS[notion], 5.0, normalisation=normalisation)
    value, gradient = objective.value(POLICY, log), objective.gradient(POLICY, log)
    assert np.isfinite(gradient).all()
    assert np.abs(gradient).max() > 1e-3
    pairs = sum(
        (row[one] - row[other]) ** 2 / np.isfinite(row).sum()
        for row in benefits
        for one, other in combinations(np.flatnonzero(np.isfinite(row)), 2)
    )
    utility = cq.Objective(0.4, normalisation=normalisation).value(POLICY, log)
    assert value == pytest.approx(utility - 5.0 * pairs, abs=1e-12)


@pytest.mark.parametrize(
    "weighting", [cq.weightings.SelfNormalised(), cq.weightings.Clipped(2.0)], ids=repr
)
@pytest.mark.parametrize("what", list(UNDEFINED))
def test_other_weights_stay_finite_too(what, weighting):
    log = rows_without(what)
    for notion in NOTIONS.values():
        objective = cq.Objective(0.4, notion, 5.0, weighting=weighting)
        assert np.isfinite(objective.value(POLICY, log))
        assert np.isfinite(objective.gradient(POLICY, log)).all()


@pytest.mark.parametrize("notion", list(NOTIONS))
def test_a_log_in_which_nobody_was_accepted_is_worth_nothing_and_gives_no_slope(notion):
    log = cq.DecisionLog.from_arrays([[0.0], [1.0]], [0, 0], [0.5, 0.5], [None, None], ["a", "b"])
    objective = cq.Objective(0.4, NOTIONS[notion], 5.0)
    gap = benefit_gap(benefits_of(notion, POLICY, log))
    assert objective.value(POLICY, log) == pytest.approx(-5.0 / 2 * gap**2)
    gradient = objective.gradient(POLICY, log)
    assert np.isfinite(gradient).all()
    # acceptance rates need no label; everything else has nothing to go by
    assert gradient.any() == (notion == "demographic_parity")


def test_predictive_parity_leaves_out_a_group_of_which_the_policy_accepts_nobody():
    """Far below the cut a logistic propensity underflows to 0."""
    log = cq.DecisionLog.from_arrays(
        [[1.0], [1.0], [-1.0], [-1.0]], [1, 1, 1, 1], [0.5] * 4, [1, 0, 1, 1], ["a", "a", "b", "b"]
    )
    policy = cq.Policy([0.0, 1000.0])
    assert_allclose(policy.propensity(log.features), [1, 1, 0, 0], atol=0)
    objective = cq.Objective(0.4, "predictive_parity", 5.0)
    benefits = benefits_of("predictive_parity", policy, log)
    assert_allclose(benefits, [[0.5, NAN]])
    assert objective.value(policy, log) == pytest.approx(cq.Objective(0.4).value(policy, log))
    assert_allclose(objective.gradient(policy, log), np.zeros(2), atol=0)
    # with one group left there is nothing to differ from
    assert_allclose(residual_slopes(objective, policy, log), np.zeros((2, 2)), atol=0)


def test_a_constant_benefit_is_on_the_scale_of_the_rest_under_the_papers_normalisation():
    world = cq.worlds.first_setting()
    log = world.collect(world.initial_policy(), 5_000, np.random.default_rng(0))
    policy = cq.Policy([6.0, 20.0])

    def benefits(nudge):
        notion = cq.fairness.BenefitParity(lambda d, y: (1 - d) * (1 + nudge * y))
        objective = cq.Objective(world.cost, notion, normalisation="paper")
        accepted = objective.rows(log)
        return objective.coefficients(log).sums(policy.propensity(accepted.features)).benefits

    np.testing.assert_allclose(benefits(0.0), benefits(1e-6), rtol=1e-4)


def test_a_benefit_that_is_not_a_number_is_refused():
    notion = cq.fairness.BenefitParity(lambda d, y: float("nan") if (d, y) == (0, 1) else d)
    with pytest.raises(ValueError, match="must be finite"):
        cq.Objective(0.5, notion, 1.0).value(cq.Policy([0.0, 1.0, 1.0]), exploring_log())


def test_predictive_parity_of_next_to_nobody_is_undefined_not_an_overflow():
    log = cq.DecisionLog.from_arrays(
        [[1.0], [0.9], [-1.0], [-1.002]], [1] * 4, [0.5] * 4, [1, 0, 1, 0], list("aabb")
    )
    objective = cq.Objective(0.4, "predictive_parity", 1.0)
    assert np.isfinite(objective.gradient(cq.Policy([-365.0, 365.0]), log)).all()


@pytest.mark.parametrize(
    ("other", "ours"),
    [
        ("equalized_odds", "equalised_odds"),
        ("EqualizedOdds", "equalised_odds"),
        ("DemographicParity", "demographic_parity"),
        ("selection_rate_parity", "demographic_parity"),
        ("TruePositiveRateParity", "equal_opportunity"),
        ("true_positive_rate_parity", "equal_opportunity"),
        ("false_negative_rate_parity", "equal_opportunity"),
        ("demographic_parity_difference", "demographic_parity"),
        ("equalized_odds_ratio", "equalised_odds"),
        ("equal_opportunity_difference", "equal_opportunity"),
        ("selection_rate_difference", "demographic_parity"),
    ],
)
def test_american_spellings_and_fairlearns_names_are_understood(other, ours):
    assert cq.fairness.fairness_named(other).name == ours


@pytest.mark.parametrize(
    ("other", "ours"),
    [
        ("demographic-parity", "'demographic_parity'"),
        ("equalized odds", "'equalised_odds'"),
        ("equal_oportunity", "'equal_opportunity'"),
    ],
)
def test_misspellings_are_answered_with_what_to_write(other, ours):
    with pytest.raises(
        ValueError, match=f"unknown fairness notion '{other}'; write {ours}; choose"
    ):
        cq.fairness.fairness_named(other)


# --- notions of one's own


def notion_of(formula, **names):
    class Own(cq.fairness.Fairness):
        def benefits(self, tally):
            return formula(tally)

    Own.name = names.get("name", "own")
    return Own()


ARITHMETIC = {
    "rejected share": (
        lambda tally: (1 - tally.share(tally.people),),
        lambda d, y: 1.0 - d,
    ),
    "mean": (
        lambda tally: (0.5 * tally.mean((1.0, 1.0), (0.0, 3.0)) + 2.0 - np.float64(0.25),),
        lambda d, y: 0.5 * [[1.0, 1.0], [0.0, 3.0]][d][y] + 1.75,
    ),
}


@pytest.mark.parametrize(("formula", "f"), ARITHMETIC.values(), ids=ARITHMETIC)
def test_arithmetic_on_a_benefit_is_arithmetic_on_f(formula, f):
    world = cq.worlds.first_setting()
    policy = world.initial_policy().with_floor(0.2)
    log = world.collect(policy, 2000, np.random.default_rng(0))
    own, known = notion_of(formula), cq.fairness.BenefitParity(f)
    assert world.exact(policy, own).benefits == pytest.approx(world.exact(policy, known).benefits)
    ours, theirs = (cq.evaluate(policy, log, cost=0.4, fairness=each) for each in (own, known))
    for group, benefit in theirs.benefits.items():
        assert ours.benefits[group].value == pytest.approx(benefit.value)
        assert ours.benefits[group].standard_error == pytest.approx(benefit.standard_error)
    one, other = (cq.Objective(0.4, each, 1.0).gradient(policy, log) for each in (own, known))
    assert_allclose(one, other, atol=1e-12)


def test_arithmetic_on_a_ratio_is_arithmetic_on_its_value():
    ppv = cq.fairness.PredictiveParity()
    own = notion_of(lambda tally: (1 - 2 * ppv.benefits(tally)[0],))
    world = cq.worlds.first_setting()
    plain = world.exact(world.initial_policy(), ppv).benefits
    found = world.exact(world.initial_policy(), own).benefits
    assert found == pytest.approx({group: 1 - 2 * value for group, value in plain.items()})


UNFINISHED = {
    "no name": (notion_of(lambda tally: (), name=None), 'Own has no name: write name = "..."'),
    "no tuple": (
        notion_of(lambda tally: tally.share(tally.people)),
        r"must return a tuple: write \(benefit,\)",
    ),
    "an array": (
        notion_of(lambda tally: (tally.people,)),
        r"must return benefits, such as \(tally.share\(tally.negatives\),\) .*, not ndarray",
    ),
    "two added": (
        notion_of(lambda tally: (tally.share(tally.people) + tally.share(tally.negatives),)),
        "Where two benefits must be equal across groups, return both",
    ),
    "a share of a word": (
        notion_of(lambda tally: (tally.share("negatives"),)),
        "a share is of one number per row, such as tally.people",
    ),
    "a class": (cq.fairness.DemographicParity, "DemographicParity is a class: make one"),
}


@pytest.mark.parametrize(("notion", "message"), UNFINISHED.values(), ids=UNFINISHED)
def test_what_a_notion_lacks_is_said(notion, message):
    world = cq.worlds.first_setting()
    with pytest.raises((TypeError, ValueError), match=message):
        world.exact(cq.AcceptAll(), notion)
