"""The page on reproducing the paper names what there is."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from consequential.cli import command_parser
from consequential.lab.paper.claims import CLAIMS
from consequential.lab.paper.studies import COLUMNS, FULL, NAMES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")


def test_every_study_is_on_the_page():
    assert not [name for name in NAMES if f"`{name}`" not in PAGE]


def test_the_page_names_the_columns_and_the_size():
    assert all(f"**{column}**" in PAGE for column in COLUMNS)
    size = f"{FULL.seeds} seeds, {FULL.penalties} penalties, {FULL.time_steps} steps"
    assert size in PAGE


def test_the_page_has_a_verdict_on_every_claim_and_its_figures():
    table = PAGE[PAGE.index("<!-- verdicts -->") : PAGE.index("<!-- end -->")]
    found, world = [], ""
    for row in table.splitlines()[3:]:
        text = row.removeprefix("| ").partition(" | ")[0]
        named = re.fullmatch(r"\*(.*)\*", text)
        world = named[1] if named else world
        found += [] if named else [f"{world}: {text}" if world else text]
    assert found == [claim.text for claim in CLAIMS]
    figures = re.findall(r"\]\((figures/[^)]+)\)", PAGE)
    assert len(figures) >= 7
    assert not [path for path in figures if not (ROOT / "docs" / path).is_file()]


def options_of_the_command() -> list[str]:
    (commands,) = (
        action
        for action in command_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    actions = commands.choices["reproduce"]._actions
    return [action.option_strings[-1] for action in actions if action.option_strings]


def test_every_option_is_on_the_page():
    options = [option for option in options_of_the_command() if option != "--help"]
    assert not [option for option in options if not re.search(f"[` ]{option}", PAGE)]
