"""Tables as they were written, and the auditor's program, which needs nothing of ours."""

from __future__ import annotations

import io
import re
import runpy
import sys
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from lending_loop import LOOP, START, applicants, decide, start

from consequential.cli import main
from consequential.service import schema, worker
from consequential.service.database import migrate, open_store
from consequential.service.exports import TABLES, copy_of
from consequential.service.problems import Problem
from consequential.service.settings import ServiceSettings

AUDIT = Path(__file__).parents[2] / "examples" / "audit.py"
ALWAYS = START - timedelta(100), START + timedelta(100)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """What an auditor gets of a loop that decided for a month and a bit."""
    directory = tmp_path_factory.mktemp("service")
    urls = [f"sqlite:///{directory / name}.db" for name in ("service", "sensitive")]
    service = ServiceSettings(directory, *urls, b"s" * 32)
    migrate(service)
    store = open_store(service)
    start(store, service)
    for days in (0, 1, 40):
        decide(store, service, applicants(20, START + timedelta(days), name=f"A{days}"))
    worker.work(store, service, START)
    copies = {table: copy_of(store, table, LOOP, *ALWAYS) for table in ("decision", "epoch", "day")}
    store.close()
    return copies


@pytest.fixture
def folder(exported, tmp_path):
    """The same as files, to change."""
    for table, content in exported.items():
        (tmp_path / f"{table}.parquet").write_bytes(content)
    return tmp_path


@pytest.fixture
def audited(folder, monkeypatch, capsys):
    """Run the auditor's program; its exit code and what it prints."""

    def run() -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["audit.py", str(folder)])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(AUDIT))
        return int(ended.value.code), capsys.readouterr().out

    return run


def change(folder: Path, name: str, column: str, value: object, place: int = 3) -> None:
    """Change one cell of a table."""
    table = pq.read_table(folder / f"{name}.parquet")
    cells = table[column].to_pylist()
    cells[place] = value(cells[place]) if callable(value) else value
    changed = pa.array(cells, table.schema.field(column).type)
    table = table.set_column(table.schema.get_field_index(column), column, changed)
    pq.write_table(table, folder / f"{name}.parquet")


def test_an_auditor_finds_nothing_where_nothing_was_changed(folder, audited):
    code, said = audited()
    assert code == 0, said
    assert "0 failed" in said
    # of 60 decisions, the 40 of January are drawn again: its key is revealed
    n_days = len(pq.read_table(folder / "day.parquet").filter(pc.field("table") == "decision"))
    n_epochs = len(pq.read_table(folder / "epoch.parquet"))
    assert f"\n{1 + 60 + 40 + 60 + 60 + n_epochs + 2 * n_days} checks" in said


def test_the_auditors_program_has_nothing_of_ours():
    imported = re.findall(r"^(?:import|from) (\w+)", AUDIT.read_text(), flags=re.MULTILINE)
    assert {*imported} - {*sys.stdlib_module_names} == {"pyarrow"}


CHANGES = {
    "an action": ("decision", "accepted", lambda value: not value, "action"),
    "a propensity": ("decision", "propensity", lambda value: value / 2, "digest"),
    "a number drawn": ("decision", "u", 0.0, "draw"),
    "features": ("decision", "features", '{"income":9.0,"purpose":"car"}', "features"),
    "a row with its digest": ("decision", "digest", "0" * 64, "seal"),
    "a count": ("day", "rows", 7, "seal"),
    "a commitment": ("epoch", "commitment", "0" * 64, "key of"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_an_auditor_finds_a_planted_change(folder, audited, what):
    table, column, value, said = CHANGES[what]
    place = 3
    if table == "day":
        days = pq.read_table(folder / "day.parquet")["table"].to_pylist()
        place = days.index("decision")
    elif table == "epoch":
        keys = pq.read_table(folder / "epoch.parquet")["key"].to_pylist()
        place = next(k for k, key in enumerate(keys) if key is not None)
    change(folder, table, column, value, place)
    code, output = audited()
    assert code == 1
    assert said in output


def test_an_auditor_finds_a_missing_decision(folder, audited):
    table = pq.read_table(folder / "decision.parquet")
    pq.write_table(table.slice(1), folder / "decision.parquet")
    code, output = audited()
    assert code == 1
    assert "decision 2026-01-10, seal" in output


def test_every_table_of_a_loop_can_be_copied(store, service):
    start(store, service)
    decide(store, service, applicants(3))
    for name, table in TABLES.items():
        copied = pq.read_table(io.BytesIO(copy_of(store, name, LOOP, *ALWAYS)))
        assert copied.column_names == [column.name for column in table.c]
    assert "account" not in TABLES
    assert schema.attribute not in TABLES.values()
    later = copy_of(store, "decision", LOOP, START + timedelta(1), ALWAYS[1])
    assert pq.read_table(io.BytesIO(later)).num_rows == 0
    with pytest.raises(Problem) as refused:
        copy_of(store, "account", LOOP, *ALWAYS)
    assert refused.value.code == "unknown_table"


def test_an_export_that_ends_before_it_begins_is_refused(tmp_path, capsys):
    folder = str(tmp_path / "service")
    assert main(["init", folder, "--example"]) == 0
    command = ["export", folder, "--loop", "lending", "--out", str(tmp_path / "rows.parquet")]
    for more in ([], ["--table", "decision"]):
        assert main([*command, *more, "--since", "2026-03-01", "--until", "2026-03-01"]) == 2
        assert "not 2026-03-01 and 2026-03-01" in capsys.readouterr().err
    assert not (tmp_path / "rows.parquet").exists()
