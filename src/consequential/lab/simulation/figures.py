"""Figures of stored runs. They read results and never train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from consequential.plotting import add_legend, draw_band, new_axes, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from consequential.lab.simulation.runs import Runs

Floats = NDArray[np.float64]

LABELS = {
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
    """Draw a metric's median and quartiles over seeds, one line per strategy."""
    ax = new_axes(ax)
    if over not in ("time_step", "penalty"):
        raise ValueError(f"over is 'time_step' or 'penalty', not {over!r}")
    for strategy in strategies:
        if strategy not in runs.strategies:
            runs.select(strategy)  # says which there are
        x, values = _series(runs, metric, over, penalty, strategy)
        if not values:
            continue  # an interrupted simulation may not have come to it
        quartiles = np.array([np.percentile(v, [25, 50, 75]) for v in values]).T
        draw_band(ax, np.asarray(x), quartiles, strategy, strategies)
    if over == "penalty":
        smallest = min((p for p in runs.penalties if p > 0), default=1.0)
        ax.set_xscale("symlog", linthresh=smallest)
    ax.set_xlabel("time step" if over == "time_step" else "penalty (lambda)")
    ax.set_ylabel(LABELS.get(metric, metric), parse_math=False)
    ax.set_title(runs.world, loc="left", fontsize=10, parse_math=False)
    ax.title.set_parse_math(False)
    tidy(ax)
    add_legend(ax)
    return ax


def _series(
    runs: Runs,
    metric: str,
    over: Literal["time_step", "penalty"],
    penalty: float | None,
    strategy: str,
) -> tuple[list[float], list[Floats]]:
    """Return where and which finite values over seeds there are to draw."""
    if over == "penalty":
        done = [p for p in runs.penalties if runs.has(strategy, p)]
        return done, [runs.metric(metric, strategy, p)[:, -1] for p in done]
    if penalty is not None and not runs.has(strategy, penalty):
        return [], []
    values = runs.metric(metric, strategy, penalty)
    steps = np.flatnonzero(np.isfinite(values).all(axis=0))
    return steps.astype(float).tolist(), list(values[:, steps].T)
