"""The page on reproducing the paper names what there is."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from consequential.cli import command_parser
from consequential.paper.studies import COLUMNS, FULL, NAMES

PAGE = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text(encoding="utf-8")


def test_every_study_is_on_the_page():
    assert not [name for name in NAMES if f"`{name}`" not in PAGE]


def test_the_page_names_the_columns_and_the_size():
    assert all(f"**{column}**" in PAGE for column in COLUMNS)
    size = f"{FULL.seeds} seeds, {FULL.penalties} penalties, {FULL.time_steps} steps"
    assert size in PAGE


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
