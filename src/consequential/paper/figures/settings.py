"""The two synthetic settings over the score, and how models and policies evolve in them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from consequential.paper import truths
from consequential.paper.figures.figure import PaperFigure
from consequential.plotting import (
    BLACK,
    BLUE,
    ORANGE,
    PINK,
    RED,
    legend_above,
    name_panel,
    panels,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from consequential.paper.results import Results

Floats = NDArray[np.float64]

_SHOWN = {"first": (-0.8, 0.8), "second": (-9.0, 9.0)}  # scores
_SNAPSHOTS = 8


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
    score = np.linspace(*_SHOWN[name], 1201)
    repaid = world.score_probability(score)
    accept = repaid >= world.cost
    # opaque colours: some viewers do not show hatches in transparent ones
    looks = {True: ("#dcf1eb", "#8ccbb8", "//"), False: ("#faeadf", "#f0c9ae", "")}
    edges = [0, *(np.flatnonzero(np.diff(accept)) + 1).tolist(), len(score) - 1]
    for first, last in pairwise(edges):
        pale, strong, hatch = looks[bool(accept[first])]
        text = "optimal: accept" if accept[first] else "optimal: reject"
        known = text in ax.get_legend_handles_labels()[1]
        ax.axvspan(
            score[first],
            score[last],
            facecolor=pale,
            edgecolor=strong,
            hatch=hatch,
            linewidth=0,
            zorder=0,
            label=f"_{text}" if known else text,
        )
    density = world.density(score)
    density = 0.45 * density / density.max()
    for group, (colour, style) in enumerate(((BLUE, "-"), (ORANGE, "-."))):
        ax.plot(
            score, density[:, group], color=colour, linestyle=style, label=f"density, z = {group}"
        )
        ax.fill_between(score, 0, density[:, group], color=colour, alpha=0.15, linewidth=0)
    ax.plot(score, repaid, color=RED, linewidth=2.4, label="P(y = 1 | x)")
    ax.axhline(world.cost, color=BLACK, linestyle="--", linewidth=1, label="cost c")
    cut = truths.best_threshold(name)
    ax.axvline(cut, color=BLACK, linestyle=":", linewidth=1.6, label="best single threshold")
    theta = world.initial_theta(np.random.default_rng(0))
    ax.plot(
        score,
        expit(theta[0] + theta[1] * score),
        color=PINK,
        linewidth=2,
        linestyle=(0, (5, 1)),
        label="imperfect logistic model",
    )
    ax.axvline(truths.start_cut(name), color=PINK, linewidth=1.2, label="its threshold")
    ax.set_xlim(*_SHOWN[name])
    ax.set_ylim(0, 1)


SETTINGS = PaperFigure(
    "settings",
    "The two synthetic settings",
    "The chance of label 1 (red) over the score, whose densities differ between the groups "
    "(blue, orange; not to scale). The optimal policy accepts in the hatched green stretches. The "
    "pink model is where every strategy starts; its threshold hides people worth accepting.",
    "Figure 3 (synthetic-setting)",
    (),
    draw_settings,
    paired=False,
)


def draw_evolution(results: Results, column: str) -> Figure:
    """Draw one row per strategy and one column per setting: snapshots from light to dark."""
    runs = {name: results.runs(f"{name}-time", column) for name in truths.SETTINGS}
    strategies = runs["first"].strategies
    figure, axes = panels(len(strategies), 2, 8.5, 1.8 * len(strategies), top=0.6)
    for row, strategy in zip(axes, strategies, strict=True):
        for ax, (name, title) in zip(row, truths.SETTINGS.items(), strict=True):
            thetas = runs[name].select(strategy)[0].thetas
            assert thetas is not None  # linear policies and models keep their path
            _draw_world(ax, name)
            _draw_snapshots(ax, name, strategy, thetas)
            name_panel(ax, f"{title}: {strategy}")
    for ax in axes[-1]:
        ax.set_xlabel("score x", fontsize=8)
    legend_above(figure, axes[0, 0].get_legend_handles_labels()[0], 5)
    return figure


def snapshots(n_steps: int) -> list[int]:
    """Return the steps shown: the start, then evenly on a log scale to the end."""
    return [0, *np.unique(np.geomspace(1, n_steps, _SNAPSHOTS).round().astype(int)).tolist()]


def _draw_world(ax: Axes, name: str) -> None:
    world = truths.setting(name)
    score = np.linspace(*_SHOWN[name], 601)
    ax.plot(score, world.score_probability(score), color=RED, linewidth=1.6, label="P(y = 1 | x)")
    ax.axhline(world.cost, color=RED, linestyle="--", linewidth=1, label="cost c")
    cut = truths.best_threshold(name)
    ax.axvline(cut, color=RED, linestyle=":", linewidth=1.6, label="best single threshold")
    ax.set_xlim(*_SHOWN[name])
    ax.set_ylim(-0.03, 1.03)


def _draw_snapshots(ax: Axes, name: str, strategy: str, thetas: Floats) -> None:
    score = np.linspace(*_SHOWN[name], 601)
    steps = snapshots(len(thetas) - 1)
    found = truths.curves(strategy, thetas[steps], score)
    cuts = truths.boundaries(strategy, thetas[steps], truths.setting(name).cost)
    for place, (step, curve, cut) in enumerate(zip(steps, found, cuts, strict=True)):
        ends = step in (0, steps[-1])
        grey = str(0.82 - 0.82 * place / (len(steps) - 1))
        text = {0: "first step", steps[-1]: "last step"}.get(step, "_between")
        ax.plot(score, curve, color=grey, linewidth=1.6 if ends else 1.0, label=text)
        if truths.is_predicting(strategy):
            ax.axvline(cut, color=grey, linestyle=(0, (4, 2)), linewidth=1.0)
    if truths.is_predicting(strategy):
        # beside the cut, on the side where there is room
        ax.text(cuts[-1], 0.02, " cut of the model", fontsize=6.5, color=BLACK)


EVOLUTION = PaperFigure(
    "evolution",
    "How policies evolve",
    "Snapshots of one run (the first seed) at steps evenly spaced on a log scale, light to dark: "
    "the predictive model with its cut (dashed) for deterministic rules, else the probability of "
    "acceptance. Red: the truth, the cost (dashed), the best single threshold (dotted).",
    "Figure 8 (results_synthetic_evolution)",
    ("first-time", "second-time"),
    draw_evolution,
)
