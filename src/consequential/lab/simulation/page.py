"""Page: what runs brought, as an HTML file that needs no other file."""

from __future__ import annotations

import os
from dataclasses import dataclass

from consequential.evaluation import Metrics
from consequential.files import write_atomically
from consequential.lab.simulation.runs import Runs
from consequential.plotting import add_legend, svg_of
from consequential.report import render

_CAPTIONS = {
    "utility": "What the policy in force is worth: average gain per applicant, everybody counted.",
    "effective_utility": "What was gained while learning, up to each step: exploration included.",
    "benefit_gap": "Difference between the groups; 0 is {notion}.",
}


@dataclass(frozen=True, slots=True)
class Section:
    """One world in a report: what it is, what ran in it, and the optimum if known."""

    title: str
    text: str
    runs: Runs
    optimum: Metrics | None = None


def write_report(
    path: str | os.PathLike[str], title: str, introduction: str, sections: list[Section]
) -> None:
    """Write the page; it needs no other file, no network and no script."""
    drawn = [(each, each.runs.summary(), _figures(each)) for each in sections]
    page = render(
        "runs.html",
        "consequential.lab.simulation",
        title=title,
        introduction=introduction,
        sections=drawn,
    )
    write_atomically(path, page)


def _figures(section: Section) -> dict[str, str]:
    """Return each metric over time as an SVG element, by caption."""
    runs, figures = section.runs, {}
    for metric, caption in _CAPTIONS.items():
        ax = runs.plot(metric, penalty=runs.penalties[0])
        if section.optimum is not None and hasattr(section.optimum, metric):
            best = getattr(section.optimum, metric)
            ax.axhline(best, color="#57606a", linewidth=1, linestyle=":", label="best possible")
        add_legend(ax)
        svg = svg_of(ax, salt=metric + section.title)
        figures[caption.format(notion=runs.fairness.replace("_", " "))] = svg
    return figures
