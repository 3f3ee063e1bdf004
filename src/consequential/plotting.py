"""Plot style: colours, lines, legends and panels that all figures share.

Figures are made without pyplot: no display is needed and no global state is left behind.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

Floats = NDArray[np.float64]

# the palette of Okabe and Ito, which people with any kind of colour vision can tell apart
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PINK, SKY, YELLOW = "#CC79A7", "#56B4E9", "#F0E442"
GREY, BLACK = "#57606a", "#1b1f24"

# colour and marker of each kind of strategy: markers tell them apart where a figure has no colours
_KINDS = {
    "deterministic": (RED, "s"),
    "fair deterministic": (PINK, "D"),
    "logistic": (BLUE, "o"),
    "semi-logistic": (GREEN, "^"),
    "smooth-semi-logistic": (ORANGE, "v"),
}
_OTHER_COLOURS = (SKY, "#000000", "#999999", YELLOW)
_LINE_STYLES = {"iterative": "--", "aggregated": "-"}
_SHORT_NAMES = {
    "deterministic": "det.",
    "logistic": "log.",
    "semi-logistic": "semi",
    "posterior": "post.",
    "optimistic posterior": "opt.",
    "pseudo-labels": "pseudo",
    "iterative": "it.",
    "aggregated": "agg.",
}
_LABEL_DISTANCE = 0.072  # between labels at line ends, as a fraction of the panel's height


def new_figure(width: float, height: float, layout: Any = "constrained") -> Figure:
    """Return an empty figure of a size in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


def new_axes(ax: Axes | None = None) -> Axes:
    """Return the axes given, or those of a new figure."""
    return new_figure(6.0, 3.8).add_subplot() if ax is None else ax


def panels(
    rows: int, columns: int, width: float, height: float, *, top: float = 0.3, right: float = 0.1
) -> tuple[Figure, NDArray[np.object_]]:
    """Return an empty figure and its axes by row and column.

    Sizes are in inches: `top` is for a legend, `right` for labels at the ends of lines. They are
    fixed, because a layout computed from the texts takes as long as drawing.
    """
    figure = new_figure(width, height, None)
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
    """Set title and labels of a panel."""
    ax.set_title(title, loc="left", fontsize=9, y=1.0)  # with y given, matplotlib searches no place
    ax.set_xlabel(x, fontsize=8)
    ax.set_ylabel(y, fontsize=8)


def tidy(ax: Axes) -> None:
    """Add a faint grid and remove the upper and right spines."""
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)


def add_legend(ax: Axes) -> None:
    """Add a legend that shows the labels of lines literally."""
    lines = ax.get_lines()
    # matplotlib drops labels that begin with _ and reads $ as a formula: set the texts afterwards
    legend = ax.legend(lines, ["name"] * len(lines), fontsize=7, frameon=False)
    for text, line in zip(legend.get_texts(), lines, strict=True):
        text.set_parse_math(False)
        text.set_text(str(line.get_label()))


def legend_above(figure: Figure, handles: Sequence[Artist], columns: int = 4) -> None:
    """Add one legend above all panels."""
    height = figure.get_size_inches()[1]
    figure.legend(
        handles,
        [str(handle.get_label()) for handle in handles],
        loc="upper center",
        bbox_to_anchor=(0.5, 1.0 - 0.04 / height),
        ncols=columns,
        fontsize=7.5,
        frameon=False,
        borderpad=0.0,
    )


def strategy_style(strategy: str, strategies: Sequence[str]) -> tuple[str, Any]:
    """Return a strategy's colour and line style among others."""
    kind, _, sequence = strategy.rpartition(", ")
    if kind in _KINDS:
        return _KINDS[kind][0], _LINE_STYLES.get(sequence, "-.")
    others = [name for name in strategies if name.rpartition(", ")[0] not in _KINDS]
    cycle, colour = divmod(others.index(strategy), len(_OTHER_COLOURS))
    return _OTHER_COLOURS[colour], ["-", "--", "-.", ":"][cycle % 4]


def short_name(strategy: str) -> str:
    """Return a strategy's name, short enough for the end of a line."""
    return " ".join(_SHORT_NAMES.get(part, part) for part in strategy.rsplit(", ", 1))


def draw_band(
    ax: Axes, x: Floats, quartiles: Floats, strategy: str, strategies: Sequence[str]
) -> Line2D:
    """Draw a strategy's median with its quartile band; `quartiles` has three rows."""
    low, middle, high = quartiles
    colour, style = strategy_style(strategy, strategies)
    _, marker = _KINDS.get(strategy.rpartition(", ")[0], (colour, ""))
    # markers of different strategies are set apart, because their lines may coincide
    place, every = strategies.index(strategy), max(1, len(x) // 6)
    (line,) = ax.plot(
        x,
        middle,
        color=colour,
        linestyle=style,
        linewidth=1.6,
        label=strategy,
        marker=marker,
        markersize=4.5,
        markerfacecolor="white" if style == "--" else colour,
        markevery=(place * every // max(1, len(strategies)), every),
    )
    if (low != high).any():  # a single run has no spread
        ax.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    return line


def draw_level(ax: Axes, level: float, text: str, style: str = ":") -> Line2D:
    """Draw a horizontal line to compare with."""
    return ax.axhline(level, color=BLACK, linewidth=1, linestyle=style, label=text, zorder=1)


def label_ends(ax: Axes, lines: Sequence[Line2D]) -> None:
    """Write the short name of each line's strategy beside its end, without overlaps."""
    low, high = ax.get_ylim()
    ax.set_ylim(low, high)  # the limits must not move any more
    last = np.array([np.asarray(line.get_ydata(), dtype=np.float64)[-1] for line in lines])
    ends = np.clip((last - low) / (high - low), 0.0, 1.0)
    places = _apart(ends, _LABEL_DISTANCE).tolist()
    for line, end, place in zip(lines, ends.tolist(), places, strict=True):
        shared: Any = {"color": line.get_color(), "transform": ax.transAxes}
        ax.plot([1.01, 1.04], [end, place], linewidth=0.6, clip_on=False, **shared)
        text = short_name(str(line.get_label()))
        ax.text(1.05, place, text, fontsize=6.5, va="center", **shared)


def _apart(wanted: Floats, distance: float) -> Floats:
    """Return places at least this distance apart, in the same order and near those wanted."""
    order = np.argsort(wanted, kind="stable")
    places = wanted[order].copy()
    for _ in range(200):
        close = distance - np.diff(places)
        push = np.where(close > 1e-9, close / 2, 0.0)
        if not push.any():
            break
        places[:-1] -= push
        places[1:] += push
    places += max(0.0, 0.02 - places[0])  # stay clear of the texts below and above the panel
    places += min(0.0, 1.04 - places[-1])
    found = np.empty_like(places)
    found[order] = places
    return found


def svg_of(drawn: Axes | Figure, salt: str) -> str:
    """Return a figure, or that of some axes, as an SVG element, whose ids are made from the salt.

    The same figure and salt make the same text, byte for byte: there is no date in it.
    """
    import matplotlib as mpl

    figure: Any = drawn.figure
    buffer = io.StringIO()
    settings: Any = {"svg.hashsalt": salt, "svg.fonttype": "none"}
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the reader's browser may have the letter
        figure.savefig(buffer, format="svg", metadata=nothing)
    text = buffer.getvalue()
    return text[text.index("<svg") :]
