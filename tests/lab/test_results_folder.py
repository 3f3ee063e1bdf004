"""Results folders: whose folder it is, what is refused, and what is kept in files of columns."""

from __future__ import annotations

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import consequential as cq
from consequential import provenance
from consequential.files import UnreadableFileError, joined_columns, load_columns, save_columns
from consequential.lab.results_folder import ResultsFolder, ResultsFolderError

ASKED = {"seeds": 2, "penalties": [0.5, 1.0]}


def opened(folder, command="reproduce", parameters=ASKED):
    return ResultsFolder.opened(folder, command, parameters)


def everything(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def folder(tmp_path):
    """A folder of ours with one result."""
    place = tmp_path / "results here"
    result = opened(place).result("a")
    result.parent.mkdir()
    result.write_bytes(b"a result")
    return place


def change_manifest(folder, **changes) -> None:
    file = folder / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


# --- what a folder says about itself


def test_a_new_folder_says_how_it_is_made(tmp_path):
    opened(tmp_path / "deep" / "inside")
    manifest = json.loads((tmp_path / "deep" / "inside" / "manifest.json").read_text())
    assert manifest["command"] == "reproduce"
    assert manifest["parameters"] == ASKED
    packages = {"python", "consequential", "numpy", "numba", "scikit-learn"}
    assert set(manifest["versions"]) >= packages
    assert set(manifest["machine"]) == {"type", "system", "cores"}
    assert manifest["code"]["version"]


def test_the_manifest_names_neither_host_nor_path(folder):
    text = (folder / "manifest.json").read_text()
    assert os.uname().nodename not in text
    assert str(folder) not in text
    assert str(os.path.dirname(provenance.__file__)) not in text


def test_the_same_parameters_find_what_is_there_and_change_nothing(folder):
    before = everything(folder)
    assert opened(folder).result("a").read_bytes() == b"a result"
    assert everything(folder) == before


def test_a_folder_whose_manifest_was_never_finished_is_as_good_as_new(tmp_path):
    (tmp_path / ".manifest.json.abc.part").write_text("{")
    assert opened(tmp_path).manifest["parameters"] == ASKED


# --- refused, and left as it was

OLDER = {"version": "0.0.1", "digest": "0123456789"}
REFUSED = {
    # changes of the manifest, what is asked for, what is said
    "another size": ({}, {**ASKED, "seeds": 3}, r"other parameters \(seeds 2 then, 3 now\)"),
    "nothing said": ({}, {"seeds": 2}, r"penalties \[0\.5, 1\.0\] then, null now"),
    "much": ({}, {**ASKED, "penalties": list(range(99))}, r"\.\.\. now"),
    "command": ({"command": "simulate"}, ASKED, "was made by `consequential simulate`"),
    "code": ({"code": OLDER}, ASKED, r"another version of consequential .*version 0\.0\.1 then"),
    "data": ({"data": {"compas.csv": "0"}}, ASKED, r"other data \(compas\.csv 0 then"),
    "format": ({"format": "consequential results"}, ASKED, "or of another version"),
    "key": ({"parameters": None}, ASKED, "manifest.json is damaged, or of another version"),
}


@pytest.mark.parametrize(("changes", "asked", "said"), REFUSED.values(), ids=REFUSED)
def test_a_folder_of_another_call_is_refused(folder, changes, asked, said):
    change_manifest(folder, **changes)
    before = everything(folder)
    with pytest.raises(ResultsFolderError, match=said):
        opened(folder, parameters=asked)
    assert everything(folder) == before


STRANGE = {
    # a file, its content, what is said
    "other files": ("thesis.tex", b"all of it", "holds other files and no results"),
    **{
        name: ("manifest.json", content, "manifest.json is damaged, or of another version")
        for name, content in {
            "empty": b"",
            "no object": b"[]",
            "no manifest": b"{}",
            "zeros": b"\x00",
            "latin-1": b"\xe9",
            "nested": b"[" * 100_000,
        }.items()
    },
}


@pytest.mark.parametrize(("name", "content", "said"), STRANGE.values(), ids=STRANGE)
def test_a_folder_of_anything_else_is_refused(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ResultsFolderError, match=said):
        opened(tmp_path)
    assert everything(tmp_path) == {name: content}


def test_a_place_that_cannot_be_written_to_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    for place in (tmp_path / "file", tmp_path / "file" / "in it"):
        with pytest.raises(ResultsFolderError, match=r"cannot write to .*--out"):
            opened(place)
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ResultsFolderError, match=r"cannot write to .* \(no permission\)"):
        opened(tmp_path / "folder")
    assert list(everything(tmp_path)) == ["file"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"versions": provenance.versions() | {"numpy": "1.0"}}, r"elsewhere \(numpy 1\.0 then"),
        ({"machine": {"type": "abacus"}}, r"machine abacus then"),
    ],
)
def test_nothing_is_added_with_other_versions_or_on_another_machine(folder, changes, said):
    change_manifest(folder, **changes)
    with pytest.raises(ResultsFolderError, match=said):
        opened(folder).check_surroundings()


