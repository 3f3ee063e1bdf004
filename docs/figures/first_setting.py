"""Draw the README's picture: `python docs/figures/first_setting.py [runs.parquet]`.

Without stored runs it makes them first, which takes a few minutes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl

import consequential as cq


def main() -> None:
    world = cq.worlds.first_setting()
    if len(sys.argv) > 1:
        runs = cq.Runs.load(sys.argv[1])
    else:
        runs = cq.simulate(world, cq.paper_strategies(), seeds=10, n_jobs=-1)
    ax = runs.plot("utility", strategies=[strategy.name for strategy in cq.paper_strategies()])
    best = world.optimal().utility
    ax.axhline(best, color="#57606a", linewidth=1, linestyle=":", label="best possible")
    ax.set_title("", loc="left")
    ax.legend(fontsize=8, frameon=False, loc="lower right")
    mpl.rcParams["svg.hashsalt"] = "first setting"
    ax.figure.savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
