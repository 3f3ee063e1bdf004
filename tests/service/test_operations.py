from __future__ import annotations

import json
import re
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from lending_loop import LOOP, applicants, decide, start
from tampering import unguarded

import consequential as cq
from consequential.cli import main
from consequential.service import schema
from consequential.service.applications import Application
from consequential.service.bodies import Override
from consequential.service.cohorts import all_cohorts
from consequential.service.database import DatabaseError, back_up, locked, open_store
from consequential.service.keys import accounts, authenticated
from consequential.service.outcomes import add_overrides
from consequential.service.records import now
from consequential.service.settings import ServiceSettings
from consequential.service.verify import verify


@pytest.fixture
def directory(tmp_path, capsys):
    """The directory of an example, made by the command."""
    assert main(["init", str(tmp_path / "service"), "--example"]) == 0
    capsys.readouterr()
    return tmp_path / "service"


def opened(directory):
    settings = ServiceSettings.load(directory)
    return open_store(settings), settings


def decide_on(directory, n: int) -> list[str]:
    store, settings = opened(directory)
    people = [Application(f"A-{k}", f"P-{k}", 1.0, {"score": 400.0 + k}) for k in range(n)]
    bodies = decide(store, settings, people)
    store.close()
    return [body["id"] for body in bodies]


def test_keys_are_made_listed_and_revoked(directory, capsys):
    shop = ["key", str(directory), "--name", "shop"]
    assert main([*shop, "--scopes", "decide", "report"]) == 0
    made = re.search(r"^  (\S{43})$", capsys.readouterr().out, re.MULTILINE)
    assert made is not None
    store, _ = opened(directory)
    with store.read() as connection:
        known = accounts(connection)
    store.close()
    assert authenticated(known, f"Bearer {made[1]}", "report").name == "shop"
    assert main([*shop, "--revoke"]) == 0
    assert capsys.readouterr().out == "1 key revoked\n"
    # whoever mistypes the name of a key that was lost must not believe that it is revoked
    assert main(["key", str(directory), "--name", "shp", "--revoke"]) == 2
    assert main(["key", str(directory), "--revoke"]) == 2
    assert main([*shop, "--revoke"]) == 2
    assert "'shp' has no key that is in force" in capsys.readouterr().err
    assert main(["key", str(directory)]) == 0
    assert re.search(r"^shop +decide report +revoked", capsys.readouterr().out, re.MULTILINE)
    assert main([*shop, "--scopes", "everything"]) == 2
    assert "scopes are decide" in capsys.readouterr().err


def test_an_export_says_how_it_is_read(directory, tmp_path, capsys):
    decide_on(directory, 30)
    out = str(tmp_path / "log.parquet")
    asked = ["export", str(directory), "--loop", "lending", "--out", out]
    assert main(asked) == 0
    said = capsys.readouterr().out
    call = said[said.index("DecisionLog.from_file") : -1].replace("**{", "missing='against', **{")
    assert len(eval(f"cq.{call}", {"cq": cq})) == 30
    assert main(asked) == 2
    assert main([*asked, "--overwrite", "--since", "2020-01-01", "--until", "2021-01-01"]) == 0
    assert "rows 0" in capsys.readouterr().out
    assert main([*asked, "--overwrite", "--since", "yesterday"]) == 2
    assert main(["export", str(directory), "--loop", "other"]) == 2
    assert "no loop 'other'; there are lending" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["export", "report"])
def test_a_file_that_is_there_is_refused_before_any_work(tmp_path, capsys, command):
    out = tmp_path / "out"
    out.write_text("mine")
    nowhere = str(tmp_path / "nowhere")  # what would be said next
    assert main([command, nowhere, "--loop", LOOP, "--out", str(out)]) == 2
    assert "choose another file with --out, or give --overwrite" in capsys.readouterr().err
    assert main([command, nowhere, "--loop", LOOP, "--out", str(out), "--overwrite"]) == 2
    assert "no service.json" in capsys.readouterr().err
    assert out.read_text() == "mine"


def test_verify_prints_what_was_changed(directory, capsys):
    ids = decide_on(directory, 3)
    assert main(["verify", str(directory)]) == 0
    assert main(["verify", str(directory), "--decision", ids[0]]) == 0
    assert capsys.readouterr().out == "all as it was written\n" * 2
    store, _ = opened(directory)
    with unguarded(store, schema.decision) as connection:
        connection.exec_driver_sql(f"update decision set amount = 3 where id = '{ids[1]}'")
    store.close()
    assert main(["verify", str(directory)]) == 1
    assert main(["verify", str(directory), "--decision", ids[1]]) == 1
    assert main(["verify", str(directory), "--decision", ids[0]]) == 0
    assert capsys.readouterr().out.count(f"decision {ids[1]}: its digest is not") == 2


def test_a_file_of_a_cohort_that_was_changed_is_found(directory, capsys):
    decide_on(directory, 3)
    store, _ = opened(directory)
    row = all_cohorts(store, directory)["lending"].freeze(f"{now():%Y-%m}", now())
    store.close()
    (directory / row["file"]).write_bytes(b"other")
    assert main(["verify", str(directory)]) == 1
    assert row["file"] in capsys.readouterr().out


def test_forgetting_is_a_command(directory, capsys):
    decide_on(directory, 3)
    forget = ["forget", str(directory), "--subject"]
    assert main([*forget, "P-1"]) == 0
    assert "features of 1 decisions" in capsys.readouterr().out
    assert main([*forget, "nobody"]) == 2


