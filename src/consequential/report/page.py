"""Page: an HTML file that needs no other file, made from a template."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined


def render(template: str, package: str = "consequential.report", /, **context: Any) -> str:
    """Return the page that a template makes of the context.

    Templates of another package can extend and import those of this one. Texts in the context are
    escaped: the page shows them and the browser does not obey them.
    """
    return _environment(package).get_template(template).render(context).lstrip()


@cache
def _environment(package: str) -> Environment:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("consequential.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": format, "words": lambda name: name.replace("_", " ")}
    environment.tests["finite"] = math.isfinite
    return environment
