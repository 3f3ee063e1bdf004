"""Utility, effective utility and parity over time, without a penalty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from consequential.paper import truths
from consequential.paper.figures.figure import METRICS, PaperFigure
from consequential.plotting import (
    BLACK,
    draw_band,
    draw_level,
    label_ends,
    legend_above,
    name_panel,
    panels,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from consequential.evaluation import Metrics
    from consequential.paper.results import Results
    from consequential.simulation import Runs


def draw_rows(results: Results, column: str, names: Sequence[str]) -> Figure:
    """Draw a row of three panels for each world."""
    figure, axes = panels(len(names), 3, 10.5, 0.5 + 2.75 * len(names), top=0.75, right=0.6)
    legend: list[Line2D] = []
    for row, name in zip(axes, names, strict=True):
        runs = results.runs(f"{name}-time", column)
        where = truths.SETTINGS.get(name, runs.world)
        levels = _levels(name)
        for ax, (metric, title) in zip(row, METRICS.items(), strict=True):
            drawn = [_draw_strategy(ax, runs, metric, strategy) for strategy in runs.strategies]
            name_panel(ax, f"{where}: {title}", "time step")
            ax.set_xlim(0, len(runs.runs[0].metrics["utility"]) - 1)
            marks = [
                draw_level(ax, level[metric], text, style)
                for text, style, level in levels
                if metric in level
            ]
            if truths.world_of(name).drifts and metric != "effective_utility":
                marks.append(draw_moving_best(ax, name, metric))
            label_ends(ax, drawn)
            legend = max(legend, [*drawn, *marks], key=len)
    legend_above(figure, legend)
    return figure


def _draw_strategy(ax: Axes, runs: Runs, metric: str, strategy: str) -> Line2D:
    values = runs.metric(metric, strategy)
    steps = np.flatnonzero(np.isfinite(values).all(axis=0))
    quartiles = np.percentile(values[:, steps], [25, 50, 75], axis=0)
    return draw_band(ax, steps.astype(float), quartiles, strategy, runs.strategies)


def draw_moving_best(ax: Axes, name: str, metric: str) -> Line2D:
    """Draw a metric of the best policy of each step, in a world that drifts."""
    last = int(ax.get_xlim()[1])
    steps = np.unique(np.linspace(0, last, 21).astype(int))
    best = [getattr(truths.optimum(name, int(step)), metric) for step in steps]
    (line,) = ax.plot(
        steps, best, color=BLACK, linewidth=1, linestyle="--", label="optimal policy", zorder=1
    )
    return line


def _levels(name: str) -> list[tuple[str, str, dict[str, float]]]:
    """Return what to compare with: a text, a line style, and levels by metric."""
    if name in truths.SETTINGS:
        best, cut = truths.optimum(name), truths.best_cut(name)
        found = [("optimal policy", "--", _by_metric(best))]
        if cut.utility < best.utility - 1e-6:
            found.append(("best single threshold", ":", _by_metric(cut)))
        return found
    if name not in truths.ORIENTATIONS:
        return []
    limits = truths.limits(name)
    held_out = truths.table(name).measure(limits.logistic)
    return [
        ("best function of x (training people)", "--", {"effective_utility": limits.best[0]}),
        (
            "best linear logistic policy of the training people",
            ":",
            _by_metric(held_out) | {"effective_utility": limits.metrics(limits.logistic).utility},
        ),
    ]


def _by_metric(truth: Metrics) -> dict[str, float]:
    """Return a policy's metrics; one that stays the same has its utility while learning."""
    return dict(zip(METRICS, (truth.utility, truth.utility, truth.benefit_gap), strict=True))


def differs(results: Results, names: Sequence[str]) -> str:
    """Say where printed and corrected estimators end farthest apart; nothing where none do."""
    found = []
    for name in names:
        printed, corrected = (results.runs(f"{name}-time", c) for c in ("paper", "corrected"))
        for metric in ("utility", "effective_utility"):
            for strategy in printed.strategies:
                one, two = (r.metric(metric, strategy)[:, -1] for r in (printed, corrected))
                (low, middle, high), (lower, median, higher) = (
                    np.percentile(v, [25, 50, 75]) for v in (one, two)
                )
                if low > higher or lower > high:
                    found.append((abs(median - middle), name, metric, strategy, middle, median))
    if not found:
        return ""
    _, name, metric, strategy, middle, median = max(found)
    return (
        f"Farthest apart at the end: {METRICS[metric]} of {strategy}, "
        f"{truths.where(name)}, {middle:.4f} as printed and {median:.4f} corrected (medians; the "
        "quartiles do not overlap). Without a penalty the printed estimator only rescales the "
        "gradient, so what differs is the step (a fixed learning rate against a preconditioned "
        "one) and that printed gradients draw decisions anew."
    )


def figure_of(
    name: str, title: str, label: str, worlds: tuple[str, ...], caption: str
) -> PaperFigure:
    """Return the figure over time of some worlds."""
    return PaperFigure(
        name,
        title,
        caption,
        label,
        tuple(f"{world}-time" for world in worlds),
        lambda results, column: draw_rows(results, column, worlds),
        differs=lambda results: differs(results, worlds),
    )


_CAPTION = (
    "Medians over runs with bands between the quartiles. Effective utility averages what was "
    "gained while learning. "
)

FIGURES = (
    figure_of(
        "synthetic-over-time",
        "Synthetic settings over time, no penalty",
        "Figures 4 and 7 (results-synthetic, results-synthetic-errs)",
        ("first", "second"),
        _CAPTION + "Lines without marks: the optimal policy and the best single threshold.",
    ),
    figure_of(
        "compas-over-time",
        "COMPAS over time, no penalty: no re-arrest as y = 1",
        "Figures 5 and 10 (results-real-time, results-real-errs), with the label turned round",
        ("compas",),
        _CAPTION + "Utility and parity on held-out people. The best possible is known for the "
        "training people only, by enumeration.",
    ),
    figure_of(
        "compas-rearrest-over-time",
        "COMPAS over time, no penalty: re-arrest as y = 1, as printed",
        "Figures 5 and 10 (results-real-time, results-real-errs)",
        ("compas-rearrest",),
        _CAPTION + "Utility and parity on held-out people. With this label utility rewards "
        "releasing those who are arrested again.",
    ),
    *(
        figure_of(
            f"{name}-over-time", f"{title} over time, no penalty", "", (name,), _CAPTION.strip()
        )
        for name, title in (
            ("german", "German credit"),
            ("taiwan", "Taiwan credit cards"),
            ("drift", "A world that drifts"),
        )
    ),
)
