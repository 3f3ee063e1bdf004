"""Draw the README's second picture: `python docs/figures/rehearsal.py FOLDER`.

The folder is one that `consequential rehearse FOLDER --no-wait` has made.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

from consequential.plotting import BLUE, GREEN, GREY, RED, panels, tidy

MARKS = {"has passed": ("a tenth", GREY), "decides": ("proven", GREEN), "alarm": ("alarm", RED)}


def mark(axes: Any, months: list[dict[str, Any]]) -> None:
    """Mark what happened at the ends of months, named above the first panel."""
    for k, month in enumerate(months, 1):
        said = "; ".join(month["happened"])
        for words, (name, colour) in MARKS.items():
            if words in said:
                for ax in axes:
                    ax.axvline(k + 0.5, color=colour, linewidth=1.0, linestyle="--")
                name = f"{name}, roll back" if "rolled back" in said else name
                above = axes[0].get_xaxis_transform()
                axes[0].text(k + 0.4, 1.02, name, color=colour, fontsize=8, ha="right",
                             transform=above)  # fmt: skip


def main() -> None:
    """Draw the true utility and the share accepted, month by month."""
    months = json.loads((Path(sys.argv[1]) / "rehearsal.json").read_text(encoding="utf-8"))
    places = range(1, len(months) + 1)
    figure, grid = panels(2, 1, 6.0, 4.6)
    axes = grid[:, 0]
    columns = {
        "utility per applicant": [month["utility"] for month in months],
        "share accepted": [month["accepted"] / month["decided"] for month in months],
    }
    for ax, (name, values) in zip(axes, columns.items(), strict=True):
        ax.step(places, values, where="mid", color=BLUE)
        ax.set_title(name, loc="left", fontsize=9)
        ax.set_xlim(0.5, len(months) + 0.5)
        tidy(ax)
    axes[1].set_ylim(0.0, 1.0)
    axes[1].set_xlabel("month")
    mark(axes, months)
    mpl.rcParams["svg.hashsalt"] = "rehearsal"
    figure.savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
