"""Why deterministic updates get stuck: the paper's illustration, computed.

A logistic policy of one score has a boundary and a sharpness. Deterministic policies are the
border at infinite sharpness.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from consequential.paper import truths
from consequential.paper.figures.figure import PaperFigure
from consequential.paper.limits import worth_and_gap
from consequential.plotting import BLUE, GREEN, RED, name_panel, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from consequential.paper.results import Results

Floats = NDArray[np.float64]

# by setting: boundaries and sharpness shown; above the latter nobody could tell a threshold
_SHOWN = {"first": ((-0.8, 0.8), (1.0, 300.0)), "second": ((-6.0, 8.0), (0.1, 30.0))}


def draw(results: Results, column: str) -> Figure:
    """Draw both settings' policies with the paths of a deterministic and a logistic run."""
    figure, axes = panels(1, 2, 10.5, 4.2, right=0.75)
    for ax, (name, title) in zip(axes[0], truths.SETTINGS.items(), strict=True):
        _draw_utility(ax, figure, name)
        runs = results.runs(f"{name}-time", column)
        for strategy in ("deterministic, iterative", "logistic, iterative"):
            thetas = runs.select(strategy)[0].thetas
            assert thetas is not None  # linear policies keep their path
            _draw_path(ax, name, strategy, thetas)
        _mark(ax, name)
        name_panel(
            ax, title.capitalize(), "boundary −θ₀/θ₁ (score accepted half the time)", "sharpness θ₁"
        )
    return figure


def _draw_utility(ax: Axes, figure: Figure, name: str) -> None:
    world = truths.setting(name)
    people = world.cells(2**10)
    gain, _ = worth_and_gap(people, world.cost)
    (left, right), (low, high) = _SHOWN[name]
    boundary, sharpness = np.linspace(left, right, 120), np.geomspace(low, high, 80)
    score = people.points[:, 0]
    utility = np.array([expit(theta * (score - boundary[:, None])) @ gain for theta in sharpness])
    filled = ax.contourf(boundary, sharpness, utility, levels=14, cmap="Greys_r", alpha=0.75)
    filled.set_rasterized(True)
    ax.contour(boundary, sharpness, utility, levels=14, colors="white", linewidths=0.4)
    beside = ax.inset_axes((1.02, 0.1, 0.03, 0.7))
    bar = figure.colorbar(filled, cax=beside)
    bar.set_label("utility (exact)", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    ax.set_yscale("log")
    ax.minorticks_off()
    ax.set_xlim(left, right)
    ax.set_ylim(low, high * 1.9)
    ax.axhspan(high, high * 1.9, color="#F0E442", alpha=0.35, linewidth=0)
    ax.axhline(high, color="black", linewidth=1.2)
    ax.text(
        (left + right) / 2,
        high * 1.38,
        "deterministic policies: infinitely sharp",
        ha="center",
        va="center",
        fontsize=7.5,
    )


def _draw_path(ax: Axes, name: str, strategy: str, thetas: Floats) -> None:
    high = _SHOWN[name][1][1]
    boundary = truths.boundaries(strategy, thetas, truths.setting(name).cost)
    predicting = truths.is_predicting(strategy)
    sharpness = np.full(len(thetas), high) if predicting else thetas[:, 1].clip(max=high)
    colour, marker = (RED, "s") if predicting else (BLUE, "o")
    ax.plot(boundary, sharpness, color="white", linewidth=3.4, zorder=3)
    ax.plot(boundary, sharpness, color=colour, linewidth=1.6, zorder=4)
    shown = np.unique(np.geomspace(1, len(thetas), 9).round().astype(int)) - 1
    ax.plot(
        boundary[shown],
        sharpness[shown],
        linestyle="",
        marker=marker,
        markersize=4,
        color=colour,
        markeredgecolor="white",
        markeredgewidth=0.5,
        zorder=5,
        clip_on=False,
    )
    ax.annotate(
        strategy.rpartition(", ")[0],
        (boundary[-1], sharpness[-1]),
        xytext=(-6, -13) if predicting else (-9, -3),
        textcoords="offset points",
        ha="right",
        color=colour,
        fontsize=8,
        fontweight="bold",
        bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1},
        zorder=6,
    )


def _mark(ax: Axes, name: str) -> None:
    high = _SHOWN[name][1][1]
    start = truths.setting(name).initial_theta(np.random.default_rng(0))
    cut = truths.start_cut(name)
    for sharpness in (start[1], high):
        ax.plot(cut, sharpness, "x", color="black", markersize=9, markeredgewidth=2, zorder=7)
    ax.annotate("π₀", (cut, start[1]), xytext=(7, -4), textcoords="offset points", zorder=7)
    best = truths.best_threshold(name)
    ax.plot(best, high, "*", color=GREEN, markersize=15, markeredgecolor="black", zorder=7)
    text = "π*" if name == "first" else "best threshold"
    ax.annotate(
        text,
        (best, high),
        xytext=(-9, -14),
        textcoords="offset points",
        ha="right",
        color="black",
        fontsize=9,
        zorder=7,
    )


FIGURE = PaperFigure(
    "illustration",
    "Why deterministic updates get stuck",
    "Every logistic policy of one score is a point: where its boundary lies and how sharp it is. "
    "Grey is its exact utility, lighter is better; the yellow border holds the deterministic "
    "policies. From the crosses, repeated prediction moves a little along the border and stops; a "
    "logistic run goes through the inside to the star. First seed, marks at growing steps.",
    "Figure 2 (impossibility)",
    ("first-time", "second-time"),
    draw,
)
