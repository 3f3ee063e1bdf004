"""Applications: strict JSON that becomes checked features, or a problem that says what is wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, NamedTuple

from consequential.service.problems import Problem
from consequential.service.settings import NOT_STORED, LoopSettings, Number, Words

DECISION_LIMIT = 64 * 1024  # bytes of one application
LIST_LIMIT = 8 * 1024 * 1024  # bytes of a list
LIST_LENGTH = 1000
DEPTH = 4
ID_LENGTH = 200


class Application(NamedTuple):
    """Somebody to decide on: checked, features in the order of the loop's settings.

    Examples
    --------
    >>> from consequential.service.applications import Application
    >>> Application("A-17", "P-4", 1.0, {"income": 2100.0}).subject
    'P-4'
    """

    application_id: str
    subject_id: str | None
    amount: float
    features: dict[str, float | str]
    time: datetime | None = None  # given in rehearsals only

    @property
    def subject(self) -> str:
        """Who is drawn for: the subject, or else the application itself."""
        return self.application_id if self.subject_id is None else self.subject_id


def read_application(value: Any, loop: LoopSettings) -> Application:
    """Return the application that a JSON object describes."""
    optional = ("subject_id", "amount", "time") if loop.rehearsal else ("subject_id", "amount")
    members = checked_members(value, ("application_id", "features"), optional)
    subject = members.get("subject_id")
    amount = checked_number(members.get("amount", 1.0), "amount")
    if amount <= 0.0:
        raise Problem("amount", 422, f"amount is {amount:g}: it must be above 0")
    if amount > loop.largest_amount:
        most = f"the loop's largest_amount is {loop.largest_amount:g}"
        raise Problem("amount", 422, f"amount is {amount:g}: {most}")
    return Application(
        checked_id(members["application_id"], "application_id"),
        None if "subject_id" not in members else checked_id(subject, "subject_id"),
        amount,
        checked_features(members["features"], loop),
        checked_time(members["time"], "time") if "time" in members else None,
    )


def read_batch(value: Any, loop: LoopSettings) -> list[Application]:
    """Return the applications of a batch; one bad item refuses them all, and is named."""
    items = checked_members(value, ("applications",))["applications"]
    if not isinstance(items, list):
        raise _wrong_type("applications", "a list", items)
    if not 0 < len(items) <= LIST_LENGTH:
        code = "list_too_long" if items else "empty_list"
        raise Problem(code, 422, f"a batch has 1 to {LIST_LENGTH} applications, not {len(items)}")
    applications = []
    for index, item in enumerate(items):
        try:
            applications.append(read_application(item, loop))
        except Problem as problem:
            problem.extra["index"] = index
            raise
    return applications


def application_ids(value: Any) -> list[str]:
    """Return the ids of one application or of a batch that is wrong otherwise; none if they are."""
    items = value.get("applications", [value]) if isinstance(value, dict) else []
    if not isinstance(items, list) or len(items) > LIST_LENGTH:
        return []
    try:
        return [checked_id(item["application_id"], "application_id") for item in items]
    except (Problem, KeyError, TypeError):
        return []


def checked_features(value: Any, loop: LoopSettings) -> dict[str, float | str]:
    """Return features in the order of the settings: all of them, and no others."""
    if not isinstance(value, dict):
        raise _wrong_type("features", "an object", value)
    if len(value) != len(loop.features) or not value.keys() <= loop.features.keys():
        _refuse_names(value, loop)
    return {name: _feature(name, value[name], kind) for name, kind in loop.features.items()}


def _feature(name: str, value: Any, kind: Number | Words) -> float | str:
    if isinstance(kind, Words):
        if type(value) is str and value in kind.words:
            return value
        if type(value) is not str:
            raise _wrong_type(name, "a word", value)
        wanted = f"{name} must be one of {', '.join(kind.words)}"
        raise Problem("unknown_word", 422, wanted, feature=name)
    if type(value) is float and kind.low <= value <= kind.high:
        return value + 0.0  # makes -0.0 the 0.0 that it equals
    number = checked_number(value, name)
    if kind.low <= number <= kind.high:
        return number
    wanted = f"{name} must lie between {kind.low:g} and {kind.high:g}, not {number:g}"
    raise Problem("out_of_bounds", 422, wanted, feature=name)


def _refuse_names(value: dict[str, Any], loop: LoopSettings) -> None:
    if loop.sensitive in value:
        what = "is the sensitive attribute and decides nothing: send it to /v1/sensitive"
        raise Problem("sensitive_feature", 422, f"{loop.sensitive} {what}")
    for name in value:
        if name not in loop.features:
            what = f"is no feature of this loop; it has {', '.join(loop.features)}"
            raise Problem("unknown_feature", 422, f"{shown(name)} {what}")
    missing = next(name for name in loop.features if name not in value)
    raise Problem("missing_feature", 422, f"{missing} is missing", feature=missing)


# --- values of any request


def checked_members(
    value: Any, required: Collection[str], optional: Collection[str] = ()
) -> dict[str, Any]:
    """Return a JSON object that has all required members, and no others than the optional."""
    if not isinstance(value, dict):
        raise _wrong_type("this", "an object", value)
    for name in required:
        if name not in value:
            raise Problem("missing_member", 422, f"{name} is missing")
    if len(value) > len(required):
        for name in value:
            if name not in required and name not in optional:
                known = ", ".join((*required, *optional))
                raise Problem("unknown_member", 422, f"{shown(name)} is unknown; give {known}")
    return value


def checked_id(value: Any, name: str) -> str:
    """Return an id: 1 to 200 characters that every database can store."""
    if type(value) is not str:
        raise _wrong_type(name, "text", value)
    if not 0 < len(value) <= ID_LENGTH:
        raise Problem("id", 422, f"{name} must have 1 to {ID_LENGTH} characters, not {len(value)}")
    if NOT_STORED.search(value):
        raise Problem("id", 422, f"{name} has a NUL or a lone surrogate, which cannot be stored")
    return value


def checked_number(value: Any, name: str) -> float:
    """Return a finite number; neither text nor true nor null is one."""
    if type(value) is not float and type(value) is not int:
        raise _wrong_type(name, "a number", value)
    try:
        number = float(value) + 0.0  # makes -0.0 the 0.0 that it equals
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Problem("non_finite", 422, f"{name} is too large for a number")
    return number


def checked_time(value: Any, name: str) -> datetime:
    """Return a moment in UTC; it must say its offset."""
    if type(value) is not str:
        raise _wrong_type(name, "text such as 2027-05-01T12:00:00Z", value)
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None or not 1970 < moment.year < 3000:
            raise ValueError
    except ValueError:
        wanted = f"{name} must be a time with an offset, such as 2027-05-01T12:00:00Z"
        raise Problem("time", 422, wanted) from None
    return moment.astimezone(UTC)


def shown(name: str) -> str:
    """Return the start of a name that a client made up, as it can be printed anywhere."""
    return json.dumps(name if len(name) <= 40 else f"{name[:40]}…")


def _wrong_type(name: str, wanted: str, value: Any) -> Problem:
    given = {dict: "an object", list: "a list", str: "text", bool: str(value).lower()}
    kind = "null" if value is None else given.get(type(value), "a number")
    return Problem("type", 422, f"{name} must be {wanted}, not {kind}")


# --- strict JSON


def read_json(body: bytes, limit: int = DECISION_LIMIT) -> Any:
    """Return the value of a JSON text that says one thing only.

    Examples
    --------
    >>> from consequential.service.applications import read_json
    >>> read_json(b'{"a": 1}')
    {'a': 1}
    >>> read_json(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ...
    consequential.service.problems.Problem: "a" stands twice in one object
    """
    if len(body) > limit:
        raise Problem("too_large", 413, f"the body has {len(body)} bytes: {limit} are the most")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise Problem("not_utf8", 400, "the body is not UTF-8") from None
    try:
        value = _decoder.decode(text)
    except json.JSONDecodeError as error:
        raise Problem("not_json", 400, f"the body is not JSON: {error}") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError:  # Python's own limit on the digits of a whole number
        raise Problem("non_finite", 422, "a number has thousands of digits") from None
    # an application opens two brackets; only larger values need a look at each item
    if body.count(b"{") + body.count(b"[") > DEPTH and _is_deeper(value, DEPTH):
        raise _too_deep()
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        name = next(name for name in names if names.count(name) > 1)
        raise Problem("duplicate_key", 400, f"{shown(name)} stands twice in one object")
    return value


def _constant(name: str) -> float:
    raise Problem("non_finite", 422, f"{name} is no number that can be decided on")


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)


def _is_deeper(value: Any, depth: int) -> bool:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return False
    return depth == 0 or any(_is_deeper(each, depth - 1) for each in value)


def _too_deep() -> Problem:
    return Problem("too_deep", 400, f"objects and lists go deeper than {DEPTH}")


def check_media_type(header: str | None) -> None:
    """Refuse a body that does not say it is JSON."""
    if header is None or header.partition(";")[0].strip().lower() != "application/json":
        raise Problem("media_type", 415, "send Content-Type: application/json")
