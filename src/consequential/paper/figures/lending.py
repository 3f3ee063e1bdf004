"""The lending example: what is learned from data collected above a threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from consequential.paper import truths
from consequential.paper.figures.figure import PaperFigure
from consequential.paper.results import SCORINGS, Scoring
from consequential.plotting import BLUE, ORANGE, RED, draw_level, name_panel, panels
from consequential.worlds import lending

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from consequential.paper.results import LendingTable, Results

Floats = NDArray[np.float64]

_STYLES: dict[Scoring, tuple[str, Any]] = {
    "accuracy": (BLUE, "-"),
    "likelihood": (RED, (0, (3, 1))),
}
_SHOWN = (500, 600, 700, 750, 800)


def draw(results: Results, column: str) -> Figure:
    """Draw utility, learned models and parity against the initial threshold."""
    best = truths.optimum("lending")
    figure, axes = panels(1, 3, 10.5, 3.4)
    utility, models, parity = axes[0]
    for scoring in SCORINGS:
        table = results.lending(scoring)
        _draw_band(utility, table.threshold, table.utility, scoring)
        _draw_band(parity, table.threshold, table.benefit_gap, scoring)
    for ax, level in ((utility, best.utility), (parity, best.benefit_gap)):
        draw_level(ax, level, "best possible", "--")
    utility.legend(fontsize=7, frameon=False, loc="center", bbox_to_anchor=(0.36, 0.45))
    name_panel(utility, "Utility of the learned rule", "initial threshold ξ", "utility")
    name_panel(parity, "Demographic parity", "initial threshold ξ", "benefit gap (black − white)")
    _draw_models(models, results.lending("likelihood"))
    return figure


def _draw_band(ax: Axes, threshold: Floats, values: Floats, scoring: Scoring) -> None:
    """Draw median and quartiles over seeds against the threshold."""
    colour, style = _STYLES[scoring]
    x = np.unique(threshold)
    low, middle, high = np.array([np.percentile(values[threshold == t], [25, 50, 75]) for t in x]).T
    ax.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    ax.plot(x, middle, color=colour, ls=style, lw=1.8, label=f"ridge by {scoring}")


def _draw_models(ax: Axes, table: LendingTable) -> None:
    world = lending()
    score = np.linspace(300.0, 850.0, 400)
    first = table.seed == table.seed.min()
    available = np.unique(table.threshold)
    chosen = sorted({float(available[np.argmin(np.abs(available - xi))]) for xi in _SHOWN})
    for place, threshold in enumerate(chosen):
        row = np.flatnonzero(first & (table.threshold == threshold))[0]
        model = expit(table.intercept[row] + table.slope[row] * score)
        grey = str(0.75 - 0.75 * place / max(1, len(chosen) - 1))
        seen = np.where(score > threshold, model, np.nan)
        ax.plot(score, seen, color=grey, linewidth=2.4, label=f"ξ = {threshold:.0f}")
        ax.plot(score, model, color=grey, linewidth=1.1, linestyle="--")
    people = world.cells(0)
    truth = (people.mass * people.label_probability).sum(axis=1) / people.mass.sum(axis=1)
    ax.plot(people.points[:, 0], truth, color=ORANGE, linewidth=1.5, label="true repayment rate")
    draw_level(ax, world.cost, "cost c", ":")
    ax.set_ylim(-0.03, 1.08)
    ax.legend(fontsize=7, frameon=False, loc="lower right")
    name_panel(ax, "Learned models (dashed: never saw a label)", "score x", "P(repaid | x)")


FIGURE = PaperFigure(
    "lending",
    "Lending: what a harsh start leaves to be learned",
    "Utility (left) and demographic parity (right) of the rule that thresholds a model learned "
    "from 10 000 applicants of whom only those above ξ got a loan; medians and quartiles over "
    "runs, dashed the best possible. The paper does not say by which score cross-validation chose "
    "the ridge: both are shown. Middle: models of the first run, chosen by likelihood.",
    "Figure 1 (fico-example)",
    ("lending",),
    draw,
    paired=False,
)
