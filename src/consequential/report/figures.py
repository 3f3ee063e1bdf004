"""Figures of the propensities with which rules accept the people of a log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

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
    svg_of,
    tidy,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

# line styles distinguish groups in grey, too
_COLOURS = (BLUE, RED, GREEN, PINK, ORANGE, SKY, "#000000")
_STYLES = ("-", "--", "-.", ":")
_BINS = 20
_QUANTILES = 10
_SHOWN = 6  # features in the figure
_GROUPS = 12  # groups in the figure: more cannot be told apart, and their legend has no room


class _Curve(NamedTuple):
    """Mean propensity over the quantiles of a feature, or at both values of a binary one."""

    feature: str
    medians: Floats
    means: Floats
    binary: bool


def propensity_figures(log: DecisionLog, rules: Mapping[str, Floats], shown: str) -> dict[str, str]:
    """Return SVG elements by caption: propensities by group, and those of one rule by feature."""
    curves = [
        _curve(name, log.features[:, k], rules[shown]) for k, name in enumerate(log.feature_names)
    ]
    curves.sort(key=lambda curve: -np.ptp(curve.means))
    which = f", the {_SHOWN} of {len(curves)} it goes with most" if len(curves) > _SHOWN else ""
    few = len(log.groups) <= _GROUPS
    largest = "" if few else f", the {_GROUPS} largest of {len(log.groups)}"
    groups = f"Propensities within each group{largest}."
    features = (
        f"Mean propensity under {shown} over quantiles of each feature{which}; bars where it has "
        "two values. What a figure shows need not be the feature's own doing: features go together."
    )
    return {
        groups: svg_of(_by_group(log, rules), groups),
        features: svg_of(_by_feature(curves[:_SHOWN]), features),
    }


def _by_group(log: DecisionLog, rules: Mapping[str, Floats]) -> Figure:
    """Draw the distribution of propensities within each group, one panel per rule."""
    figure = new_figure(3.4 * len(rules), 3.0)
    edges = np.linspace(0.0, 1.0, _BINS + 1)
    for k, (name, propensity) in enumerate(rules.items()):
        ax = figure.add_subplot(1, len(rules), k + 1)
        for code in np.sort(np.argsort(-log.group_counts, kind="stable")[:_GROUPS]):
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
                label=str(log.groups[code]),
            )
        _label(ax, name, "propensity of acceptance", "share of the group")
        if len(log.groups) > 1:
            add_legend(ax)
    return figure


def _by_feature(curves: list[_Curve]) -> Figure:
    """Draw mean propensity over each feature's quantiles, one panel per feature."""
    columns = min(3, len(curves))
    rows = -(-len(curves) // columns)
    figure = new_figure(2.6 * columns, 2.2 * rows)
    for k, curve in enumerate(curves):
        ax = figure.add_subplot(rows, columns, k + 1)
        if curve.binary:
            values = [f"{value:g}" for value in curve.medians]
            ax.bar(values, curve.means, width=0.5, color=_COLOURS[0])
        else:
            ax.plot(curve.medians, curve.means, color=_COLOURS[0], marker="o", markersize=3.5)
        ax.set_ylim(-0.02, 1.02)
        _label(ax, "", curve.feature, "mean propensity" if k % columns == 0 else "")
    return figure


def _curve(name: str, values: Floats, propensity: Floats) -> _Curve:
    """Divide people into parts of equal size, with equal values in the same part."""
    edges = np.unique(values)
    binary = len(edges) == 2
    if len(edges) > _QUANTILES:
        edges = np.unique(np.quantile(values, np.linspace(0.0, 1.0, _QUANTILES + 1)[:-1]))
    part = np.searchsorted(edges, values, side="right") - 1
    parts = [part == k for k in np.unique(part)]
    medians = np.array([np.median(values[rows]) for rows in parts])
    return _Curve(name, medians, np.array([propensity[rows].mean() for rows in parts]), binary)


def _label(ax: Axes, title: str, x_label: str, y_label: str) -> None:
    ax.set_xlabel(x_label, fontsize=8, parse_math=False)
    ax.set_ylabel(y_label, fontsize=8, parse_math=False)
    if title:
        ax.set_title(title, loc="left", fontsize=9, parse_math=False)
    ax.tick_params(labelsize=7)
    tidy(ax)
