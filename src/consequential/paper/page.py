"""Page: the whole reproduction as one HTML file, with figures and claims beside it."""

from __future__ import annotations

import html
import io
import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from consequential.files import write_whole
from consequential.paper.claims import Checked, Finding, check_claims
from consequential.paper.claims.claim import ESTIMATORS, FAILS, HOLDS, NOT_RUN
from consequential.paper.figures import FIGURES, PaperFigure
from consequential.paper.studies import COLUMNS, FULL
from consequential.plotting import svg_of
from consequential.report import page_of, paragraphs
from consequential.workers import side_by_side

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from consequential.paper.results import Results

TITLE = "Fair decisions despite imperfect predictions, reproduced"
_DPI = 150
_FEW = 8  # numbers that are shown without asking

_INTRODUCTION = """
Every figure and every claim of the paper's experiments, computed again from stored runs. Where the
paper's printed estimators and a corrected version give different answers, both are shown: on the
left the estimators and steps as printed, on the right those that divide by all applicants and take
preconditioned steps. Verdicts are computed by code from the numbers beside them; no verdict is an
opinion.
"""

_STYLE = """
body { max-width: 118rem; } body > p, nav { max-width: 62rem; }
nav ul { columns: 2; } nav li { break-inside: avoid; }
.pair { display: flex; flex-wrap: wrap; gap: 1rem; }
.pair figure { flex: 1 1 46rem; max-width: 60rem; margin: 0; }
.single figure { max-width: 62rem; display: block; }
.differs { background: #fff8e5; border-left: 4px solid #E69F00; padding: .5rem .9rem; }
.missing { color: #57606a; font-style: italic; }
table.claims td, table.claims th { text-align: left; vertical-align: top; }
table.claims td { padding: .5rem .6rem; } table.claims td:first-child { width: 32%; }
table.claims td:nth-child(2) { width: 16%; }
.verdict { display: inline-block; padding: .1rem .5rem; border-radius: .3rem; font-weight: 600; }
.holds { background: #d7f0e7; border: 2px solid #009E73; }
.partly { background: #fdf0d2; border: 2px dashed #B07800; }
.fails { background: #fbdfd0; border: 2px solid #D55E00; text-decoration: underline; }
.not-run { background: #eee; border: 2px dotted #777; }
ul.numbers { margin: .2rem 0 .6rem; padding-left: 1.1rem; font-size: .82rem; color: #424a53; }
code { background: #f2f4f6; padding: .05rem .3rem; }
"""


def write(results: Results, out: str | os.PathLike[str], n_jobs: int | None = 1) -> Path:
    """Draw, test and write everything, in so many processes; return where the page is.

    The same results make the same bytes: `report.html`, `claims.json` and `figures/`.
    """
    folder = Path(out)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    # with one thread of linear algebra the order of sums, and so the last digit, is fixed
    with threadpool_limits(limits=1, user_api="blas"):
        names = [figure.name for figure in _shown(results)]
        sections = side_by_side(partial(_section, results, folder), names, n_jobs)
        checked = check_claims(results)
    claims = [claim.as_dict() for claim in checked]
    write_whole(folder / "claims.json", json.dumps(claims, indent=1, ensure_ascii=False) + "\n")
    body = "".join(
        [
            paragraphs(_INTRODUCTION),
            _size(results.manifest),
            _contents(results),
            *sections,
            _claims(checked),
            _manifest(results.manifest),
        ]
    )
    write_whole(folder / "report.html", page_of(TITLE, body, _STYLE))
    return folder / "report.html"


def _size(manifest: dict[str, Any]) -> str:
    """Say so where runs are fewer or shorter than the paper's: verdicts are then preliminary."""
    parameters = manifest.get("parameters", {})
    seeds, steps = (
        parameters.get("seeds", FULL.seeds),
        parameters.get("time_steps", FULL.time_steps),
    )
    if seeds >= FULL.seeds and steps >= FULL.time_steps:
        return ""
    return (
        f"<p class='differs'><b>Smaller than the paper.</b> {seeds} runs of {steps} time steps, "
        f"where the paper has {FULL.seeds} of {FULL.time_steps}: look at the shapes, and do not "
        "trust a verdict.</p>"
    )


def _shown(results: Results) -> list[PaperFigure]:
    """Return the paper's figures, and others that there are results for."""
    return [
        figure
        for figure in FIGURES.values()
        if figure.label or any(not figure.missing(results, c) for c in figure.columns)
    ]


def _contents(results: Results) -> str:
    entries = [(figure.name, figure.title) for figure in _shown(results)]
    entries += [("claims", "Claims, tested"), ("manifest", "How this was made")]
    items = "".join(f"<li><a href='#{name}'>{html.escape(t)}</a></li>" for name, t in entries)
    return f"<nav><ul>{items}</ul></nav>"