def test_what_is_damaged_is_named_with_what_to_do(folder):
    def load(path):
        raise ValueError(f"{path.name} is damaged")

    with pytest.raises(
        ResultsFolderError, match=r"a\.parquet is damaged\. Delete it and run the same"
    ):
        opened(folder).read(opened(folder).result("a"), load)


# --- provenance


def test_the_digests_of_the_data_are_those_of_the_shipped_files():
    sums = provenance.files("consequential.lab.worlds") / "data" / "SHA256SUMS"
    shipped = dict(line.split()[::-1] for line in sums.read_text().splitlines())
    assert provenance.data() == {name: shipped[name] for name in sorted(provenance.data())}
    assert "compas.csv" in provenance.data()


def test_the_digest_covers_what_numbers_depend_on_and_not_how_they_are_drawn(monkeypatch):
    read = []
    kind = type(provenance.files("consequential"))
    original = kind.read_bytes
    monkeypatch.setattr(kind, "read_bytes", lambda path: read.append(str(path)) or original(path))
    provenance.code.__wrapped__()
    names = {os.path.relpath(path, provenance.files("consequential")) for path in read}
    assert {"lab/algorithm/ascent.py", "lab/worlds/lending.py", "lab/paper/studies.py"} <= names
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
    save_columns(tmp_path / "x", columns(), ABOUT)
    found, about = load_columns(tmp_path / "x", "consequential things", 2)
    assert about == ABOUT
    for name, values in columns().items():
        assert found[name].dtype == values.dtype
        np.testing.assert_array_equal(found[name], values)


@pytest.mark.parametrize("values", [["a", "é"], [True, False], [1, 2], [0.5, np.nan]], ids=str)
def test_arrays_of_any_plain_type_are_known_again(tmp_path, values):
    save_columns(tmp_path / "x", {"column": np.array(values)}, ABOUT)
    found, _ = load_columns(tmp_path / "x", "consequential things", 2)
    np.testing.assert_array_equal(found["column"], values)


def of_format(text: str | None):
    named = None if text is None else {ABOUT["format"]: text}
    return lambda table: table.replace_schema_metadata(named)


UNREADABLE = {
    # what is done to the table, what is said
    "another table": (of_format(None), "is a Parquet file but holds no consequential things"),
    "no JSON": (of_format("{"), "is damaged or no Parquet file"),
    "no object": (of_format("[]"), "holds no consequential things"),
    "no digest": (of_format('{"schema": 2}'), "holds no consequential things"),
    "schema": (
        of_format('{"schema": 3, "digest": ""}'),
        "has schema 3; this version reads 2",
    ),
    "changed": (
        lambda table: table.set_column(1, "value", pa.array([0.0, 1.5])),
        "is damaged: its content is not what was written",
    ),
}


@pytest.mark.parametrize(("change", "said"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_file_that_is_not_what_was_written_is_refused(tmp_path, change, said):
    save_columns(tmp_path / "x", columns(), ABOUT)
    pq.write_table(change(pq.read_table(tmp_path / "x")), tmp_path / "x")
    with pytest.raises(UnreadableFileError, match=said):
        load_columns(tmp_path / "x", "consequential things", 2)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*nothing"):
        load_columns(tmp_path / "nothing", "consequential things", 2)


def test_files_of_runs_are_files_of_columns(tmp_path):
    world = cq.worlds.second_setting()
    cq.simulate(world, cq.paper_strategies()[:2], seeds=2, time_steps=2, progress=False).save(
        tmp_path / "runs"
    )
    found, about = load_columns(tmp_path / "runs", "consequential runs", 2)
    save_columns(tmp_path / "again", found, about)
    assert (tmp_path / "again").read_bytes() == (tmp_path / "runs").read_bytes()


def test_pieces_are_joined_in_their_order():
    assert joined_columns([columns(), columns()])["seed"].tolist() == [3, 4, 3, 4]
