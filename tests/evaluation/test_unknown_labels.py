"""Labels that nobody knows: intervals cover whatever they are."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose

import consequential as cq
from consequential.evaluation.weighted_log import WeightedLog

COST = 0.4


def half_supported(n=40, *, never=5, seed=0, amount=False, groups=2):
    """A log in which the last `never` people could not be accepted; everybody else was."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 1))
    p = np.ones(n)
    p[-never:] = 0.0
    decision = p > 0
    label = np.where(decision, rng.integers(2, size=n), np.nan)
    return cq.DecisionLog.from_arrays(
        x,
        decision,
        p,
        label,
        rng.integers(groups, size=n),
        amount=rng.uniform(1.0, 2.0, n) if amount else None,
        groups=list(range(groups)),
    )


def told(log, labels):
    """The same log if everybody had been accepted and those labels had been seen."""
    label = log.label.copy()
    label[~log.decision] = labels
    everyone = np.ones(len(log))
    return cq.DecisionLog.from_arrays(
        log.features, everyone, everyone, label, log.group, amount=log.amount, groups=log.groups
    )


def enumerated(log, values):
    """The smallest and largest of what values could be, over all labels nobody knows."""
    unknown = int((~log.decision).sum())
    found = [values(told(log, labels)) for labels in product((0.0, 1.0), repeat=unknown)]
    return np.nanmin(found, axis=0), np.nanmax(found, axis=0)


# the interval is almost that of the points: next to no confidence is asked for
EXACT = {"confidence": 1e-9}
RULES = {
    "accept all": cq.AcceptAll(),
    "steep": cq.Policy([0.3, 4.0]),
    "reject all": cq.RejectAll(),
}


@pytest.mark.parametrize(
    ("rule", "amount"), [("accept all", False), ("steep", True), ("reject all", False)]
)
def test_utility_is_bounded_by_enumeration(rule, amount):
    log = half_supported(amount=amount)
    found = cq.evaluate(RULES[rule], log, cost=COST, **EXACT).utility
    low, high = enumerated(
        log, lambda some: cq.evaluate(RULES[rule], some, cost=COST).utility.value
    )
    assert_allclose([found.low, found.high], [low, high], atol=1e-6)


@pytest.mark.parametrize(("new", "old"), [("accept all", "steep"), ("steep", "reject all")])
def test_a_difference_is_bounded_by_enumeration(new, old):
    log = half_supported(seed=3)
    rules = RULES[new], RULES[old]
    found = WeightedLog.of(cq.Objective(COST), log).utility(*map(log.propensity_of, rules))
    low, high = enumerated(log, lambda some: cq.compare(*rules, some, cost=COST).utility.value)
    assert_allclose([found.low.values[0], found.high.values[0]], [low, high], atol=1e-12)
    interval = cq.compare(*rules, log, cost=COST).utility
    assert interval.low < low < high < interval.high


@pytest.mark.parametrize(
    "notion", ["equal_opportunity", "predictive_parity", "equalised_odds", "demographic_parity"]
)
@pytest.mark.parametrize("groups", [2, 3])
def test_benefits_and_their_gap_are_bounded_by_enumeration(notion, groups):
    log = half_supported(40, never=5, seed=5, groups=groups)
    rule = RULES["steep"]
    options = {"cost": COST, "fairness": notion}

    def benefits_and_gap(some):
        there = cq.evaluate(rule, some, **options)
        return [*(each.value for each in there.benefits.values()), there.benefit_gap.value]

    low, high = enumerated(log, benefits_and_gap)
    ranges = WeightedLog.of(cq.Objective(COST, notion), log).benefits(log.propensity_of(rule))
    assert_allclose(ranges[0].low.values, low[:-1], atol=1e-12)
    assert_allclose(ranges[0].high.values, high[:-1], atol=1e-12)
    found = cq.evaluate(rule, log, **options)
    for group, each in found.benefits.items():
        assert each.low <= low[group]
        assert each.high >= high[group]
    gap = found.benefit_gap
    assert gap.low <= low[-1]
    assert gap.high >= high[-1]
    if groups == 2 and notion != "equalised_odds":
        # groups share no rows: each is at its own extreme, and the value lies in the middle
        assert gap.value == pytest.approx((low[-1] + high[-1]) / 2.0, abs=1e-12)


