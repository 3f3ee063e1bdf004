"""The page on reproducing the paper names what there is."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from consequential.cli import command_parser
from consequential.paper.studies import COLUMNS, FULL, NAMES

PAGE = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_every_study_is_on_the_page(name):
    assert f"`{name}`" in PAGE


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


@pytest.mark.parametrize("option", [o for o in options_of_the_command() if o != "--help"])
def test_every_option_is_on_the_page(option):
    assert f"`{option}" in PAGE or f" {option}" in PAGE
