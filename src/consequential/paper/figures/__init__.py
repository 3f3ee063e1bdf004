"""Figures of the paper, drawn from stored results and exact truths; nothing here trains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from consequential.paper import truths
from consequential.paper.figures import scores, strategies
from consequential.paper.studies import COLUMNS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from consequential.paper.results import Results


@dataclass(frozen=True, slots=True)
class PaperFigure:
    """What a figure shows, which studies it reads, and how it is drawn.

    `label` is the paper's, empty where the paper has no such figure. `paired` figures are drawn
    once as printed and once corrected; `differs` then says in words where the two differ, with the
    numbers it measured, or nothing where they do not.
    """

    name: str
    title: str
    caption: str
    label: str
    studies: tuple[str, ...]
    draw: Callable[[Results, str], Figure]
    paired: bool = True
    differs: Callable[[Results], str] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it is drawn in."""
        return COLUMNS if self.paired else COLUMNS[:1]

    def missing(self, results: Results, column: str) -> tuple[str, ...]:
        """Return the studies that a drawing needs and the results do not have."""
        return tuple(study for study in self.studies if not results.has(study, column))


def _over_time(
    name: str, title: str, label: str = "", more: str = "", worlds: tuple[str, ...] = ()
) -> PaperFigure:
    caption = (
        "Medians over runs with bands between the quartiles. Effective utility averages what was "
        f"gained while learning. {more}"
    )
    names = worlds or (name,)
    return PaperFigure(
        f"{name}-over-time",
        title,
        caption.strip(),
        label,
        tuple(f"{world}-time" for world in names),
        partial(strategies.draw_over_time, names=names),
        differs=partial(strategies.differs_over_time, names=names),
    )


def _by_penalty(name: str, title: str, label: str = "") -> PaperFigure:
    return PaperFigure(
        f"{name}-against-penalty",
        f"{title} against the penalty",
        "The last policies under demographic parity: medians and quartiles over runs. The grey "
        "band is what sampling the held-out people alone does to a gap of zero (95 %). Below, the "
        "same policies on the people they learned from; where few have features of their own the "
        "best possible is known by enumeration.",
        label,
        (f"{name}-penalty",),
        partial(strategies.draw_table_by_penalty, name=name),
        differs=partial(strategies.differs_by_penalty, names=(name,)),
    )


_SETTINGS = tuple(truths.SETTINGS)
_TIME = ("first-time", "second-time")
_PENALTY_LABEL = "Figures 6 and 11 (results-real-lambda, results-real-final)"
_TIME_LABEL = "Figures 5 and 10 (results-real-time, results-real-errs)"

_ALL = (
    PaperFigure(
        "lending",
        "Lending: what a harsh start leaves to be learned",
        "Utility (left) and demographic parity (right) of the rule that thresholds a model learned "
        "from 10 000 applicants of whom only those above ξ got a loan; medians and quartiles over "
        "runs, dashed the best possible. The paper does not say by which score cross-validation "
        "chose the ridge: both are shown. Middle: models of the first run, chosen by likelihood.",
        "Figure 1 (fico-example)",
        ("lending",),
        scores.draw_lending,
        paired=False,
    ),
    PaperFigure(
        "illustration",
        "Why deterministic updates get stuck",
        "Every logistic policy of one score is a point: where its boundary lies and how sharp it "
        "is. Grey is its exact utility, lighter is better; the yellow border holds the "
        "deterministic policies. From the crosses, repeated prediction moves a little along the "
        "border and stops; a logistic run goes through the inside to the star. First seed, marks "
        "at growing steps.",
        "Figure 2 (impossibility)",
        _TIME,
        scores.draw_illustration,
    ),
    PaperFigure(
        "settings",
        "The two synthetic settings",
        "The chance of label 1 (red) over the score, whose densities differ between the groups "
        "(blue, orange; not to scale). The optimal policy accepts in the hatched green stretches. "
        "The pink model is where every strategy starts; its threshold hides people worth "
        "accepting.",
        "Figure 3 (synthetic-setting)",
        (),
        scores.draw_settings,
        paired=False,
    ),
    _over_time(
        "synthetic",
        "Synthetic settings over time, no penalty",
        "Figures 4 and 7 (results-synthetic, results-synthetic-errs)",
        "Lines without marks: the optimal policy and the best single threshold.",
        _SETTINGS,
    ),
    PaperFigure(
        "evolution",
        "How policies evolve",
        "Snapshots of one run (the first seed) at steps evenly spaced on a log scale, light to "
        "dark: the predictive model with its cut (dashed) for deterministic rules, else the "
        "probability of acceptance. Red: the truth, the cost (dashed), the best single threshold "
        "(dotted).",
        "Figure 8 (results_synthetic_evolution)",
        _TIME,
        scores.draw_evolution,
    ),
    PaperFigure(
        "synthetic-against-penalty",
        "Synthetic settings against the penalty",
        "The last policies under demographic parity: medians and quartiles over runs, exact "
        "metrics. Beside the corrected estimators, black lines without marks are the best there "
        "is for each penalty: over all functions of the score, and of linear logistic policies.",
        "Figure 9 (results-synthetic-final-dp)",
        ("first-penalty", "second-penalty"),
        strategies.draw_settings_by_penalty,
        differs=partial(strategies.differs_by_penalty, names=_SETTINGS),
    ),
    _over_time(
        "compas",
        "COMPAS over time, no penalty: no re-arrest as y = 1",
        f"{_TIME_LABEL}, with the label turned round",
        "Utility and parity on held-out people. The best possible is known for the training people "
        "only, by enumeration.",
    ),
    _over_time(
        "compas-rearrest",
        "COMPAS over time, no penalty: re-arrest as y = 1, as printed",
        _TIME_LABEL,
        "Utility and parity on held-out people. With this label utility rewards releasing those "
        "who are arrested again.",
    ),
    _over_time("german", "German credit over time, no penalty"),
    _over_time("taiwan", "Taiwan credit cards over time, no penalty"),
    _over_time("drift", "A world that drifts over time, no penalty"),
    _by_penalty(
        "compas",
        "COMPAS, no re-arrest as y = 1,",
        f"{_PENALTY_LABEL}, with the label turned round",
    ),
    _by_penalty("compas-rearrest", "COMPAS, re-arrest as y = 1,", _PENALTY_LABEL),
    _by_penalty("german", "German credit"),
    _by_penalty("taiwan", "Taiwan credit cards"),
)

FIGURES: dict[str, PaperFigure] = {figure.name: figure for figure in _ALL}
