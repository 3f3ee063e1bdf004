"""The two synthetic settings, drawn from what their worlds know."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
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

SHOWN = {"first": (-0.8, 0.8), "second": (-9.0, 9.0)}


def draw(results: Results, column: str) -> Figure:
    """Draw both settings: who there is, who repays, and whom to accept."""
    figure, axes = panels(1, 2, 10.5, 4.0, top=0.7)
    for ax, (name, title) in zip(axes[0], truths.SETTINGS.items(), strict=True):
        _draw_setting(ax, name)
        name_panel(ax, title.capitalize(), "score x", "probability; density")
    legend_above(figure, axes[0, 0].get_legend_handles_labels()[0], 5)
    return figure


def _draw_setting(ax: Axes, name: str) -> None:
    world = truths.setting(name)
    score = np.linspace(*SHOWN[name], 1201)
    repaid = world.score_probability(score)
    accept = repaid >= world.cost
    # plain pale colours: where hatches are made of see-through ones, some readers show none
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
    ax.set_xlim(*SHOWN[name])
    ax.set_ylim(0, 1)


FIGURE = PaperFigure(
    "settings",
    "The two synthetic settings",
    "The chance of label 1 (red) over the score, whose densities differ between the groups "
    "(blue, orange; not to scale). The optimal policy accepts in the hatched green stretches. The "
    "pink model is where every strategy starts; its threshold hides people worth accepting.",
    "Figure 3 (synthetic-setting)",
    (),
    draw,
    paired=False,
)
