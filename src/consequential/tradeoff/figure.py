"""The figure of a frontier. It reads results and never trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation import Estimate
from consequential.plotting import BLUE, GREEN, ORANGE, PINK, RED, new_axes, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from consequential.tradeoff.points import Frontier

Floats = NDArray[np.float64]

# colour and marker of each reference: markers tell them apart where a figure has no colours
_LOOKS = {
    "what the log did": ("#000000", "s"),
    "accept all": (ORANGE, "^"),
    "reject all": ("#999999", "v"),
    "accepted only": (RED, "D"),
    "inverse propensity": (GREEN, "P"),
}


def draw(frontier: Frontier, ax: Axes | None) -> Axes:
    """Draw utility against the size of the gap, bounds of both as bars, the utility's shaded."""
    ax = new_axes(ax)
    measured = [point for point in frontier.points if point.benefit_gap.known]
    measured.sort(key=lambda point: abs(point.benefit_gap.value))
    gaps = np.array([abs(point.benefit_gap.value) for point in measured])
    if measured:
        low = [point.utility.low for point in measured]
        high = [point.utility.high for point in measured]
        ax.fill_between(gaps, low, high, color=BLUE, alpha=0.15, linewidth=0)
    ax.errorbar(
        gaps,
        [point.utility.value for point in measured],
        yerr=_bars([point.utility for point in measured]),
        xerr=_bars([point.benefit_gap for point in measured], gaps),
        color=BLUE,
        marker="o",
        markersize=5,
        linewidth=1.4,
        elinewidth=0.8,
        capsize=2,
        label=f"learned, {frontier.confidence:.0%} band",
    )
    for reference in frontier.references:
        if not reference.benefit_gap.known:
            continue
        colour, marker = _LOOKS.get(reference.name, (PINK, "X"))
        ax.errorbar(
            [abs(reference.benefit_gap.value)],
            [reference.utility.value],
            yerr=_bars([reference.utility]),
            color=colour,
            marker=marker,
            markersize=6,
            markerfacecolor="white",
            linestyle="none",
            elinewidth=0.8,
            capsize=2,
            label=reference.name,
        )
    ax.set_xlabel(f"size of the gap ({frontier.fairness})", parse_math=False)
    ax.set_ylabel("utility")
    tidy(ax)
    ax.legend(fontsize=7, frameon=False)
    return ax


def _bars(estimates: list[Estimate], sizes: Floats | None = None) -> list[list[float]]:
    """How far the bounds are from the values; sizes, which end at 0, in place of signed values."""
    below = [max(each.value - each.low, 0.0) for each in estimates]
    above = [max(each.high - each.value, 0.0) for each in estimates]
    if sizes is not None:
        turned = [each.value < 0.0 for each in estimates]
        sides = list(zip(below, above, turned, strict=True))
        below = [
            min(up if over else down, size)
            for (down, up, over), size in zip(sides, sizes, strict=True)
        ]
        above = [down if over else up for down, up, over in sides]
    return [below, above]
