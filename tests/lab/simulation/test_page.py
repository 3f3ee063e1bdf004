"""The report: one page that needs nothing beside itself and says what the runs say."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from handmade_pages import OPTIMUM, Outline, handmade_runs, page

from consequential.lab.simulation import page as report
from consequential.lab.simulation.page import Section, write_report

HOSTILE = "<b>bold</b> & \"double\" 'single' </svg><script>alert(1)</script>"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "report.html"


@pytest.fixture
def no_figures(monkeypatch):
    """Drawing takes most of the time; tables and captions do not need it."""
    monkeypatch.setattr(report, "svg_of", lambda drawn, salt: "<svg></svg>")


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> str:
    """Two sections, one with the optimum, one with several penalties and notes."""
    notes = [f"step {k}: note {k}" for k in range(12)]
    return page(
        tmp_path_factory.mktemp("report") / "report.html",
        Section("First world", "What it is.\n\nAnd more.", handmade_runs(), OPTIMUM),
        Section(
            "Second world",
            "Another.",
            handmade_runs(("logistic, aggregated", "mine"), (0.0, 2.5), notes=notes),
        ),
        introduction="First paragraph.\n\nSecond paragraph.",
    )


@pytest.fixture(scope="module")
def outline(text) -> Outline:
    return Outline(text)


# --- one file


def test_every_element_is_closed_by_its_own_end(outline):
    tags = [tag for tag, _ in outline.elements]
    assert tags[:3] == ["html", "head", "meta"]
    assert tags.count("svg") == 6
    assert tags.count("table") == 2


def test_the_page_starts_as_html_and_names_its_encoding(text):
    assert text.startswith("<!doctype html>")
    assert "<meta charset='utf-8'>" in text


def test_nothing_is_run_and_nothing_is_fetched(outline):
    fetching = {"script", "link", "img", "iframe", "object", "embed", "video", "audio", "base"}
    for tag, attributes in outline.elements:
        assert tag not in fetching
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("href", "xlink:href", "src", "srcset", "action", "data"):
                assert value.startswith("#"), f"<{tag} {name}={value!r}> points outside"
            if name != "rdf:resource" and not name.startswith("xmlns"):
                assert "//" not in (value or "")


def test_styles_fetch_nothing(text):
    for target in re.findall(r"url\(([^)]*)\)", text):
        assert target.strip("'\"").startswith("#")
    assert "@import" not in text
    assert "@font-face" not in text


def test_addresses_are_those_of_svg_namespaces_only(text):
    without_namespaces = re.sub(r"""xmlns(:\w+)?=["'][^"']*["']""", "", text)
    assert re.findall(r"https?://[^\s\"'<]*", without_namespaces) == []


def test_references_within_the_page_lead_somewhere(outline):
    ids = {attributes["id"] for _, attributes in outline.elements if "id" in attributes}
    used = {
        value.removeprefix("#")
        for _, attributes in outline.elements
        for name, value in attributes.items()
        if name in ("href", "xlink:href")
    }
    assert used
    assert used <= ids


# --- what it says


def test_titles_and_paragraphs_are_there(outline):
    assert outline.text_in("title")[0] == "A title"
    assert outline.text_in("h1") == ["A title"]
    assert outline.text_in("h2") == ["First world", "Second world"]
    paragraphs = outline.text_in("p")
    for paragraph in ("First paragraph.", "Second paragraph.", "What it is.", "And more."):
        assert paragraph in paragraphs


def test_the_table_has_the_optimum_and_every_strategy_with_its_medians(outline):
    head, best, *rows = outline.rows[:4]
    assert head == ["strategy", "utility", "effective utility", "benefit gap", "acceptance"]
    assert best == ["best possible", "0.4321", "", "-0.1234", "0.7000"]
    runs = handmade_runs()
    for row, strategy in zip(rows, runs.strategies, strict=True):
        medians = [
            np.median(runs.metric(name.replace(" ", "_"), strategy)[:, -1]) for name in head[1:]
        ]
        assert row == [strategy, *(f"{median:.4f}" for median in medians)]


def test_several_penalties_have_a_column(outline):
    head, *rows = outline.rows[4:]
    assert head[:2] == ["strategy", "penalty"]
    assert [row[:2] for row in rows] == [
        ["logistic, aggregated", "0"],
        ["logistic, aggregated", "2.5"],
        ["mine", "0"],
        ["mine", "2.5"],
    ]
    assert {len(row) for row in rows} == {len(head)}


def test_the_optimum_has_as_many_cells_as_there_are_columns(no_figures, file):
    section = Section("s", "t", handmade_runs(penalties=(0.0, 1.0)), OPTIMUM)
    head, best, *_ = Outline(page(file, section)).rows
    assert best[:3] == ["best possible", "", "0.4321"]
    assert len(best) == len(head)


def test_the_strategy_of_highest_utility_stands_out(no_figures, file):
    runs = handmade_runs(("a", "b", "c"))
    outline = Outline(page(file, Section("s", "t", runs, OPTIMUM)))
    medians = [np.median(runs.metric("utility", name)[:, -1]) for name in "abc"]
    marked = [row[0] for row, kind in zip(outline.rows, outline.row_kinds, strict=True) if kind]
    assert marked == ["abc"[int(np.argmax(medians))]]


@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2)])
def test_the_number_of_runs_and_steps_is_given(no_figures, file, seeds):
    text = page(file, Section("s", "t", handmade_runs(seeds=seeds)))
    said = re.search(r"<p class='small'>(.*?)</p>", text).group(1)
    assert "after 2 steps" in said
    assert (f"{len(seeds)} runs" in said) is (len(seeds) > 1)


def test_figures_name_every_strategy_and_the_optimum(text):
    figures = re.findall(r"<figure>.*?</figure>", text, flags=re.DOTALL)
    assert len(figures) == 6
    first, second = figures[:3], figures[3:]
    for figure in first:
        assert "logistic, iterative" in figure
        assert "deterministic, iterative" in figure
        assert "handmade" in figure
    assert ["best possible" in figure for figure in first] == [True, False, True]
    for figure in second:
        assert "mine" in figure
        assert "best possible" not in figure


def test_every_figure_has_a_caption(outline):
    captions = outline.text_in("figcaption")
    assert len(captions) == 6
    assert "average gain per applicant" in captions[0]
    assert "while learning" in captions[1]
    assert "demographic parity" in captions[2]


def test_the_caption_of_the_gap_speaks_of_the_notion_that_was_measured(no_figures, file):
    text = page(file, Section("s", "t", handmade_runs(fairness="equal_opportunity")))
    caption = Outline(text).text_in("figcaption")[2]
    assert "demographic parity" not in caption
    assert "equal opportunity" in caption


def test_notes_are_counted_and_the_first_are_shown(outline):
    (summary,) = outline.text_in("summary")
    assert summary == "96 notes"
    shown = outline.text_in("li")
    assert len(shown) == 20
    assert shown[0] == "logistic, aggregated, penalty 0, seed 0, step 0: note 0"


def test_without_notes_there_is_no_list(no_figures, file):
    text = page(file, Section("s", "t", handmade_runs()))
    assert "<details>" not in text


def test_a_report_may_have_no_section(file):
    assert Outline(page(file)).text_in("h1") == ["A title"]


def test_an_interrupted_section_says_so(no_figures, file):
    runs = handmade_runs(seeds=(0, 1, 2))
    partial = type(runs)(runs.runs[:-1], "w", ("a", "b"), runs.fairness, interrupted=True)
    assert "interrupted" in page(file, Section("s", "t", partial))


# --- names that would break it


def test_hostile_names_are_shown_and_not_obeyed(file):
    runs = handmade_runs((HOSTILE, "tame"), world=HOSTILE, notes=[HOSTILE])
    section = Section(HOSTILE, HOSTILE, runs, OPTIMUM)
    text = page(file, section, title=HOSTILE, introduction=HOSTILE)
    outline = Outline(text)
    tags = {tag for tag, _ in outline.elements}
    assert not tags & {"b", "script"}
    assert outline.text_in("h1") == [HOSTILE]
    assert outline.text_in("h2") == [HOSTILE]
    assert outline.rows[2][0] == HOSTILE
    assert HOSTILE in outline.text_in("text")  # in the figures, as a title or in a legend


@pytest.mark.parametrize("name", ["Ärger & Söhne", "a\u00a0b", "x" * 60])
def test_unusual_names_are_kept(no_figures, file, name):
    outline = Outline(page(file, Section(name, "t", handmade_runs((name,)))))
    assert outline.text_in("h2") == [name]
    assert outline.rows[1][0] == name


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("$5 or $10", id="dollars are read as a formula"),
        pytest.param("_mine", id="a leading underscore hides it from the legend"),
        pytest.param("貸付", id="letters that the font lacks are warned about"),
    ],
)
def test_names_mean_nothing_to_the_figures(file, name):
    outline = Outline(page(file, Section("s", "t", handmade_runs((name, "other")))))
    assert outline.text_in("text").count(name) == 3  # a legend each


# --- the same bytes


def test_the_same_runs_make_the_same_bytes_in_another_process_without_pyplot(tmp_path, file):
    runs = handmade_runs()
    runs.save(tmp_path / "runs.parquet")
    write_report(file, "A title", "i", [Section("s", "t", runs)])
    program = """
import sys
from consequential import report
from consequential.lab.simulation.page import Section, write_report
from consequential.lab.simulation import Runs
write_report("there.html", "A title", "i", [Section("s", "t", Runs.load("runs.parquet"))])
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
    assert (tmp_path / "there.html").read_bytes() == file.read_bytes()


# --- written whole


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_page(no_figures, file, monkeypatch, broken):
    file.write_text("the old page")

    def full(*_):
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, broken, full)
        with pytest.raises(OSError, match="no space left"):
            page(file, Section("s", "t", handmade_runs()))
    assert file.read_text() == "the old page"
    assert os.listdir(file.parent) == [file.name]


def test_a_section_that_cannot_be_drawn_leaves_the_old_page(file):
    file.write_text("the old page")
    empty = handmade_runs(strategies=())
    with pytest.raises((ValueError, IndexError)):
        page(file, Section("s", "t", empty))
    assert file.read_text() == "the old page"


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere"):
        write_report(tmp_path / "nowhere" / "report.html", "t", "i", [])
