"""Page: HTML that needs nothing beside itself."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from consequential.plotting import svg_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
body { font: 16px/1.55 system-ui, sans-serif; color: #1b1f24; max-width: 62rem; margin: 2rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.7rem; } h2 { margin-top: 2.4rem; border-top: 1px solid #d0d7de;
     padding-top: 1.2rem; }
table { border-collapse: collapse; font-size: .92rem; }
th, td { padding: .35rem .8rem; text-align: right; border-bottom: 1px solid #d0d7de; }
th:first-child, td:first-child { text-align: left; }
tr.best td { font-weight: 600; } .small { color: #57606a; font-size: .85rem; }
figure { display: inline-block; margin: 1rem .6rem 0 0; max-width: 30rem; }
figcaption { font-size: .85rem; color: #57606a; }
figure svg { width: 100%; height: auto; }
"""


def page_of(title: str, body: str, more_style: str = "") -> str:
    """Return a whole page around a body that is HTML already."""
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{html.escape(title)}</title><style>{_STYLE}{more_style}</style></head><body>"
        f"<h1>{html.escape(title)}</h1>{body}</body></html>\n"
    )


def paragraphs(text: str) -> str:
    """Return plain text as paragraphs; an empty line parts them."""
    return "".join(f"<p>{html.escape(part.strip())}</p>" for part in text.strip().split("\n\n"))


def table_of(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of plain texts."""
    heads = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    lines = "".join(
        f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"


def list_of(items: Iterable[str], kind: str = "") -> str:
    """Return plain texts as a list; nothing where there are none."""
    lines = "".join(f"<li>{html.escape(item)}</li>" for item in items)
    return f"<ul class='{html.escape(kind)}'>{lines}</ul>" if lines else ""


def figure_of(figure: Figure, caption: str) -> str:
    """Return a figure with its caption."""
    return (
        f"<figure>{svg_of(figure, caption)}<figcaption>{html.escape(caption)}</figcaption></figure>"
    )
