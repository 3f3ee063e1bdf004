"""Parser: the commands and what each of them can be asked, as commands.toml says."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, NoReturn

from consequential import __version__

Group = argparse._ActionsContainer


def command_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = _Parser(
        prog="consequential",
        description="Learn to decide when labels exist only for the people you accept.",
        epilog="example: consequential demo",
    )
    parser.add_argument("--version", action="version", version=f"consequential {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command", dest="command")
    stored = tomllib.loads((files(__package__) / "commands.toml").read_text(encoding="utf-8"))
    for name, settings in stored["commands"].items():
        description, _, examples = settings["about"].partition("\n\nexample")
        summary = description.partition(".\n")[0].rstrip(".")
        command = commands.add_parser(
            name,
            help=summary[:1].lower() + summary[1:],
            description=description,
            epilog=f"example{examples}",
            formatter_class=_Help,
        )
        _Arguments(stored["options"]).add(command, settings)
    return parser


class _Parser(argparse.ArgumentParser):
    """A parser that says what is wrong on one line, since some commands have thirty options."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Refuse unknown arguments by the command that they were given to."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


class _Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Help that shows defaults other than None and False, and keeps the lines of a text."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default is None or action.default is False:
            return action.help
        return super()._get_help_string(action)


class _Arguments:
    """Adds arguments to commands; `options` are those that commands share."""

    def __init__(self, options: dict[str, dict[str, Any]]) -> None:
        self.options = options

    def add(self, parser: argparse.ArgumentParser, settings: dict[str, Any]) -> None:
        """Add all arguments of a command."""
        if "columns" in settings:
            self._add_columns(parser, **settings["columns"])
        own = parser.add_argument_group(settings["group"]) if "group" in settings else parser
        self._add_all(own, **settings.get("arguments", {}))
        if "question" in settings:
            group = parser.add_argument_group("question")
            asked = ("--cost", "--fairness", "--weighting", "--confidence")
            self._add_all(group, *asked, *settings["question"], "--seed")
        if "policy" in settings:
            group = parser.add_argument_group("policy")
            self._add_all(group, "--learn", "--link")
            self._add_all(group.add_mutually_exclusive_group(), "--spline", "--polynomial")
            shared = ("--monotone", "--uses-sensitive", "--l2", "--floor", "--unsupported")
            self._add_all(group, *shared)
            if settings["policy"]:
                self._add_all(group.add_mutually_exclusive_group(), **settings["policy"])
        if "results" in settings:
            group = parser.add_argument_group("results")
            self._add_all(group, **{"--out": {"default": settings["results"]}, "--overwrite": {}})

    def _add_columns(
        self,
        parser: argparse.ArgumentParser,
        without_features: str = "",
        needs_outcomes: bool = True,
    ) -> None:
        """Add the file and the options that say what its columns mean."""
        group = parser.add_argument_group("columns")
        self._add_all(parser, "file")
        features: dict[str, Any] = {"required": True}
        if without_features:
            text = f"{self.options['--features']['help']} Without it, {without_features}."
            features = {"help": text}
        self._add_all(group, "--columns")
        self._add_all(group, **{"--features": features, "--sensitive": {}, "--decision": {}})
        outcome = group.add_mutually_exclusive_group(required=needs_outcomes)
        self._add_all(outcome, "--label", "--value")
        self._add_all(group, "--positive-label", "--value-range")
        propensity = group.add_mutually_exclusive_group(required=True)
        self._add_all(propensity, "--propensity", "--estimate-propensity")
        self._add_all(group, "--time-step", "--period", "--amount", "--cost-column", "--horizon")
        self._add_all(group, "--missing", "--observed")

    def _add_all(self, group: Group, *names: str, **changes: dict[str, Any]) -> None:
        """Add arguments as they are shared, and others with changes, or not shared at all."""
        for name in (*names, *changes):
            settings = self.options.get(name, {}) | changes.get(name, {})
            settings["help"] = " ".join(settings["help"].split())
            if settings.get("required"):
                settings.pop("default", None)
            if "type" in settings:
                settings["type"] = _TYPES[settings["type"]]
            group.add_argument(name, **settings)


# --- types of values


_MOST = 10**7  # the largest count: more would not fit into memory


def _at_least(smallest: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None
        if number < smallest:
            raise argparse.ArgumentTypeError(f"must be at least {smallest}, not {number}")
        if number > _MOST:
            raise argparse.ArgumentTypeError(f"must be at most {_MOST}, not {text}")
        return number

    return read


def _not_negative(text: str) -> float:
    """Read a number such as a penalty."""
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, not {text!r}") from None
    if not 0.0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be finite and not negative, not {text}")
    return number


def _share(text: str) -> float:
    """Read a number strictly between 0 and 1."""
    with suppress(ValueError):
        if 0.0 < float(text) < 1.0:
            return float(text)
    raise argparse.ArgumentTypeError(f"a share lies strictly between 0 and 1, not {text!r}")


def _zero_or_share(text: str) -> float:
    """Read a number from 0 on and below 1."""
    return 0.0 if _not_negative(text) == 0.0 else _share(text)


def _capacity(text: str) -> tuple[str | None, float]:
    """Read a share up to 1, of everybody (None) or of a group: 0.3, or female=0.3."""
    group, equals, share = text.rpartition("=")
    value = 1.0 if share.strip() in ("1", "1.0") else _share(share)
    return (group if equals else None), value


def _value_range(text: str) -> tuple[float, float]:
    """Read two numbers, the smaller first: -5000,800."""
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be the smallest and the largest value, as in --value-range=-5000,800, not {text}"
        ) from None
    return low, high


def _direction(text: str) -> tuple[str, int]:
    """Read a column and the direction in which the chance of acceptance may go with it."""
    column, _, sign = text.rpartition("=")
    if not column or sign not in ("+", "-"):
        raise argparse.ArgumentTypeError(f"must be COLUMN=+ or COLUMN=-, not {text!r}")
    return column, 1 if sign == "+" else -1


_TYPES: dict[str, Callable[[str], Any]] = {
    "int": int,
    "path": Path,
    "at_least_zero": _at_least(0),
    "at_least_one": _at_least(1),
    "at_least_two": _at_least(2),
    "not_negative": _not_negative,
    "share": _share,
    "zero_or_share": _zero_or_share,
    "capacity": _capacity,
    "value_range": _value_range,
    "direction": _direction,
}


@contextmanager
def needing_service() -> Iterator[None]:
    """Say how the service is installed, where its libraries are missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ValueError(
            f"the service needs {error.name}: pip install 'consequential[service]'"
        ) from None


@contextmanager
def needing_lab() -> Iterator[None]:
    """Say how Numba is installed, where it is missing."""
    try:
        yield
    except ImportError as error:
        raise ValueError(str(error)) from None