def test_work_can_be_done_once(directory, capsys):
    store, _ = opened(directory)
    past = schema.made_row(
        schema.event, "", now() - timedelta(3), {"by": "a", "what": "b", "about": "c"}
    )
    with store.write() as connection:
        connection.execute(schema.event.insert(), [past])
    assert main(["work", str(directory), "--once"]) == 0
    with store.read() as connection:
        days = schema.rows(connection, schema.day.select())
    store.close()
    assert len(days) == 3 * len(schema.SEALED)
    assert main(["verify", str(directory)]) == 0
    with locked(directory, "worker"):
        assert main(["work", str(directory), "--once"]) == 2
    assert "another worker works" in capsys.readouterr().err


def test_a_backup_under_load_is_a_complete_service(tmp_path, service, store):
    if not store.is_sqlite:
        with pytest.raises(DatabaseError, match="pg_dump"):
            back_up(store, service, tmp_path / "copy")
        return
    start(store, service, rehearsal=False)
    done = threading.Event()
    written: list[int] = []

    def load() -> None:
        while not done.is_set():
            people = applicants(20, None, name=f"L{len(written)}")  # type: ignore[arg-type]
            written.append(len(decide(store, service, people)))

    thread = threading.Thread(target=load)
    thread.start()
    copies = [tmp_path / f"copy-{k}" for k in range(3)]
    for copy in copies:
        before = sum(written)
        back_up(store, service, copy)
        after = sum(written) + 20
        with sqlite3.connect(copy / "service.db") as connection:
            assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
            n = connection.execute("select count(*) from decision").fetchone()[0]
        connection.close()
        assert before <= n <= after
    done.set()
    thread.join()
    (copies[-1] / "secret").write_text(service.secret.hex())
    (copies[-1] / "secret").chmod(0o600)
    copied = ServiceSettings.load(copies[-1])
    restored = open_store(copied)
    assert list(verify(restored, copied.secret)) == []
    restored.close()
    with pytest.raises(FileExistsError):
        back_up(store, service, copies[0])
    assert not list(tmp_path.glob(".*.part"))


def test_a_backup_has_the_secret_and_can_be_served(directory, tmp_path, capsys):
    ids = decide_on(directory, 5)
    assert main(["backup", str(directory), "--out", str(tmp_path / "copy")]) == 0
    assert "keep it as safe" in capsys.readouterr().out
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o700
    for name in ("secret", "service.db", "sensitive.db"):
        assert (tmp_path / "copy" / name).stat().st_mode & 0o777 == 0o600
    assert json.loads((tmp_path / "copy" / "service.json").read_text()) == {"database": ""}
    assert main(["verify", str(tmp_path / "copy"), "--decision", ids[0]]) == 0
    assert LOOP in str(opened_loops(tmp_path / "copy"))


def test_a_backup_that_fails_leaves_nothing(directory, tmp_path):
    (directory / "cohorts").mkdir()
    (directory / "cohorts" / "lost").symlink_to("nowhere")
    assert main(["backup", str(directory), "--out", str(tmp_path / "copy")]) == 2
    assert list(tmp_path.iterdir()) == [directory]


def test_of_two_backups_to_one_folder_one_is_made(directory, tmp_path):
    store, settings = opened(directory)
    copy = tmp_path / "copy"
    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(back_up, store, settings, copy) for _ in range(2)]
    store.close()
    failed = [each.exception() for each in made]
    assert failed.count(None) == 1
    assert any(isinstance(each, OSError) for each in failed)
    assert opened_loops(copy) == ["lending"]
    assert sorted(tmp_path.iterdir()) == [copy, directory]


def opened_loops(directory) -> list[str]:
    store, _ = opened(directory)
    found = list(all_cohorts(store, directory))
    store.close()
    return found


@pytest.fixture
def folder(rehearsed):
    """The folder of a loop that has frozen four cohorts, as commands expect it."""
    folder = rehearsed.service.directory
    (folder / "service.json").write_text(json.dumps({"database": ""}))
    (folder / "secret").write_text(rehearsed.service.secret.hex())
    (folder / "secret").chmod(0o600)
    return folder


def test_learn_files_a_candidate_now_or_says_what_is_missing(rehearsed, folder, capsys):
    rehearsed.put(cost=0.4)
    assert main(["learn", str(folder), "--loop", "lending"]) == 0
    digest, _, said = capsys.readouterr().out.partition(":")
    newest = max(rehearsed.rows(schema.candidate), key=lambda row: row["number"])
    assert (newest["policy"], newest["number"]) == (digest, 4)
    assert "learned from 4 cohorts" in said
    assert main(["learn", str(folder), "--loop", "none"]) != 0
    (folder / "cohorts" / "lending" / "2026-01-03-1.parquet").unlink()
    assert main(["learn", str(folder), "--loop", "lending"]) != 0
    assert "2026-01-03-1.parquet is missing" in capsys.readouterr().err


def test_a_person_freezes_a_period_again_with_what_came_later(rehearsed, folder, capsys):
    accepted = (r["id"] for r in rehearsed.rows(schema.decision) if r["accepted"])
    override = Override(decision_id=next(accepted), accepted=False, why="it came late")
    with rehearsed.store.write() as connection:
        add_overrides(connection, [override], "anna", now())
    command = ["freeze", str(folder), "--loop", "lending", "--cohort"]
    assert main([*command, "2026-01-01"]) == 0
    assert "version 2 of 2026-01-01: 500 decisions" in capsys.readouterr().out
    versions = rehearsed.cohorts().versions("2026-01-01")
    assert [json.loads(row["counts"])["overridden"] for row in versions] == [0, 1]
    events = [row for row in rehearsed.rows(schema.event) if row["what"] == "cohort frozen again"]
    assert [(row["by"], row["about"]) for row in events] == [("operator", "2026-01-01-2")]
    for period in ("2026-01-06", "2025-01-01", "January"):  # these are not frozen
        assert main([*command, period]) == 2
    assert "only a frozen period can be frozen again" in capsys.readouterr().err
