"""Settings: what a loop decides about and how, and where the service keeps its files."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

from consequential.objective.fairness import NOTIONS
from consequential.shares import checked_share

Period = Literal["day", "week", "month"]
Shape = Literal["linear", "spline"]

_LOOP_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_FEATURE_NAME = re.compile(r"[^\x00-\x1f=]{1,100}")  # "purpose=car" names an indicator
NOT_STORED = re.compile("[\0\ud800-\udfff]")  # databases cannot store these
_SMALLEST_SECRET = 32  # bytes
_LARGEST = 10_000  # periods or months
_MONTHS: dict[Period, float] = {"day": 1 / 28, "week": 1 / 4, "month": 1}  # at most


class SettingsError(ValueError):
    """Settings that cannot work."""


def _is_number(value: Any) -> bool:
    # a whole number may be too large for a float
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return known and abs(value) <= sys.float_info.max


def _is_whole(value: Any, least: int, most: int = _LARGEST) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


@dataclass(frozen=True, slots=True)
class Number:
    """A feature that is a number between bounds."""

    low: float
    high: float
    phrase: str
    shape: Shape = "linear"

    def __post_init__(self) -> None:
        if not (_is_number(self.low) and _is_number(self.high) and self.low < self.high):
            raise SettingsError(f"low must be below high, not {self.low!r} and {self.high!r}")
        if self.shape not in get_args(Shape):
            raise SettingsError(f"the shape is linear or spline, not {self.shape!r}")
        _check_phrase(self.phrase)


@dataclass(frozen=True, slots=True)
class Words:
    """A feature that is one word of a list."""

    words: tuple[str, ...]
    phrase: str

    def __post_init__(self) -> None:
        known = self.words
        if not isinstance(known, list | tuple) or not 2 <= len(known) <= 1000:
            raise SettingsError("words is a list of 2 to 1000 words")
        if not all(isinstance(word, str) and 0 < len(word) <= 200 for word in known):
            raise SettingsError("each word is a text of 1 to 200 characters")
        if len(set(known)) < len(known):
            raise SettingsError("no word may be in the list twice")
        _check_phrase(self.phrase)
        object.__setattr__(self, "words", tuple(known))


Feature = Number | Words


@dataclass(frozen=True, slots=True)
class GateSettings:
    """What a candidate must prove before it may decide.

    Attributes
    ----------
    confidence
        The chance that a loop never promotes a policy that is not better, whatever is looked at.
    margin
        How much more utility per decision a candidate must have than the live policy.
    effective
        The smallest effective number of people that a proof rests on.
    window
        Candidates are learned from at most so many of the last cohorts.
    tuned_for
        The number of proving decisions at which the bounds are narrowest.

    Examples
    --------
    >>> from consequential.service.settings import GateSettings
    >>> GateSettings().confidence
    0.95
    """

    confidence: float = 0.95
    margin: float = 0.0
    effective: int = 1000
    window: int = 24
    tuned_for: int = 20_000

    def __post_init__(self) -> None:
        if not _is_number(self.confidence):
            raise SettingsError("the confidence must be a number")
        checked_share("the confidence", self.confidence)
        if not _is_number(self.margin) or not 0.0 <= self.margin < 1.0:
            raise SettingsError("the margin is a number from 0 to below 1")
        if not _is_whole(self.window, 1):
            raise SettingsError("the window is a number of cohorts from 1 on")
        for name in ("effective", "tuned_for"):
            if not _is_whole(getattr(self, name), 1, 10**9):
                raise SettingsError(f"{name} is a number of decisions from 1 on")


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """What one loop decides about: the features, the outcome's delay, and how much it explores.

    Attributes
    ----------
    cost
        What an acceptance costs, where an outcome of 1 earns 1.
    features
        By name; each a `Number` or `Words`, with a phrase for reasons.
    period, horizon
        Decisions of one calendar period (UTC) are a cohort, whose outcomes have arrived after
        `horizon` periods.
    sensitive
        The attribute that constraint and audit are about; it is never a feature. Empty for none.
    floor
        Nobody is accepted with a smaller probability.
    epoch
        The calendar period after which the key of chance changes.
    retention
        Months after which features are deleted, more than the horizon; None to keep them.
    fairness, max_gap
        A notion's name, and the largest difference between groups that a policy may have; None
        for no limit.
    acceptance
        The smallest and the largest share of people that is to be accepted, also of each group.
    largest_amount
        No application may have a larger amount; the gate's bounds rest on it.
    gate
        What a candidate must prove.
    auto_rollback
        Whether the worker deploys the shares of before when chance, acceptance or utility is not
        what it should be.
    rehearsal
        Whether time comes with the requests, for trials.

    Examples
    --------
    >>> from consequential.service.settings import Number, loop_settings
    >>> income = {"low": 0, "high": 99999, "phrase": "Income"}
    >>> loop_settings({"cost": 0.6, "features": {"income": income}, "floor": 0.05}).period
    'month'
    """

    cost: float
    features: Mapping[str, Feature]
    floor: float
    period: Period = "month"
    horizon: int = 12
    sensitive: str = ""
    epoch: Period = "month"
    retention: int | None = None
    fairness: str = "demographic_parity"
    max_gap: float | None = None
    acceptance: tuple[float, float] = (0.0, 1.0)
    largest_amount: float = 1.0
    gate: GateSettings = GateSettings()
    auto_rollback: bool = False
    rehearsal: bool = False

    def __post_init__(self) -> None:
        for name in ("cost", "floor"):
            if not _is_number(getattr(self, name)):
                raise SettingsError(f"the {name} must be a number")
            checked_share(f"the {name}", getattr(self, name))
        if not _is_number(self.largest_amount) or self.largest_amount <= 0.0:
            raise SettingsError("the largest_amount is a number above 0")
        for name in ("period", "epoch"):
            if getattr(self, name) not in get_args(Period):
                raise SettingsError(f"the {name} is day, week or month")
        if not _is_whole(self.horizon, 0):
            raise SettingsError(f"the horizon is a number of periods from 0 on, not {self.horizon}")
        if not (self.retention is None or _is_whole(self.retention, 1)):
            raise SettingsError("the retention is a number of months from 1 on, or null")
        if self.retention and self.retention <= self.horizon * _MONTHS[self.period]:
            raise SettingsError("the retention must exceed the horizon: cohorts have features")
        for name in ("rehearsal", "auto_rollback"):
            if not isinstance(getattr(self, name), bool):
                raise SettingsError(f"{name} is true or false")
        if not isinstance(self.sensitive, str) or self.sensitive in self.features:
            raise SettingsError(
                "the sensitive attribute is a text and no feature: it decides nothing"
            )
        if not self.features:
            raise SettingsError("a loop needs at least one feature")
        if not isinstance(self.fairness, str) or self.fairness not in NOTIONS:
            raise SettingsError(f"fairness is one of {', '.join(NOTIONS)}")
        if self.max_gap is not None:
            if not (_is_number(self.max_gap) and 0.0 < self.max_gap <= 1.0):
                raise SettingsError("max_gap is a number above 0 and at most 1, or null")
            if not self.sensitive:
                raise SettingsError("max_gap is about groups: name the sensitive attribute")
        self._check_acceptance()

    def _check_acceptance(self) -> None:
        ends = self.acceptance
        is_pair = isinstance(ends, list | tuple) and len(ends) == 2 and all(map(_is_number, ends))
        if not is_pair or not 0.0 <= ends[0] < ends[1] <= 1.0:
            raise SettingsError("acceptance is a list of two shares, [0.5, 0.8] say")
        object.__setattr__(self, "acceptance", (float(ends[0]), float(ends[1])))


def loop_settings(data: Any) -> LoopSettings:
    """Return settings from plain JSON values, checked."""
    try:
        members = _members("loop", data, LoopSettings)
        if NOT_STORED.search(json.dumps(data, ensure_ascii=False)):
            raise SettingsError("a text has a lone surrogate, which cannot be stored")
        features = members["features"]
        if not isinstance(features, dict):
            raise SettingsError("features is an object with one member per feature")
        members["features"] = {name: _feature(name, each) for name, each in features.items()}
        if "gate" in members:
            members["gate"] = GateSettings(**_members("gate", members["gate"], GateSettings))
        return LoopSettings(**members)
    except SettingsError:
        raise
    except ValueError as error:
        raise SettingsError(str(error)) from None


def checked_loop_name(name: str) -> str:
    """Return a loop's name; it is part of addresses, so it has plain characters only."""
    if not _LOOP_NAME.fullmatch(name):
        raise SettingsError(
            "a loop's name has up to 63 characters: small letters, digits, - and _, a letter or a "
            "digit first"
        )
    return name