def test_label_free_figures_stay_exact():
    log = half_supported()
    found = cq.evaluate(RULES["steep"], log, cost=COST)
    everybody = cq.evaluate(RULES["steep"], told(log, 0.0), cost=COST)
    assert repr(found.acceptance) == repr(everybody.acceptance)
    assert repr(found.benefit_gap) == repr(everybody.benefit_gap)
    assert found.benefit_gap.unsupported == 0.0


def test_every_estimate_says_how_much_of_the_acceptance_is_unsupported():
    log = half_supported(50, never=10)
    found = cq.evaluate(cq.AcceptAll(), log, cost=COST, fairness="equal_opportunity")
    assert found.unsupported == found.utility.unsupported == pytest.approx(0.2)
    assert found.to_dict()["unsupported"] == pytest.approx(0.2)
    by_group = [each.unsupported for each in found.benefits.values()]
    sizes = log.group_counts
    assert float(np.dot(by_group, sizes)) == pytest.approx(10.0)
    assert "20.0% of the people this rule accepts could not be accepted" in found.notes[0]
    assert cq.evaluate(cq.RejectAll(), log, cost=COST).unsupported == 0.0


def test_intervals_of_group_metrics_reach_beyond_enumeration():
    log = half_supported(40, never=5, seed=8)
    rule = RULES["steep"]
    metrics = ("true_positive_rate", "false_positive_rate", "positive_predictive_value")

    def shown(found):
        return [
            [*found.by_group[metric].values(), found.difference[metric], found.ratio[metric]]
            for metric in metrics
        ]

    def values(some):
        return [[each.value for each in row] for row in shown(cq.group_metrics(rule, some))]

    low, high = enumerated(log, values)
    found = cq.group_metrics(rule, log)
    lows = np.array([[each.low for each in row] for row in shown(found)])
    highs = np.array([[each.high for each in row] for row in shown(found)])
    assert (lows <= low + 1e-12).all()
    assert (highs >= high - 1e-12).all()
    assert found.by_group["selection_rate"][0].unsupported == 0.0


# --- the second setting under a threshold


@pytest.fixture(scope="module")
def thresholded():
    world = cq.worlds.second_setting()
    rule = cq.ThresholdPolicy(cq.logistic_model([-3.5, 0.6]), world.cost)
    return world, world.collect(rule, 20_000, np.random.default_rng(2))


def test_nothing_is_concluded_about_people_a_threshold_never_accepted(thresholded):
    """Accept-all is worth -.0170 and the threshold .0186: the log cannot know."""
    world, log = thresholded
    found = cq.compare(cq.AcceptAll(), cq.Logged(), log, cost=world.cost)
    truth = (
        world.exact(cq.AcceptAll()).utility
        - world.exact(cq.ThresholdPolicy(cq.logistic_model([-3.5, 0.6]), world.cost)).utility
    )
    assert truth in found.utility
    assert found.verdict.startswith("cannot tell")
    assert not found.better
    assert not found.worse
    alone = cq.evaluate(cq.AcceptAll(), log, cost=world.cost)
    assert world.exact(cq.AcceptAll()).utility in alone.utility
    assert alone.unsupported == pytest.approx(float((log.propensity == 0).mean()))


def test_bounded_intervals_cover_unknown_labels(thresholded):
    world, log = thresholded
    some = log.take(slice(0, 2000))
    found = cq.evaluate(cq.AcceptAll(), some, cost=world.cost, method="any_time")
    assert world.exact(cq.AcceptAll()).utility in found.utility
    assert found.utility.high - found.utility.low >= float((some.propensity == 0).mean())


def test_a_confidence_sequence_covers_unknown_labels(thresholded):
    world, log = thresholded
    lower, upper = cq.statistics.utility_sequence(cq.AcceptAll(), log, cost=world.cost)
    truth = world.exact(cq.AcceptAll()).utility
    assert (lower <= truth).all()
    assert (truth <= upper).all()


