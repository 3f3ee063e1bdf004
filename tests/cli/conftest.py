"""Fixtures of commands on logs."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from loan_files import COST, FEATURES, LOGGED, people

from consequential.cli import main


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """Files that every test may read: two logs and what `fit` made of the first."""
    folder = tmp_path_factory.mktemp("loans")
    pa.csv.write_csv(people(), folder / "loans.csv")
    pa.parquet.write_table(people(seed=1), folder / "later.parquet")
    arguments = ["fit", str(folder / "loans.csv"), *FEATURES, *LOGGED, *COST]
    bounds = ["--max-gap", "0.1", "--floor", "0.02", "--folds", "2"]
    assert main([*arguments, *bounds, "--out", str(folder / "fit")]) == 0
    return folder


@pytest.fixture(autouse=True)
def no_drawing(request, monkeypatch):
    """Leave figures out, which take half of a command's time, unless a test asks for `drawn`."""
    if "drawn" not in request.fixturenames:
        for module in ("report.figures", "lab.simulation.page", "cli.analyses"):
            monkeypatch.setattr(f"consequential.{module}.svg_of", lambda *_, **__: "<svg></svg>")


@pytest.fixture
def drawn():
    """Figures, drawn in full."""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
