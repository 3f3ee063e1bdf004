"""How models and policies evolve in one run, strategy by strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consequential.paper import truths
from consequential.paper.figures.figure import PaperFigure
from consequential.paper.figures.settings import SHOWN
from consequential.plotting import BLACK, RED, legend_above, name_panel, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from consequential.paper.results import Results

Floats = NDArray[np.float64]

_SNAPSHOTS = 8


def draw(results: Results, column: str) -> Figure:
    """Draw a row a strategy and a column a setting: snapshots from light to dark."""
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
    score = np.linspace(*SHOWN[name], 601)
    ax.plot(score, world.score_probability(score), color=RED, linewidth=1.6, label="P(y = 1 | x)")
    ax.axhline(world.cost, color=RED, linestyle="--", linewidth=1, label="cost c")
    cut = truths.best_threshold(name)
    ax.axvline(cut, color=RED, linestyle=":", linewidth=1.6, label="best single threshold")
    ax.set_xlim(*SHOWN[name])
    ax.set_ylim(-0.03, 1.03)


def _draw_snapshots(ax: Axes, name: str, strategy: str, thetas: Floats) -> None:
    score = np.linspace(*SHOWN[name], 601)
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


FIGURE = PaperFigure(
    "evolution",
    "How policies evolve",
    "Snapshots of one run (the first seed) at steps evenly spaced on a log scale, light to dark: "
    "the predictive model with its cut (dashed) for deterministic rules, else the probability of "
    "acceptance. Red: the truth, the cost (dashed), the best single threshold (dotted).",
    "Figure 8 (results_synthetic_evolution)",
    ("first-time", "second-time"),
    draw,
)
