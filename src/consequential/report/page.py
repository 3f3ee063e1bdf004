"""Page: an HTML file that needs no other file, made from a template."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from consequential.evaluation.earnings import as_money
from consequential.evaluation.swaps import as_count

Filters = tuple[Callable[..., str], ...]


def render(
    template: str,
    package: str = "consequential.report",
    /,
    filters: Filters = (),
    **context: Any,
) -> str:
    """Return the page that a template makes of the context.

    Templates of another package can extend and import those of this one, and have more filters.
    Texts in the context are escaped: the page shows them and the browser does not obey them. In
    Markdown, quotes stay.
    """
    page = _environment(package, filters).get_template(template).render(context).lstrip()
    return page.replace("&#39;", "'").replace("&#34;", '"') if template.endswith(".md") else page


def compile_templates(package: str, /, filters: Filters = ()) -> None:
    """Compile the templates of a package now, so that rendering a page first takes no longer."""
    environment = _environment(package, filters)
    for template in PackageLoader(package).list_templates():
        environment.get_template(template)


@cache
def _environment(package: str, filters: Filters) -> Environment:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("consequential.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": format,
        "count": as_count,
        "figure_or_word": lambda value: value if isinstance(value, str) else f"{value:,.6g}",
        "money": as_money,
        "words": lambda name: name.replace("_", " "),
        **{each.__name__: each for each in filters},
    }
    environment.tests |= {"finite": math.isfinite, "contains": lambda all_, one: one in all_}
    return environment
