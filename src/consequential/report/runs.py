"""Runs as one self-contained HTML page."""

from __future__ import annotations

import html
import os
from dataclasses import dataclass

import numpy as np

from consequential.evaluation import Metrics
from consequential.files import write_atomically
from consequential.plotting import add_legend, svg_of
from consequential.report.page import page_of, paragraphs
from consequential.simulation import Runs

_FIGURES = {
    "utility": "What the policy in force is worth: average gain per applicant, everybody counted.",
    "effective_utility": "What was gained while learning, up to each step: exploration included.",
    "benefit_gap": "Difference between the groups; 0 is {notion}.",
}


@dataclass(frozen=True, slots=True)
class Section:
    """One world in a report: what it is, what ran in it, and the best there is if known."""

    title: str
    text: str
    runs: Runs
    optimum: Metrics | None = None


def write_report(
    path: str | os.PathLike[str], title: str, introduction: str, sections: list[Section]
) -> None:
    """Write the page; it needs nothing beside itself, no network and no script."""
    body = "".join(_section(section) for section in sections)
    write_atomically(path, page_of(title, paragraphs(introduction) + body))


def _section(section: Section) -> str:
    figures = "".join(
        f"<figure>{_figure(section, metric)}<figcaption>{_caption(section, caption)}</figcaption>"
        "</figure>"
        for metric, caption in _FIGURES.items()
    )
    notes = section.runs.notes
    reported = ""
    if notes:
        shown = "".join(f"<li>{html.escape(note)}</li>" for note in notes[:20])
        reported = f"<details><summary>{len(notes)} notes</summary><ul>{shown}</ul></details>"
    return (
        f"<h2>{html.escape(section.title)}</h2>{paragraphs(section.text)}"
        f"{_table(section)}{figures}{reported}"
    )


def _caption(section: Section, caption: str) -> str:
    return html.escape(caption.format(notion=section.runs.fairness.replace("_", " ")))


def _table(section: Section) -> str:
    summary = section.runs.summary()
    columns = ("utility", "effective_utility", "benefit_gap", "acceptance")
    several = len(section.runs.penalties) > 1
    head = ["strategy", *(["penalty"] if several else []), *(c.replace("_", " ") for c in columns)]
    best = max(float(row["utility"][1]) for row in summary.rows)
    lines = []
    if section.optimum is not None:
        truth = section.optimum
        cells = [f"{truth.utility:.4f}", "", f"{truth.benefit_gap:.4f}", f"{truth.acceptance:.4f}"]
        lines.append(_row(["best possible", *([""] if several else []), *cells]))
    for row in summary.rows:
        cells = [f"{row[c][1]:.4f}" for c in columns]
        penalty = [f"{row['penalty']:g}"] if several else []
        top = bool(np.isclose(row["utility"][1], best))
        lines.append(_row([row["strategy"], *penalty, *cells], "best" if top else ""))
    heads = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    n_runs, n_steps = len(section.runs.seeds), summary.n_steps
    stopped = (
        " The simulation was interrupted: not all runs are there."
        if section.runs.interrupted
        else ""
    )
    return (
        f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
        f"<p class='small'>{f'Medians of {n_runs} runs' if n_runs > 1 else 'One run'} "
        f"after {n_steps} steps.{stopped}</p>"
    )


def _row(cells: list[str], kind: str = "") -> str:
    return f"<tr class='{kind}'>" + "".join(f"<td>{html.escape(c)}</td>" for c in cells) + "</tr>"


def _figure(section: Section, metric: str) -> str:
    """Inline SVG of a metric over time."""
    penalty = section.runs.penalties[0]
    ax = section.runs.plot(metric, penalty=penalty)
    figure = ax.get_figure(root=True)
    assert figure is not None  # a plotted axes has one
    if section.optimum is not None and hasattr(section.optimum, metric):
        best = getattr(section.optimum, metric)
        ax.axhline(best, color="#57606a", linewidth=1, linestyle=":", label="best possible")
    add_legend(ax)
    return svg_of(figure, metric + section.title)
