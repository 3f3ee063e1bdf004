"""The paper's figures: what they show, where their numbers come from, and the same bytes."""

from __future__ import annotations

import numpy as np
import pytest
from handmade_results import (
    EXPLORING,
    GOOD,
    PENALTIES,
    STEPS,
    STRATEGIES,
    all_good,
    results_in,
    time_runs,
)
from matplotlib.colors import same_color
from numpy.testing import assert_allclose

import consequential as cq
from consequential.lab.paper import truths
from consequential.lab.paper.figures import FIGURES
from consequential.lab.paper.figures.scores import _median_path, snapshots
from consequential.lab.paper.lending_example import SCORINGS
from consequential.lab.paper.studies import NAMES
from consequential.plotting import short_name, svg_of


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return results_in(tmp_path_factory.mktemp("good"), all_good())


@pytest.fixture
def drawn(results):
    return lambda name, column="corrected": FIGURES[name].draw(results, column)


def lines_of(ax):
    return {str(line.get_label()): line for line in ax.lines}


def test_every_figure_reads_studies_that_exist():
    for figure in FIGURES.values():
        assert set(figure.studies) <= set(NAMES)
        assert figure.name.islower()
        assert figure.caption.endswith(".")


def test_a_figure_says_which_studies_it_misses(tmp_path):
    results = results_in(tmp_path, {"first-time": time_runs("first")}, ("paper",))
    figure = FIGURES["synthetic-over-time"]
    assert figure.missing(results, "paper") == ("second-time",)
    assert figure.missing(results, "corrected") == ("first-time", "second-time")


def test_lending_shows_medians_and_the_best_possible(drawn):
    utility, models, parity = drawn("lending", "paper").axes
    lines = lines_of(utility)
    assert {f"ridge by {scoring}" for scoring in SCORINGS} | {"best possible"} == set(lines)
    assert lines["best possible"].get_ydata()[0] == pytest.approx(0.1434, abs=5e-5)
    assert lines["ridge by accuracy"].get_ydata()[0] == pytest.approx(0.143)
    assert len([name for name in lines_of(models) if name.startswith("ξ")]) == 5
    assert parity.get_title(loc="left") == "Demographic parity"


def test_settings_show_the_truth_and_both_thresholds(drawn):
    first, second = drawn("settings").axes
    for ax, best, start in ((first, -0.3, 0.241), (second, -1.698, 6.168)):
        lines = lines_of(ax)
        assert lines["best single threshold"].get_xdata()[0] == pytest.approx(best, abs=2e-3)
        assert lines["its threshold"].get_xdata()[0] == pytest.approx(start, abs=2e-3)
    curve = lines_of(first)["P(y = 1 | x)"]
    world = cq.worlds.first_setting()
    assert np.interp(-0.3, *curve.get_data()) == pytest.approx(world.cost, abs=1e-4)


def test_the_illustration_marks_the_optimum_on_the_border_and_runs_from_the_start(drawn):
    ax = drawn("illustration").axes[0]
    stars = [line for line in ax.lines if line.get_marker() == "*"]
    assert stars[0].get_xdata()[0] == pytest.approx(-0.3, abs=1e-3)
    paths = [
        line for line in ax.lines if len(line.get_xdata()) == STEPS + 1 and line.get_linewidth() < 2
    ]
    deterministic, logistic = paths[0], paths[-1]
    assert len(set(deterministic.get_ydata())) == 1  # along the border
    assert logistic.get_ydata()[0] == pytest.approx(5.0)
    assert logistic.get_xdata()[0] == pytest.approx(0.6, abs=0.01)  # by hand: theta (-3, 5)


def test_over_time_shows_each_strategy_s_median_and_the_optimum(drawn, results):
    figure = drawn("synthetic-over-time")
    assert len(figure.axes) == 6
    runs = results.runs("second-time", "corrected")
    lines = lines_of(figure.axes[3])
    for strategy in STRATEGIES:
        expected = np.median(runs.metric("utility", strategy), axis=0)
        np.testing.assert_allclose(lines[strategy].get_ydata(), expected)
    assert lines["optimal policy"].get_ydata()[0] == pytest.approx(0.0920, abs=5e-5)
    assert lines["best single threshold"].get_ydata()[0] == pytest.approx(0.0651, abs=5e-5)
    names = {text.get_text() for text in figure.legends[0].get_texts()}
    assert set(STRATEGIES) <= names


def test_strategies_differ_in_colour_or_style_and_in_mark(drawn):
    lines = lines_of(drawn("synthetic-over-time").axes[0])
    looks = {
        (line.get_linestyle(), line.get_marker(), same_color(line.get_markerfacecolor(), "white"))
        for name, line in lines.items()
        if name in STRATEGIES
    }
    assert len(looks) == len(STRATEGIES)  # without any colour


def test_line_ends_are_named(drawn):
    texts = {text.get_text() for text in drawn("synthetic-over-time").axes[0].texts}
    assert {short_name(strategy) for strategy in STRATEGIES} <= texts


