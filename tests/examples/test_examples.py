"""The examples: each goes from a raw file to a decision, as it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import consequential as cq

EXAMPLES = Path(__file__).parents[2] / "examples"
SAID = {
    "lending": ["exploring: yes", "better: utility is higher", "12 features"],
    "hiring": ["propensities estimated", "better: utility is higher", "utility may be 0 from"],
    "claims": ["281 pending", "too young to be judged", "cross-fitted"],
}
# fewer rows or folds than there are in the examples: nothing that is said hangs on them
FEWER = {
    "lending": ("12_000", "5_000"),
    "hiring": ("8_000", "4_000"),
    "claims": ("folds=3", "folds=2"),
}


def test_every_example_is_run():
    assert {file.stem for file in EXAMPLES.glob("*.py")} == {*SAID, "audit"}


def said_by(name: str, folder: Path) -> str:
    """What an example prints."""
    text = (EXAMPLES / f"{name}.py").read_text()
    usual, fewer = FEWER.get(name, ("", ""))
    assert usual in text
    (folder / f"{name}.py").write_text(text.replace(usual, fewer))
    done = subprocess.run(
        [sys.executable, "-W", "error", f"{name}.py", "here"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", SAID)
def test_an_example_runs_and_leaves_a_policy(name, tmp_path):
    said = said_by(name, tmp_path)
    for words in SAID[name]:
        assert words in said
    assert sorted(file.name for file in (tmp_path / "here").iterdir()) == [
        f"{name}.csv",
        "policy.json",
    ]
    policy = cq.load_policy(tmp_path / "here" / "policy.json")
    assert policy.floor == 0.02
    assert policy.feature_names


def test_examples_are_short():
    lengths = {file.name: len(file.read_text().splitlines()) for file in EXAMPLES.glob("*.py")}
    assert not {name: length for name, length in lengths.items() if length >= 90}