def test_rules_that_leave_the_unsupported_alone_are_known_exactly(thresholded):
    world, log = thresholded
    tighter = cq.ThresholdPolicy(cq.logistic_model([-4.0, 0.6]), world.cost)
    found = cq.compare(tighter, cq.Logged(), log, cost=world.cost)
    assert found.utility.unsupported == 0.0
    assert world.exact(tighter).utility in cq.evaluate(tighter, log, cost=world.cost).utility


# --- clipping


def test_clipped_weights_bound_what_they_leave_out():
    """Coverage of Clipped(10) under a floor of .02 over 100 logs: binomial, three errors."""
    world = cq.worlds.first_setting()
    policy = cq.Policy([1.5, 5.0])
    truth = world.exact(policy).utility
    covered = 0
    for seed in range(100):
        log = world.collect(
            world.initial_policy().with_floor(0.02), 2000, np.random.default_rng(seed)
        )
        found = cq.evaluate(policy, log, cost=world.cost, weighting=cq.weightings.Clipped(10.0))
        covered += truth in found.utility
    assert covered >= 90


def test_clipping_says_that_it_is_biased_and_hides_no_warning():
    world = cq.worlds.first_setting()
    log = world.collect(world.initial_policy().with_floor(0.02), 600, np.random.default_rng(1))
    plain = cq.evaluate(cq.AcceptAll(), log, cost=world.cost)
    clipped = cq.evaluate(
        cq.AcceptAll(), log, cost=world.cost, weighting=cq.weightings.Clipped(10.0)
    )
    assert clipped.effective_sample_size == plain.effective_sample_size < 100
    assert any("in effect" in note for note in clipped.notes)
    assert any("clipped at 10 are biased" in note for note in clipped.notes)
    assert clipped.utility.unsupported > 0.0
    plain_value = cq.Objective(world.cost, weighting=cq.weightings.Clipped(10.0)).coefficients(log)
    assert clipped.utility.value == pytest.approx(float(plain_value.utility.sum()))
    gentle = cq.evaluate(cq.AcceptAll(), log, cost=world.cost, weighting=cq.weightings.Clipped(1e3))
    assert repr(gentle.utility) == repr(plain.utility)


def test_self_normalised_weights_average_one_over_people_with_a_chance():
    log = half_supported(40, never=10)
    weights = cq.weightings.SelfNormalised().weights(log)
    assert weights[:30].mean() == pytest.approx(1.0)
    found = cq.evaluate(
        RULES["accept all"], log, cost=COST, weighting=cq.weightings.SelfNormalised(), **EXACT
    ).utility
    plain = cq.evaluate(RULES["accept all"], log, cost=COST, **EXACT).utility
    assert_allclose([found.low, found.high], [plain.low, plain.high], atol=1e-9)


def test_a_model_does_not_count_as_knowledge_of_people_never_accepted():
    world = cq.worlds.second_setting()
    rule = cq.ThresholdPolicy(cq.logistic_model([-3.5, 0.6]), world.cost)
    log = world.collect(rule, 2000, np.random.default_rng(2))
    found = cq.evaluate(
        cq.AcceptAll(), log, cost=world.cost, weighting=cq.weightings.DoublyRobust()
    )
    assert world.exact(cq.AcceptAll()).utility in found.utility
    assert found.utility.high - found.utility.low >= float((log.propensity == 0).mean())


# --- next to no information


def test_nobody_accepted_is_no_information():
    n = 5000
    log = cq.DecisionLog.from_arrays(
        np.zeros((n, 1)), np.zeros(n), np.full(n, 0.02), np.full(n, np.nan)
    )
    found = cq.evaluate(cq.AcceptAll(), log, cost=COST)
    assert_allclose([found.utility.low, found.utility.high], [-COST, 1 - COST])
    assert any("next to no label" in note for note in found.notes)
    assert any("contradict" in note for note in found.notes)
    assert cq.evaluate(cq.RejectAll(), log, cost=COST).utility.high == 0.0