def _feature(name: str, data: Any) -> Feature:
    if not _FEATURE_NAME.fullmatch(name):
        raise SettingsError(f"a feature's name has 1 to 100 characters and no '=', not {name!r}")
    kind = Words if isinstance(data, dict) and "words" in data else Number
    try:
        found: Feature = kind(**_members("feature", data, kind))
    except SettingsError as error:
        raise SettingsError(f"the feature {name!r}: {error}") from None
    return found


def _members(what: str, data: Any, kind: Any) -> dict[str, Any]:
    """Return the members of an object that is to become a dataclass."""
    if not isinstance(data, dict):
        raise SettingsError(f"a {what} is an object")
    known = {each.name: each.default is MISSING for each in fields(kind)}
    unknown = [name for name in data if name not in known]
    missing = [name for name, needed in known.items() if needed and name not in data]
    if unknown or missing:
        wrong = f"does not have {unknown[0]!r}" if unknown else f"needs {missing[0]!r}"
        raise SettingsError(f"a {what} {wrong}; it has {', '.join(known)}")
    return dict(data)


def _check_phrase(phrase: Any) -> None:
    if not isinstance(phrase, str) or not 0 < len(phrase) <= 200:
        raise SettingsError("a phrase for reasons of 1 to 200 characters is needed")


