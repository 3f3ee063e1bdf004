"""Strategies beyond the paper's, in short runs; at the paper's length where it is slow."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.preprocessing import SplineTransformer

import consequential as cq

FIRST, SECOND = cq.worlds.first_setting(), cq.worlds.second_setting()
STRATEGIES = [
    cq.lab.ExploreByPosterior(explore, sequence)
    for explore in ("sampling", "optimistic", "pseudo_labels")
    for sequence in ("iterative", "aggregated")
]


@pytest.mark.parametrize(
    "strategy",
    [
        # by default each way of exploring once, and each sequence
        each if k in (0, 3, 4) else pytest.param(each, marks=pytest.mark.slow)
        for k, each in enumerate(STRATEGIES)
    ],
    ids=lambda each: each.name,
)
def test_every_strategy_runs_under_penalties(strategy):
    runs = cq.simulate(
        SECOND,
        strategy,
        seeds=1,
        penalties=[0.0, 10.0],
        time_steps=6,
        n_proposals=1500,
        progress=False,
    )
    utility, gap = (
        [runs.metric(name, strategy.name, penalty=p)[0, -1] for p in (0.0, 10.0)]
        for name in ("utility", "benefit_gap")
    )
    assert utility[0] > 0.07
    assert abs(gap[1]) < abs(gap[0]) / 2.0


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"explore": "ucb"}, "explore is 'sampling'"),
        ({"sequence": "all"}, "unknown sequence 'all'"),
        ({"floor": 2}, r"floor lies in \[0, 1\), not 2"),
        ({"early_floor": -0.1}, r"floor lies in \[0, 1\), not -0.1"),
        ({"max_gap": -1}, "max_gap lies between 0 and 1"),
        ({"foresight": np.nan}, "foresight is finite"),
    ],
)
def test_options_are_checked_when_a_strategy_is_made(option, message):
    with pytest.raises(ValueError, match=message):
        cq.lab.ExploreByPosterior(**option)


def test_strategies_of_one_name_are_told_how_to_have_their_own():
    strategies = [cq.lab.ExploreByPosterior(), cq.lab.ExploreByPosterior(max_gap=0.05)]
    with pytest.raises(ValueError, match=r"names of their own, .*: named= gives one"):
        cq.simulate(SECOND, strategies, seeds=1, progress=False)


def test_a_seed_gives_the_same_run_again():
    first, again = (
        cq.simulate(
            SECOND,
            cq.lab.ExploreByPosterior(max_gap=0.05),
            seeds=[7],
            time_steps=4,
            n_proposals=400,
            progress=False,
        ).metric("utility", "posterior, iterative")
        for _ in range(2)
    )
    assert (first == again).all()


def test_policies_of_saved_runs_decide_as_they_did(tmp_path):
    strategy = cq.lab.ExploreByPosterior()
    runs = cq.simulate(SECOND, strategy, seeds=1, time_steps=3, n_proposals=400, progress=False)
    runs.save(tmp_path / "runs.parquet")
    again = cq.Runs.load(tmp_path / "runs.parquet").final_policy(strategy.name, seed=0)
    people = np.linspace(-9.0, 9.0, 50)
    before = runs.final_policy(strategy.name, seed=0)
    assert (again.propensity(people) == before.propensity(people)).all()


@pytest.mark.parametrize("link", ["logistic", "semi_logistic"])
def test_the_papers_strategies_start_where_they_did_over_another_feature_map(link):
    plain = cq.lab.LearnToDecide(link).start(SECOND, np.random.default_rng(0))
    for feature_map in (cq.Curves(), SplineTransformer(8, extrapolation="linear")):
        strategy = cq.lab.LearnToDecide(link, feature_map=feature_map)
        mapped = strategy.start(SECOND, np.random.default_rng(0))
        truths = [SECOND.exact(each).utility for each in (plain, mapped)]
        assert truths[0] == pytest.approx(truths[1], abs=1e-3)


def test_a_feature_map_of_a_simulation_is_given_to_strategies_without_one():
    strategies = [cq.lab.LearnToDecide("logistic"), cq.lab.LearnToPredict()]
    options = {"seeds": 1, "time_steps": 20, "progress": False}
    plain = cq.simulate(SECOND, strategies, **options)
    curved = cq.simulate(SECOND, strategies, feature_map=cq.Curves(), **options)
    last = [
        [runs.metric("utility", each.name)[0, -1] for runs in (plain, curved)]
        for each in strategies
    ]
    assert last[0][1] > last[0][0] + 0.01  # the linear class cannot reach two intervals
    assert last[1][0] == last[1][1]


class Rich(cq.worlds.World):
    """Twelve features, with curves and products of them, and labels that no line explains."""

    cost = 0.5
    parameters = cq.worlds.Parameters(time_steps=50, n_proposals=1000)

    def __init__(self) -> None:
        rng = np.random.default_rng(5)
        self.slopes, self.bends = 0.5 * rng.normal(size=12), 0.4 * rng.normal(size=12)
        self.products = np.triu(0.15 * rng.normal(size=(12, 12)), 1)

    def propose(self, n, rng):
        group = rng.integers(2, size=n)
        features = rng.normal(size=(n, 12))
        features[:, 0] += 0.5 * group
        return features, group

    def label_probability(self, features, sensitive):
        curves = (np.abs(features) - 0.8) @ self.bends
        products = ((features @ self.products) * features).sum(axis=1)
        return expit(features @ self.slopes + curves + products - 0.8)


def test_a_model_fitted_anew_at_every_step_has_prices_of_its_own():
    # with those of another step's model steps in between fell short by up to .008
    strategy, penalty = cq.lab.ExploreByPosterior(sequence="aggregated"), 5.0
    runs = cq.simulate(
        FIRST, strategy, seeds=1, penalties=[penalty], time_steps=26, n_jobs=1, progress=False
    )
    utility, gap = (runs.metric(name, strategy.name)[0, 20:] for name in ("utility", "benefit_gap"))
    best = FIRST.optimal(penalty=penalty)
    value = utility - penalty / 2.0 * gap**2
    assert value.min() >= best.utility - penalty / 2.0 * best.benefit_gap**2 - 0.002


def mean_of(runs, metric, strategy, **options):
    return runs.metric(metric, strategy.name, **options)[:, -1].mean()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "n", "least"),
    [(FIRST, 32_768, 0.1776), (FIRST, 128, 0.1745), (SECOND, 4096, 0.0902), (SECOND, 128, 0.0870)],
)
def test_effective_utility_is_close_to_the_optimum(world, n, least):
    strategy = cq.lab.ExploreByPosterior()
    runs = cq.simulate(world, strategy, seeds=10, n_proposals=n, n_jobs=-1, progress=False)
    assert mean_of(runs, "effective_utility", strategy) >= least


@pytest.mark.slow
@pytest.mark.parametrize(("world", "least"), [(FIRST, 0.1628), (SECOND, 0.0685)])
def test_a_bound_on_the_gap_is_kept_while_learning(world, least):
    strategy = cq.lab.ExploreByPosterior(max_gap=0.02)
    runs = cq.simulate(world, strategy, seeds=10, n_jobs=-1, progress=False)
    assert mean_of(runs, "effective_utility", strategy) >= least
    assert np.abs(runs.metric("benefit_gap", strategy.name)[:, -101:-1]).mean() <= 0.025


@pytest.mark.slow
@pytest.mark.parametrize("world", [FIRST, SECOND])
def test_runs_end_at_the_penalised_optimum(world):
    strategy, penalties = cq.lab.ExploreByPosterior(), [0.316, 1.0, 2.0, 5.0, 10.0, 100.0]
    runs = cq.simulate(world, strategy, seeds=10, penalties=penalties, n_jobs=-1, progress=False)
    for penalty in penalties:
        best = world.optimal(penalty=penalty)
        utility, gap = (
            runs.metric(name, strategy.name, penalty=penalty)[:, -1]
            for name in ("utility", "benefit_gap")
        )
        value = utility - penalty / 2.0 * gap**2
        best_value = best.utility - penalty / 2.0 * best.benefit_gap**2
        assert (value >= best_value - 0.002).sum() >= 9, penalty


@pytest.mark.slow
def test_features_that_explore_by_themselves_are_left_to_do_so():
    ways = {
        "ours": cq.lab.ExploreByPosterior(named="ours"),
        "sampling": cq.lab.ExploreByPosterior(foresight=0.0, named="sampling"),
        "greedy": cq.lab.ExploreByPosterior(foresight=1e9, named="greedy"),
    }
    runs = cq.simulate(Rich(), list(ways.values()), seeds=5, n_jobs=-1, progress=False)
    mean = {name: runs.metric("utility", name)[:, :-1].mean() for name in ways}
    assert mean["ours"] >= max(mean.values()) - 0.002
