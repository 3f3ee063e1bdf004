"""Strategies compared: utility, effective utility and gap, over time or against the penalty."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consequential.lab.paper import truths
from consequential.lab.paper.results import last_values, median_interval, quartiles
from consequential.lab.paper.sensitivity import PRINTED, leads
from consequential.lab.worlds import TableWorld
from consequential.objective.fairness import DemographicParity
from consequential.plotting import (
    BLACK,
    BLUE,
    GREY,
    draw_band,
    draw_level,
    label_ends,
    legend_above,
    name_panel,
    panels,
    strategy_style,
)
from consequential.policy import AcceptAll, RejectAll

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from consequential.evaluation import Metrics
    from consequential.lab.paper.results import Results
    from consequential.lab.simulation import Runs

Floats = NDArray[np.float64]
Best = tuple[str, str, Floats]  # a name, a line style, and utility and gap for each penalty

METRICS = {
    "utility": "utility",
    "effective_utility": "effective utility",
    "benefit_gap": "benefit gap",
}
_BEYOND = "beyond-"  # with which names of studies begin that have strategies of ours
_COMPARED = ("paper", "corrected")  # columns
_JUMPING, _WINDOW = "deterministic, iterative", 10  # on tables, from step to step
_TWO_SIDED = 1.96  # standard errors of a 95 % interval


# --- over time


def draw_over_time(results: Results, column: str, names: Sequence[str]) -> Figure:
    """Draw a row of three panels for each world."""
    figure, axes = panels(len(names), 3, 10.5, 0.5 + 2.75 * len(names), top=0.75, right=0.6)
    legend: list[Line2D] = []
    for row, name in zip(axes, names, strict=True):
        runs, levels = results.runs(f"{name}-time", column), _levels(name)
        for ax, (metric, title) in zip(row, METRICS.items(), strict=True):
            jumping = [_JUMPING] if isinstance(truths.world_of(name), TableWorld) else []
            lines = [_draw_path(ax, runs, metric, s, s in jumping) for s in runs.strategies]
            name_panel(ax, f"{truths.where(name)}: {title}", "time step")
            ax.set_xlim(0, len(runs.runs[0].metrics["utility"]) - 1)
            marks = [
                draw_level(ax, level[metric], text, style)
                for text, style, level in levels
                if metric in level
            ]
            if truths.world_of(name).drifts and metric != "effective_utility":
                marks.append(draw_moving_best(ax, name, metric))
            label_ends(ax, lines)
            legend = max(legend, [*lines, *marks], key=len)
    legend_above(figure, legend)
    return figure


def _draw_path(ax: Axes, runs: Runs, metric: str, strategy: str, jumps: bool) -> Line2D:
    """Draw a strategy over time; of one that jumps from step to step, what it does over ten."""
    values = runs.metric(metric, strategy)
    steps = np.flatnonzero(np.isfinite(values).all(axis=0))
    bands = quartiles(values[:, steps].T)
    if jumps and metric != "effective_utility" and len(steps) >= _WINDOW:
        low, middle, high = np.lib.stride_tricks.sliding_window_view(bands, _WINDOW, axis=1)
        bands = np.array([low.min(axis=1), middle.mean(axis=1), high.max(axis=1)])
        steps = steps[_WINDOW - 1 :]
    return draw_band(ax, steps.astype(float), bands, strategy, runs.strategies)


def draw_moving_best(ax: Axes, name: str, metric: str) -> Line2D:
    """Draw a metric of the best policy of each step, in a world that drifts."""
    steps = np.unique(np.linspace(0, int(ax.get_xlim()[1]), 21).astype(int))
    best = [getattr(truths.optimum(name, int(step)), metric) for step in steps]
    return ax.plot(steps, best, color=BLACK, lw=1, ls="--", label="optimal policy", zorder=1)[0]


def _levels(name: str) -> list[tuple[str, str, dict[str, float]]]:
    """Return what to compare with: a text, a line style, and levels by metric."""
    if name.removeprefix(_BEYOND) in truths.SETTINGS:
        best, cut = truths.optimum(name), truths.best_cut(name)
        found = [("optimal policy", "--", _by_metric(best))]
        if cut.utility < best.utility - 1e-6:
            found.append(("best single threshold", ":", _by_metric(cut)))
        return found
    if name not in truths.ORIENTATIONS:
        return []
    best_function, _ = truths.pareto_front(name).within(np.inf)
    linear = truths.best_logistic(name)
    return [
        (
            "best function of x",
            "--",
            {"utility": best_function, "effective_utility": best_function},
        ),
        ("best linear logistic policy", ":", _by_metric(truths.members(name).metrics(linear))),
    ]


def _by_metric(truth: Metrics) -> dict[str, float]:
    """Return a policy's metrics; one that stays the same has its utility while learning."""
    return dict(zip(METRICS, (truth.utility, truth.utility, truth.benefit_gap), strict=True))


# --- against the penalty


