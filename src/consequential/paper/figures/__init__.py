"""Figures of the paper, drawn from stored results and exact truths; nothing here trains."""

from consequential.paper.figures import against_penalty, evolution, illustration, lending, over_time
from consequential.paper.figures import settings as synthetic
from consequential.paper.figures.figure import PaperFigure

_SYNTHETIC_TIME, *_OTHER_TIME = over_time.FIGURES
_SYNTHETIC_PENALTY, *_OTHER_PENALTY = against_penalty.FIGURES

FIGURES: dict[str, PaperFigure] = {
    figure.name: figure
    for figure in (
        lending.FIGURE,
        illustration.FIGURE,
        synthetic.FIGURE,
        _SYNTHETIC_TIME,
        evolution.FIGURE,
        _SYNTHETIC_PENALTY,
        *_OTHER_TIME,
        *_OTHER_PENALTY,
    )
}

__all__ = ["FIGURES", "PaperFigure"]
