"""Figures of whom a rule accepts. They read propensities and never train."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consequential.log import DecisionLog
from consequential.plotting import (
    BLUE,
    GREEN,
    ORANGE,
    PINK,
    RED,
    SKY,
    add_legend,
    new_figure,
    tidy,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

# line styles tell groups apart where a figure has no colours
_COLOURS = (BLUE, RED, GREEN, PINK, ORANGE, SKY, "#000000")
_STYLES = ("-", "--", "-.", ":")
_BINS = 20
_PARTS = 10


@dataclass(frozen=True, slots=True)
class Gradient:
    """How a rule's propensity goes with one feature: means over its quantiles."""

    name: str
    middles: Floats
    means: Floats

    @property
    def spread(self) -> float:
        """How much acceptance changes over the feature's range."""
        return float(np.ptp(self.means)) if len(self.means) else 0.0


def by_group(log: DecisionLog, rules: Mapping[str, Floats]) -> Figure:
    """Draw how propensities are spread within each group, a panel a rule."""
    figure = new_figure(3.4 * len(rules), 3.0)
    edges = np.linspace(0.0, 1.0, _BINS + 1)
    for k, (name, propensity) in enumerate(rules.items()):
        ax = figure.add_subplot(1, len(rules), k + 1)
        for code, group in enumerate(log.groups):
            inside = propensity[log.group == code]
            if len(inside) == 0:
                continue
            share = np.histogram(inside, edges)[0] / len(inside)
            ax.step(
                edges,
                np.concatenate([share, share[-1:]]),
                where="post",
                color=_COLOURS[code % len(_COLOURS)],
                linestyle=_STYLES[code % len(_STYLES)],
                label=str(group),
            )
        _labelled(ax, name, "propensity of acceptance", "share of the group")
        if len(log.groups) > 1:
            add_legend(ax)
    return figure


def gradients(log: DecisionLog, propensity: Floats) -> list[Gradient]:
    """Return how acceptance goes with each feature, those it goes with most first."""
    found = [
        _gradient(name, log.features[:, k], propensity) for k, name in enumerate(log.feature_names)
    ]
    return sorted(found, key=lambda each: -each.spread)


def against_features(found: list[Gradient]) -> Figure:
    """Draw mean propensity over each feature's quantiles, a panel a feature."""
    columns = min(3, len(found))
    rows = -(-len(found) // columns)
    figure = new_figure(2.6 * columns, 2.2 * rows)
    for k, each in enumerate(found):
        ax = figure.add_subplot(rows, columns, k + 1)
        ax.plot(each.middles, each.means, color=_COLOURS[0], marker="o", markersize=3.5)
        ax.set_ylim(-0.02, 1.02)
        _labelled(ax, "", each.name, "mean propensity" if k % columns == 0 else "")
    return figure


def _gradient(name: str, values: Floats, propensity: Floats) -> Gradient:
    """Cut people into parts of equal size; equal values stay together."""
    places = np.unique(values)
    if len(places) > _PARTS:
        places = np.unique(np.quantile(values, np.linspace(0.0, 1.0, _PARTS + 1)[:-1]))
    part = np.searchsorted(places, values, side="right") - 1
    kept = np.unique(part)
    middles = np.array([np.median(values[part == k]) for k in kept])
    means = np.array([propensity[part == k].mean() for k in kept])
    return Gradient(name, middles, means)


def _labelled(ax: Axes, title: str, across: str, up: str) -> None:
    ax.set_xlabel(across, fontsize=8, parse_math=False)
    ax.set_ylabel(up, fontsize=8, parse_math=False)
    if title:
        ax.set_title(title, loc="left", fontsize=9, parse_math=False)
    ax.tick_params(labelsize=7)
    tidy(ax)
