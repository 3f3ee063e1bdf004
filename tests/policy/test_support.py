"""Support: about whom a log can speak, for people in it and for new ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import consequential as cq
from consequential.policy import Support, link_numbers
from consequential.policy.support import smallest_supported

N = 20_000


def people(n, seed, n_features=3):
    return np.random.default_rng(seed).normal(size=(n, n_features))


def knocked_out_below(cut):
    return lambda features: features[:, 0] >= cut


def two_cuts(features):
    return (features[:, 0] >= -0.5) & (features[:, 1] < 1.2)


def linear(features):
    """A scorecard: accepted with some probability above a cut of a weighted sum."""
    return features @ np.arange(1.0, features.shape[1] + 1.0) >= -0.5


def support_of(rule, n_features=3, n=N, **options):
    features = people(n, 0, n_features)
    return Support.of(features, np.where(rule(features), 0.3, 0.0), n=n, **options)


@pytest.mark.parametrize("rule", [knocked_out_below(-0.7), knocked_out_below(0.9), two_cuts])
def test_cuts_of_single_features_are_found_exactly(rule):
    found, new = support_of(rule), people(N, 1)
    # a new person may lie between the two logged people around a cut
    assert (found.supports(new) != rule(new)).mean() <= 5.0 / N


@pytest.mark.parametrize("n_features", [2, 3, 5, 20])
def test_a_cut_of_a_linear_score_is_found_closely(n_features):
    found, new = support_of(linear, n_features), people(N, 1, n_features)
    assert (found.supports(new) != linear(new)).mean() <= 0.005


def test_any_other_boundary_errs_towards_not_supported():
    def ball(features):
        return (features**2).sum(axis=1) >= 1.5

    found, new = support_of(ball), people(N, 1)
    supported = found.supports(new)
    assert supported[~ball(new)].mean() <= 0.03
    assert (~supported[ball(new)]).mean() <= 0.1


def test_a_log_that_supports_everybody_has_no_support():
    features = people(1_000, 0)
    assert Support.of(features, np.full(1_000, 0.05), n=1_000) is None
    assert Support.of(features, np.ones(1_000), n=1_000) is None


@pytest.mark.parametrize(("n", "smallest"), [(20_000, 0.001), (400, 0.05), (60, 0.05)])
def test_what_is_too_small_depends_on_the_number_of_decisions(n, smallest):
    assert smallest_supported(n) == pytest.approx(smallest)
    features = np.arange(1_000.0)[:, None]
    enough, little = (np.where(features[:, 0] < 500, f * smallest, 0.5) for f in (1.001, 0.999))
    assert Support.of(features, enough, n=n) is None
    found = Support.of(features, little, n=n)
    assert_array_equal(found.supports(features), features[:, 0] >= 500)


def test_a_few_people_without_support_among_many_do_not_count():
    features = people(N, 0)
    propensity = np.where(np.arange(N) % 50 == 0, 0.0, 0.3)  # for a reason unrelated to features
    assert Support.of(features, propensity, n=N) is None
    below = features[:, 0] < -0.7
    found = Support.of(features, np.where(below, 0.0, propensity), n=N)
    assert_array_equal(found.supports(features), ~below)


def test_groups_are_looked_at_only_by_policies_that_use_them():
    features, group = people(N, 0), np.arange(N) % 2
    propensity = np.where(group == 1, 0.0, 0.3)
    aware = Support.of(features, propensity, n=N, group=group, n_groups=2)
    assert_array_equal(aware.supports(features, group), group == 0)
    blind = Support.of(features, propensity, n=N)
    assert blind.share == 1.0  # half of all people of any kind have no support


def supported(mode="reject", floor=0.0, **columns):
    support = support_of(knocked_out_below(0.0), n_features=2, unsupported=mode)
    return cq.Policy([0.3, 1.0, -1.0], floor=floor, support=support, **columns)


def test_the_floor_explores_among_supported_people_only():
    policy, new = supported(floor=0.1), people(1_000, 3, 2)
    inside = policy.supports(new)
    assert_array_equal(inside, new[:, 0] >= 0.0)
    assert (policy.propensity(new)[~inside] == 0.0).all()
    assert policy.propensity(new)[inside].min() >= 0.1


def test_what_is_done_with_unsupported_people_can_be_chosen():
    new = people(1_000, 3, 2)
    inside = new[:, 0] >= 0.0
    plain = cq.Policy([0.3, 1.0, -1.0]).propensity(new)
    assert_array_equal(supported("trust_model").propensity(new), plain)
    for mode in ("reject", "as_logged"):
        found = supported(mode).propensity(new)
        assert_array_equal(found[inside], plain[inside])
        assert found[~inside].max() == 0.0
    features = people(N, 0, 2)
    logged = np.where(features[:, 0] >= 0.0, 0.3, 0.0004)
    support = Support.of(features, logged, n=N, unsupported="as_logged")
    policy = cq.Policy([0.3, 1.0, -1.0], support=support)
    assert policy.propensity(new)[~inside] == pytest.approx(0.0004, abs=1e-9)


def test_decisions_keep_to_the_support():
    policy, new = supported(), people(1_000, 3, 2)
    decision = policy.decide(new, rng=np.random.default_rng(0))
    assert not decision[new[:, 0] < 0.0].any()
    assert decision[new[:, 0] >= 0.0].any()


def test_other_versions_of_a_policy_keep_its_support():
    policy = supported()
    others = (policy.at([0.0, 0.0, 0.0]), policy.with_floor(0.1), replace(policy, learned_from="a"))
    for other in others:
        assert other.support is policy.support


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("reject", "rejects"),
        ("as_logged", "follows the past rule"),
        ("trust_model", "extrapolates"),
    ],
)
def test_a_policy_says_what_it_does_beyond_its_log(mode, said):
    policy = supported(mode)
    assert said in repr(policy)
    assert said in policy.support.note
    assert "support" not in repr(cq.Policy([0.0, 1.0]))


def test_features_are_found_by_name():
    policy = supported(feature_names=["income", "debt"])
    frame = pd.DataFrame({"debt": [0.0, 0.0], "income": [-1.0, 1.0]})
    assert policy.supports(frame).tolist() == [False, True]
    assert policy.propensity(frame)[0] == 0.0


def test_a_support_is_stored_with_the_policy(tmp_path):
    features, group = people(N, 0, 2), np.arange(N) % 2
    propensity = np.where((group == 1) & (features[:, 1] < 0.3), 0.0, 0.3)
    support = Support.of(features, propensity, n=N, group=group, n_groups=2)
    policy = cq.Policy(np.arange(6.0), groups=("a", "b"), support=support)
    cq.save_policy(policy, tmp_path / "policy.json")
    again = cq.load_policy(tmp_path / "policy.json")
    sensitive = np.array(["a", "b"])[group]
    assert repr(again) == repr(policy)
    assert_array_equal(again.supports(features, sensitive), policy.supports(features, sensitive))
    assert_array_equal(
        again.propensity(features, sensitive), policy.propensity(features, sensitive)
    )


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"left": [0, -1, -1]}, "after their parents"),
        ({"right": [7, -1, -1]}, "after their parents"),
        ({"threshold": [0.0]}, "same number of values"),
        ({"threshold": [np.nan, 0.0, 0.0]}, "must be finite"),
        ({"propensity": [2.0, 0.0, 0.0]}, r"shares in \[0, 1\]"),
        ({"feature": [9, -1, -1]}, "features that do not exist"),
        ({"unsupported": "accept"}, "unsupported is one of reject, as_logged, trust_model"),
    ],
)
def test_a_support_that_cannot_be_is_refused(damage, message):
    values = supported().support.to_dict()
    assert len(values["feature"]) == 3
    with pytest.raises(cq.PolicyError, match=message):
        Support(**values | damage)


def test_people_with_other_features_are_refused():
    with pytest.raises(cq.PolicyError, match="parameters but the features give"):
        supported().propensity(np.zeros((2, 3)))
    with pytest.raises(cq.PolicyError, match="support looks at 2 inputs"):
        supported().supports(np.zeros((2, 3)))


# --- code that reads a policy's parameters


def test_compiled_code_does_not_overlook_a_support():
    assert link_numbers(supported()) is None
    assert link_numbers(supported("as_logged")) is None
    assert link_numbers(supported("trust_model")) == link_numbers(cq.Policy([0.0]))


def exploring(n=2_000):
    rng = np.random.default_rng(5)
    features, propensity = rng.normal(size=(n, 2)), np.full(n, 0.5)
    decision = rng.random(n) < propensity
    label = np.where(decision, rng.random(n) < 0.6, np.nan)
    return cq.DecisionLog.from_arrays(features, decision, propensity, label)


@pytest.mark.parametrize("mode", ["reject", "as_logged", "trust_model"])
def test_the_objective_is_that_of_the_policy_with_its_support(mode):
    log, policy, objective = exploring(), supported(mode), cq.Objective(0.5)
    expected = objective.coefficients(log).sums(log.propensity_of(policy)).utility
    assert objective.value(policy, log) == pytest.approx(expected, rel=1e-12)
    step = 1e-6 * np.eye(3)
    numeric = [
        (objective.value(policy.at(policy.theta + by), log) - objective.value(policy, log)) / 1e-6
        for by in step
    ]
    assert objective.gradient(policy, log) == pytest.approx(numeric, abs=1e-5)


def test_minibatch_ascent_refuses_a_policy_that_keeps_to_a_support():
    learn = cq.UpdatePolicy(cq.Objective(0.5), n_iterations=2, batch_size=100)
    with pytest.raises(ValueError, match="minibatch ascent learns for everybody"):
        learn(supported(), exploring(), rng=np.random.default_rng(0))
    assert learn(supported("trust_model"), exploring(), rng=np.random.default_rng(0)).policy


def test_a_world_judges_the_policy_with_its_support():
    world = cq.worlds.first_setting()
    features = world.propose(N, np.random.default_rng(0))[0]
    support = Support.of(features, np.where(features[:, 0] < 0.2, 0.0, 0.5), n=N)
    found = world.exact(cq.Policy([40.0, 0.0], support=support))
    expected = world.exact(cq.ThresholdPolicy(cq.logistic_model([-0.2, 1.0]), 0.5))
    assert found.utility == pytest.approx(expected.utility, abs=1e-3)
    assert found.benefit_gap == pytest.approx(expected.benefit_gap, abs=1e-3)
