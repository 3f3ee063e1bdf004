"""Utility, effective utility and parity at the end, against the penalty lambda."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consequential.fairness import DemographicParity
from consequential.paper import truths
from consequential.paper.figures.figure import METRICS, PaperFigure
from consequential.plotting import (
    BLACK,
    GREY,
    draw_band,
    label_ends,
    legend_above,
    name_panel,
    panels,
    strategy_style,
)
from consequential.policies import AcceptAll, RejectAll

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from consequential.paper.results import Finals, Results

Floats = NDArray[np.float64]

Best = tuple[str, str, Floats]  # a name, a line style, and utility and gap for each penalty

_TWO_SIDED = 1.96  # standard errors of a 95 % interval


def draw_settings(results: Results, column: str) -> Figure:
    """Draw both settings, and under corrected estimators the exact best for each penalty."""
    figure, axes = panels(2, 3, 10.5, 6.1, top=0.75, right=0.6)
    legend: list[Line2D] = []
    for row, (name, where) in zip(axes, truths.SETTINGS.items(), strict=True):
        finals = results.finals(f"{name}-penalty", column)
        best = _best(name, finals.penalties) if column == "corrected" else []
        for ax, (metric, title) in zip(row, METRICS.items(), strict=True):
            lines = _draw_panel(ax, finals, metric, best)
            name_panel(ax, f"{where}: {title}", "penalty λ")
            legend = legend or lines
    legend_above(figure, legend, 3 if len(legend) > 4 else 4)
    return figure


def draw_table(results: Results, column: str, name: str) -> Figure:
    """Draw a table's world: held-out people above, the people learned from below."""
    finals = results.finals(f"{name}-penalty", column)
    known = column == "corrected" and name in truths.ORIENTATIONS
    best = _best(name, finals.penalties) if known else []
    figure, axes = panels(2, 3, 10.5, 6.1, top=0.75, right=0.6)
    noise = _TWO_SIDED * np.array([_deviation(finals, name, p) for p in finals.penalties])
    axes[0, 1].fill_between(finals.penalties, -noise, noise, color=GREY, alpha=0.2, linewidth=0)
    legend: list[Line2D] = []
    for ax, metric, title, levels in (
        (axes[0, 0], "utility", "Utility, held-out people", []),
        (axes[0, 1], "benefit_gap", "Gap, held-out people (grey: chance)", []),
        (axes[0, 2], "effective_utility", "Effective utility, while learning", best),
        (axes[1, 0], "train_utility", "Utility, training people", best),
        (axes[1, 1], "train_benefit_gap", "Gap, training people", best),
    ):
        legend = max(legend, _draw_panel(ax, finals, metric, levels), key=len)
        name_panel(ax, title, "penalty λ")
    _draw_trade(axes[1, 2], finals, name)
    legend_above(figure, legend, 3 if len(legend) > 4 else 4)
    return figure


def _deviation(finals: Finals, name: str, penalty: float) -> float:
    # policies that treat everybody alike have no spread: take the strategy with most
    return max(truths.held_out_deviation(finals, name, s, penalty) for s in finals.strategies)


def _draw_panel(ax: Axes, finals: Finals, metric: str, best: Sequence[Best]) -> list[Line2D]:
    """Draw every strategy's metric against the penalty, and the best there is."""
    penalties = np.array(finals.penalties)
    drawn = [
        draw_band(ax, penalties, finals.quartiles(metric, strategy), strategy, finals.strategies)
        for strategy in finals.strategies
    ]
    ax.set_xscale("log")
    ax.minorticks_off()
    ax.set_xlim(penalties[0], penalties[-1])
    if metric.endswith("gap"):
        ax.axhline(0.0, color=GREY, linewidth=0.6)
    place = 1 if metric.endswith("gap") else 0
    marks = [
        ax.plot(penalties, each[:, place], color=BLACK, ls=style, lw=1.2, label=text, zorder=6)[0]
        for text, style, each in best
    ]
    label_ends(ax, drawn)
    return [*drawn, *marks]


def _best(name: str, penalties: Sequence[float]) -> list[Best]:
    """Return the best there is for each penalty: of all functions, and of linear policies."""
    front = truths.pareto_front(name)
    everything = np.array([front.penalised(penalty) for penalty in penalties])
    linear = np.array(truths.logistic_path(name, tuple(penalties)))
    return [
        ("best function of x", "--", everything),
        ("best linear logistic policy", ":", linear),
    ]


