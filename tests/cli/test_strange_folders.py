"""Folders of results that were damaged: what is wrong is refused by name, the rest is the same."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from loan_files import FEATURES, LOGGED

from consequential.cli import main
from consequential.files import save_columns
from consequential.store import Store, StoreError

PARAMETERS = {"seeds": 2}
ODD = (None, True, "", "x", [], {}, [[]], 0, -1, 1e300, 2**70, "\ud800", {"sha256": 1}, ["x"])


def change_json(path: Path, rng: np.random.Generator) -> None:
    """Change, remove or add one value of a JSON file."""
    document = json.loads(path.read_text())
    known = [(document, key) for key in document]
    known += [(each, key) for each in document.values() if isinstance(each, dict) for key in each]
    holder, key = known[rng.integers(len(known))]
    match int(rng.integers(3)):
        case 0:
            del holder[key]
        case 1:
            holder[key] = ODD[rng.integers(len(ODD))]
        case _:
            document = [document, [*[[]] * 3], ODD[rng.integers(len(ODD))]][rng.integers(3)]
    path.write_text(json.dumps(document))


def change_file(path: Path, others: list[Path], rng: np.random.Generator) -> None:
    """Remove, cut, change, nest, replace or misplace a file."""
    content = path.read_bytes()
    place = int(rng.integers(len(content)))
    match int(rng.integers(8)):
        case 0:
            path.unlink()
        case 1:
            path.write_bytes(content[:place])
        case 2:
            path.write_bytes(content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :])
        case 3:
            path.write_bytes(content + content[place:])
        case 4:
            path.write_bytes(b"[" * 100_000)
        case 5:
            path.write_bytes(others[rng.integers(len(others))].read_bytes())
        case 6:
            path.unlink()
            path.mkdir()
        case _:
            path.with_name(f"other{path.suffix}").write_bytes(content)


def damage(folder: Path, rng: np.random.Generator) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = files[rng.integers(len(files))]
    if path.suffix == ".json" and rng.random() < 0.5:
        with suppress(ValueError, RecursionError, AttributeError, TypeError):  # damaged already
            change_json(path, rng)
    else:
        change_file(path, files, rng)


# --- folders that work is resumed in


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A folder with two results and the parts of a third."""
    folder = tmp_path_factory.mktemp("whole")
    with Store.opened(folder, "simulate", PARAMETERS) as store:
        for name in ("a", "b", "c"):
            store.make_folders(name)
        paths = [store.result("a"), store.result("b"), store.part("c", 0), store.part("c", 1)]
        for number, path in enumerate(paths):
            column = {"utility": np.arange(3.0) + number}
            store.write({path: lambda place, column=column: save_columns(place, column)}, "abc")
    return folder


def check_store(seed: int, whole: Path, folder: Path) -> None:
    shutil.copytree(whole, folder)
    rng = np.random.default_rng([6, seed])
    for _ in range(rng.integers(1, 3)):
        damage(folder, rng)
    try:
        with Store.opened(folder, "simulate", PARAMETERS) as store:
            store.expect(["a", "b", "c"])
            paths = [store.result(name) for name in "abc"] + [store.part("c", k) for k in range(3)]
            for path in filter(store.is_finished, paths):
                content = store.checked(path).read_bytes()
                assert content == (whole / path.relative_to(folder)).read_bytes(), seed
    except StoreError as error:
        if str(folder) not in str(error):
            raise


@pytest.mark.parametrize("block", range(5))
def test_a_damaged_store_is_refused_by_name_or_read_as_it_was(block, whole, tmp_path):
    for seed in range(40 * block, 40 * block + 40):
        check_store(seed, whole, tmp_path / str(seed))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_thousands_of_damaged_stores_are_refused_by_name_or_read_as_they_were(
    block, whole, tmp_path
):
    for seed in range(1000 + 300 * block, 1300 + 300 * block):
        check_store(seed, whole, tmp_path / str(seed))


# --- folders that a command replaces


@pytest.fixture
def overlap(shared, tmp_path) -> list[str]:
    asked = ["overlap", str(shared / "loans.csv"), *FEATURES, *LOGGED, "--out", str(tmp_path / "x")]
    assert main(asked) == 0
    return asked


def check_results(seed: int, overlap: list[str], folder: Path, capsys) -> None:
    rng, out = np.random.default_rng([7, seed]), folder / str(seed)
    out.mkdir()
    for path in Path(overlap[-1]).iterdir():
        (out / path.name).write_bytes(path.read_bytes())
    for _ in range(rng.integers(1, 3)):
        damage(out, rng)
    code = main([*overlap[:-1], str(out)])
    shown = capsys.readouterr().err
    assert code in (0, 2), seed
    if code == 2:
        assert shown.startswith(f"consequential: {out}"), (seed, shown)
        assert len(shown.splitlines()) == 1
    else:
        for path in Path(overlap[-1]).iterdir():
            assert (out / path.name).read_bytes() == path.read_bytes(), seed
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("block", range(2))
def test_damaged_results_are_refused_by_name_or_written_again(block, overlap, tmp_path, capsys):
    for seed in range(10 * block, 10 * block + 10):
        check_results(seed, overlap, tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_hundreds_of_damaged_results_are_refused_by_name_or_written_again(
    block, overlap, tmp_path, capsys
):
    for seed in range(1000 + 50 * block, 1050 + 50 * block):
        check_results(seed, overlap, tmp_path, capsys)