def _section(results: Results, folder: Path, name: str) -> str:
    """Draw a figure, and return what the page says about it."""
    figure, drawings, absent = FIGURES[name], [], set()
    for column in figure.columns:
        missing = figure.missing(results, column)
        absent |= set(missing)
        if not missing:
            drawn = figure.draw(results, column)
            file = f"{name}-{column}" if figure.paired else name
            svg = _save(drawn, file, folder / "figures")
            words = f"<figcaption>{html.escape(ESTIMATORS[column].capitalize())}</figcaption>"
            drawings.append(f"<figure>{svg}{words if figure.paired else ''}</figure>")
    parts = [
        f"<h2 id='{name}'>{html.escape(figure.title)}</h2>",
        f"<p class='small'>In the paper: {html.escape(figure.label)}.</p>" if figure.label else "",
        paragraphs(figure.caption),
    ]
    if absent:
        studies = " ".join(sorted(absent))
        parts.append(
            f"<p class='missing'>Not drawn in full: run <code>consequential reproduce {studies}"
            "</code>.</p>"
        )
    elif figure.differs is not None and (words := figure.differs(results)):
        parts.append(f"<p class='differs'><b>Where they differ.</b> {html.escape(words)}</p>")
    kind = "pair" if figure.paired else "single"
    parts.append(f"<div class='{kind}'>{''.join(drawings)}</div>")
    return "".join(parts)


def _save(figure: Figure, name: str, folder: Path) -> str:
    """Write a drawing as PNG and SVG, and return the SVG for the page."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI, metadata={"Software": None})
    write_whole(folder / f"{name}.png", buffer.getvalue())
    svg = svg_of(figure, name)
    head = '<?xml version="1.0" encoding="utf-8" standalone="no"?>\n'
    write_whole(folder / f"{name}.svg", head + svg)
    return svg


def _claims(checked: list[Checked]) -> str:
    counts: dict[str, int] = {}
    for claim in checked:
        kind = _KINDS[_kind(claim.overall)]
        counts[kind] = counts.get(kind, 0) + 1
    total = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    heads = "".join(f"<th>{text}</th>" for text in ("claim", "verdict", "as printed", "corrected"))
    rows = "".join(_claim_row(claim) for claim in checked)
    return (
        f"<h2 id='claims'>Claims, tested</h2><p>Of {len(checked)} claims: {total}.</p>"
        f"<table class='claims'><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    )


_KINDS = {
    "holds": "hold",
    "partly": "hold only under a condition",
    "fails": "do not hold",
    "not-run": "were not run",
}


def _kind(verdict: str) -> str:
    return {HOLDS: "holds", FAILS: "fails", NOT_RUN: "not-run"}.get(verdict, "partly")


def _badge(verdict: str) -> str:
    return f"<span class='verdict {_kind(verdict)}'>{html.escape(verdict)}</span>"


def _claim_row(checked: Checked) -> str:
    claim = checked.claim
    about = (
        f"<b>{html.escape(claim.text)}</b><br><span class='small'>Section "
        f"{html.escape(claim.section)}. <i>Test:</i> {html.escape(claim.criterion)}<br>"
        f"<code>{html.escape(claim.command)}</code></span>"
    )
    cells = [f"<td id='claim-{claim.id}'>{about}</td>", f"<td>{_badge(checked.overall)}</td>"]
    if tuple(claim.columns) == COLUMNS:
        cells += [f"<td>{_column(checked, column)}</td>" for column in COLUMNS]
    else:
        # one column: its verdict is the overall one, beside it already
        found = checked.findings.get(claim.columns[0])
        cells.append(f"<td colspan='2'>{'' if found is None else _numbers(found)}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def _column(checked: Checked, column: str) -> str:
    if column not in checked.findings:
        return _badge(NOT_RUN)
    found = checked.findings[column]
    return _badge(found.verdict) + _numbers(found)


def _numbers(found: Finding) -> str:
    numbers = "".join(f"<li>{html.escape(str(number))}</li>" for number in found.numbers)
    shown = " open" if len(found.numbers) <= _FEW else ""
    return (
        f"<details{shown}><summary class='small'>{len(found.numbers)} numbers</summary>"
        f"<ul class='numbers'>{numbers}</ul></details>"
    )


def _manifest(manifest: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td style='text-align:left'>{html.escape(text)}</td></tr>"
        for name, text in _flat(manifest)
    )
    return (
        "<h2 id='manifest'>How this was made</h2><p>Results are stored beside this page; the same "
        "command in the same folder does only what is missing: <code>consequential reproduce"
        "</code>, with names of studies or figures to run some of it, <code>--list</code> to see "
        "them.</p>"
        f"<table><tbody>{rows}</tbody></table>"
    )


def _flat(value: Any, name: str = "") -> list[tuple[str, str]]:
    """Return nested plain data as rows of a name and a text."""
    if isinstance(value, dict):
        return [row for k, v in value.items() for row in _flat(v, f"{name} {k}".strip())]
    if isinstance(value, list):
        return [(name, ", ".join(_text(item) for item in value))]
    return [(name, _text(value))]


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
