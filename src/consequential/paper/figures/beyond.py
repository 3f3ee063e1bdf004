"""Beyond the paper: strategies that explore by a posterior, beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from consequential.paper import truths
from consequential.paper.figures.strategies import METRICS
from consequential.paper.results import last_values, quartiles
from consequential.plotting import (
    BLACK,
    draw_band,
    draw_level,
    legend_above,
    name_panel,
    panels,
)
from consequential.worlds import ScoreWorld

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from consequential.paper.results import Results


def draw_over_time(results: Results, column: str, names: Sequence[str]) -> Figure:
    """Draw utility, effective utility and gap over time, one row per world."""
    figure, axes = panels(len(names), 3, 10.5, 0.5 + 2.75 * len(names), top=0.75)
    for row, name in zip(axes, names, strict=True):
        runs, best = results.runs(f"beyond-{name}-time", column), truths.optimum(name)
        for ax, (metric, title) in zip(row, METRICS.items(), strict=True):
            lines = []
            for strategy in runs.strategies:
                bands = quartiles(runs.metric(metric, strategy).T)
                steps = np.arange(bands.shape[1], dtype=np.float64)
                lines.append(draw_band(ax, steps, bands, strategy, runs.strategies))
            level = best.benefit_gap if metric == "benefit_gap" else best.utility
            mark = draw_level(ax, level, "optimal policy", "--")
            name_panel(ax, f"{truths.where(name)}: {title}", "time step")
    legend_above(figure, [*lines, mark])
    return figure


def draw_by_size(results: Results, column: str, names: Sequence[str]) -> Figure:
    """Draw effective utility, and utility and gap at the end, against the people per step."""
    every = [results.runs(f"beyond-{name}-time", column) for name in names]
    worlds = [truths.world_of(f"beyond-{name}") for name in names]
    sizes = np.array([world.parameters.n_proposals for world in worlds], dtype=np.float64)
    best = truths.optimum(names[-1])
    figure, axes = panels(1, 3, 10.5, 3.25, top=0.75)
    for ax, (metric, title) in zip(axes[0], METRICS.items(), strict=True):
        lines = []
        for strategy in every[0].strategies:
            last = np.stack([runs.metric(metric, strategy)[:, -1] for runs in every])
            lines.append(draw_band(ax, sizes, quartiles(last), strategy, every[0].strategies))
        level = best.benefit_gap if metric == "benefit_gap" else best.utility
        mark = draw_level(ax, level, "optimal policy", "--")
        ax.set_xscale("log")
        name_panel(ax, f"{truths.where(names[-1])}: {title}", "people per step")
    legend_above(figure, [*lines, mark])
    return figure


def draw_by_penalty(results: Results, column: str, names: Sequence[str]) -> Figure:
    """Draw utility and gap at the end against the penalty, one row per world."""
    figure, axes = panels(len(names), 2, 10.5, 0.5 + 2.75 * len(names), top=0.75)
    for row, name in zip(axes, names, strict=True):
        runs, world = results.runs(f"beyond-{name}-penalty", column), truths.world_of(name)
        assert isinstance(world, ScoreWorld)
        best = [world.optimal(penalty=penalty) for penalty in runs.penalties]
        for ax, metric in zip(row, ("utility", "benefit_gap"), strict=True):
            penalties = np.array(runs.penalties)
            lines = [
                draw_band(
                    ax, penalties, quartiles(last_values(runs, metric, each)), each, runs.strategies
                )
                for each in runs.strategies
            ]
            levels = [getattr(each, metric) for each in best]
            (mark,) = ax.plot(penalties, levels, color=BLACK, lw=1, ls="--", label="optimal policy")
            ax.set_xscale("log")
            name_panel(ax, f"{truths.where(name)}: {METRICS[metric]}", "penalty")
    legend_above(figure, [*lines, mark])
    return figure