def draw_settings_by_penalty(results: Results, column: str, names: Sequence[str]) -> Figure:
    """Draw settings, and the exact best for each penalty."""
    figure, axes = panels(len(names), 3, 10.5, 0.6 + 2.75 * len(names), top=0.75, right=0.6)
    for row, name in zip(axes, names, strict=True):
        runs = results.runs(f"{name}-penalty", column)
        best = _best(name, runs.penalties)
        for ax, (metric, title) in zip(row, METRICS.items(), strict=True):
            legend = _draw_by_penalty(ax, runs, metric, f"{truths.where(name)}: {title}", best)
    legend_above(figure, legend, 3 if len(legend) > 4 else 4)
    return figure


def draw_table_by_penalty(results: Results, column: str, names: Sequence[str]) -> Figure:
    """Draw a table's world: held-out people above, all people below."""
    (name,) = names
    runs = results.runs(f"{name}-penalty", column)
    best = _best(name, runs.penalties) if name in truths.ORIENTATIONS else []
    figure, axes = panels(2, 3, 10.5, 6.1, top=0.75, right=0.6)
    # policies that treat everybody alike have no spread: take the strategy with most
    noise = _TWO_SIDED * np.array(
        [
            max(
                np.median(truths.held_out_deviations(runs, name, s, penalty))
                for s in runs.strategies
            )
            for penalty in runs.penalties
        ]
    )
    axes[0, 1].fill_between(runs.penalties, -noise, noise, color=GREY, alpha=0.2, linewidth=0)
    for ax, metric, title, levels in (
        (axes[0, 0], "utility", "Utility, held-out people", []),
        (axes[0, 1], "benefit_gap", "Gap, held-out people (grey: chance)", []),
        (axes[0, 2], "effective_utility", "Effective utility, while learning", best),
        (axes[1, 0], "table_utility", "Utility, all people of the table", best),
        (axes[1, 1], "table_benefit_gap", "Gap, all people of the table", best),
    ):
        legend = _draw_by_penalty(ax, runs, metric, title, levels)
    _draw_trade(axes[1, 2], runs, name)
    legend_above(figure, legend, 3 if len(legend) > 4 else 4)
    return figure


def _draw_by_penalty(
    ax: Axes, runs: Runs, metric: str, title: str, best: Sequence[Best]
) -> list[Line2D]:
    """Draw every strategy's metric against the penalty, and the best there is."""
    penalties = np.array(runs.penalties)
    bands = {s: quartiles(last_values(runs, metric, s)) for s in runs.strategies}
    lines = [draw_band(ax, penalties, band, s, runs.strategies) for s, band in bands.items()]
    ax.set_xscale("log")
    ax.minorticks_off()
    ax.set_xlim(penalties[0], penalties[-1])
    is_gap = metric.endswith("gap")
    if is_gap:
        ax.axhline(0.0, color=GREY, linewidth=0.6)
    marks = [
        ax.plot(penalties, each[:, int(is_gap)], style, c=BLACK, lw=1.2, label=text, zorder=6)[0]
        for text, style, each in best
    ]
    label_ends(ax, lines)
    name_panel(ax, title, "penalty λ")
    return [*lines, *marks]


def _best(name: str, penalties: tuple[float, ...]) -> list[Best]:
    """Return the best there is for each penalty: of all functions, and of linear policies."""
    front = truths.pareto_front(name)
    everything = np.array([front.penalised(penalty) for penalty in penalties])
    linear = np.array(truths.logistic_path(name, penalties))
    return [
        ("best function of x", "--", everything),
        ("best linear logistic policy", ":", linear),
    ]


def _draw_trade(ax: Axes, runs: Runs, name: str) -> None:
    """Draw utility against the gap, where runs end and what is possible."""
    world = truths.table(name)
    people = world.population("all")
    if name in truths.ORIENTATIONS:  # elsewhere nearly everybody has features of their own
        front = truths.pareto_front(name)
        gaps = np.linspace(front.gaps[0], front.gaps[-1], 400)
        best = np.interp(gaps, front.gaps, front.utilities)
        shown = best >= -0.01
        ax.plot(gaps[shown], best[shown], color=BLACK, linestyle="--", linewidth=1.2)
        ax.text(gaps[np.argmax(best)], best.max(), "possible", fontsize=7, ha="center", va="bottom")
    for strategy in runs.strategies:
        colour, _ = strategy_style(strategy, runs.strategies)
        gap, utility = (
            quartiles(last_values(runs, metric, strategy))[1]
            for metric in ("table_benefit_gap", "table_utility")
        )
        marker = "o" if strategy.startswith("logistic") else "^"
        filled = colour if strategy.endswith("aggregated") else "white"
        ax.plot(gap, utility, color=colour, linewidth=0.6)
        ax.plot(gap, utility, marker, color=colour, markersize=3.5, markerfacecolor=filled)
    for text, rule in (("reject all", RejectAll()), ("accept all", AcceptAll())):
        truth = people.metrics(rule, world.cost, DemographicParity())
        place = truth.benefit_gap, truth.utility
        ax.plot(*place, "x", color=BLACK, markersize=6)
        ax.annotate(text, place, fontsize=7, xytext=(4, 3), textcoords="offset points")
    name_panel(ax, "Utility against gap, all people of the table", "gap")


