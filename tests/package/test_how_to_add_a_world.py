"""The section on adding a world: short, and its file works as it says."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from consequential.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "extend.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("## A world") : PAGE.index("## A link")]
EXAMPLES = doctest.DocTestParser().get_examples(SECTION)


def my_world() -> str:
    """The file the section tells to save: the imports and the two classes."""
    return "".join(
        example.source for example in EXAMPLES if example.source.startswith(("import", "class"))
    )


def test_the_code_of_the_section_has_at_most_forty_lines():
    assert 20 < sum(len(example.source.splitlines()) for example in EXAMPLES) <= 40


def test_the_utilities_the_section_shows_are_not_at_an_edge_of_rounding():
    names: dict[str, object] = {}
    exec(my_world(), names)
    accept_all = names["cq"].AcceptAll()
    for step, shown in ((0, 0.1), (50, -0.2)):
        assert names["Crisis"]().at(step).measure(accept_all).utility == pytest.approx(
            shown, abs=0.04
        )


@pytest.mark.parametrize("world", ["Shops", "Crisis"])
def test_the_command_runs_the_worlds_of_the_section(world, tmp_path, capsys):
    file, out = tmp_path / "my_world.py", tmp_path / world
    file.write_text(my_world(), encoding="utf-8")
    assert f"consequential simulate my_world.py:{world} " in SECTION
    small = ["--seeds", "1", "--steps", "2", "--strategies", "logistic-iterative"]
    assert main(["simulate", f"{file}:{world}", *small, "--out", str(out)]) == 0
    assert "logistic, iterative" in capsys.readouterr().out
    assert (out / "report.html").is_file()