# --- calendar periods, in UTC; their names sort in order of time


@lru_cache
def period_of(period: Period, time: datetime) -> str:
    """Return the name of the calendar period that a moment lies in.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from consequential.service.settings import period_after, period_of
    >>> new_year = datetime(2027, 1, 1, tzinfo=UTC)
    >>> period_of("day", new_year), period_of("week", new_year), period_of("month", new_year)
    ('2027-01-01', '2026-W53', '2027-01')
    >>> period_after("2026-12"), period_after("2026-12", 13)
    ('2027-01', '2028-01')
    """
    day = time.astimezone(UTC)
    match period:
        case "day":
            return day.strftime("%Y-%m-%d")
        case "week":
            return "{}-W{:02}".format(*day.isocalendar())
    return day.strftime("%Y-%m")


def period_start(name: str) -> datetime:
    """Return the first moment of a period."""
    if "W" in name:
        return datetime.strptime(f"{name}-1", "%G-W%V-%u").replace(tzinfo=UTC)
    return datetime.fromisoformat(f"{name}-01" if len(name) == 7 else name).replace(tzinfo=UTC)


@lru_cache
def period_after(name: str, count: int = 1) -> str:
    """Return the period that comes a number of periods later."""
    start = period_start(name)
    if "W" in name:
        return period_of("week", start + timedelta(weeks=count))
    if len(name) > 7:
        return period_of("day", start + timedelta(days=count))
    months = start.year * 12 + start.month - 1 + count
    return f"{months // 12:04}-{months % 12 + 1:02}"


# --- the service


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Where the service keeps things: its directory, its databases, its secret.

    Attributes
    ----------
    directory
        For cohorts, the lock and, with SQLite, the databases.
    database, sensitive
        URLs; with PostgreSQL both may be the same, or the second a role's of its own.
    secret
        What the keys of chance are made of.
    """

    directory: Path
    database: str
    sensitive: str
    secret: bytes

    @property
    def is_sqlite(self) -> bool:
        """Whether everything lies in the directory."""
        return self.database.startswith("sqlite")

    @classmethod
    def load(cls, directory: Path) -> ServiceSettings:
        """Read the directory's settings; the environment has the last word.

        CONSEQUENTIAL_DATABASE, CONSEQUENTIAL_SENSITIVE_DATABASE and CONSEQUENTIAL_SECRET (in
        hexadecimal) replace what the files say.
        """
        file = directory / "service.json"
        if not file.is_file():
            raise SettingsError(
                f"{directory} has no service.json: make one with consequential init {directory}"
            )
        stored = json.loads(file.read_text(encoding="utf-8"))
        given = os.environ.get("CONSEQUENTIAL_DATABASE", stored["database"])
        database = given or f"sqlite:///{directory / 'service.db'}"
        apart = f"sqlite:///{directory / 'sensitive.db'}" if not given else database
        sensitive = os.environ.get("CONSEQUENTIAL_SENSITIVE_DATABASE", apart)
        return cls(directory, database, sensitive, _secret(directory / "secret"))


def _secret(file: Path) -> bytes:
    text = os.environ.get("CONSEQUENTIAL_SECRET")
    if text is None:
        if not file.is_file():
            raise SettingsError(
                f"no secret: neither the file {file} nor CONSEQUENTIAL_SECRET. Without the secret "
                "it had before, the service cannot draw as it promised"
            )
        if stat.S_IMODE(file.stat().st_mode) & 0o077:
            raise SettingsError(f"others may read the secret: chmod 600 {file}")
        text = file.read_text(encoding="ascii")
    try:
        secret = bytes.fromhex(text)
    except ValueError:
        raise SettingsError("the secret is not hexadecimal") from None
    if len(secret) < _SMALLEST_SECRET:
        raise SettingsError(f"the secret needs at least {_SMALLEST_SECRET} bytes")
    return secret
