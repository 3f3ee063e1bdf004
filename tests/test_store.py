"""Stores: whose directory it is, what was left behind, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import consequential as cq
from consequential import provenance
from consequential.files import UnreadableFileError, joined_columns, load_columns, save_columns
from consequential.store import Store, StoreError

ASKED = {"seeds": 2, "penalties": [0.5, 1.0]}


def opened(folder, command="reproduce", parameters=None):
    return Store.opened(folder, command, ASKED if parameters is None else parameters)


def everything(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_results_of_another_schema_are_refused_with_both_numbers(tmp_path):
    with opened(tmp_path):
        pass
    changed_manifest(tmp_path, schema=2)
    before = everything(tmp_path)
    with pytest.raises(StoreError, match="results of schema 2, this version has 3"):
        Store.existing(tmp_path)
    with pytest.raises(StoreError, match="results of schema 2"), opened(tmp_path):
        pass
    assert everything(tmp_path) == before


def changed_manifest(folder, **changes) -> None:
    there = Store.existing(folder)
    there.manifest |= changes
    there._write_manifest()


@pytest.fixture
def folder(tmp_path):
    """A directory of ours with one result."""
    place = tmp_path / "results here"
    with opened(place) as there:
        there.make_folders("a")
        there.write({there.result("a"): lambda path: path.write_bytes(b"a result")}, "a")
        there.expect(["a"])
        there.remove_parts("a")
    return place


# --- what a directory says about itself


def test_a_new_directory_says_how_it_is_made(tmp_path):
    with opened(tmp_path / "deep" / "inside") as there:
        there.write({}, "a", 1.5)
        there.write({}, "a", 0.25)
    manifest = json.loads((tmp_path / "deep" / "inside" / "manifest.json").read_text())
    assert manifest["command"] == "reproduce"
    assert manifest["parameters"] == ASKED
    assert manifest["seconds"] == {"a": 1.75}
    assert set(manifest["versions"]) >= {
        "python",
        "consequential",
        "numpy",
        "numba",
        "scikit-learn",
    }
    assert set(manifest["machine"]) == {"type", "system", "cores"}
    assert manifest["code"]["version"]


def test_the_digests_of_the_data_are_those_of_the_shipped_files():
    sums = provenance.files("consequential.worlds") / "data" / "SHA256SUMS"
    shipped = dict(line.split()[::-1] for line in sums.read_text().splitlines())
    assert provenance.data() == {name: shipped[name] for name in sorted(provenance.data())}
    assert "compas.csv" in provenance.data()


def test_the_manifest_names_neither_host_nor_path(folder):
    text = (folder / "manifest.json").read_text()
    assert os.uname().nodename not in text
    assert str(folder) not in text
    assert str(os.path.dirname(provenance.__file__)) not in text


def test_what_was_asked_for_adds_up(folder):
    with opened(folder) as there:
        there.expect(["b", "a"])
    assert json.loads((folder / "manifest.json").read_text())["studies"] == ["a", "b"]


# --- going on


def test_the_same_parameters_find_what_is_there(folder):
    with opened(folder) as there:
        assert there.has("a")
        assert not there.has("b")


def test_nothing_half_written_and_no_part_of_a_result_stays(folder):
    for name in (".manifest.json.x1", "results/.b.parquet", "figures/.f.svg.x.part"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("half")
    for name in ("parts/a/0000.parquet", "parts/b/0000.parquet", "parts/b/.0001.parquet"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("whole")
    mine = {"notes of mine.txt", ".hidden", "results/.hidden", "parts/a/notes.txt"}
    for name in mine:
        (folder / name).write_text("stay")
    with opened(folder) as there:
        assert there.part("b", 0).is_file()
    ours = {"manifest.json", "results/a.parquet", "parts/b/0000.parquet"}
    assert set(everything(folder)) == ours | mine


def test_a_directory_whose_manifest_was_never_finished_is_as_good_as_new(tmp_path):
    (tmp_path / ".manifest.json.abc").write_text("{")
    with opened(tmp_path):
        pass
    assert list(everything(tmp_path)) == ["manifest.json"]


# --- damage


@pytest.fixture
def unfinished(tmp_path):
    """A directory with the results of two studies and two parts of a third."""
    with opened(tmp_path / "unfinished") as there:
        for name in ("a", "b", "c"):
            there.make_folders(name)
        files = [there.result("a"), there.result("b"), there.part("c", 0), there.part("c", 1)]
        saves = {
            path: partial(save_columns, columns={"utility": np.array([0.5, k])})
            for k, path in enumerate(files)
        }
        there.write(saves, "abc", 1.5)
    return there


@pytest.mark.parametrize("kind", ["result", "part"])
def test_every_changed_byte_of_a_result_or_a_part_is_found(unfinished, kind):
    path = unfinished.result("a") if kind == "result" else unfinished.part("c", 1)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(StoreError, match=r"is damaged or was replaced: .* Delete it and run"):
            unfinished.checked(path)
    path.write_bytes(whole)
    assert unfinished.checked(path) == path


def test_every_changed_byte_of_a_manifest_is_found_or_changes_nothing(unfinished):
    path = unfinished.folder / "manifest.json"
    whole, found = path.read_bytes(), 0
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        try:
            assert Store.existing(unfinished.folder).manifest == unfinished.manifest
        except StoreError:
            found += 1
    assert found > 0.7 * len(whole)  # other bytes are indentation


def test_a_manifest_without_one_of_its_keys_is_refused(unfinished):
    path = unfinished.folder / "manifest.json"
    whole = json.loads(path.read_text())
    for key in whole:
        path.write_text(json.dumps({name: value for name, value in whole.items() if name != key}))
        with pytest.raises(StoreError, match="is damaged or not a manifest"):
            Store.existing(unfinished.folder)
        with pytest.raises(StoreError, match="is damaged or not a man"), opened(unfinished.folder):
            pass


def test_the_result_of_another_study_or_another_part_is_refused(unfinished):
    there = Store.existing(unfinished.folder)
    for path, other in [
        (there.result("a"), there.result("b")),
        (there.part("c", 1), there.part("c", 0)),
    ]:
        path.write_bytes(other.read_bytes())
        with pytest.raises(StoreError, match=rf"{path.name} is damaged or was replaced"):
            there.checked(path)


def test_a_file_that_is_not_in_the_manifest_counts_as_missing(unfinished):
    unfinished.result("c").write_bytes(unfinished.result("a").read_bytes())
    unfinished.part("c", 2).write_bytes(unfinished.part("c", 0).read_bytes())
    with opened(unfinished.folder) as there:
        assert not there.has("c")
        assert not there.is_finished(there.part("c", 2))
        assert there.is_finished(there.part("c", 1))


def test_the_manifest_lists_a_file_before_it_appears(tmp_path, monkeypatch):
    with opened(tmp_path) as there:
        there.make_folders("a")
        monkeypatch.setattr(Path, "replace", lambda *_: 1 / 0)  # killed at this moment
        with pytest.raises(ZeroDivisionError):
            there.write({there.result("a"): lambda path: path.write_bytes(b"a result")}, "a")
        monkeypatch.undo()
    assert "results/a.parquet" in Store.existing(tmp_path).manifest["files"]
    with opened(tmp_path) as there:
        assert not there.has("a")
    assert list(everything(tmp_path)) == ["manifest.json"]


def test_what_is_deleted_is_run_again(unfinished):
    unfinished.result("a").unlink()
    with opened(unfinished.folder) as there:
        assert not there.has("a")
        assert there.has("b")


# --- refused, and left as it was


@pytest.mark.parametrize(
    ("command", "parameters", "message"),
    [
        ("reproduce", {**ASKED, "seeds": 3}, r"other parameters \(seeds 2 then, 3 now\)"),
        ("reproduce", {"seeds": 2}, r"penalties \[0\.5, 1\.0\] then, null now"),
        ("reproduce", {**ASKED, "penalties": list(range(99))}, r"\.\.\. now"),
        ("simulate", ASKED, "was made by `consequential reproduce`"),
    ],
)
def test_another_command_or_other_parameters_are_refused(folder, command, parameters, message):
    before = everything(folder)
    with pytest.raises(StoreError, match=message), opened(folder, command, parameters):
        pass
    assert everything(folder) == before


def test_another_version_of_the_code_is_refused(folder):
    changed_manifest(folder, code={"version": "0.0.1", "digest": "0123456789"})
    with (
        pytest.raises(StoreError, match=r"another version .* \(0\.0\.1, code 01234567; this is"),
        opened(folder),
    ):
        pass


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "other"}', "\x00"])
def test_a_manifest_of_another_kind_is_refused(folder, content):
    (folder / "manifest.json").write_text(content)
    before = everything(folder)
    with pytest.raises(StoreError, match="not a manifest that this version reads"), opened(folder):
        pass
    assert everything(folder) == before


def test_a_directory_with_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("all of it")
    with pytest.raises(StoreError, match="holds other files and no results"), opened(tmp_path):
        pass
    assert list(everything(tmp_path)) == ["thesis.tex"]


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match=r"cannot write to .*--out"), opened(tmp_path / "file"):
        pass
    with pytest.raises(StoreError, match=r"cannot write to"), opened(tmp_path / "file" / "in it"):
        pass


def test_a_directory_without_permission_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(StoreError, match=r"cannot write to .* \(no permission\)"), opened(tmp_path):
        pass
    assert everything(tmp_path) == {}


def test_with_work_left_other_versions_are_refused(folder):
    versions = provenance.versions() | {"numpy": "1.0"}
    changed_manifest(folder, versions=versions)
    with opened(folder) as there:
        there.expect(["a"])  # nothing left: figures can be drawn anywhere
        with pytest.raises(StoreError, match=r"begun elsewhere \(numpy 1\.0 then"):
            there.expect(["a", "b"])


def test_with_work_left_another_type_of_machine_is_refused(folder, monkeypatch):
    monkeypatch.setattr(provenance, "machine", lambda: {"type": "abacus"})
    with (
        opened(folder) as there,
        pytest.raises(StoreError, match=r"machine .* then, abacus now"),
    ):
        there.expect(["b"])


@pytest.mark.skipif(sys.platform == "win32", reason="directories are not locked there")
def test_two_runs_at_once_are_refused(folder):
    program = (
        "import sys\n"
        "from consequential.store import Store, StoreError\n"
        "try:\n"
        f"    with Store.opened(sys.argv[1], 'reproduce', {ASKED!r}):\n"
        "        pass\n"
        "except StoreError as error:\n"
        "    print(error)\n"
    )
    with opened(folder):
        done = subprocess.run(
            [sys.executable, "-c", program, str(folder)], capture_output=True, text=True
        )
    assert "another run is writing to" in done.stdout


# --- provenance


def test_the_digest_covers_what_numbers_depend_on_and_not_how_they_are_drawn(monkeypatch):
    read = []
    kind = type(provenance.files("consequential"))
    original = kind.read_bytes
    monkeypatch.setattr(kind, "read_bytes", lambda path: read.append(str(path)) or original(path))
    provenance.code.__wrapped__()
    names = {os.path.relpath(path, provenance.files("consequential")) for path in read}
    assert {"learning/ascent.py", "worlds/lending.py", "paper/studies.py"} <= names
    assert not {name for name in names if "figures/" in name or "claims" in name or "cli" in name}


# --- files of columns


ABOUT = {"format": "consequential things", "schema": 2, "world": "mine"}


def columns():
    return {
        "name": np.array(["a", "b"], dtype=object),
        "value": np.array([np.nan, 1.5]),
        "seed": np.array([3, 4]),
    }


def test_columns_come_back_to_the_last_bit(tmp_path):
    save_columns(tmp_path / "x", columns())
    found, about = load_columns(tmp_path / "x")
    assert about == {}
    for name, values in columns().items():
        assert found[name].dtype == values.dtype
        np.testing.assert_array_equal(found[name], values)


def test_what_is_stored_about_columns_comes_back(tmp_path):
    save_columns(tmp_path / "x", columns(), ABOUT)
    assert load_columns(tmp_path / "x", "consequential things", (1, 2))[1] == ABOUT


@pytest.mark.parametrize("values", [["a", "é"], [True, False], [1, 2], [0.5, np.nan]], ids=str)
def test_arrays_of_any_plain_type_are_known_again(tmp_path, values):
    save_columns(tmp_path / "x", {"column": np.array(values)}, ABOUT)
    found, _ = load_columns(tmp_path / "x", "consequential things", (2,))
    np.testing.assert_array_equal(found["column"], values)


def test_a_file_of_another_format_or_a_later_schema_is_refused(tmp_path):
    save_columns(tmp_path / "x", columns(), ABOUT)
    with pytest.raises(UnreadableFileError, match="is a Parquet file but holds no runs"):
        load_columns(tmp_path / "x", "runs", (1,))
    with pytest.raises(UnreadableFileError, match="has schema 2; this version reads 3 and 4"):
        load_columns(tmp_path / "x", "consequential things", (3, 4))


def test_a_file_whose_content_was_changed_is_refused(tmp_path):
    save_columns(tmp_path / "x", columns(), ABOUT)
    table = pq.read_table(tmp_path / "x")
    changed = table.set_column(1, "value", pa.array([0.0, 1.5]))
    pq.write_table(changed, tmp_path / "x")
    with pytest.raises(UnreadableFileError, match="its content is not what was written"):
        load_columns(tmp_path / "x", "consequential things", (2,))


@pytest.mark.parametrize("document", ["[]", "{}", '{"schema": 2}'])
def test_a_file_that_does_not_say_what_it_holds_is_refused(tmp_path, document):
    table = pa.table({"a": [1]}).replace_schema_metadata({ABOUT["format"]: document})
    pq.write_table(table, tmp_path / "x")
    with pytest.raises(UnreadableFileError, match="does not say what it holds"):
        load_columns(tmp_path / "x", "consequential things", (2,))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*nothing"):
        load_columns(tmp_path / "nothing")


def test_files_of_runs_are_files_of_columns(tmp_path):
    world = cq.worlds.second_setting()
    cq.simulate(world, cq.paper_strategies()[:2], seeds=2, time_steps=2, progress=False).save(
        tmp_path / "runs"
    )
    found, about = load_columns(tmp_path / "runs", "consequential runs", (1, 2))
    save_columns(tmp_path / "again", found, about)
    assert (tmp_path / "again").read_bytes() == (tmp_path / "runs").read_bytes()


def test_pieces_are_joined_in_their_order():
    assert joined_columns([columns(), columns()])["seed"].tolist() == [3, 4, 3, 4]
