"""Rendering: templates, and how numbers and times are written in them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from consequential.report import page
from consequential.service.records import moment

_PACKAGE = "consequential.service.pages"
_SPACE = "\N{NO-BREAK SPACE}"


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


def date(stamp: str) -> str:
    """Return the day of a time or a date, such as 3 March 2026."""
    day = moment(f"{stamp[:10]}T00:00:00.000000Z")
    return f"{day.day} {day:%B %Y}"


def minute(stamp: str) -> str:
    """Return a time to the minute, in UTC."""
    return f"{stamp[:10]} {stamp[11:16]}"


def short(digest: str) -> Markup:
    """Return the first letters of a digest; the whole of it appears above them."""
    return Markup('<code title="{}">{}</code>').format(digest, digest[:8])


def shares(told: Mapping[str, float]) -> Markup:
    """Return policies with their shares of decisions, the largest first."""
    ordered = sorted(told.items(), key=lambda each: -each[1])
    return Markup(", ").join(
        short(digest) + ("" if share == 1 else f" {percent(share)}") for digest, share in ordered
    )


FILTERS = (figure, percent, points, count, date, minute, short, shares)


def render(template: str, /, **context: Any) -> str:
    """Return the page that a template makes; texts in the context are escaped."""
    return page.render(template, _PACKAGE, filters=FILTERS, **context)


def compile_templates() -> None:
    """Compile all pages before anybody waits for one."""
    page.compile_templates(_PACKAGE, filters=FILTERS)
