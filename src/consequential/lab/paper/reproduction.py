"""Reproduction: the named studies run, drawn and their claims tested, on one page."""

from __future__ import annotations

import io
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from consequential.files import write_atomically
from consequential.lab.paper import tasks
from consequential.lab.paper.claims import check_claims
from consequential.lab.paper.claims.claim import ESTIMATORS, Checked, kind_of
from consequential.lab.paper.figures import FIGURES, PaperFigure
from consequential.lab.paper.results import Results
from consequential.lab.paper.studies import FULL, STUDIES, Scale
from consequential.lab.results_folder import ResultsFolder
from consequential.plotting import svg_of
from consequential.report import render
from consequential.workers import spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Fair decisions despite imperfect predictions, reproduced"
_DPI = 150
_KINDS = {
    "holds": "hold",
    "partly": "in part",
    "fails": "not at all",
    "unclear": "cannot be told",
    "not-run": "were not run",
}


@dataclass(frozen=True, slots=True)
class FigureSection:
    """A figure on the page: its drawings by column, or the studies that are missing."""

    figure: PaperFigure
    drawings: dict[str, str]
    missing: tuple[str, ...]
    difference: str


def reproduce(
    names: Iterable[str], folder: Path, scale: Scale, *, n_jobs: int | None = None
) -> Path:
    """Run the named studies, in all columns, and write the page; return its path.

    What is already in the folder is not run again, whether the last run ended or was killed.
    """
    parameters = {
        "seeds": scale.seeds,
        "penalties": list(scale.penalty_values),
        "time_steps": scale.time_steps,
    }
    store = ResultsFolder.opened(folder, "reproduce", parameters)
    wanted = [task for name in names for task in tasks.tasks_of(STUDIES[name], scale)]
    tasks.complete(store, wanted, n_jobs=n_jobs)
    sys.stderr.write("drawing figures and testing claims\n")
    return write_page(Results(folder), folder, n_jobs)


def write_page(results: Results, out: str | os.PathLike[str], n_jobs: int | None = 1) -> Path:
    """Draw, test and write everything, in so many processes; return where the page is.

    The same results make the same bytes: `report.html`, `claims.json` and `figures/`.
    """
    folder = Path(out)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    shown = [figure.name for figure in FIGURES.values() if _is_shown(figure, results)]
    # with one thread of linear algebra the order of sums, and so the last digit, is fixed
    with threadpool_limits(limits=1, user_api="blas"):
        draw = partial(_drawn, results, folder)
        sections = list(spread(draw, shown, n_jobs, ordered=True, local=True))
        claims = check_claims(results)
    data = json.dumps([claim.as_dict() for claim in claims], indent=1, ensure_ascii=False)
    write_atomically(folder / "claims.json", data + "\n")
    write_atomically(folder / "report.html", _page(sections, claims, results.manifest))
    return folder / "report.html"


def _page(sections: list[FigureSection], claims: list[Checked], manifest: dict[str, Any]) -> str:
    counts, themes = Counter(claim.kind for claim in claims), dict[str, list[Checked]]()
    for claim in claims:
        themes.setdefault(_theme(claim), []).append(claim)
    parameters = manifest.get("parameters", {})
    return render(
        "reproduction.html",
        "consequential.lab.paper",
        title=TITLE,
        kind=kind_of,
        sections=sections,
        claims=claims,
        themes=themes,
        columns=tuple(ESTIMATORS),
        total=", ".join(f"{counts[kind]} {text}" for kind, text in _KINDS.items() if counts[kind]),
        estimators=ESTIMATORS,
        seeds=parameters.get("seeds", FULL.seeds),
        time_steps=parameters.get("time_steps", FULL.time_steps),
        full=FULL,
        manifest=_flat(manifest),
    )


def _is_shown(figure: PaperFigure, results: Results) -> bool:
    """Whether a figure is the paper's, or there are results for it."""
    return bool(figure.label) or any(not figure.missing(results, c) for c in figure.columns)


def _drawn(results: Results, folder: Path, name: str) -> FigureSection:
    """Draw a figure in the columns there are results for."""
    figure = FIGURES[name]
    missing = {column: figure.missing(results, column) for column in figure.columns}
    drawings = {
        column: _saved(
            figure.draw(results, column),
            folder / "figures" / (f"{name}-{column}" if figure.paired else name),
        )
        for column in figure.columns
        if not missing[column]
    }
    absent = sorted({study for studies in missing.values() for study in studies})
    differs = "" if figure.differs is None or absent else figure.differs(results)
    return FigureSection(figure, drawings, tuple(absent), differs)


def _saved(figure: Figure, path: Path) -> str:
    """Write a drawing as PNG and SVG, and return the SVG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI, metadata={"Software": None})
    write_atomically(path.with_name(f"{path.name}.png"), buffer.getvalue())
    svg = svg_of(figure, path.name)
    head = '<?xml version="1.0" encoding="utf-8" standalone="no"?>\n'
    write_atomically(path.with_name(f"{path.name}.svg"), head + svg)
    return svg


def _theme(checked: Checked) -> str:
    """Return the part of the paper that a claim is about."""
    first, *_ = checked.claim.id.split("-")
    if first == "lending":
        return "the lending example"
    penalised = any(study.endswith("-penalty") for study in checked.claim.studies)
    how = "under a penalty" if penalised else "without a penalty"
    if first == "compas":
        return f"COMPAS {how}"
    return f"synthetic settings {how}" if checked.claim.studies else "theorems and remarks"


def _flat(value: Any, name: str = "") -> list[tuple[str, str]]:
    """Return nested plain data as rows of a name and a text."""
    if isinstance(value, dict):
        return [row for k, v in value.items() for row in _flat(v, f"{name} {k}".strip())]
    if isinstance(value, list):
        return [(name, ", ".join(_text(item) for item in value))]
    return [(name, _text(value))]


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
