"""The page: self-contained, complete, honest about what is missing, and the same bytes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import handmade_results
import pytest
from handmade_results import all_good, lending_table, results_in, time_runs

from consequential.lab.paper import reproduction
from consequential.lab.paper.claims import CLAIMS
from consequential.lab.paper.figures import FIGURES
from consequential.lab.paper.reproduction import write_page
from consequential.plotting import panels

OF_PAPER = [figure for figure in FIGURES.values() if figure.label]


class Found(HTMLParser):
    """Elements of a page, and that each is closed by its own end."""

    VOID = frozenset({"meta", "br", "img", "link", "hr"})

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.words = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def having(self, tag, **attributes):
        return [a for t, a in self.elements if t == tag and attributes.items() <= a.items()]


def a_line(results, column):
    figure, axes = panels(1, 1, 3.0, 2.0)
    axes[0, 0].plot([0, 1], [0, 9])
    return figure


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    # most drawings are tested by themselves: here a line each stands for them
    drawn = {
        name: figure if name in ("settings", "illustration") else replace(figure, draw=a_line)
        for name, figure in FIGURES.items()
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reproduction, "FIGURES", drawn)
        assert write_page(results_in(folder, all_good()), folder) == folder / "report.html"
    return folder


@pytest.fixture(scope="module")
def found(out):
    return Found((out / "report.html").read_text(encoding="utf-8"))


def test_every_figure_of_the_paper_is_there_in_each_of_its_columns(found, out):
    for figure in OF_PAPER:
        assert found.having("h2", id=figure.name)
        assert found.having("a", href=f"#{figure.name}")
        for column in figure.columns:
            name = f"{figure.name}-{column}" if figure.paired else figure.name
            assert (out / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
            assert "<svg" in (out / "figures" / f"{name}.svg").read_text(encoding="utf-8")
    assert len(found.having("svg")) == sum(len(figure.columns) for figure in OF_PAPER)


def test_the_page_needs_nothing_beside_itself(found, out):
    text = (out / "report.html").read_text(encoding="utf-8")
    assert not found.having("script") + found.having("link")
    for _, attributes in found.elements:
        for name in ("src", "href", "xlink:href"):
            target = attributes.get(name) or "#"
            assert target.startswith(("#", "data:"))
    assert len(text) < 15_000_000
    assert str(out) not in text


def test_names_within_drawings_do_not_collide_where_they_are_used(out):
    # clip paths and images of one drawing must not be taken from another
    text = (out / "report.html").read_text(encoding="utf-8")
    defined = [part.split('"')[0] for part in text.split('<clipPath id="')[1:]]
    assert len(defined) == len(set(defined)) > 10


def test_every_claim_has_a_row_with_verdict_and_command(found):
    assert all(found.having("details", id=f"claim-{claim.id}") for claim in CLAIMS)
    verdicts = [a["class"] for t, a in found.elements if t == "span" and "verdict" in a["class"]]
    assert len(verdicts) >= len(CLAIMS)
    assert "verdict holds" in verdicts
    assert "verdict partly" in verdicts
    assert "consequential reproduce first-time second-time" in found.words


def test_claims_are_data_too(out):
    claims = json.loads((out / "claims.json").read_text(encoding="utf-8"))
    assert [claim["id"] for claim in claims] == [claim.id for claim in CLAIMS]
    for claim in claims:
        assert claim["verdict"].startswith(("holds", "does not hold"))
        assert claim["rejects"]
        for column in claim["columns"].values():
            assert column["cases"]


def test_a_summary_comes_first_and_counts_claims_by_part_of_the_paper(found):
    headings = [attributes["id"] for tag, attributes in found.elements if tag == "h2"]
    assert headings[0] == "summary"
    text = "".join(found.words)
    assert f"Of {len(CLAIMS)} claims" in text
    for theme in ("theorems and remarks", "the lending example", "COMPAS under a penalty"):
        assert theme in found.words
    assert not {"left", "right"} & set(text[: text.index("Claims, tested")].split())


def test_the_summary_says_how_many_claims_cannot_be_told(tmp_path, found, monkeypatch):
    assert "cannot be told" not in "".join(found.words).partition("Claims, tested")[0]
    narrow = handmade_results.spread
    monkeypatch.setattr(handmade_results, "spread", lambda value: narrow(value, size=1.0))
    text = write_page(results_in(tmp_path, {"first-time": time_runs("first")}), tmp_path)
    assert re.search(
        r"[0-9]+ of [0-9]+; [1-9][0-9]* cannot be told</td>", text.read_text(encoding="utf-8")
    )


def test_no_word_of_difference_where_columns_are_the_same(found):
    assert "Where they differ." not in found.words
    assert not found.having("p", **{"class": "missing"})


def test_runs_fewer_than_the_paper_s_are_said_to_be(found):
    assert "Smaller than the paper." in found.words


def test_runs_as_many_as_the_paper_s_are_not_said_to_be_fewer(tmp_path):
    results = results_in(tmp_path, {})
    results.manifest["parameters"] = {"seeds": 30, "time_steps": 200}
    text = write_page(results, tmp_path).read_text(encoding="utf-8")
    assert "Smaller than the paper." not in text


def test_the_manifest_is_told(found):
    assert "parameters seeds" in found.words


def test_what_is_missing_is_left_out_and_said(tmp_path):
    results = results_in(tmp_path, {"lending": lending_table()})
    text = write_page(results, tmp_path).read_text(encoding="utf-8")
    found = Found(text)
    assert len(found.having("svg")) == 2  # lending, and the settings that need no run
    missing = found.having("p", **{"class": "missing"})
    assert len(missing) == len(OF_PAPER) - 2
    assert "consequential reproduce first-time second-time" in text
    assert found.having("span", **{"class": "verdict not-run"})
    assert not found.having("h2", id="german-over-time")


def test_other_worlds_are_shown_where_they_were_run(tmp_path):
    runs = time_runs("compas")
    text = write_page(results_in(tmp_path, {"german-time": runs}), tmp_path).read_text()
    assert Found(text).having("h2", id="german-over-time")


def test_the_same_results_make_the_same_bytes_in_another_process_without_pyplot(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        results_in(folder, {"lending": lending_table()})
    write_page(results_in(here, {"lending": lending_table()}), here, n_jobs=2)
    program = """
import sys
from consequential.lab.paper.reproduction import write_page
from consequential.lab.paper.results import Results
write_page(Results("there"), "there")
assert "matplotlib.pyplot" not in sys.modules
"""
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "MPLBACKEND")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        env=environment | {"PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    names = sorted(path.relative_to(here) for path in here.rglob("*.*"))
    assert len(names) == 8
    for name in names:
        assert (here / name).read_bytes() == (there / name).read_bytes(), name
