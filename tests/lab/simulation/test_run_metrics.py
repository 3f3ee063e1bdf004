"""Metrics of a run: one row per policy, each what a calculation by hand gives."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from scipy.stats import norm
from tiny_worlds import Districts, Stay, small_table, tiny, watched

import consequential as cq

NOTIONS = [
    "demographic_parity",
    "equal_opportunity",
    "equalised_odds",
    "predictive_parity",
    cq.fairness.BenefitParity(lambda d, y: float(d == y)),
]


def one_run(world, strategy, **options):
    seen = watched(world)
    options = {"seeds": [2], "progress": False} | options
    (run,) = cq.simulate(world, strategy, **options).runs
    return run, seen


def rules(run, seen) -> list[cq.DecisionRule]:
    """Who decided at each step, and at last who would decide next."""
    return [step.rule for step in seen] + [run.policy]


@pytest.mark.parametrize("link", ["logistic", "semi_logistic", "smooth_semi_logistic"])
def test_row_t_is_the_truth_about_the_policy_of_step_t(link):
    """Against a fine sum over the paper's second setting, written out again."""
    world = tiny(cq.worlds.second_setting(), n_proposals=600)
    run, seen = one_run(world, cq.lab.LearnToDecide(link))
    x = np.linspace(-30, 30, 600_001)
    label = 0.8 * expit(0.6 * (x + 3)) * expit(-5 * (x - 3)) + expit(x - 5)
    density = [norm(mean, 3.5).pdf(x) for mean in (1.5, -1.5)]
    expected = {name: [] for name in ("utility", "acceptance", "benefit 0", "benefit 1")}
    for rule in rules(run, seen):
        pi = rule.propensity(x[:, None])
        b0, b1 = (np.trapezoid(pi * p, x) for p in density)
        gains = [np.trapezoid(pi * (label - 0.55) * p, x) for p in density]
        row = (np.mean(gains), (b0 + b1) / 2, b0, b1)
        for name, value in zip(expected, row, strict=True):
            expected[name].append(value)
    for name, values in expected.items():
        assert_allclose(run.metrics[name], values, atol=1e-5, err_msg=name)
    gap = np.subtract(expected["benefit 0"], expected["benefit 1"])
    assert_allclose(run.metrics["benefit_gap"], gap, atol=1e-5)
    assert len(np.unique(run.metrics["utility"])) == 4  # the policies differ


@pytest.mark.parametrize("time_steps", [1, 4])
def test_every_metric_has_one_row_per_step_and_one_for_the_policy_learned_last(time_steps):
    run, _ = one_run(Districts(), cq.lab.LearnToDecide(), time_steps=time_steps)
    assert list(run.metrics) == [
        "utility",
        "effective_utility",
        "benefit_gap",
        "acceptance",
        "effective_sample_size",
        "benefit north",
        "benefit south",
        "benefit west",
    ]
    for values in run.metrics.values():
        assert values.shape == (time_steps + 1,)
        assert values.dtype == np.float64


@pytest.mark.parametrize("notion", NOTIONS, ids=lambda notion: getattr(notion, "name", notion))
@pytest.mark.parametrize(
    "strategy", [cq.lab.LearnToDecide(), cq.lab.LearnToPredict(fair=True)], ids=lambda s: s.name
)
def test_rows_are_measured_under_the_notion_that_is_punished(notion, strategy):
    world = Districts()
    run, seen = one_run(world, strategy, fairness=notion, penalties=[1.5])
    for t, rule in enumerate(rules(run, seen)):
        truth = world.measure(rule, notion)
        assert run.metrics["benefit_gap"][t] == truth.benefit_gap
        assert run.metrics["utility"][t] == truth.utility
        for group, benefit in truth.benefits.items():
            assert run.metrics[f"benefit {group}"][t] == benefit


@pytest.mark.parametrize("notion", NOTIONS[:3])
def test_a_penalty_narrows_the_gap_of_its_notion(notion):
    world = tiny(Districts(), n_proposals=1500, n_iterations=12, time_steps=4)
    runs = cq.simulate(
        world,
        cq.lab.LearnToDecide(),
        seeds=2,
        penalties=[0.0, 50.0],
        fairness=notion,
        progress=False,
    )
    free, punished = (runs.metric("benefit_gap", "logistic, iterative", p) for p in (0.0, 50.0))
    assert_array_equal(free[:, 0], punished[:, 0])  # the start is the same
    assert (np.abs(punished[:, -1]) < 0.5 * np.abs(free[:, -1])).all()


def test_a_gap_of_three_groups_is_the_largest_benefit_minus_the_smallest():
    run, _ = one_run(Districts(), cq.lab.LearnToDecide())
    benefits = np.stack([run.metrics[f"benefit {g}"] for g in ("north", "south", "west")])
    assert_allclose(run.metrics["benefit_gap"], benefits.max(axis=0) - benefits.min(axis=0))
    assert run.metrics["benefit_gap"].min() > 0.05


