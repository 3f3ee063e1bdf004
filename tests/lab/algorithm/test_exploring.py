"""FitPosterior: what it explores, what it remembers, and the gaps of its policies."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.preprocessing import SplineTransformer

import consequential as cq

WORLD = cq.worlds.second_setting()


def steps(learner, *, sequence="iterative", n=2000, time_steps=6, world=WORLD):
    return list(
        cq.consequential_learning(
            world,
            world.initial_policy(),
            learner,
            sequence=sequence,
            time_steps=time_steps,
            n_proposals=n,
            rng=np.random.default_rng(0),
        )
    )


@pytest.mark.parametrize("explore", ["sampling", "optimistic", "pseudo_labels"])
@pytest.mark.parametrize("sequence", ["iterative", "aggregated"])
def test_every_way_finds_both_intervals_of_the_second_setting(explore, sequence):
    learner = cq.lab.FitPosterior(WORLD.cost, explore=explore, accumulate=sequence == "iterative")
    found = steps(learner, sequence=sequence, time_steps=10)[-1].learned
    assert WORLD.exact(found).utility > 0.085


def test_logged_propensities_are_those_of_the_policy():
    log = steps(cq.lab.FitPosterior(WORLD.cost), time_steps=3)[-1].log
    assert_allclose(log.propensity, log.propensity_of(log.policies[2]), atol=1e-12)


def test_what_will_be_learned_anyhow_is_explored_less():
    acceptance = []
    for foresight in (0.0, 10.0):
        learner = cq.lab.FitPosterior(WORLD.cost, foresight=foresight)
        found = steps(learner, time_steps=1, n=300)[0].learned
        unsure = found.propensity(np.linspace(-10.0, 10.0, 400))
        acceptance.append((unsure * (1.0 - unsure)).mean())
    assert acceptance[1] < acceptance[0]


def test_the_floor_shrinks_to_the_one_that_is_kept():
    learner = cq.lab.FitPosterior(WORLD.cost, floor=0.01, early_floor=0.1)
    floors = [step.learned.floor for step in steps(learner, time_steps=4, n=300)]
    assert_allclose(floors, 0.01 + 0.1 / np.arange(1, 5))


@pytest.mark.parametrize("fairness", ["demographic_parity", "equal_opportunity", "equalised_odds"])
def test_a_bound_on_the_gap_is_kept(fairness):
    notion = cq.fairness.fairness_named(fairness)
    learner = cq.lab.FitPosterior(WORLD.cost, notion, max_gap=0.05)
    found = steps(learner, n=8000, time_steps=12)[-1].learned
    assert abs(WORLD.exact(found, fairness).benefit_gap) < 0.07
    free = steps(cq.lab.FitPosterior(WORLD.cost), n=2000)[-1].learned
    assert abs(WORLD.exact(free, fairness).benefit_gap) > 0.08


def test_a_penalty_leads_to_the_penalised_optimum():
    notion = cq.fairness.fairness_named("demographic_parity")
    found = steps(cq.lab.FitPosterior(WORLD.cost, notion, 2.0), n=4000, time_steps=15)[-1].learned
    truth, best = WORLD.exact(found), WORLD.optimal(penalty=2.0)
    value = truth.utility - truth.benefit_gap**2
    assert value > best.utility - best.benefit_gap**2 - 0.004


class Three(cq.worlds.World):
    """Three groups whose scores differ."""

    cost = 0.5

    def propose(self, n, rng):
        group = rng.integers(3, size=n)
        return rng.normal(size=(n, 1)) + 0.5 * group[:, None], np.array(["a", "b", "c"])[group]

    def label_probability(self, features, sensitive):
        return 1.0 / (1.0 + np.exp(0.5 - features[:, 0]))


def test_groups_are_modelled_from_all_rows_where_nothing_is_remembered():
    # a sample of them left an error of the gap, which a large penalty punishes
    log = WORLD.collect(WORLD.initial_policy(), 30_000, np.random.default_rng(0))
    notion = cq.fairness.fairness_named("demographic_parity")
    found = [
        cq.lab.FitPosterior(WORLD.cost, notion, 10.0, accumulate=False)(
            None, log, rng=np.random.default_rng(seed)
        ).chances
        for seed in (0, 1)
    ]
    assert_allclose(found[0], found[1], rtol=1e-6, atol=1e-6)


def test_the_bound_holds_for_every_pair_of_three_groups():
    notion = cq.fairness.fairness_named("demographic_parity")
    learner = cq.lab.FitPosterior(0.5, notion, max_gap=0.1)
    found = steps(learner, n=6000, time_steps=8, world=Three())[-1].learned
    assert Three().measure(found).benefit_gap < 0.13


def test_any_feature_map_will_do():
    feature_map = SplineTransformer(12, extrapolation="linear")
    found = steps(cq.lab.FitPosterior(WORLD.cost, feature_map=feature_map), time_steps=10)[
        -1
    ].learned
    assert WORLD.exact(found).utility > 0.08


def test_a_log_without_labels_leaves_the_prior():
    log = WORLD.collect(cq.RejectAll(), 500, np.random.default_rng(0))
    found = cq.lab.FitPosterior(WORLD.cost)(None, log, rng=np.random.default_rng(1))
    assert np.isfinite(found.propensity([[0.0]])).all()
    assert_allclose(found.model.theta, 0.0)


def test_a_ratio_is_no_notion_for_a_moving_cut():
    notion = cq.fairness.fairness_named("predictive_parity")
    cq.lab.FitPosterior(0.5, notion)  # nothing is punished
    with pytest.raises(ValueError, match="rates of acceptance"):
        cq.lab.FitPosterior(0.5, notion, max_gap=0.1)


def test_another_way_to_explore_is_refused():
    with pytest.raises(ValueError, match="pseudo_labels"):
        cq.lab.FitPosterior(0.5, explore="greedy")