def _draw_trade(ax: Axes, finals: Finals, name: str) -> None:
    """Draw utility against the gap, where runs end and what is possible."""
    world = truths.table(name)
    people = world.population("training")
    if name in truths.ORIENTATIONS:  # elsewhere nearly everybody has features of their own
        front = truths.pareto_front(name)
        gaps = np.linspace(front.gaps[0], front.gaps[-1], 400)
        best = np.interp(gaps, front.gaps, front.utilities)
        shown = best >= -0.01
        ax.plot(gaps[shown], best[shown], color=BLACK, linestyle="--", linewidth=1.2)
        top = gaps[np.argmax(best)]
        ax.text(top, best.max(), "possible", fontsize=7, ha="center", va="bottom")
    for strategy in finals.strategies:
        colour, _ = strategy_style(strategy, finals.strategies)
        gap, utility = (
            finals.quartiles(metric, strategy)[1]
            for metric in ("train_benefit_gap", "train_utility")
        )
        marker = "o" if strategy.startswith("logistic") else "^"
        filled = colour if strategy.endswith("aggregated") else "white"
        ax.plot(gap, utility, color=colour, linewidth=0.6)
        ax.plot(gap, utility, marker, color=colour, markersize=3.5, markerfacecolor=filled)
    for text, rule in (("reject all", RejectAll()), ("accept all", AcceptAll())):
        truth = people.metrics(rule, world.cost, DemographicParity())
        ax.plot(truth.benefit_gap, truth.utility, "x", color=BLACK, markersize=6)
        ax.annotate(
            text,
            (truth.benefit_gap, truth.utility),
            fontsize=7,
            xytext=(4, 3),
            textcoords="offset points",
        )
    name_panel(ax, "Utility against gap, training people", "gap")


def differs(results: Results, names: Sequence[str]) -> str:
    """Say where printed and corrected estimators are farthest apart; nothing where none are."""
    found = []
    for name in names:
        printed, corrected = (results.finals(f"{name}-penalty", c) for c in ("paper", "corrected"))
        for strategy in printed.strategies:
            low, middle, high = printed.quartiles("utility", strategy)
            lower, median, higher = corrected.quartiles("utility", strategy)
            apart = np.where((low > higher) | (lower > high), np.abs(median - middle), 0.0)
            at = int(np.argmax(apart))
            if apart[at] > 0:
                gaps = [f.quartiles("benefit_gap", strategy)[1][at] for f in (printed, corrected)]
                found.append(
                    (
                        apart[at],
                        name,
                        strategy,
                        printed.penalties[at],
                        middle[at],
                        median[at],
                        *gaps,
                    )
                )
    if not found:
        return ""
    _, name, strategy, penalty, middle, median, gap, corrected_gap = max(found)
    return (
        f"Farthest apart: {strategy}, {truths.where(name)}, at λ = {penalty:.3g}: utility "
        f"{middle:.4f} and gap {gap:.3f} as printed, {median:.4f} and {corrected_gap:.3f} "
        "corrected (medians; the quartiles do not overlap). The printed benefits are averages over "
        "accepted people, which are equal at the start whatever the disparity, and a fixed "
        "learning rate diverges once the penalty is large."
    )


def _table_figure(name: str, title: str, label: str) -> PaperFigure:
    return PaperFigure(
        f"{name}-against-penalty",
        f"{title} against the penalty",
        "The last policies under demographic parity: medians and quartiles over runs. The grey "
        "band is what sampling the held-out people alone does to a gap of zero (95 %). Below, the "
        "same policies on the people they learned from; where few have features of their own the "
        "best possible is known by enumeration.",
        label,
        (f"{name}-penalty",),
        lambda results, column: draw_table(results, column, name),
        differs=lambda results: differs(results, (name,)),
    )


FIGURES = (
    PaperFigure(
        "synthetic-against-penalty",
        "Synthetic settings against the penalty",
        "The last policies under demographic parity: medians and quartiles over runs, exact "
        "metrics. Beside the corrected estimators, black lines without marks are the best there "
        "is for each penalty: over all functions of the score, and of linear logistic policies.",
        "Figure 9 (results-synthetic-final-dp)",
        ("first-penalty", "second-penalty"),
        draw_settings,
        differs=lambda results: differs(results, tuple(truths.SETTINGS)),
    ),
    _table_figure(
        "compas",
        "COMPAS, no re-arrest as y = 1,",
        "Figures 6 and 11 (results-real-lambda, results-real-final), with the label turned round",
    ),
    _table_figure(
        "compas-rearrest",
        "COMPAS, re-arrest as y = 1,",
        "Figures 6 and 11 (results-real-lambda, results-real-final)",
    ),
    _table_figure("german", "German credit", ""),
    _table_figure("taiwan", "Taiwan credit cards", ""),
)
