"""The pages on the service: their programs run, and they name every problem."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
from trial import served_here

from consequential.cli import main
from consequential.cli.service import _EXAMPLE
from consequential.policy import FeatureSummary, Policy, save_policy
from consequential.service.policies import checked_policy
from consequential.service.settings import ServiceSettings, loop_settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")


def test_the_programs_of_the_page_run_on_the_example(tmp_path, capsys):
    directory = tmp_path / "service"
    assert main(["init", str(directory), "--example"]) == 0
    key = capsys.readouterr().out.splitlines()[1].strip()
    assert main(["key", str(directory), "--name", "anna", "--scopes", "learn"]) == 0
    authors_key = capsys.readouterr().out.splitlines()[1].strip()
    summary = FeatureSummary.of([[600.0], [650.0]], ["score"])
    policy = Policy(
        [-12.0, 0.02], "smooth_semi_logistic", floor=0.1, feature_names=["score"], summary=summary
    )
    save_policy(policy, tmp_path / "policy.json")
    names = {"KEY": key, "AUTHORS_KEY": authors_key}
    with served_here(SimpleTrial(directory, key)) as http:
        for program in re.findall(r"```py\n(.*?)```", PAGE, flags=re.DOTALL):
            exec(program.replace("http://127.0.0.1:8000", str(http.base_url)), names)
        names["propose"]("lending", str(tmp_path / "policy.json"))  # type: ignore[operator]
    assert re.match(r"(True|False) 0\.\d|True 1\.0", capsys.readouterr().out)


def test_the_command_of_the_page_learns_a_policy_that_the_example_accepts(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    score = rng.uniform(300.0, 850.0, 600)
    propensity = np.where(score > 720.0, 1.0, 0.1)
    decision = (rng.random(600) < propensity).astype(int)
    label = np.where(decision == 1, (rng.random(600) < (score - 300.0) / 550.0) * 1.0, np.nan)
    columns = {"score": score, "propensity": propensity, "decision": decision, "label": label}
    pd.DataFrame(columns).to_parquet(tmp_path / "lending.parquet")
    monkeypatch.chdir(tmp_path)
    (line,) = re.findall(r"^consequential (fit .*?[^\\])$", PAGE, flags=re.DOTALL | re.MULTILINE)
    assert main(shlex.split(line.replace("\\\n", " "))) == 0
    text = (tmp_path / "lending" / "policy.json").read_text()
    assert checked_policy(text, loop_settings(_EXAMPLE)).floor == 0.1


class SimpleTrial:
    """What `served_here` needs to know of a service."""

    def __init__(self, directory: Path, key: str) -> None:
        self.settings = ServiceSettings.load(directory)
        self._key = key

    def header(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}"}


def test_every_code_of_a_problem_is_on_the_page():
    sources = (ROOT / "src" / "consequential" / "service").glob("*.py")
    found = {
        code
        for source in sources
        for code in re.findall(r'Problem\(\s*"(\w+)"', source.read_text(encoding="utf-8"))
    }
    assert len(found) > 40
    assert not [code for code in sorted(found - {"http"}) if f"`{code}`" not in PAGE]
