"""Figures and verdicts of docs pages, from folders that `consequential reproduce` filled.

    python docs/figures/reproduced.py FOLDER [FOLDER ...]

A claim or a figure is taken from the first folder that has its studies.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from consequential.lab.paper.claims import CLAIMS
from consequential.lab.paper.figures import FIGURES
from consequential.lab.paper.results import Results

HERE = Path(__file__).parent
PAGE = HERE.parent / "reproduce.md"
COLUMNS = ("paper", "authors", "corrected")
DRAWN = {
    "lending": ("paper",),
    "synthetic-over-time": ("authors", "corrected"),
    "synthetic-against-penalty": ("paper", "corrected"),
    "compas-over-time": ("corrected",),
    "sensitivity": ("paper",),
    "beyond-over-time": ("paper",),
    "beyond-against-penalty": ("paper",),
    "beyond-against-size": ("paper",),
}


def draw(folders: list[Results]) -> None:
    for name, columns in DRAWN.items():
        for column in columns:
            figure = FIGURES[name]
            found = [each for each in folders if not figure.missing(each, column)]
            if found:
                path = HERE / f"reproduced-{name}-{column}.png"
                drawn = figure.draw(found[0], column)
                drawn.savefig(path, dpi=85, metadata={"Software": None})


def in_parts(text: str) -> tuple[str, str]:
    """Return the world that a claim's text opens with, or nothing, and the claim."""
    world, found, claim = text.partition(": ")
    return (world, claim) if found and world.startswith(("Synthetic", "COMPAS")) else ("", text)


def verdicts(folders: list[Results]) -> str:
    lines = ["| claim | as printed | authors' code | corrected |", "| --- | --- | --- | --- |"]
    above = ""
    for claim in CLAIMS:
        checks = [claim.check(each) for each in folders]
        found = next((each for each in checks if each.findings), None)
        if found is None:
            continue
        world, text = in_parts(claim.text)
        if world and world != above:
            lines.append(f"| *{world}* | | | |")
        above = world
        if "exact" in found.findings:
            cells = [f"exact: {found.overall}", "", ""]
        else:
            cells = [found.verdict(c) if c in found.findings else "" for c in COLUMNS]
        lines.append(" ".join(f"| {cell}" if cell else "|" for cell in (text, *cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    folders = [Results(folder) for folder in sys.argv[1:]]
    draw(folders)
    marked = re.compile("(<!-- verdicts -->\n).*(<!-- end -->)", re.DOTALL)
    table = verdicts(folders)
    text = marked.sub(lambda m: f"{m[1]}{table}\n{m[2]}", PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
