"""Figures of the paper, drawn from stored results and exact truths; nothing here trains."""

from consequential.paper.figures import against_penalty, illustration, lending, over_time, settings
from consequential.paper.figures.figure import PaperFigure

_SYNTHETIC_TIME, *_OTHER_TIME = over_time.FIGURES
_SYNTHETIC_PENALTY, *_OTHER_PENALTY = against_penalty.FIGURES

FIGURES: dict[str, PaperFigure] = {
    figure.name: figure
    for figure in (
        lending.FIGURE,
        illustration.FIGURE,
        settings.SETTINGS,
        _SYNTHETIC_TIME,
        settings.EVOLUTION,
        _SYNTHETIC_PENALTY,
        *_OTHER_TIME,
        *_OTHER_PENALTY,
    )
}

__all__ = ["FIGURES", "PaperFigure"]
