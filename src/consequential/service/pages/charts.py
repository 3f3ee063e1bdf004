"""Charts: the library's figures as SVG whose colours the stylesheet sets, with their numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, wraps
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from markupsafe import Markup

from consequential.plotting import BLUE, GREY, ORANGE, RED, panels, svg_of
from consequential.service.pages.groups import Gap, Rate
from consequential.service.pages.rendering import count, figure, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 4.2, 2.5  # inches: letters stay legible on a phone
_LETTERS = 10  # points
_TICKS = 5
# the browser replaces what is drawn in these colours by variables of the stylesheet
_VARIABLES = {
    BLUE.lower(): "blue", ORANGE.lower(): "orange", RED.lower(): "red", GREY: "muted",
    "#000000": "ink", "#ffffff": "paper", "#b0b0b0": "grid",
}  # fmt: skip
Point = tuple[str, float, float, float]  # a name, a value, and the ends of its bar

_drawing = Lock()  # matplotlib's settings are shared by all threads


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure, what it shows in words, and its numbers as a table."""

    title: str
    caption: str
    svg: Markup
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]


def _drawn(draw: Callable[..., None]) -> Callable[..., Markup]:
    """Draw on new axes; what was drawn from the same numbers before is kept."""

    @lru_cache(maxsize=128)
    @wraps(draw)
    def drawn(*data: Any) -> Markup:
        with _drawing:
            canvas, axes = panels(1, 1, WIDTH, HEIGHT, top=0.2, right=0.22)
            axes[0, 0].tick_params(labelsize=_LETTERS)
            draw(axes[0, 0], *data)
            return themed(svg_of(canvas, "page"))

    return drawn


def themed(svg: str) -> Markup:
    """Return an SVG element without styles of its own, so that the page's stylesheet rules.

    Ids stay only where something refers to them; those are hashes of what they name, so that
    several figures can share a page.

    Examples
    --------
    >>> from consequential.service.pages.charts import themed
    >>> themed('<svg><g id="line_1"><path style="fill: none; stroke: #0072b2"/></g></svg>')
    Markup('<svg><g><path fill="none" stroke="var(--blue)"/></g></svg>')
    """
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' width="[\d.]+pt" height="[\d.]+pt"', "", svg, count=1)
    svg = re.sub(r'style="([^"]*)"', _as_attributes, svg)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    return Markup(re.sub(r"\s*\n\s*", " ", svg))


def _as_attributes(style: re.Match[str]) -> str:
    told = dict(part.split(": ", 1) for part in style[1].split("; ") if part)
    told.pop("font-family", None)
    for name in ("fill", "stroke"):
        if (variable := _VARIABLES.get(told.get(name, ""))) is not None:
            told[name] = f"var(--{variable})"
    return " ".join(f'{name}="{value}"' for name, value in told.items())


