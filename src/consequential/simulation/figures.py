"""Figures of stored runs. They read results and never train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from consequential.simulation.runs import Runs

# Okabe and Ito's colours, told apart by people with any kind of colour vision
_COLOURS = {
    "deterministic": "#D55E00",
    "fair deterministic": "#CC79A7",
    "logistic": "#0072B2",
    "semi-logistic": "#009E73",
    "smooth-semi-logistic": "#E69F00",
}
_OTHERS = ["#56B4E9", "#F0E442", "#000000", "#999999"]
_LABELS = {
    "utility": "utility",
    "effective_utility": "effective utility (while learning)",
    "benefit_gap": "benefit gap",
    "acceptance": "share accepted",
    "effective_sample_size": "effective sample size",
}


def plot_metric(
    runs: Runs,
    metric: str,
    over: Literal["time_step", "penalty"],
    penalty: float | None,
    strategies: Sequence[str],
    ax: Axes | None,
) -> Axes:
    """Draw a metric's median and quartiles over seeds, a line a strategy."""
    if ax is None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6.0, 3.8), layout="constrained")
        FigureCanvasAgg(figure)
        ax = figure.add_subplot()
    for strategy in strategies:
        if over == "time_step":
            values = runs.metric(metric, strategy, penalty)
            x = np.arange(values.shape[1], dtype=np.float64)
        elif over == "penalty":
            x = np.array(runs.penalties)
            values = np.stack([runs.metric(metric, strategy, p)[:, -1] for p in x], axis=1)
        else:
            raise ValueError(f"over is 'time_step' or 'penalty', not {over!r}")
        shown = np.isfinite(values).all(axis=0)
        low, middle, high = np.percentile(values[:, shown], [25, 50, 75], axis=0)
        colour, style = _look(strategy, strategies)
        ax.plot(x[shown], middle, color=colour, linestyle=style, linewidth=1.8, label=strategy)
        if len(values) > 1:
            ax.fill_between(x[shown], low, high, color=colour, alpha=0.15, linewidth=0)
    if over == "penalty":
        smallest = min((p for p in runs.penalties if p > 0), default=1.0)
        ax.set_xscale("symlog", linthresh=smallest)
    ax.set_xlabel("time step" if over == "time_step" else "penalty (lambda)")
    ax.set_ylabel(_LABELS.get(metric, metric))
    ax.set_title(runs.world, loc="left", fontsize=10)
    ax.grid(alpha=0.25)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


def _look(strategy: str, strategies: Sequence[str]) -> tuple[str, str]:
    kind, _, sequence = strategy.rpartition(", ")
    strangers = [name for name in strategies if name.rpartition(", ")[0] not in _COLOURS]
    if kind in _COLOURS:
        colour = _COLOURS[kind]
    else:
        colour = _OTHERS[strangers.index(strategy) % len(_OTHERS)]
    return colour, "--" if sequence == "iterative" else "-"
