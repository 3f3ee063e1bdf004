"""Page: an HTML file that needs no other file, made from a template; the page about runs."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from consequential.evaluation import Metrics
from consequential.evaluation.earnings import as_money
from consequential.evaluation.swaps import as_count
from consequential.files import write_atomically
from consequential.plotting import add_legend, svg_of
from consequential.simulation import Runs

Filters = tuple[Callable[..., str], ...]

_CAPTIONS = {
    "utility": "What the policy in force is worth: average gain per applicant, everybody counted.",
    "effective_utility": "What was gained while learning, up to each step: exploration included.",
    "benefit_gap": "Difference between the groups; 0 is {notion}.",
}


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
        "money": as_money,
        "words": lambda name: name.replace("_", " "),
        "option": _option,
        **{each.__name__: each for each in filters},
    }
    environment.tests |= {"finite": math.isfinite, "contains": lambda all_, one: one in all_}
    return environment


def _option(value: Any, name: str) -> str:
    """Return an option of a command as it can be given again, its value as it was read."""

    def text(item: Any) -> str:
        match item:
            case (None, share):
                return str(share)
            case (column, direction) if name == "monotone":
                return f"{column}={'+' if direction > 0 else '-'}"
            case (group, share):
                return f"{group}={share}"
        return str(item)

    option = f"--{name.replace('_', '-')}"
    if value is True:
        return option
    if name == "value_range":  # a number below 0 would be taken for an option
        return f"{option}={','.join(map(str, value))}"
    return shlex.join([option, *map(text, value if isinstance(value, list) else [value])])


@dataclass(frozen=True, slots=True)
class Section:
    """One world in a report: what it is, what ran in it, and the optimum if known."""

    title: str
    text: str
    runs: Runs
    optimum: Metrics | None = None


def write_report(
    path: str | os.PathLike[str], title: str, introduction: str, sections: list[Section]
) -> None:
    """Write the page; it needs no other file, no network and no script."""
    drawn = [(each, each.runs.summary(), _figures(each)) for each in sections]
    page = render("runs.html", title=title, introduction=introduction, sections=drawn)
    write_atomically(path, page)


def _figures(section: Section) -> dict[str, str]:
    """Return each metric over time as an SVG element, by caption."""
    runs, figures = section.runs, {}
    for metric, caption in _CAPTIONS.items():
        ax = runs.plot(metric, penalty=runs.penalties[0])
        if section.optimum is not None and hasattr(section.optimum, metric):
            best = getattr(section.optimum, metric)
            ax.axhline(best, color="#57606a", linewidth=1, linestyle=":", label="best possible")
        add_legend(ax)
        svg = svg_of(ax, salt=metric + section.title)
        figures[caption.format(notion=runs.fairness.replace("_", " "))] = svg
    return figures
