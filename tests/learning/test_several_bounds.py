"""A learner under bounds of several notions and sensitive columns, and on acceptance."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import consequential as cq
from consequential.objective.fairness import Bound

COST = 0.5


def people(n, seed=0):
    """Return people of two sexes and two ages, of whom men and the young are better risks."""
    rng = np.random.default_rng(seed)
    sex, age = rng.integers(0, 2, (2, n))
    features = rng.normal(size=(n, 2))
    features[:, 0] += 0.8 * sex
    features[:, 1] += 0.8 * age
    chance = 1.0 / (1.0 + np.exp(-(features.sum(axis=1) - 0.8)))
    sensitive = {"sex": np.array(["f", "m"])[sex], "age": np.array(["old", "young"])[age]}
    return features, sensitive, chance


def collected(n=2_000, seed=0):
    features, sensitive, chance = people(n, seed)
    rng = np.random.default_rng(seed + 1)
    decision = rng.random(n) < 0.6
    label = np.where(decision, rng.random(n) < chance, np.nan)
    return cq.DecisionLog.from_arrays(features, decision, np.full(n, 0.6), label, sensitive)


@pytest.fixture(scope="module")
def log():
    return collected()


def fitted(log, *, method="direct", **options):
    if method == "direct":
        return cq.FairPolicyLearner(cost=COST, method=method, **options).fit_log(log)
    options["outcome_model"] = LogisticRegression()
    return cq.FairPolicyLearner(cost=COST, method=method, **options).fit_log(log, folds=2)


def gap_of(learner, log, notion, by):
    """Return a gap on the log that was learned from, computed from its definition."""
    accepted, values = log.propensity_of(learner.policy_), np.array(log.by(by).sensitive)
    weight = np.ones(len(log))
    if notion == "equal_opportunity":
        weight = np.where(log.decision, log.outcome / log.propensity, 0.0)
    rates = [
        (weight * accepted)[values == value].sum() / weight[values == value].sum()
        for value in np.unique(values)
    ]
    return max(rates) - min(rates)


TWO = [Bound("demographic_parity", 0.03, by="sex"), Bound("equal_opportunity", 0.06, by="age")]


@pytest.mark.parametrize("uses_sensitive", [False, True])
def test_each_attribute_keeps_a_bound_of_its_own(log, uses_sensitive):
    free = fitted(log, uses_sensitive=uses_sensitive)
    assert gap_of(free, log, "demographic_parity", "sex") > 0.1
    assert gap_of(free, log, "equal_opportunity", "age") > 0.09
    found = fitted(log, bounds=TWO, uses_sensitive=uses_sensitive)
    assert found.result_.violation <= 2e-4
    assert gap_of(found, log, "demographic_parity", "sex") <= 0.03 + 2e-4
    assert gap_of(found, log, "equal_opportunity", "age") <= 0.06 + 2e-4
    assert abs(found.result_.benefit_gap) <= 0.03 + 2e-4
    assert list(found.result_.benefits) == ["f", "m"]


def test_bounds_by_attribute_leave_more_utility_than_one_between_intersections(log):
    marginal = [Bound("demographic_parity", 0.03, by=name) for name in ("sex", "age")]
    loose, strict = fitted(log, bounds=marginal), fitted(log, max_gap=0.03)
    assert loose.result_.utility > strict.result_.utility
    for name in ("sex", "age"):
        assert gap_of(loose, log, "demographic_parity", name) <= 0.03 + 2e-4


def test_one_bound_on_all_groups_is_max_gap(log):
    asked = {"fairness": "equal_opportunity", "max_gap": 0.05}
    one, same = fitted(log, **asked), fitted(log, bounds=[Bound("equal_opportunity", 0.05)])
    np.testing.assert_allclose(one.policy_.theta, same.policy_.theta, rtol=0, atol=1e-9)


@pytest.mark.filterwarnings("ignore::consequential.WinnersCurseWarning")  # as policy_gap_ does
def test_a_model_rule_states_the_gap_of_every_bound(log):
    found = fitted(log, bounds=TWO, method="model")
    assert list(found.policy_gaps_) == TWO
    assert found.policy_gaps_[TWO[0]] == found.policy_gap_
    assert found.value_.fairness == "demographic_parity"
    assert list(found.value_.benefits) == ["f", "m"]
    for bound, gap in found.policy_gaps_.items():
        asked = {"cost": COST, "fairness": bound.fairness, "weighting": found.weighting_}
        crossed, own, *folds = (
            cq.evaluate(rule, log.by(bound.by), **asked).benefit_gap.value
            for rule in (found.cross_fitted_, found.policy_, *found.cross_fitted_.policies)
        )
        assert gap.value == pytest.approx(crossed + own - np.mean(folds), abs=0.01)
    # accepting the best risks breaks one of the bounds or the other
    assert not found.result_.candidates["plain regression"].within_bound
    assert found.result_.candidates.chosen.within_bound


def test_a_candidate_that_breaks_the_second_bound_is_not_within_bounds(log):
    loose = [Bound("demographic_parity", 0.9, by="sex"), Bound("equal_opportunity", 0.01, by="age")]
    found = fitted(log, bounds=loose, method="model").result_.candidates
    assert not found["plain regression"].within_bound


@pytest.mark.parametrize("method", ["model", "direct"])
@pytest.mark.parametrize("share", [0.2, 0.7])
def test_exactly_a_share_is_accepted_and_these_are_the_best_risks(log, method, share):
    found = fitted(log, min_acceptance=share, max_acceptance=share, method=method)
    accepted = log.propensity_of(found.policy_)
    assert accepted.mean() == pytest.approx(share, abs=1e-3)
    features, _, chance = people(50_000, seed=5)
    best = (chance - COST)[chance >= np.quantile(chance, 1.0 - share)].sum() / len(chance)
    value = ((chance - COST) * found.policy_.propensity(features)).mean()
    assert value > best - 0.012


def test_a_least_acceptance_of_one_group_is_kept(log):
    free = log.propensity_of(fitted(log).policy_)[log.group == 0].mean()
    found = fitted(log, min_acceptance={"f & old": free + 0.2})
    accepted = log.propensity_of(found.policy_)
    assert accepted[log.group == 0].mean() >= free + 0.2 - 2e-4


def test_a_least_acceptance_that_is_no_bound_changes_nothing(log):
    free, bounded = fitted(log, method="model"), fitted(log, method="model", min_acceptance=0.05)
    np.testing.assert_allclose(
        log.propensity_of(free.policy_), log.propensity_of(bounded.policy_), atol=0.02
    )


def test_more_people_than_the_log_supports_cannot_be_accepted():
    n, rng = 1_000, np.random.default_rng(0)
    features = rng.normal(size=(n, 1))
    propensity = np.where(features[:, 0] > 0.0, 0.5, 0.0)
    decision = rng.random(n) < propensity
    label = np.where(decision, rng.random(n) < 0.5, np.nan)
    log = cq.DecisionLog.from_arrays(features, decision, propensity, label)
    with pytest.raises(cq.DecisionLogError, match=r"min_acceptance asks for 90.0% of all applic"):
        fitted(log, min_acceptance=0.9)


def test_bounds_that_no_policy_keeps_are_said_to_be_missed(log):
    one_sided = {"min_acceptance": {"m & young": 0.9}, "max_acceptance": {"f & old": 0.1}}
    found = fitted(log, **one_sided, max_gap=0.1)
    assert found.result_.violation > 0.1
    assert any("the constraint is missed by" in note for note in found.result_.notes)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bounds": TWO, "max_gap": 0.1}, "max_gap= does not go with bounds="),
        ({"bounds": TWO, "penalty": 1.0}, "penalty= does not go with bounds="),
        ({"bounds": TWO, "confidence": 0.9}, "confidence= does not go with bounds="),
        ({"bounds": TWO, "fairness": "equalised_odds"}, "fairness= does not go with bounds="),
        ({"bounds": [Bound("equal_opportunity", 0.1, by="race")]}, "no sensitive attribute 'race'"),
        ({"bounds": [Bound("predictive_parity", 0.1, by="sex")]}, "compares ratios"),
        ({"min_acceptance": 0.4, "max_acceptance": 0.3}, "make them equal"),
        ({"min_acceptance": 1.4}, r"min_acceptance is a share of people in \(0, 1\]"),
        ({"min_acceptance": {"x": 0.4}}, "min_acceptance has a group 'x'"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(log, options, said):
    with pytest.raises(ValueError, match=said):
        fitted(log, **options)


def test_a_bound_is_checked_when_it_is_made():
    with pytest.raises(ValueError, match="max_gap lies between 0 and 1"):
        Bound("demographic_parity", 2.0)
    with pytest.raises(ValueError, match="unknown fairness notion"):
        Bound("fair", 0.1)
    with pytest.raises(TypeError, match="bounds is a list of fairness"):
        fitted(collected(100), bounds=["demographic_parity"])


def test_a_frame_of_sensitive_columns_is_learned_from_and_decided_by():
    pd = pytest.importorskip("pandas")
    features, sensitive, chance = people(800)
    frame = pd.DataFrame(sensitive)
    label = (np.random.default_rng(0).random(800) < chance).astype(int)
    learner = cq.FairPolicyLearner(cost=COST, bounds=TWO[:1], method="direct", uses_sensitive=True)
    learner.fit(features, label, sensitive_features=frame)
    assert learner.policy_.groups == ("f & old", "f & young", "m & old", "m & young")
    chances = learner.predict_proba(features, sensitive_features=frame)[:, 1]
    rates = [chances[sensitive["sex"] == value].mean() for value in ("f", "m")]
    assert abs(rates[0] - rates[1]) <= 0.03 + 2e-4


def test_more_groups_than_can_be_compared_are_refused_before_any_work():
    log = cq.DecisionLog.from_arrays(
        np.arange(404.0),
        sensitive=np.arange(404) % 101,
        decision=np.ones(404),
        propensity=np.full(404, 0.5),
        label=np.arange(404) % 2,
    )
    for asked in (
        {"max_gap": 0.1},
        {"penalty": 1.0},
        {"bounds": [Bound("demographic_parity", 0.1)]},
    ):
        with pytest.raises(
            ValueError, match="101 groups cannot be compared pair by pair, only 100"
        ):
            cq.FairPolicyLearner(**asked).fit_log(log)
