"""Page: an HTML file that needs no other file, made from a template."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

if TYPE_CHECKING:
    pass


def render(template: str, **context: Any) -> str:
    """Return the page that a template of this package makes of the context.

    Texts in the context are escaped: the page shows them and the browser does not obey them.
    """
    return _environment().get_template(template).render(context).lstrip()


def page_of(title: str, body: str, style: str = "") -> str:
    """Return a page around a body that is HTML already."""
    return render("page.html", title=title, body=body, style=style)


def paragraphs(text: str) -> str:
    """Return plain text as HTML paragraphs; an empty line separates them."""
    macros: Any = _environment().get_template("macros.html").module
    return str(macros.paragraphs(text))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("consequential.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": format, "words": lambda name: name.replace("_", " ")}
    environment.tests["finite"] = math.isfinite
    return environment
