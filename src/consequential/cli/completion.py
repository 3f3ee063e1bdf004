"""`consequential completion`: commands and options at the press of the tab key."""

from __future__ import annotations

import argparse
from pathlib import Path

from consequential.cli.arguments import Commands, Help

SHELLS = ("bash", "zsh", "fish")

_DESCRIPTION = """\
Print a script that completes commands, options and file names in your shell.

  bash   consequential completion bash > ~/.local/share/bash-completion/completions/consequential
  zsh    consequential completion zsh > FOLDER/_consequential, FOLDER being one of $fpath
  fish   consequential completion fish > ~/.config/fish/completions/consequential.fish

A new shell then knows them."""


def add_completion(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "completion",
        help="print a script that completes commands in your shell",
        description=_DESCRIPTION,
        epilog='example: eval "$(consequential completion bash)"',
        formatter_class=Help,
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell to complete in")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    import shtab

    from consequential.cli import _parser

    parser = _parser()
    _complete_paths(parser, shtab.FILE, shtab.DIRECTORY)
    print(shtab.complete(parser, options.shell))
    return 0


def _complete_paths(parser: argparse.ArgumentParser, file: object, folder: object) -> None:
    """Have every path completed, those that name a folder by folders alone."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _complete_paths(command, file, folder)
        elif action.type is Path:
            # shtab reads this attribute; argparse does not know of it
            vars(action)["complete"] = folder if action.metavar == "DIR" else file
