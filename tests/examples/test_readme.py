"""The README's program on a log runs as it stands, and names every command there is."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from sklearn.preprocessing import SplineTransformer

import consequential as cq
from consequential.cli import command_parser
from consequential.cli.columns import columns_text, with_columns

README = (Path(__file__).parents[2] / "README.md").read_text()


def frame(n: int = 600) -> pa.Table:
    rng = np.random.default_rng(0)
    income, debt = rng.normal(3.0, 1.0, n), rng.gamma(2.0, 1.0, n)
    p = 0.2 + 0.6 / (1 + np.exp(3.0 - income))
    approved = rng.random(n) < p
    repaid = rng.random(n) < 1 / (1 + np.exp(1.5 - income + 0.5 * debt))
    return pa.table(
        {
            "income": income,
            "debt": debt,
            "sex": rng.choice(["f", "m"], n),
            "p": p,
            "approved": approved.astype(int),
            "repaid": pa.array(np.where(approved, repaid, np.nan), from_pandas=True),
        }
    )


# smaller numbers of what takes time, none of what is done
SMALLER = {
    "folds=5": "folds=2",
    "n_knots=12": "n_knots=3",
    'demographic_parity").plot()': 'demographic_parity", folds=2, max_gaps=[0.1]).plot()',
}


@pytest.mark.parametrize(
    "numbers", [SMALLER, pytest.param({}, marks=pytest.mark.slow)], ids=["smaller", "as it stands"]
)
def test_the_program_on_a_log_runs(capsys, numbers):
    (program,) = re.findall(r"```python\n(log = .*?)```", README, flags=re.DOTALL)
    for before, after in numbers.items():
        assert before in program
        program = program.replace(before, after)
    names = {"cq": cq, "frame": frame(), "SplineTransformer": SplineTransformer}
    exec(program, names)
    out = capsys.readouterr().out
    assert "exploring: yes" in out
    assert "cross-fitted: every row is decided by a policy learned from the other" in out
    assert "new less old on 600 decisions" in out
    assert isinstance(names["learner"], cq.FairPolicyLearner)


def test_every_command_is_in_the_readme():
    (commands,) = (action.choices for action in command_parser()._actions if action.choices)
    for command in commands:
        assert re.search(rf"(consequential|make|`)(:? ?){command}\b", README), command


def test_the_commands_in_the_readme_can_be_parsed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "consequential-overlap").mkdir()
    told = columns_text(
        {"decision": "approved", "label": "repaid", "propensity": "p", "sensitive": "sex"},
        ["income", "debt"],
        "loans.csv",
    )
    (tmp_path / "consequential-overlap" / "columns.toml").write_text(told)
    text = README.replace("\\\n", " ")
    columns = re.search(r"^columns=(\S+)", text, flags=re.MULTILINE).group(1)
    lines = re.findall(r"^\.venv/bin/consequential ([^#\n]*)", text, flags=re.MULTILINE)
    assert len(lines) == 15
    for line in lines:
        command_parser().parse_args(with_columns(line.replace("$columns", columns).split()))
