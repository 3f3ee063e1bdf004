"""Commands: `consequential demo`, `fit`, `evaluate` and the rest."""

from __future__ import annotations

import os
import pkgutil
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

from consequential.cli.column_options import with_columns
from consequential.cli.parser import command_parser

__all__ = ["command_parser", "main"]

_MODULES = {
    "demo": "simulations",
    "simulate": "simulations",
    "reproduce": "simulations",
    "decide": "decisions",
    "init": "service",
    "serve": "service",
    "migrate": "service",
    "work": "operations",
    "learn": "operations",
    "freeze": "operations",
    "key": "operations",
    "export": "operations",
    "backup": "operations",
    "verify": "operations",
    "forget": "operations",
    "report": "operations",
    "rehearse": "rehearsal",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0 when it did what it says."""
    with open(os.devnull, "w") as nowhere:  # a stream is None where a shell closed it, with >&-
        output, errors = _Output(sys.stdout or nowhere), _Output(sys.stderr or nowhere)
        with redirect_stdout(cast("TextIO", output)), redirect_stderr(cast("TextIO", errors)):
            code = _exit_code(sys.argv[1:] if arguments is None else arguments)
    if code == 0 and output.lost is not None:
        if isinstance(output.lost, BrokenPipeError):
            return 141
        print(f"consequential: what it printed is lost: {output.lost}", file=sys.stderr)
        return 2
    return code


class _Output:
    """A stream whose reader may go, as `head` does: the command goes on and writes its results."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.lost: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> None:
        encoding = self.stream.encoding or "utf-8"  # which may lack letters of a name
        self._call(self.stream.write, text.encode(encoding, "backslashreplace").decode(encoding))

    def flush(self) -> None:
        self._call(self.stream.flush)

    def _call(self, call: Callable[..., object], *given: str) -> None:
        try:
            call(*given)
        except OSError as error:
            self.lost = error
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), self.stream.fileno())


def _exit_code(arguments: Sequence[str]) -> int:
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (OSError, ValueError, MemoryError) as error:
        print(f"consequential: {error}", file=sys.stderr)
        return 2


def _run(arguments: Sequence[str]) -> int:
    options = command_parser().parse_args(with_columns(arguments))
    module = _MODULES.get(options.command, "analyses")
    # imported now and not before: help and usage errors must not wait for it
    run = pkgutil.resolve_name(f"consequential.cli.{module}:{options.command}")
    return int(run(options))