def test_a_rule_for_people_of_whom_none_was_accepted_is_not_known_to_be_worthless():
    """Forty people with a chance of .02 each, none of them accepted; all others were."""
    n = 1000
    p = np.ones(n)
    p[:40] = 0.02
    decision = p == 1.0
    rng = np.random.default_rng(0)
    label = np.where(decision, rng.integers(2, size=n), np.nan)
    log = cq.DecisionLog.from_arrays(np.arange(n)[:, None] / n, decision, p, label)
    rule = cq.ThresholdPolicy(cq.logistic_model([3.9, -100.0]), 0.5)
    assert log.propensity_of(rule).sum() == pytest.approx(40, abs=1)
    found = cq.evaluate(rule, log, cost=COST).utility
    assert found.low <= -0.039 * COST
    assert found.high >= 0.039 * (1 - COST)
    both = cq.compare(cq.AcceptAll(), cq.Logged(), log, cost=COST)
    assert both.verdict.startswith("cannot tell")


# --- labels that never came


def thinned(log, rng, chance):
    """Labels of accepted people that are seen with some chance; the others never come."""
    seen = rng.random(len(log)) < chance
    return np.where(seen, log.label, np.nan)


def remade(log, label, **options):
    return cq.DecisionLog.from_arrays(
        log.features, log.decision, log.propensity, label, log.group, groups=log.groups, **options
    )


def test_missing_labels_are_refused_unless_it_is_said_what_to_make_of_them():
    world = cq.worlds.first_setting()
    log = world.collect(world.initial_policy().with_floor(0.1), 500, np.random.default_rng(0))
    gone = thinned(log, np.random.default_rng(1), 0.8)
    with pytest.raises(cq.DecisionLogError, match='missing="against"'):
        cq.evaluate(cq.AcceptAll(), remade(log, gone), cost=world.cost)
    with pytest.raises(cq.DecisionLogError, match="'refuse', 'against' or 'at_random'"):
        remade(log, gone, missing="drop")
    with pytest.raises(cq.DecisionLogError, match="at_random"):
        remade(log, gone, missing="against", observed=np.ones(len(log)))
    with pytest.raises(cq.DecisionLogError, match="outside"):
        remade(log, gone, missing="at_random", observed=np.zeros(len(log)))


@pytest.mark.parametrize("notion", ["demographic_parity", "equal_opportunity"])
def test_labels_held_against_a_rule_are_bounded_by_enumeration(notion):
    rng = np.random.default_rng(4)
    n, gone = 60, 6
    p = rng.uniform(0.3, 1.0, n)
    decision = rng.random(n) < p
    label = np.where(decision, rng.integers(2, size=n), np.nan)
    missing = np.flatnonzero(decision)[:gone]
    label[missing] = np.nan
    people = rng.normal(size=(n, 1)), decision, p
    group = rng.integers(2, size=n)
    log = cq.DecisionLog.from_arrays(*people, label, group, missing="against")
    options = {"cost": COST, "fairness": notion}
    found = cq.evaluate(RULES["steep"], log, **options, **EXACT)
    ends = {"utility": [], "benefit_gap": []}
    for labels in product((0.0, 1.0), repeat=gone):
        filled = label.copy()
        filled[missing] = labels
        there = cq.evaluate(
            RULES["steep"], cq.DecisionLog.from_arrays(*people, filled, group), **options
        )
        for name, values in ends.items():
            values.append(getattr(there, name).value)
    for name, values in ends.items():
        each = getattr(found, name)
        assert_allclose([each.low, each.high], [min(values), max(values)], atol=1e-6)


def test_labels_missing_at_random_are_made_up_for_by_those_that_came():
    """Labels of people at the top come less often: dropping those rows reads too low a utility."""
    world = cq.worlds.first_setting()
    policy = cq.Policy([1.5, 5.0])
    truth = world.exact(policy).utility
    log = world.collect(world.initial_policy().with_floor(0.2), 20_000, np.random.default_rng(3))
    chance = np.where(log.features[:, 0] > 0.0, 0.4, 0.9)
    label = thinned(log, np.random.default_rng(5), chance)
    given = remade(log, label, missing="at_random", observed=chance)
    estimated = remade(log, label, missing="at_random")
    for some in (given, estimated):
        found = cq.evaluate(policy, some, cost=world.cost)
        assert truth in found.utility
        assert abs(found.utility.value - truth) < 0.012  # two standard errors
        assert any("missing at random" in note for note in found.notes)
    dropped = remade(log, label).take(~(log.decision & np.isnan(label)))
    assert cq.evaluate(policy, dropped, cost=world.cost).utility.high < truth