# --- against the number of people


def draw_by_size(results: Results, column: str, names: Sequence[str]) -> Figure:
    """Draw effective utility, and utility and gap at the end, against the people per step."""
    every = [results.runs(f"{name}-time", column) for name in names]
    sizes = np.array([truths.world_of(name).parameters.n_proposals for name in names], dtype=float)
    best, strategies = _by_metric(truths.optimum(names[-1])), every[0].strategies
    figure, axes = panels(1, 3, 10.5, 3.25, top=0.75)
    for ax, (metric, title) in zip(axes[0], METRICS.items(), strict=True):
        lines = []
        for strategy in strategies:
            last = quartiles(runs.metric(metric, strategy)[:, -1] for runs in every)
            lines.append(draw_band(ax, sizes, last, strategy, strategies))
        mark = draw_level(ax, best[metric], "optimal policy", "--")
        ax.set_xscale("log")
        ax.set_xticks(sizes, [f"{size:.0f}" for size in sizes])
        ax.minorticks_off()
        name_panel(ax, f"{truths.where(names[-1])}: {title}", "people per step")
    legend_above(figure, [*lines, mark])
    return figure


# --- sensitivity


def draw_sensitivity(results: Results, column: str, names: Sequence[str]) -> Figure:
    """Draw the lead of exploring, one row per parameter or start that was changed."""
    figure, axes = panels(1, 2, 10.5, 3.8)
    for ax, name in zip(axes[0], names, strict=True):
        found = leads(results.runs(f"{name}-sensitivity", column))
        for place, values in enumerate(found.values()):
            low, median, high = median_interval(values)
            colour = BLACK if list(found)[place] == PRINTED else BLUE
            ax.plot(values, np.full(len(values), place), "|", color=GREY, markersize=5)
            if np.isfinite(low):
                ax.plot([low, high], [place, place], color=colour, linewidth=2.4)
            ax.plot(median, place, "o", color=colour)
        ax.axvline(0.0, color=GREY, linewidth=0.8)
        ax.set_yticks(range(len(found)), list(found))
        ax.invert_yaxis()
        title = f"{truths.where(name)}: lead of the logistic policy".capitalize()
        name_panel(ax, title, "utility beyond the deterministic rule at the end")
    figure.subplots_adjust(left=0.11, wspace=0.35)
    return figure


# --- where printed and corrected estimators differ


class _Difference(NamedTuple):
    """Medians of printed and corrected estimators at the end, under one of the penalties."""

    distance: float  # 0 where the quartiles overlap
    name: str
    metric: str
    strategy: str
    penalty: int
    printed: float
    corrected: float


def _farthest(results: Results, kind: str, names: Sequence[str], *metrics: str) -> _Difference:
    """Return where printed and corrected estimators end farthest apart."""
    found = []
    for name in names:
        both = [results.runs(f"{name}-{kind}", column) for column in _COMPARED]
        for metric, strategy in product(metrics, both[0].strategies):
            (low, middle, high), (lower, median, higher) = (
                quartiles(last_values(runs, metric, strategy)) for runs in both
            )
            apart = np.where((low > higher) | (lower > high), np.abs(median - middle), 0.0)
            at = int(np.argmax(apart))
            found.append(_Difference(apart[at], name, metric, strategy, at, middle[at], median[at]))
    return max(found)


def differs_over_time(results: Results, names: Sequence[str]) -> str:
    """Say where printed and corrected estimators end farthest apart; nothing where none do."""
    most = _farthest(results, "time", names, "utility", "effective_utility")
    if not most.distance:
        return ""
    return (
        f"Farthest apart at the end: {METRICS[most.metric]} of {most.strategy}, "
        f"{truths.where(most.name)}, {most.printed:.4f} as printed and {most.corrected:.4f} "
        "corrected (medians; the quartiles do not overlap). Without a penalty the printed "
        "estimator only rescales the gradient, so what differs is the step (a fixed learning rate "
        "against a preconditioned one) and that printed gradients draw decisions anew."
    )


def differs_by_penalty(results: Results, names: Sequence[str]) -> str:
    """Say where printed and corrected estimators are farthest apart; nothing where none are."""
    most = _farthest(results, "penalty", names, "utility")
    if not most.distance:
        return ""
    printed, corrected = (results.runs(f"{most.name}-penalty", column) for column in _COMPARED)
    gap, corrected_gap = (
        np.median(last_values(runs, "benefit_gap", most.strategy)[most.penalty])
        for runs in (printed, corrected)
    )
    return (
        f"Farthest apart: {most.strategy}, {truths.where(most.name)}, at λ = "
        f"{printed.penalties[most.penalty]:.3g}: utility {most.printed:.4f} and gap {gap:.3f} as "
        f"printed, {most.corrected:.4f} and {corrected_gap:.3f} corrected (medians; the quartiles "
        "do not overlap). The printed benefits are averages over accepted people, which are equal "
        "at the start whatever the disparity, and a fixed learning rate diverges once the penalty "
        "is large."
    )
