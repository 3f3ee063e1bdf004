"""Worlds of one score: the settings, how policies evolve in them, and the lending example."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from consequential.lab.paper import truths
from consequential.lab.paper.lending_example import SCORINGS, Scoring
from consequential.lab.paper.results import quartiles
from consequential.lab.paper.truths import worth_and_gap
from consequential.plotting import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PINK,
    RED,
    draw_level,
    legend_above,
    name_panel,
    panels,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from consequential.lab.paper.lending_example import LendingTable
    from consequential.lab.paper.results import Results

Floats = NDArray[np.float64]

_SCORES = {"first": (-0.8, 0.8), "second": (-9.0, 9.0)}  # shown
_SNAPSHOTS = 8


def _median_path(results: Results, column: str, name: str, strategy: str) -> Floats:
    """Return the parameters of policies, one row per step, in the run of median last utility."""
    runs = results.runs(f"{name}-time", column)
    last = runs.metric("utility", strategy)[:, -1]
    middle = int(np.argsort(last, kind="stable")[(len(last) - 1) // 2])
    thetas = runs.select(strategy)[middle].thetas
    assert thetas is not None  # linear policies and models keep their path
    return thetas


def _draw_truth(ax: Axes, name: str, score: Floats, width: float, colour: str) -> None:
    """Draw who repays over the score, the cost and the best single threshold."""
    world, cut = truths.setting(name), truths.best_threshold(name)
    ax.plot(score, world.score_probability(score), color=RED, lw=width, label="P(y = 1 | x)")
    ax.axhline(world.cost, color=colour, linestyle="--", linewidth=1, label="cost c")
    ax.axvline(cut, color=colour, linestyle=":", linewidth=1.6, label="best single threshold")
    ax.set_xlim(*_SCORES[name])


# --- the settings


def draw_settings(results: Results, column: str) -> Figure:
    """Draw both settings: who there is, who repays, and whom to accept."""
    figure, axes = panels(1, 2, 10.5, 4.0, top=0.7)
    for ax, (name, title) in zip(axes[0], truths.SETTINGS.items(), strict=True):
        _draw_setting(ax, name)
        name_panel(ax, title.capitalize(), "score x", "probability; density")
    legend_above(figure, axes[0, 0].get_legend_handles_labels()[0], 5)
    return figure


def _draw_setting(ax: Axes, name: str) -> None:
    world = truths.setting(name)
    score = np.linspace(*_SCORES[name], 1201)
    accept = world.score_probability(score) >= world.cost
    edges = [0, *(np.flatnonzero(np.diff(accept)) + 1).tolist(), len(score) - 1]
    for first, last in pairwise(edges):
        text = "optimal: accept" if accept[first] else "optimal: reject"
        known = text in ax.get_legend_handles_labels()[1]
        # opaque colours: some viewers do not show hatches in transparent ones
        look: Any = {"facecolor": "#faeadf", "edgecolor": "#f0c9ae", "hatch": ""}
        if accept[first]:
            look = {"facecolor": "#dcf1eb", "edgecolor": "#8ccbb8", "hatch": "//"}
        label = f"_{text}" if known else text
        ax.axvspan(score[first], score[last], linewidth=0, zorder=0, label=label, **look)
    density = world.density(score)
    density = 0.45 * density / density.max()
    for group, (colour, style) in enumerate(((BLUE, "-"), (ORANGE, "-."))):
        people = density[:, group]
        ax.plot(score, people, color=colour, linestyle=style, label=f"density, z = {group}")
        ax.fill_between(score, 0, people, color=colour, alpha=0.15, linewidth=0)
    _draw_truth(ax, name, score, 2.4, BLACK)
    theta = world.initial_theta(np.random.default_rng(0))
    model = expit(theta[0] + theta[1] * score)
    ax.plot(score, model, color=PINK, lw=2, ls=(0, (5, 1)), label="imperfect logistic model")
    ax.axvline(truths.start_cut(name), color=PINK, linewidth=1.2, label="its threshold")
    ax.set_ylim(0, 1)


# --- how policies evolve


def draw_evolution(results: Results, column: str) -> Figure:
    """Draw one row per strategy and one column per setting: snapshots from light to dark."""
    strategies = results.runs("first-time", column).strategies
    figure, axes = panels(len(strategies), 2, 8.5, 1.8 * len(strategies), top=0.6)
    for row, strategy in zip(axes, strategies, strict=True):
        for ax, (name, title) in zip(row, truths.SETTINGS.items(), strict=True):
            _draw_snapshots(ax, name, strategy, _median_path(results, column, name, strategy))
            name_panel(ax, f"{title}: {strategy}")
    for ax in axes[-1]:
        ax.set_xlabel("score x", fontsize=8)
    legend_above(figure, axes[0, 0].get_legend_handles_labels()[0], 5)
    return figure


def snapshots(n_steps: int) -> list[int]:
    """Return the steps shown: the start, then evenly on a log scale to the end."""
    return [0, *np.unique(np.geomspace(1, n_steps, _SNAPSHOTS).round().astype(int)).tolist()]


def _draw_snapshots(ax: Axes, name: str, strategy: str, thetas: Floats) -> None:
    score = np.linspace(*_SCORES[name], 601)
    _draw_truth(ax, name, score, 1.6, RED)
    ax.set_ylim(-0.03, 1.03)
    steps = snapshots(len(thetas) - 1)
    found = truths.curves(strategy, thetas[steps], score)
    cuts = truths.boundaries(strategy, thetas[steps], truths.setting(name).cost)
    for place, (step, curve, cut) in enumerate(zip(steps, found, cuts, strict=True)):
        text = {0: "first step", steps[-1]: "last step"}.get(step, "_between")
        grey = str(0.82 - 0.82 * place / (len(steps) - 1))
        ax.plot(score, curve, color=grey, lw=1.0 if text == "_between" else 1.6, label=text)
        if truths.is_predicting(strategy):
            ax.axvline(cut, color=grey, linestyle=(0, (4, 2)), linewidth=1.0)
    if truths.is_predicting(strategy):
        ax.text(cuts[-1], 0.02, " cut of the model", fontsize=6.5, color=BLACK)


# --- why deterministic updates get stuck

# by setting: boundaries and sharpness shown; above the latter nobody could tell a threshold
_POLICIES = {"first": ((-0.8, 0.8), (1.0, 300.0)), "second": ((-6.0, 8.0), (0.1, 30.0))}


def draw_illustration(results: Results, column: str) -> Figure:
    """Draw both settings' policies with the paths of a deterministic and a logistic run.

    A logistic policy of one score has a boundary and a sharpness. Deterministic policies are the
    border at infinite sharpness.
    """
    figure, axes = panels(1, 2, 10.5, 4.2, right=0.75)
    for ax, (name, title) in zip(axes[0], truths.SETTINGS.items(), strict=True):
        _draw_utility(ax, figure, name)
        for strategy in ("deterministic, iterative", "logistic, iterative"):
            _draw_path(ax, name, strategy, _median_path(results, column, name, strategy))
        _mark_ends(ax, name)
        name_panel(
            ax, title.capitalize(), "boundary −θ₀/θ₁ (score accepted half the time)", "sharpness θ₁"
        )
    return figure


def _draw_utility(ax: Axes, figure: Figure, name: str) -> None:
    world = truths.setting(name)
    people = world.cells(2**10)
    gain, _ = worth_and_gap(people, world.cost)
    (left, right), (low, high) = _POLICIES[name]
    boundary, sharpness = np.linspace(left, right, 120), np.geomspace(low, high, 80)
    score = people.points[:, 0]
    utility = np.array([expit(theta * (score - boundary[:, None])) @ gain for theta in sharpness])
    filled = ax.contourf(boundary, sharpness, utility, levels=14, cmap="Greys_r", alpha=0.75)
    filled.set_rasterized(True)
    ax.contour(boundary, sharpness, utility, levels=14, colors="white", linewidths=0.4)
    bar = figure.colorbar(filled, cax=ax.inset_axes((1.02, 0.1, 0.03, 0.7)))
    bar.set_label("utility (exact)", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    ax.set_yscale("log")
    ax.minorticks_off()
    ax.set_xlim(left, right)
    ax.set_ylim(low, high * 1.9)
    ax.axhspan(high, high * 1.9, color="#F0E442", alpha=0.35, linewidth=0)
    ax.axhline(high, color="black", linewidth=1.2)
    text = "deterministic policies: infinitely sharp"
    ax.text((left + right) / 2, high * 1.38, text, ha="center", va="center", fontsize=7.5)


def _draw_path(ax: Axes, name: str, strategy: str, thetas: Floats) -> None:
    high = _POLICIES[name][1][1]
    boundary = truths.boundaries(strategy, thetas, truths.setting(name).cost)
    if truths.is_predicting(strategy):
        sharpness, colour, marker, beside = np.full(len(thetas), high), RED, "s", (-6, -13)
    else:
        sharpness, colour, marker, beside = thetas[:, 1].clip(max=high), BLUE, "o", (-9, -3)
    ax.plot(boundary, sharpness, color="white", linewidth=3.4, zorder=3)
    ax.plot(boundary, sharpness, color=colour, linewidth=1.6, zorder=4)
    shown = np.unique(np.geomspace(1, len(thetas), 9).round().astype(int)) - 1
    marks: Any = {"markersize": 4, "markeredgecolor": "white", "markeredgewidth": 0.5}
    marks |= {"linestyle": "", "marker": marker, "color": colour, "clip_on": False}
    ax.plot(boundary[shown], sharpness[shown], zorder=5, **marks)
    box = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1}
    text: Any = {"color": colour, "fontsize": 8, "fontweight": "bold", "bbox": box, "zorder": 6}
    _annotate(ax, strategy.rpartition(", ")[0], (boundary[-1], sharpness[-1]), beside, **text)


def _mark_ends(ax: Axes, name: str) -> None:
    """Mark where runs start, and the best threshold."""
    high = _POLICIES[name][1][1]
    start = truths.setting(name).initial_theta(np.random.default_rng(0))
    cut, best = truths.start_cut(name), truths.best_threshold(name)
    for sharpness in (start[1], high):
        ax.plot(cut, sharpness, "x", color="black", markersize=9, markeredgewidth=2, zorder=7)
    _annotate(ax, "π₀", (cut, start[1]), (7, -4), ha="left")
    ax.plot(best, high, "*", color=GREEN, markersize=15, markeredgecolor="black", zorder=7)
    text = "π*" if name == "first" else "best threshold"
    _annotate(ax, text, (best, high), (-9, -14), color="black", fontsize=9)


def _annotate(
    ax: Axes, text: str, point: tuple[float, float], beside: tuple[int, int], **look: Any
) -> None:
    """Write beside a point, at a distance in points of type."""
    shown: Any = {"ha": "right", "zorder": 7} | look
    ax.annotate(text, point, xytext=beside, textcoords="offset points", **shown)


# --- the lending example

_STYLES: dict[Scoring, tuple[str, Any]] = {
    "accuracy": (BLUE, "-"),
    "likelihood": (RED, (0, (3, 1))),
    "accuracy, raw scores": (GREEN, "-."),
}
_THRESHOLDS = (500, 600, 700, 750, 800)  # whose models are shown


def draw_lending(results: Results, column: str) -> Figure:
    """Draw utility, learned models and parity against the initial threshold."""
    best = truths.optimum("lending")
    figure, axes = panels(1, 3, 10.5, 3.4)
    utility, models, parity = axes[0]
    for scoring in SCORINGS:
        table = results.lending(scoring)
        _draw_thresholds(utility, table.threshold, table.utility, scoring)
        _draw_thresholds(parity, table.threshold, table.benefit_gap, scoring)
    for ax, level in ((utility, best.utility), (parity, best.benefit_gap)):
        draw_level(ax, level, "best possible", "--")
    utility.legend(fontsize=7, frameon=False, loc="center", bbox_to_anchor=(0.36, 0.45))
    name_panel(utility, "Utility of the learned rule", "initial threshold ξ", "utility")
    name_panel(parity, "Demographic parity", "initial threshold ξ", "benefit gap (black − white)")
    _draw_models(models, results.lending("likelihood"))
    return figure


def _draw_thresholds(ax: Axes, threshold: Floats, values: Floats, scoring: Scoring) -> None:
    """Draw median and quartiles over seeds against the threshold."""
    colour, style = _STYLES[scoring]
    x = np.unique(threshold)
    low, middle, high = quartiles(values[threshold == each] for each in x)
    ax.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    ax.plot(x, middle, color=colour, ls=style, lw=1.8, label=f"ridge by {scoring}")


def _draw_models(ax: Axes, table: LendingTable) -> None:
    world = truths.score_world("lending")
    score = np.linspace(300.0, 850.0, 400)
    first = table.at(table.seed == table.seed.min())
    rows = {int(np.argmin(np.abs(first.threshold - xi))) for xi in _THRESHOLDS}
    for place, row in enumerate(sorted(rows)):
        threshold = first.threshold[row]
        model = expit(first.intercept[row] + first.slope[row] * score)
        grey = str(0.75 - 0.75 * place / max(1, len(rows) - 1))
        seen = np.where(score > threshold, model, np.nan)
        ax.plot(score, seen, color=grey, linewidth=2.4, label=f"ξ = {threshold:.0f}")
        ax.plot(score, model, color=grey, linewidth=1.1, linestyle="--")
    people = world.cells(0)
    truth = (people.mass * people.label_probability).sum(axis=1) / people.mass.sum(axis=1)
    ax.plot(people.points[:, 0], truth, color=ORANGE, linewidth=1.5, label="true repayment rate")
    draw_level(ax, world.cost, "cost c", ":")
    ax.set_ylim(-0.03, 1.08)
    ax.legend(fontsize=7, frameon=False, loc="lower right")
    name_panel(ax, "Learned models (dashed: never saw a label)", "score x", "P(repaid | x)")
