"""Figures of stored runs. They read results and never train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from consequential.simulation.runs import Runs

Floats = NDArray[np.float64]

# Okabe and Ito's colours, told apart by people with any kind of colour vision
_COLOURS = {
    "deterministic": "#D55E00",
    "fair deterministic": "#CC79A7",
    "logistic": "#0072B2",
    "semi-logistic": "#009E73",
    "smooth-semi-logistic": "#E69F00",
}
_OTHERS = ["#56B4E9", "#F0E442", "#000000", "#999999"]
_STYLES = {"iterative": "--", "aggregated": "-"}
# a shape of their own as well: figures are read in grey, too
_MARKERS = {
    "deterministic": "s",
    "fair deterministic": "D",
    "logistic": "o",
    "semi-logistic": "^",
    "smooth-semi-logistic": "v",
}
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
    """Draw a metric's median and quartiles over seeds, a line a strategy."""
    if ax is None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6.0, 3.8), layout="constrained")
        FigureCanvasAgg(figure)
        ax = figure.add_subplot()
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


def draw_band(
    ax: Axes, x: Floats, quartiles: Floats, strategy: str, strategies: Sequence[str]
) -> Line2D:
    """Draw a strategy's median with its quartile band; `quartiles` has three rows."""
    low, middle, high = quartiles
    kind, colour, style = strategy.rpartition(", ")[0], *look(strategy, strategies)
    # marks lie apart from those of other strategies, which may share the line
    place, every = strategies.index(strategy), max(1, len(x) // 6)
    (line,) = ax.plot(
        x,
        middle,
        color=colour,
        linestyle=style,
        linewidth=1.6,
        label=strategy,
        marker=_MARKERS.get(kind, ""),
        markersize=4.5,
        markerfacecolor="white" if style == "--" else colour,
        markevery=(place * every // max(1, len(strategies)), every),
    )
    if (low != high).any():  # a single run has no spread
        ax.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    return line


def tidy(ax: Axes) -> None:
    """Leave out what carries no information."""
    ax.grid(alpha=0.25)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def add_legend(ax: Axes) -> None:
    """Say which line is which, in the names' own letters."""
    lines = ax.get_lines()
    # matplotlib drops names that begin with _ and reads $ as a formula: texts are set afterwards
    legend = ax.legend(lines, ["name"] * len(lines), fontsize=7, frameon=False)
    for text, line in zip(legend.get_texts(), lines, strict=True):
        text.set_parse_math(False)
        text.set_text(str(line.get_label()))


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


def look(strategy: str, strategies: Sequence[str]) -> tuple[str, Any]:
    """Return a strategy's colour and line style among others."""
    kind, _, sequence = strategy.rpartition(", ")
    if kind in _COLOURS:
        return _COLOURS[kind], _STYLES.get(sequence, "-.")
    strangers = [name for name in strategies if name.rpartition(", ")[0] not in _COLOURS]
    round_, colour = divmod(strangers.index(strategy), len(_OTHERS))
    return _OTHERS[colour], ["-", "--", "-.", ":"][round_ % 4]