def test_metrics_of_a_world_of_ones_own_are_those_of_people_held_out():
    world = Districts()
    run, seen = one_run(world, cq.lab.LearnToDecide())
    features, district = world.propose(world.n_held_out, np.random.default_rng(20_200_626))
    gain = world.label_probability(features, district) - 0.5
    for t, rule in enumerate(rules(run, seen)):
        pi = rule.propensity(features)
        assert_allclose(run.metrics["utility"][t], (pi * gain).mean())
        assert_allclose(run.metrics["acceptance"][t], pi.mean())
        for name in ("north", "south", "west"):
            assert_allclose(run.metrics[f"benefit {name}"][t], pi[district == name].mean())


def test_metrics_of_a_table_are_those_of_its_held_out_rows():
    world = small_table()
    run, seen = one_run(world, cq.lab.LearnToDecide())
    rows = world.held_out_rows
    assert len(rows) == 18
    features, label = world.table.features[rows], world.table.label[rows]
    for t, rule in enumerate(rules(run, seen)):
        pi = rule.propensity(features)
        assert_allclose(run.metrics["utility"][t], (pi * (label - 0.4)).mean())
        old, young = (pi[world.table.group[rows] == code].mean() for code in (0, 1))
        assert_allclose(run.metrics["benefit old"][t], old)
        assert_allclose(run.metrics["benefit_gap"][t], old - young)


def test_nobody_held_out_is_ever_decided_on():
    world = small_table()
    _, seen = one_run(world, cq.lab.LearnToPredict())
    held_out = {row.tobytes() for row in world.table.features[world.held_out_rows]}
    met = {row.tobytes() for step in seen for row in step.people.features}
    assert met
    assert not met & held_out


# --- what was gained, and from how much data


@pytest.mark.parametrize("sequence", ["iterative", "aggregated"])
def test_effective_utility_is_what_the_accepted_brought_so_far(sequence):
    world = Districts()
    run, seen = one_run(world, cq.lab.LearnToDecide("logistic", sequence), time_steps=4)
    gained = []
    for step in seen:
        accepted = np.flatnonzero(step.log.decision)
        gained.append(sum(step.people.label[i] - 0.5 for i in accepted) / 150)
    expected = [sum(gained[: t + 1]) / (t + 1) for t in range(4)]
    assert_allclose(run.metrics["effective_utility"], [*expected, expected[-1]], atol=1e-12)
    assert len(np.unique(gained)) > 1


@pytest.mark.parametrize("sequence", ["iterative", "aggregated"])
def test_effective_sample_size_is_that_of_the_decisions_of_the_step_before(sequence):
    world = Districts()
    run, seen = one_run(world, cq.lab.LearnToDecide("logistic", sequence))
    found = run.metrics["effective_sample_size"]
    assert np.isnan(found[0])
    for t, step in enumerate(seen):
        weights = 1.0 / step.log.propensity[step.log.decision]
        assert_allclose(found[t + 1], weights.sum() ** 2 / (weights**2).sum())


def test_rejecting_everybody_gains_and_learns_nothing():
    run, _ = one_run(Districts(), Stay("none", cq.RejectAll()))
    assert_array_equal(run.metrics["effective_utility"], np.zeros(4))
    assert_array_equal(run.metrics["utility"], np.zeros(4))
    assert_array_equal(run.metrics["effective_sample_size"], [np.nan, 0, 0, 0])


def test_accepting_everybody_has_every_row_count_fully():
    run, _ = one_run(Districts(), Stay("all"))
    assert_array_equal(run.metrics["effective_sample_size"], [np.nan, 150, 150, 150])
    assert_allclose(run.metrics["acceptance"], 1.0)
    assert_allclose(run.metrics["benefit_gap"], 0.0, atol=1e-12)


# --- the last policy


def test_the_final_policy_is_learned_from_all_steps_and_measured_last():
    world = Districts()
    run, seen = one_run(world, cq.lab.LearnToDecide())
    assert isinstance(run.policy, cq.Policy)
    assert not np.array_equal(run.policy.theta, seen[-1].rule.theta)
    assert run.metrics["utility"][-1] == world.measure(run.policy).utility


def test_a_rule_that_never_learns_is_its_own_final_policy():
    rule = cq.RejectAll().with_floor(0.3)
    run, seen = one_run(Districts(), Stay("lottery", rule))
    assert run.policy is rule
    assert all(step.rule is rule for step in seen)


def test_a_policy_may_use_the_sensitive_attribute():
    by_district = cq.Policy([9.0, 0, 0, -9.0, 0, 0, 9.0, 0, 0], groups=("north", "south", "west"))
    run, _ = one_run(Districts(), Stay("by district", by_district))
    assert run.metrics["benefit north"][0] > 0.999
    assert run.metrics["benefit south"][0] < 0.001


# --- notes


def test_what_went_wrong_is_noted_with_its_step():
    run, _ = one_run(Districts(), _Harsh())
    assert run.notes == tuple(
        f"step {t}: nobody was accepted, so there is no label to fit; the predictor stays"
        for t in range(3)
    )
    assert_array_equal(run.metrics["utility"], np.zeros(4))


class _Harsh(Stay):
    """Starts, and stays, where nobody is accepted."""

    def __init__(self):
        super().__init__("harsh", cq.ThresholdPolicy(cq.logistic_model([-50.0, 0.0, 0.0]), 0.9))

    def learner(self, world, fairness, penalty):
        return cq.lab.FitPredictor(0.9)
