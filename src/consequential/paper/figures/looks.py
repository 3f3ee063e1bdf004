"""Looks: what the paper's figures share, so that each says only what it shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consequential.simulation.figures import look, tidy

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

Floats = NDArray[np.float64]

# Okabe and Ito's colours by what they stand for
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PINK, SKY, GREY, BLACK = "#CC79A7", "#56B4E9", "#57606a", "#1b1f24"

_SHORT = {"deterministic": "det.", "logistic": "log.", "semi-logistic": "semi"}
_SEQUENCES = {"iterative": "it.", "aggregated": "agg."}


def panels(
    rows: int, columns: int, width: float, height: float, *, top: float = 0.3, right: float = 0.1
) -> tuple[Figure, NDArray[np.object_]]:
    """Return an empty figure and its axes by row and column; no display, no global state.

    Sizes are in inches, `top` the room for a legend and `right` that for the ends of lines. They
    are fixed: finding them from the texts took as long as drawing.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    left, bottom, between = 0.55, 0.45, 0.72
    panel_width = (width - left - columns * right - (columns - 1) * left) / columns
    panel_height = (height - bottom - top - (rows - 1) * between) / rows
    figure.subplots_adjust(
        left=left / width,
        right=1.0 - right / width,
        bottom=bottom / height,
        top=1.0 - top / height,
        wspace=(left + right) / panel_width,
        hspace=between / panel_height,
    )
    axes = np.asarray(figure.subplots(rows, columns, squeeze=False))
    for ax in axes.ravel():
        tidy(ax)
        ax.tick_params(labelsize=8)
    return figure, axes


def name_panel(ax: Axes, title: str, x: str = "", y: str = "") -> None:
    """Say what a panel shows."""
    ax.set_title(title, loc="left", fontsize=9, y=1.0)  # a place that need not be looked for
    ax.set_xlabel(x, fontsize=8)
    ax.set_ylabel(y, fontsize=8)


def short(strategy: str) -> str:
    """Return a strategy's name as a line's end has room for it."""
    kind, _, sequence = strategy.rpartition(", ")
    return f"{_SHORT.get(kind, kind)} {_SEQUENCES.get(sequence, sequence)}"


def label_ends(ax: Axes, lines: Sequence[Line2D], texts: Sequence[str]) -> None:
    """Write each line's name beside its end, apart from one another."""
    ax.set_ylim(ax.get_ylim())  # from here on, places in the panel stay what they are
    ends = np.array([_height(ax, line) for line in lines])
    apart = 0.072  # of the panel's height, for letters of this size
    places = _spread(np.clip(ends, 0.0, 1.0), apart)
    for line, text, end, place in zip(lines, texts, ends, places, strict=True):
        colour, inside = line.get_color(), float(np.clip(end, 0.0, 1.0))
        ax.plot(
            [1.01, 1.04],
            [inside, float(place)],
            color=colour,
            linewidth=0.6,
            transform=ax.transAxes,
            clip_on=False,
        )
        ax.text(
            1.05,
            float(place),
            text,
            fontsize=6.5,
            color=colour,
            va="center",
            transform=ax.transAxes,
        )


def _height(ax: Axes, line: Line2D) -> float:
    """Return where a line ends, as a fraction of the panel's height."""
    last = float(np.asarray(line.get_ydata(), dtype=np.float64)[-1])
    low, high = ax.get_ylim()
    return (last - low) / (high - low)


def _spread(wanted: Floats, apart: float) -> Floats:
    """Return places at least this far apart, in the order and near the places wanted."""
    order = np.argsort(wanted, kind="stable")
    places = wanted[order].copy()
    for _ in range(200):
        close = apart - np.diff(places)
        push = np.where(close > 1e-9, close / 2, 0.0)
        if not push.any():
            break
        places[:-1] -= push
        places[1:] += push
    places += max(0.0, 0.02 - places[0])  # below and above there are other texts
    places += min(0.0, 1.04 - places[-1])
    found = np.empty_like(places)
    found[order] = places
    return found


def legend_above(figure: Figure, handles: Sequence[Artist], columns: int = 4) -> None:
    """Name lines and areas once, above all panels."""
    names = [str(handle.get_label()) for handle in handles]
    height = figure.get_size_inches()[1]
    figure.legend(
        handles,
        names,
        loc="upper center",
        bbox_to_anchor=(0.5, 1.0 - 0.04 / height),
        ncols=columns,
        fontsize=7.5,
        frameon=False,
        borderpad=0.0,
    )


def mark_level(ax: Axes, level: float, text: str, style: str = ":") -> Line2D:
    """Draw a level to compare with."""
    return ax.axhline(level, color=BLACK, linewidth=1, linestyle=style, label=text, zorder=1)


__all__ = [
    "BLACK",
    "BLUE",
    "GREEN",
    "GREY",
    "ORANGE",
    "PINK",
    "RED",
    "SKY",
    "label_ends",
    "legend_above",
    "look",
    "mark_level",
    "name_panel",
    "panels",
    "short",
]
