"""Bodies: what requests and answers contain, for checking them and for describing them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from consequential.service.applications import LIST_LENGTH, checked_id, checked_time
from consequential.service.problems import Problem
from consequential.service.settings import NOT_STORED

_CODES = {"missing": "missing_member", "extra_forbidden": "unknown_member"}


def _checked(check: Callable[[Any, str], Any]) -> Callable[[Any], Any]:
    """Return a check of requests as one of Pydantic's, with the same code."""

    def checked(value: Any) -> Any:
        try:
            return check(value, "it")
        except Problem as problem:
            told = {"detail": problem.detail}
            raise PydanticCustomError(problem.code, "{detail}", told) from None

    return checked


def _storable(text: str) -> str:
    if NOT_STORED.search(text):
        raise PydanticCustomError("text", "a NUL or a lone surrogate cannot be stored")
    return text


Id = Annotated[
    str,
    AfterValidator(_checked(checked_id)),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[^\\x00]+$"}),
]
Moment = Annotated[
    datetime,
    BeforeValidator(_checked(checked_time)),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2027-05-01T12:00:00Z"]}),
]


def _day(value: Any) -> date:
    try:
        if isinstance(value, date):  # a default
            return value
        if len(value) != len("2027-05-01"):
            raise ValueError
        return date.fromisoformat(value)
    except ValueError:
        raise PydanticCustomError("time", "a day is written as 2027-05-01") from None


Day = Annotated[date, BeforeValidator(_day), WithJsonSchema({"type": "string", "format": "date"})]


def _label(value: Any) -> Any:
    if isinstance(value, bool | float):  # which Python takes for equal to 0 and 1
        raise PydanticCustomError("label", "a label is 0, 1 or null")
    return value


Label = Annotated[Literal[0, 1] | None, BeforeValidator(_label)]


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class OutcomeBody(_Body):
    """The label of an accepted person; null where it is withdrawn."""

    event_id: Id
    decision_id: Id
    label: Label
    happened: Moment
    corrects: Id | None = None


class Override(_Body):
    """What was really done, where it is not what was decided, and why."""

    decision_id: Id
    accepted: bool
    why: Id


class Attribute(_Body):
    """A sensitive attribute of a person, which decides nothing."""

    subject_id: Id
    attribute: Id
    value: Id


def _listed(kind: Any) -> Any:
    return Annotated[list[kind], Field(min_length=1, max_length=LIST_LENGTH)]


class OutcomesBody(_Body):
    """Outcomes, all stored or none."""

    outcomes: _listed(OutcomeBody)  # type: ignore[valid-type]


class Overrides(_Body):
    """Overrides, all stored or none."""

    overrides: _listed(Override)  # type: ignore[valid-type]


class Attributes(_Body):
    """Attributes, all stored or none."""

    sensitive: _listed(Attribute)  # type: ignore[valid-type]


class Deployment(_Body):
    """The policies to decide with, by digest; shares sum to 1.

    `evidence` is the number of an evaluation; `why` is for people, and needed without evidence.
    """

    shares: Annotated[dict[Id, Annotated[float, Field(gt=0.0, le=1.0)]], Field(min_length=1)]
    evidence: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    why: Annotated[str, Field(max_length=10_000), AfterValidator(_storable)] = ""


class Learn(_Body):
    """Nothing more needs to be said."""


class Withdrawal(_Body):
    """The candidate that shall wait no longer, by its number."""

    candidate: Annotated[int, Field(ge=1, le=2**31 - 1)]


class ApplicationBody(_Body):
    """Somebody to decide on; features are those of the loop's settings."""

    application_id: Id
    subject_id: Id | None = None
    amount: Annotated[float, Field(gt=0.0)] = 1.0
    features: dict[str, float | str]


class ReasonBody(_Body):
    """How much higher the score would be with this feature as most people have it."""

    feature: str
    phrase: str
    lost: float


class DecisionBody(_Body):
    """A decision; `digest` is the receipt."""

    id: str
    application_id: str
    accepted: bool
    propensity: float
    policy: str
    deployment: int
    epoch: str
    commitment: str
    reasons: list[ReasonBody]
    due: str
    digest: str


class Decisions(_Body):
    """Decisions in the order of the applications."""

    decisions: list[DecisionBody]


def as_problem(errors: Sequence[Mapping[str, Any]]) -> Problem:
    """Return the first thing that is wrong with a body as a problem."""
    error = errors[0]
    place = ".".join(str(part) for part in error["loc"] if part not in ("body", "query", "path"))
    kind = error["type"]
    code = _CODES.get(kind, kind if kind in ("id", "time") else "type")
    if kind in ("too_long", "too_short"):
        code = "list_too_long" if kind == "too_long" else "empty_list"
    indices = [part for part in error["loc"] if isinstance(part, int)]
    extra = {"index": indices[0]} if indices else {}
    return Problem(code, 422, f"{place or 'the body'}: {error['msg']}", **extra)
