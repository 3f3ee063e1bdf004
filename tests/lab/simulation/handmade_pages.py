"""Runs made by hand, and pages made of them."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np

import consequential as cq
from consequential.evaluation import Metrics
from consequential.lab.simulation import Run, Runs
from consequential.lab.simulation.page import Section, write_report

METRICS = ("utility", "effective_utility", "benefit_gap", "acceptance", "effective_sample_size")
OPTIMUM = Metrics(utility=0.4321, benefit_gap=-0.1234, acceptance=0.7, benefits={"a": 1, "b": 0})


def handmade_runs(
    strategies=("logistic, iterative", "deterministic, iterative"),
    penalties=(0.0,),
    seeds=(0, 1),
    notes=(),
    **about: Any,
) -> Runs:
    rng = np.random.default_rng(4)
    runs = tuple(
        Run(s, p, k, {name: rng.normal(size=3) for name in METRICS}, cq.AcceptAll(), tuple(notes))
        for s in strategies
        for p in penalties
        for k in seeds
    )
    facts = {"world": "handmade", "groups": ("a", "b"), "fairness": "demographic_parity"}
    return Runs(runs, **facts | about)


def page(path, *sections: Section, title: str = "A title", introduction: str = "An intro") -> str:
    """Write a report and read it back."""
    write_report(path, title, introduction, list(sections))
    return path.read_text(encoding="utf-8")


class Outline(HTMLParser):
    """Elements, attributes and text of a page; every element must be closed by its own end."""

    VOID = frozenset({"meta", "br", "img", "link", "input", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.row_kinds: list[str | None] = []
        self.texts: list[tuple[tuple[str, ...], str]] = []
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice"
        self.elements.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
            self.row_kinds.append(dict(attrs).get("class"))
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        self.texts.append((tuple(self.open), data))
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data

    def text_in(self, tag: str) -> list[str]:
        return [text.strip() for open_, text in self.texts if open_[-1:] == (tag,)]