def _name_periods(ax: Axes, names: Sequence[str], places: Sequence[int] = ()) -> None:
    """Name some periods below the axis, as many as there is room for."""
    places = places or range(len(names))
    places = places[:: -(-len(places) // _TICKS)]
    ax.set_xticks(list(places), [names[place] for place in places])
    ax.set_xlim(-0.5, max(len(names) - 0.5, 0.5))


def _scale(ax: Axes, name: Callable[[float], str]) -> None:
    """Name a few values of the vertical axis."""
    from matplotlib.ticker import MaxNLocator

    ax.yaxis.set_major_locator(MaxNLocator(4))
    ax.yaxis.set_major_formatter(lambda value, _: name(value))


def _in_percent(value: float) -> str:
    return f"{100 * value:.3g} %"


# --- the charts


@_drawn
def _over_periods(
    ax: Axes,
    points: tuple[Point, ...],
    name: Callable[[float], str],
    level: float | None,
    marks: tuple[tuple[int, str], ...],
) -> None:
    """Draw points with bars, a level to compare with, and marks between periods."""
    x = np.arange(len(points))
    value, low, high = np.array([point[1:] for point in points], dtype=float).T
    ax.vlines(x, low, high, color=BLUE, linewidth=2.0, alpha=0.45)
    ax.plot(x, value, color=BLUE, linewidth=1.0, marker="o", markersize=4.0)
    if level is not None:
        ax.axhline(level, color=RED, linewidth=1.0, linestyle="--")
    for place, text in marks:
        ax.axvline(place - 0.5, color=GREY, linewidth=0.8, linestyle=":")
        ax.text(place - 0.4, 1.01, text, fontsize=8, color=GREY, transform=ax.get_xaxis_transform())
    if name is _in_percent:
        ax.set_ylim(bottom=0.0)
    _scale(ax, name)
    _name_periods(ax, [point[0] for point in points])


def utility(points: Sequence[Point], marks: Sequence[tuple[int, str]]) -> Chart:
    """Utility per applicant by cohort, with bounds; deployments are marked."""
    return Chart(
        "Utility by cohort",
        "Average gain per applicant, refused people counted as 0. Bars are 95 % intervals; "
        "dotted lines are new deployments by number.",
        _over_periods(tuple(points), figure, None, tuple(marks)),
        ("cohort", "utility", "from", "to"),
        [(name, *map(figure, numbers)) for name, *numbers in points][::-1],
    )


def gain(looks: Sequence[Point], margin: float) -> Chart:
    """What a candidate brings more than the live policy, at each look at it."""
    return Chart(
        "Gain over what decides now",
        "Per applicant, by the last proving cohort. Bars are any-time bounds: they stay right "
        "however often one looks. The candidate passes when the bar is above the dashed line.",
        _over_periods(tuple(looks), figure, margin, ()),
        ("cohort", "gain", "from", "to"),
        [(name, *(figure(number, 4) for number in numbers)) for name, *numbers in looks][::-1],
    )


def gaps(found: Mapping[str, Gap], limit: float | None) -> Chart:
    """The gap between groups by cohort, against its limit; bars end at its upper bound."""
    points = tuple((name, gap.value, gap.value, gap.at_most) for name, gap in found.items())
    return Chart(
        "Gap between groups by cohort",
        "Largest difference of acceptance between two groups; bars end where it is at most, with "
        "95 % confidence" + (". The dashed line is the limit." if limit is not None else "."),
        _over_periods(points, _in_percent, limit, ()),
        ("cohort", "gap", "at most"),
        [(name, percent(value), percent(high)) for name, value, _, high in points][::-1],
    )


@_drawn
def _accepted(ax: Axes, days: tuple[tuple[str, int, int, float], ...], agreed: Any) -> None:
    x = np.arange(len(days))
    people, accepted, expected = np.array([day[1:] for day in days], dtype=float).T
    window = np.ones(min(7, len(days)))
    people, accepted, expected = (np.convolve(each, window)[: len(x)] for each in
                                  (people, accepted, expected))  # fmt: skip
    with np.errstate(invalid="ignore", divide="ignore"):
        ax.plot(x, accepted / people, color=BLUE, linewidth=1.4)
        ax.plot(x, expected / people, color=ORANGE, linewidth=1.2, linestyle="--")
    for level in agreed:
        ax.axhline(level, color=GREY, linewidth=0.8, linestyle=":")
    ax.set_ylim(0.0, 1.0)
    _scale(ax, _in_percent)
    if len(days) > 60:
        months = [place for place, day in enumerate(days) if day[0].endswith("-01")]
        _name_periods(ax, [day[0][:7] for day in days], months)
    else:
        _name_periods(ax, [day[0][5:] for day in days])


def accepted(days: Sequence[tuple[str, int, int, float]], agreed: tuple[float, ...] = ()) -> Chart:
    """Shares of people accepted over time, and what their propensities add up to."""
    shown = [
        (date, count(people), percent(taken / people if people else None),
         percent(expected / people if people else None))
        for date, people, taken, expected in days
    ]  # fmt: skip
    return Chart(
        "Accepted by day",
        "Solid: share of people accepted. Dashed: what their propensities add up to; the lines "
        "stay together while chance is sound. Lines are means of seven days, numbers of single days"
        + ("; dotted lines are the agreed range." if agreed else "."),
        _accepted(tuple(days), agreed),
        ("day", "people", "accepted", "expected"),
        shown[::-1],
    )


@_drawn
def _propensities(ax: Axes, shares: tuple[float, ...]) -> None:
    x = np.arange(len(shares))
    ax.bar(x, shares, width=0.8, color=BLUE)
    ax.set_xticks(np.arange(0, len(shares) + 1, 2) - 0.5, [f"{k / 10:g}" for k in range(0, 11, 2)])
    ax.set_xlim(-0.6, len(shares) - 0.4)
    _scale(ax, _in_percent)


def propensities(counts: Sequence[int]) -> Chart:
    """How likely people were to be accepted; counts of ten equal ranges of the propensity."""
    total = max(1, sum(counts))
    shares = tuple(each / total for each in counts)
    names = [f"{k / 10:g} to {(k + 1) / 10:g}" for k in range(len(counts))]
    return Chart(
        "Propensities",
        "Share of people of the last 30 closed days by their probability of being accepted.",
        _propensities(shares),
        ("probability", "people", "share"),
        [(name, count(n), percent(s)) for name, n, s in zip(names, counts, shares, strict=True)],
    )


@_drawn
def _rates(ax: Axes, rows: tuple[Point, ...]) -> None:
    y = np.arange(len(rows))[::-1]
    value, low, high = np.array([row[1:] for row in rows]).T
    ax.hlines(y, low, high, color=BLUE, linewidth=3.0, alpha=0.45)
    ax.plot(value, y, color=BLUE, linestyle="", marker="o", markersize=6.0)
    ax.set_yticks(y)
    ax.set_yticklabels([])
    for place, row in zip(y, rows, strict=True):
        ax.text(0.02, place + 0.12, row[0], fontsize=_LETTERS, parse_math=False,
                transform=ax.get_yaxis_transform())  # fmt: skip
    ax.set_ylim(-0.6, len(rows) - 0.3)
    ax.set_xlim(0.0, 1.0)
    ax.xaxis.set_major_formatter(lambda value, _: _in_percent(value))


def in_percent(rate: Rate) -> tuple[str, ...]:
    """Return a share and its interval."""
    return tuple(map(percent, (rate.share, *rate.bounds)))


def rates(found: Sequence[Rate]) -> Chart:
    """Acceptance by group with intervals."""
    return Chart(
        "Accepted by group",
        "Share of each group that was accepted, with 95 % intervals.",
        _rates(tuple((rate.group, rate.share, *rate.bounds) for rate in found)),
        ("group", "people", "accepted", "from", "to"),
        [(rate.group, count(rate.people), *in_percent(rate)) for rate in found],
    )


def successes(found: Sequence[Rate]) -> Chart:
    """How many of the accepted people of each group succeeded."""
    return Chart(
        "Success by group",
        "Of accepted people whose outcome is known, the share that succeeded, with 95 % intervals.",
        _rates(tuple((rate.group, rate.share, *rate.bounds) for rate in found)),
        ("group", "succeeded", "from", "to"),
        [(rate.group, *in_percent(rate)) for rate in found],
    )


def import_libraries() -> None:
    """Import what charts need, a second's work, before anybody waits for a page."""
    pa.chunked_array([[0.0]]).to_numpy()  # imports pandas
    propensities([0] * 10)  # imports matplotlib, and finds its fonts
