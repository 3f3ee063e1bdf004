"""`consequential reproduce`: names, sizes, errors, and what is run where."""

from __future__ import annotations

import json
import re

import pytest

from consequential.cli import main
from consequential.lab.paper import reproduction, tasks
from consequential.lab.paper.results import Results
from consequential.lab.paper.studies import FULL, MORE, NAMES, OF_PAPER, QUICK


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Nothing is run; what would be is noted."""
    calls = []

    def noted(names, folder, scale, *, n_jobs=None):
        calls.append((list(names), folder, scale, n_jobs))
        return tmp_path / "report.html"

    monkeypatch.setattr(reproduction, "reproduce", noted)
    return calls


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], OF_PAPER),
        (["all"], NAMES),
        (["more"], MORE),
        (["compas-time", "lending"], ("lending", "compas-time")),
        (["evolution"], ("first-time", "second-time")),
        (
            ["synthetic-against-penalty", "first-time"],
            ("first-time", "first-penalty", "second-penalty"),
        ),
        (["settings"], ()),
    ],
    ids=str,
)
def test_names_of_studies_and_figures_say_what_is_run(asked, names, expected):
    assert main(["reproduce", *names]) == 0
    assert asked[0][0] == list(expected)


@pytest.mark.parametrize(
    ("options", "scale"),
    [
        ([], FULL),
        (["--quick"], QUICK),
        (["--seeds", "4", "--penalties", "2"], (4, 2, FULL.time_steps)),
        (["--quick", "--seeds", "1"], (1, QUICK.penalties, QUICK.time_steps)),
    ],
    ids=str,
)
def test_options_say_how_large_it_is(asked, options, scale):
    main(["reproduce", *options])
    found = asked[0][2]
    expected = scale if scale in (FULL, QUICK) else type(FULL)(*scale)
    assert found == expected


def test_threads_and_folder_are_passed_on(asked, tmp_path, capsys):
    main(["reproduce", "--jobs", "3", "--out", str(tmp_path / "x")])
    assert asked[0][1] == tmp_path / "x"
    assert asked[0][3] == 3
    assert f"report: {tmp_path / 'report.html'}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("frst-time", "no study or figure 'frst-time'; did you mean first-time"),
        ("evolutoin", "did you mean evolution?"),
        ("zzz", "no study or figure 'zzz'; there are lending, first-time"),
    ],
)
def test_an_unknown_name_is_refused_with_those_close_to_it(asked, capsys, name, message):
    assert main(["reproduce", name]) == 2
    assert message in capsys.readouterr().err
    assert not asked


@pytest.mark.parametrize("option", ["--seeds", "--penalties", "--jobs"])
def test_numbers_that_cannot_be_are_refused(asked, capsys, option):
    with pytest.raises(SystemExit):
        main(["reproduce", option, "0"])
    assert "must be at least 1" in capsys.readouterr().err
    assert not asked


def test_the_list_has_every_study_and_figure_and_does_nothing(asked, capsys):
    assert main(["reproduce", "--list"]) == 0
    out = capsys.readouterr().out
    for name in (*NAMES, "evolution", "settings"):
        assert re.search(rf"^{name} ", out, flags=re.MULTILINE), name
    assert "paper, corrected" in out
    assert re.search(r"^lending +1 +paper +\d+ s", out, flags=re.MULTILINE)
    assert not asked


def test_the_list_of_some_has_those_alone_and_the_time_they_take(capsys):
    main(["reproduce", "--list", "compas-penalty"])
    full = capsys.readouterr().out
    main(["reproduce", "--list", "--quick", "compas-penalty"])
    quick = capsys.readouterr().out
    assert "first-time" not in full
    assert re.search(r"corrected +\d+ min", full) or re.search(r"corrected +\d+\.\d h", full)
    assert re.search(r"corrected +\d+ s", quick)


def test_help_teaches_by_example(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    for example in re.findall(r"^  consequential (reproduce.*?)(?:  |$)", out, flags=re.MULTILINE):
        assert example.split()[0] == "reproduce"
    assert "consequential reproduce --quick" in out
    assert "(default: consequential-paper)" in out
    assert "(default: 30)" in out


def test_the_examples_in_the_help_can_be_run(asked, capsys):
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    examples = re.findall(
        r"^  consequential (reproduce\S*(?: \S+)*)", capsys.readouterr().out, flags=re.MULTILINE
    )
    assert len(examples) == 4
    for example in examples:
        assert main(example.split()) == 0
    assert len(asked) == 3  # the fourth lists


# --- from end to end, without the page


@pytest.fixture
def drawn(monkeypatch):
    seen = []

    def write(results: Results, out, n_jobs):
        seen.append(results)
        (out / "report.html").write_text("page")
        return out / "report.html"

    monkeypatch.setattr(reproduction, "write_page", write)
    return seen


def test_a_study_is_run_in_both_columns_kept_and_drawn(drawn, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["reproduce", "second-time", "--quick", "--seeds", "1", "--out", str(out)]
    assert main(arguments) == 0
    (results,) = drawn
    assert results.has("second-time", "paper")
    assert results.has("second-time", "corrected")
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["parameters"]["seeds"] == 1
    printed = capsys.readouterr()
    assert "second-time " in printed.err
    assert "100%" in printed.err
    before = (out / "results" / "second-time-paper.parquet").stat().st_mtime_ns
    assert main(arguments) == 0
    assert len(drawn) == 2
    assert "100%" not in capsys.readouterr().err  # nothing was left to run
    assert (out / "results" / "second-time-paper.parquet").stat().st_mtime_ns == before


def test_another_size_in_the_same_folder_is_refused(drawn, tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("other files")
    assert main(["reproduce", "settings", "--out", str(tmp_path)]) == 2
    assert "name an empty or a new folder with --out" in capsys.readouterr().err
    out = str(tmp_path / "out")
    assert main(["reproduce", "settings", "--quick", "--out", out]) == 0
    assert main(["reproduce", "settings", "--out", out]) == 2
    assert "seeds 3 then, 30 now" in capsys.readouterr().err
    assert len(drawn) == 1


def test_ctrl_c_says_what_is_kept(monkeypatch, tmp_path, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(tasks, "complete", interrupted)
    assert main(["reproduce", "--out", str(tmp_path / "x")]) == 130
    assert "what is done is kept in" in capsys.readouterr().err
