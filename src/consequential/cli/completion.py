"""Completion: a script that completes commands with the tab key."""

from __future__ import annotations

import argparse
from pathlib import Path

import shtab

from consequential.cli.parser import command_parser


def completion(options: argparse.Namespace) -> int:
    """Print the script for a shell."""
    parser = command_parser()
    _complete_paths(parser)
    print(shtab.complete(parser, options.shell))
    return 0


def _complete_paths(parser: argparse.ArgumentParser) -> None:
    """Have every path completed, those that name a folder by folders alone."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _complete_paths(command)
        elif action.type is Path:
            # shtab reads this attribute; argparse does not know of it
            vars(action)["complete"] = shtab.DIRECTORY if action.metavar == "DIR" else shtab.FILE
