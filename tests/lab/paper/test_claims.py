"""What the library must reach in the paper's settings, at the paper's sizes (slow) and small."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import consequential as cq

EXPLORING = ["logistic", "semi_logistic"]
SEQUENCES = ["iterative", "aggregated"]


@cache
def first():
    return cq.worlds.first_setting()


@cache
def second():
    return cq.worlds.second_setting()


def name(link, sequence):
    return cq.lab.LearnToDecide(link, sequence).name


def runs_of(world, strategies, seeds, penalties=(0.0,), time_steps=None):
    return cq.simulate(
        world,
        strategies,
        seeds=seeds,
        penalties=list(penalties),
        time_steps=time_steps,
        n_jobs=2 if seeds > 2 else 1,
        progress=False,
    )


def last(runs, metric, strategy, penalty=None):
    return float(np.median(runs.metric(metric, strategy, penalty)[:, -1]))


# Small versions, run by default


@pytest.mark.parametrize("normalisation", ["applicants", "paper"])
def test_exploring_overtakes_predicting_within_twenty_steps(normalisation):
    runs = runs_of(first(), cq.paper_strategies(normalisation), seeds=1, time_steps=20)
    for strategy in runs.strategies:
        utility = last(runs, "utility", strategy)
        if strategy.startswith("deterministic"):
            assert utility < 0.1610
        else:
            assert utility > 0.1690


@pytest.mark.parametrize("link", ["logistic", "smooth_semi_logistic"])
def test_a_penalty_buys_parity_within_thirty_steps(link):
    strategy = cq.lab.LearnToDecide(link)
    runs = runs_of(first(), strategy, seeds=1, penalties=[1.0, 1000.0], time_steps=30)
    # the optimum of penalty 1 over thresholds has gap .1019, that of 1000 next to none
    assert abs(last(runs, "benefit_gap", strategy.name, 1.0) - 0.1019) < 0.03
    assert abs(last(runs, "benefit_gap", strategy.name, 1000.0)) < 0.02
    assert last(runs, "utility", strategy.name, 1000.0) > 0.15


def test_compas_can_be_learned_from_its_own_decisions():
    world = cq.worlds.compas()
    strategy = cq.lab.LearnToDecide("logistic")
    runs = runs_of(world, strategy, seeds=1, time_steps=4)
    assert last(runs, "utility", strategy.name) > 0.02


# At the paper's sizes


@pytest.mark.slow
@pytest.mark.parametrize("normalisation", ["applicants", "paper"])
def test_first_setting_without_penalty(normalisation):
    runs = runs_of(first(), cq.paper_strategies(normalisation), seeds=10)
    for sequence in SEQUENCES:
        assert last(runs, "utility", f"deterministic, {sequence}") <= 0.1610
        for link in EXPLORING:
            assert last(runs, "utility", name(link, sequence)) >= 0.1760


@pytest.mark.slow
@pytest.mark.parametrize("normalisation", ["applicants", "paper"])
def test_second_setting_without_penalty(normalisation):
    runs = runs_of(second(), cq.paper_strategies(normalisation), seeds=10)
    # as printed, aggregated runs end lower, and one in four semi-logistic ones accepts everybody
    for sequence in SEQUENCES if normalisation == "applicants" else ["iterative"]:
        for link in EXPLORING:
            assert last(runs, "utility", name(link, sequence)) >= 0.0620
    for sequence in SEQUENCES:
        assert last(runs, "utility", f"deterministic, {sequence}") <= 0.0230


@pytest.mark.slow
@pytest.mark.parametrize("link", ["logistic", "smooth_semi_logistic"])
@pytest.mark.parametrize("sequence", SEQUENCES)
def test_first_setting_under_demographic_parity(link, sequence):
    strategy = cq.lab.LearnToDecide(link, sequence)
    runs = runs_of(first(), strategy, seeds=4, penalties=[1.0, 10.0, 1000.0])

    def at(penalty):
        gap = np.median(np.abs(runs.metric("benefit_gap", strategy.name, penalty)[:, -1]))
        return last(runs, "utility", strategy.name, penalty), gap

    utility, gap = at(1.0)
    assert abs(utility - 0.1746) <= 0.003
    assert abs(gap - 0.1019) <= 0.015
    utility, gap = at(10.0)
    assert utility >= 0.160
    assert gap <= 0.025
    utility, gap = at(1000.0)
    assert utility >= 0.158
    assert gap <= 0.005


@pytest.mark.slow
@pytest.mark.parametrize("link", ["logistic", "smooth_semi_logistic"])
@pytest.mark.parametrize("sequence", SEQUENCES)
def test_no_penalty_makes_a_run_diverge(link, sequence):
    strategy = cq.lab.LearnToDecide(link, sequence)
    penalties = [10**exponent for exponent in np.arange(-0.5, 4.1, 0.5)]
    runs = runs_of(first(), strategy, seeds=2, penalties=penalties)
    for penalty in penalties:
        assert runs.metric("utility", strategy.name, penalty)[:, -1].min() >= 0.150
        if penalty <= 100.0:
            effective = runs.metric("effective_utility", strategy.name, penalty)[:, -1]
            assert effective.min() >= 0.150