def test_evolution_shows_snapshots_from_light_to_dark(drawn):
    assert snapshots(200) == [0, 1, 2, 5, 10, 21, 44, 94, 200]
    figure = drawn("evolution")
    assert len(figure.axes) == 12
    ax = figure.axes[0]
    greys = [
        float(line.get_color())
        for line in ax.lines
        if line.get_color()[:1] in "01" and len(line.get_xdata()) > 2
    ]
    assert len(greys) == len(snapshots(STEPS))
    assert greys == sorted(greys, reverse=True)


@pytest.mark.parametrize("column", ["paper", "corrected"])
def test_the_frontier_is_drawn_beside_the_runs(drawn, column):
    ax = drawn("synthetic-against-penalty", column).axes[0]
    best = lines_of(ax)["best function of x"].get_ydata()
    assert best[3] == pytest.approx(0.1628, abs=1e-4)  # first setting, lambda = 10
    assert best[-1] == pytest.approx(0.1596, abs=1e-4)


def test_compas_against_the_penalty_shows_chance_and_what_is_possible(drawn):
    figure = drawn("compas-against-penalty")
    gap, trade = figure.axes[1], figure.axes[5]
    assert set(EXPLORING) <= set(lines_of(gap))
    assert gap.collections  # the band of chance, and quartiles
    assert {"reject all", "accept all", "possible"} <= {text.get_text() for text in trade.texts}


def test_the_deviation_of_a_gap_is_that_of_two_means(results):
    runs = results.runs("compas-penalty", "corrected")
    found = truths.held_out_deviations(runs, "compas", EXPLORING[0], PENALTIES[0])
    assert len(set(found)) == len(runs.seeds)  # everybody is held out by some
    for seed, deviation in zip(runs.seeds, found, strict=True):
        people = cq.worlds.compas(split_seed=seed).population("held_out")
        propensity = runs.runs[0].policy.propensity(people.points)
        group = people.mass.argmax(axis=1)
        parts = [propensity[group == z] for z in range(2)]
        expected = np.sqrt(sum(part.var() / len(part) for part in parts))
        assert deviation == pytest.approx(expected)
        assert 0.01 < deviation < 0.04


def test_differences_are_told_only_where_they_are_measured(tmp_path):
    figure = FIGURES["synthetic-over-time"]
    same = results_in(tmp_path / "same", {f"{n}-time": time_runs(n) for n in ("first", "second")})
    assert figure.differs(same) == ""
    lower = {s: (u - 0.01, g, t) for s, (u, g, t) in GOOD["second"].items()}
    results_in(tmp_path / "other", {"first-time": time_runs("first")})
    results_in(tmp_path / "other", {"second-time": time_runs("second", lower)}, ("paper",))
    other = results_in(tmp_path / "other", {"second-time": time_runs("second")}, ("corrected",))
    words = figure.differs(other)
    assert "second setting" in words
    assert words.count(". ") == 1  # two sentences


def test_a_rule_that_jumps_is_drawn_as_what_it_does_over_ten_steps(tmp_path):
    runs = time_runs("compas")
    for run in runs.select("deterministic, iterative"):
        run.metrics["utility"][:] = np.arange(STEPS + 1) % 2
    utility, *_ = (
        FIGURES["compas-over-time"]
        .draw(results_in(tmp_path, {"compas-time": runs}), "corrected")
        .axes
    )
    line = lines_of(utility)["deterministic, iterative"]
    assert_allclose(line.get_ydata(), 0.5)
    assert list(line.get_xdata()) == list(range(9, STEPS + 1))
    other = lines_of(utility)["deterministic, aggregated"]
    assert len(other.get_xdata()) == STEPS + 1


def test_evolution_shows_the_run_of_median_utility(tmp_path):
    runs = time_runs("first")
    for run in runs.runs:
        run.thetas[:] = float(run.seed)
        run.metrics["utility"][-1] = {0: 0.3, 1: 0.0, 2: 0.2, 3: 0.1}.get(run.seed, 0.0)
    runs = type(runs)(tuple(r for r in runs.runs if r.seed < 4), "first", (0, 1), "x")
    results = results_in(tmp_path, {"first-time": runs})
    assert (_median_path(results, "paper", "first", STRATEGIES[0]) == 3.0).all()


@pytest.mark.parametrize("name", ["settings", "compas-over-time"])
def test_a_figure_drawn_twice_has_the_same_bytes(results, name):
    one, two = (svg_of(FIGURES[name].draw(results, "paper"), name) for _ in range(2))
    assert one == two
    assert "<dc:date>" not in one


def test_a_drifting_worlds_best_policy_moves_with_it():
    from matplotlib.figure import Figure

    from consequential.lab.paper.figures.comparisons import draw_moving_best

    ax = Figure().subplots()
    ax.set_xlim(0, 3)
    line = draw_moving_best(ax, "drift", "utility")
    best = [cq.worlds.drift().at(step).optimal().utility for step in range(4)]
    assert list(line.get_xdata()) == [0, 1, 2, 3]
    assert_allclose(line.get_ydata(), best, rtol=1e-12)
    assert best[3] > best[0]
