"""Draw the README's second picture: `python docs/figures/rehearsal.py FOLDER`.

The folder is one that `consequential rehearse FOLDER --no-wait` has made.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

from consequential.plotting import BLUE, GREEN, GREY, RED, new_figure, tidy

# what is said of a month, its name in the picture, and on which side of the line that is written
MARKS = {
    "has passed": ("a tenth", GREY, "right"),
    "decides": ("all decisions", GREEN, "left"),
    "alarm": ("alarm, roll back", RED, "right"),
}


def mark(axes: Any, months: list[dict[str, Any]]) -> None:
    """Mark what happened at the ends of months, named above the first panel."""
    above = axes[0].get_xaxis_transform()
    for k, month in enumerate(months, 1):
        for words, (name, colour, side) in MARKS.items():
            if words in "; ".join(month["happened"]):
                for ax in axes:
                    ax.axvline(k + 0.5, color=colour, linewidth=1.0, linestyle="--")
                place = k + (0.6 if side == "left" else 0.4)
                axes[0].text(place, 1.02, name, color=colour, fontsize=8, ha=side, transform=above)


def main() -> None:
    """Draw the true utility and the share accepted, month by month."""
    months = json.loads((Path(sys.argv[1]) / "rehearsal.json").read_text(encoding="utf-8"))
    places = range(1, len(months) + 1)
    figure = new_figure(6.0, 4.2)
    axes = figure.subplots(2, 1, sharex=True)
    columns = {
        "utility per applicant": [month["utility"] for month in months],
        "share accepted": [month["accepted"] / month["decided"] for month in months],
    }
    for ax, (name, values) in zip(axes, columns.items(), strict=True):
        ax.step(places, values, where="mid", color=BLUE)
        ax.set_ylabel(name, fontsize=9)
        ax.set_xlim(0.5, len(months) + 0.5)
        tidy(ax)
    axes[1].set_ylim(0.0, 1.0)
    axes[1].set_xlabel("month")
    mark(axes, months)
    mpl.rcParams["svg.hashsalt"] = "rehearsal"
    figure.savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
