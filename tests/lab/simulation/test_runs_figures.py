"""Figures of runs: medians, bands, labels, and no trace left behind."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import same_color
from matplotlib.figure import Figure
from numpy.testing import assert_allclose, assert_array_equal
from tiny_worlds import handmade_runs

STRATEGIES = ("logistic, iterative", "logistic, aggregated", "something else")


@pytest.fixture
def runs():
    return handmade_runs(STRATEGIES, penalties=(0.0, 0.5, 2.0))


@pytest.fixture
def lines(runs):
    def plotted(*arguments, **options):
        return {line.get_label(): line for line in runs.plot(*arguments, **options).lines}

    return plotted


@pytest.mark.parametrize("metric", ["utility", "effective_utility", "benefit_gap", "benefit a"])
def test_one_line_per_strategy_shows_medians_over_time(runs, lines, metric):
    found = lines(metric, penalty=0.5)
    assert tuple(found) == STRATEGIES
    for name, line in found.items():
        assert_array_equal(line.get_xdata(), [0, 1, 2, 3])
        expected = np.sort(runs.metric(metric, name, 0.5), axis=0)[1]  # the middle of three
        assert_allclose(line.get_ydata(), expected)


def test_one_line_per_strategy_shows_medians_over_penalties_at_the_last_step(runs, lines):
    for name, line in lines("benefit_gap", over="penalty").items():
        assert_array_equal(line.get_xdata(), [0.0, 0.5, 2.0])
        expected = [np.sort(runs.metric("benefit_gap", name, p)[:, -1])[1] for p in (0, 0.5, 2)]
        assert_allclose(line.get_ydata(), expected)


def test_a_band_spans_the_quartiles(runs):
    ax = runs.plot("utility", penalty=0.0, strategies=STRATEGIES[:1])
    (band,) = ax.collections
    low, high = np.percentile(runs.metric("utility", STRATEGIES[0], 0.0), [25, 75], axis=0)
    corners = {tuple(point.round(9)) for point in band.get_paths()[0].vertices}
    for t in range(4):
        assert (t, low[t].round(9)) in corners
        assert (t, high[t].round(9)) in corners


def test_a_single_run_has_no_band():
    ax = handmade_runs(STRATEGIES, penalties=(0.0,), seeds=(0,)).plot()
    assert len(ax.lines) == 3
    assert len(ax.collections) == 0


def test_steps_without_a_value_are_left_out(runs, lines):
    line = lines("effective_sample_size", penalty=0.0)[STRATEGIES[0]]
    assert_array_equal(line.get_xdata(), [1, 2, 3])
    assert np.isfinite(line.get_ydata()).all()


def test_the_only_penalty_need_not_be_named():
    assert len(handmade_runs(STRATEGIES, penalties=(0.5,)).plot().lines) == 3


def test_the_penalty_axis_starts_at_zero_and_is_logarithmic_beyond(runs):
    ax = runs.plot(over="penalty")
    assert ax.get_xscale() == "symlog"
    assert ax.xaxis.get_transform().linthresh == 0.5
    assert ax.get_xlabel() == "penalty (lambda)"


def test_a_single_penalty_of_zero_can_be_plotted_over():
    ax = handmade_runs(STRATEGIES, penalties=(0.0,)).plot(over="penalty")
    assert_array_equal(ax.lines[0].get_xdata(), [0.0])


@pytest.mark.parametrize(
    ("metric", "label"),
    [
        ("utility", "utility"),
        ("effective_utility", "effective utility (while learning)"),
        ("acceptance", "share accepted"),
        ("benefit_gap", "benefit gap"),
        ("benefit b", "benefit b"),
    ],
)
def test_axes_are_labelled_and_titled(runs, metric, label):
    ax = runs.plot(metric, penalty=0.0)
    assert isinstance(ax, Axes)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("time step", label)
    assert ax.get_title(loc="left") == "handmade"


def test_colour_tells_the_kind_and_style_the_sequence(lines):
    iterative, aggregated, other = lines(penalty=0.0).values()
    assert same_color(iterative.get_color(), aggregated.get_color())
    assert (iterative.get_linestyle(), aggregated.get_linestyle()) == ("--", "-")
    assert not same_color(other.get_color(), iterative.get_color())


def test_strategies_the_colours_do_not_know_get_colours_of_their_own():
    names = [f"strategy {k}" for k in range(4)]
    found = handmade_runs(names, penalties=(0.0,)).plot().lines
    assert len({line.get_color() for line in found}) == 4


@pytest.mark.parametrize(
    "names",
    [
        ["logistic, iterative", "logistic, aggregated", "logistic, last steps"],
        [f"strategy {k}" for k in range(5)],
    ],
    ids=["sequences", "strangers"],
)
def test_no_two_strategies_look_the_same(names):
    found = handmade_runs(names, penalties=(0.0,)).plot().lines
    assert len({(line.get_color(), line.get_linestyle()) for line in found}) == len(names)


def test_a_figure_says_which_line_is_which(runs):
    legend = runs.plot(penalty=0.0).get_legend()
    assert [text.get_text() for text in legend.get_texts()] == list(STRATEGIES)


@pytest.mark.parametrize("name", ["costs $5 or $10", r"$\frac$"])
def test_a_name_with_dollars_is_drawn_as_it_is_written(name, tmp_path):
    runs = handmade_runs((name,), penalties=(0.0,), world=name)
    ax = runs.plot()
    ax.figure.savefig(tmp_path / "figure.svg", metadata={"Date": None})
    assert not ax.title.get_parse_math()
    assert name in (tmp_path / "figure.svg").read_text()


def test_strategies_can_be_chosen(lines):
    chosen = STRATEGIES[::-1][:2]
    assert tuple(lines(penalty=0.0, strategies=chosen)) == chosen


def test_axes_can_be_given(runs):
    mine = Figure().add_subplot()
    assert runs.plot("utility", penalty=0.0, ax=mine) is mine
    assert len(mine.lines) == 3


def test_a_figure_can_be_saved(runs, tmp_path):
    runs.plot("utility", penalty=0.0).figure.savefig(tmp_path / "utility.png")
    assert (tmp_path / "utility.png").read_bytes().startswith(b"\x89PNG")


def test_only_time_steps_and_penalties_can_be_plotted_over(runs):
    with pytest.raises(ValueError, match="over is 'time_step' or 'penalty', not 'seed'"):
        runs.plot(over="seed")


def test_plotting_needs_no_display_and_leaves_no_state_of_pyplot(runs, tmp_path):
    runs.save(tmp_path / "runs.parquet")
    program = """
import sys
from consequential.lab.simulation import Runs
runs = Runs.load("runs.parquet")
for over, penalty in (("time_step", 0.0), ("penalty", None)):
    runs.plot("utility", over=over, penalty=penalty).figure.savefig(over + ".png")
assert "matplotlib.figure" in sys.modules
assert "matplotlib.pyplot" not in sys.modules, "pyplot was imported"
"""
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "MPLBACKEND")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "time_step.png").exists()
    assert (tmp_path / "penalty.png").exists()