@pytest.mark.slow
def test_intervals_of_thinned_labels_cover():
    """200 logs each: 95 percent up to three binomial errors."""
    world = cq.worlds.first_setting()
    policy = cq.Policy([1.5, 5.0])
    truth = world.exact(policy).utility
    covered = {"given": 0, "estimated": 0, "against": 0}
    for seed in range(200):
        rng = np.random.default_rng(seed)
        log = world.collect(world.initial_policy().with_floor(0.1), 5000, rng)
        chance = np.where(log.features[:, 0] > 0.0, 0.5, 0.9)
        label = thinned(log, rng, chance)
        for name, options in {
            "given": {"missing": "at_random", "observed": chance},
            "estimated": {"missing": "at_random"},
            "against": {"missing": "against"},
        }.items():
            found = cq.evaluate(policy, remade(log, label, **options), cost=world.cost)
            covered[name] += truth in found.utility
    assert covered["given"] >= 181
    assert covered["estimated"] >= 178
    assert covered["against"] >= 198


def test_learning_takes_missing_labels_for_failures_or_thins_them():
    world = cq.worlds.first_setting()
    log = world.collect(world.initial_policy().with_floor(0.2), 5000, np.random.default_rng(3))
    label = thinned(log, np.random.default_rng(5), 0.7)
    utilities = {}
    for how in ("against", "at_random"):
        some = remade(log, label, missing=how)
        learner = cq.FairPolicyLearner(method="direct", cost=world.cost).fit_log(some)
        utilities[how] = world.exact(learner.policy_).utility
    assert utilities["at_random"] > 0.17
    failures = remade(log, np.where(log.decision, np.nan_to_num(label), np.nan))
    as_failures = cq.FairPolicyLearner(method="direct", cost=world.cost).fit_log(failures)
    assert utilities["against"] == pytest.approx(world.exact(as_failures.policy_).utility, abs=2e-3)


# --- drift


def drifting(n=4000, seed=0):
    """The second step's policy accepts everybody, and repayment has risen by then."""
    rng = np.random.default_rng(seed)
    first, second = cq.Policy([-1.0, 2.0], floor=0.1), cq.Policy([1.0, -2.0], floor=0.1)
    x = rng.normal(size=(2 * n, 1))
    step = np.repeat([0, 1], n)
    x[step == 1] += 0.8
    rate = 1.0 / (1.0 + np.exp(-(x[:, 0] + 1.5 * step - 1.0)))
    p = np.where(step == 0, first.propensity(x), second.propensity(x))
    decision = rng.random(2 * n) < p
    label = np.where(decision, rng.random(2 * n) < rate, np.nan)
    return cq.DecisionLog.from_arrays(
        x, decision, p, label, time_step=step, policies={0: first, 1: second}
    ), float((rate - COST).mean())


def test_the_balance_heuristic_sees_that_the_population_drifts():
    log, truth = drifting()
    found = cq.evaluate(cq.AcceptAll(), log, cost=COST, weighting=cq.weightings.BalanceHeuristic())
    own = cq.evaluate(cq.AcceptAll(), log, cost=COST)
    assert repr(found.utility) == repr(own.utility)
    assert truth in found.utility
    assert any("balance heuristic would be biased" in note for note in found.notes)


def test_the_balance_heuristic_raises_no_false_alarm_where_nothing_drifts():
    world = cq.worlds.second_setting()
    policies = {0: cq.Policy([-1.0, 0.5], floor=0.05), 1: cq.Policy([0.5, 0.3], floor=0.05)}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        parts = [
            world.collect(policy, 1000, rng, time_step=step) for step, policy in policies.items()
        ]
        log = cq.DecisionLog.concatenate(parts)
        assert cq.weightings.BalanceHeuristic().notes(log) == ()
