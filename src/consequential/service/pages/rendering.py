"""Rendering: templates, and how numbers and times are written in them."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from consequential.service.records import moment

_SPACE = "\N{NO-BREAK SPACE}"


def render(template: str, /, **context: Any) -> str:
    """Return the page that a template makes; texts in the context are escaped."""
    return _environment().get_template(template).render(context)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("consequential.service.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "figure": figure,
        "percent": percent,
        "points": points,
        "count": count,
        "date": date_of,
        "minute": minute,
        "short": short,
    }
    return environment


def figure(value: float | None, digits: int = 3) -> str:
    """Return a utility or a probability as it is written on pages.

    Examples
    --------
    >>> from consequential.service.pages.rendering import figure, percent
    >>> print(figure(0.1749), figure(-0.02), figure(1.0), percent(0.684), percent(0.0241))
    .175 −.020 1 68\N{NO-BREAK SPACE}% 2.4\N{NO-BREAK SPACE}%
    >>> print(percent(0.05), percent(0.0004))
    5\N{NO-BREAK SPACE}% 0.0\N{NO-BREAK SPACE}%
    """
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{abs(value):.{digits}f}"
    if float(text) == int(float(text)):
        text = text.split(".")[0]
    sign = "−" if value < 0 and float(text) != 0 else ""
    return sign + (text[1:] if text.startswith("0.") else text)


def percent(value: float | None) -> str:
    """Return a share in percent, with a decimal where it is small and not whole."""
    return "–" if value is None or not math.isfinite(value) else f"{points(value)}{_SPACE}%"


def points(value: float) -> str:
    """Return a share in percentage points, without the sign."""
    share = 100.0 * value
    close_to_an_end = abs(share) < 10.0 or 99.0 < share < 100.0
    is_whole = math.isclose(share, round(share))
    return f"{share:.{1 if close_to_an_end and not is_whole else 0}f}".replace("-", "−")


def count(value: int) -> str:
    """Return a whole number with its thousands apart."""
    return f"{value:,}"


def date_of(stamp: str) -> str:
    """Return the day of a time or a date, such as 3 March 2026."""
    day = moment(f"{stamp[:10]}T00:00:00.000000Z")
    return f"{day.day} {day:%B %Y}"


def minute(stamp: str) -> str:
    """Return a time to the minute, in UTC."""
    return f"{stamp[:10]} {stamp[11:16]}"


def short(digest: str) -> str:
    """Return the first letters of a digest."""
    return digest[:8]
