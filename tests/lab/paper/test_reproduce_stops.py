"""Killed at any moment, a run goes on, and ends with the bytes of one that was left in peace."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import shutil
import signal
import sys
import time
from contextlib import redirect_stderr
from pathlib import Path

import pytest

from consequential.cli import main
from consequential.lab.paper.results import Results
from consequential.lab.paper.studies import STUDIES, Scale
from consequential.lab.paper.tasks import Simulation, complete, tasks_of
from consequential.lab.results_folder import ResultsFolder

NAMES = ("second-time", "second-penalty")
SCALE = Scale(seeds=11, penalties=2, time_steps=2)

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals differ there")


@pytest.fixture(scope="module")
def processes():
    """Processes that are forked from one which has imported everything: they start at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["consequential.cli.simulations"])
    return context


def run(folder, n_jobs: int | None) -> None:
    tasks = [task for name in NAMES for task in tasks_of(STUDIES[name], SCALE)]
    store = ResultsFolder.opened(folder, "reproduce", {"seeds": SCALE.seeds})
    complete(store, tasks, n_jobs=n_jobs, progress=False)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "results").iterdir())}


def command(arguments: list[str], errors: Path) -> None:
    with errors.open("w") as stream, redirect_stderr(stream):
        code = main(arguments)
    sys.exit(code)


def n_written(folder: Path) -> int:
    """Parts and results, whole ones; folders may go while they are looked at."""
    return sum(
        name.endswith(".parquet") and not name.startswith(".")
        for kind in ("parts", "results")
        for _, _, names in os.walk(folder / kind)
        for name in names
    )


@pytest.fixture(scope="module")
def in_peace(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("peace")
    run(folder, 1)
    return folder


def test_a_run_killed_again_and_again_ends_with_the_same_bytes(in_peace, processes, tmp_path):
    chance = random.Random(5)
    killed = 0
    while killed < 3:
        before = n_written(tmp_path)
        process = processes.Process(target=run, args=(tmp_path, None))
        process.start()
        while process.is_alive() and n_written(tmp_path) <= before:
            time.sleep(0.002)
        time.sleep(chance.random() * 0.03)
        process.kill()
        process.join()
        if process.exitcode != -signal.SIGKILL:
            break  # it had come to its end
        killed += 1
    assert killed >= 2
    run(tmp_path, 2)
    assert files(tmp_path) == files(in_peace)
    assert not (tmp_path / "parts").exists()


def test_a_run_that_ended_between_two_files_of_a_study_makes_the_other(in_peace, tmp_path):
    folder = shutil.copytree(in_peace, tmp_path / "ended early")
    missing = folder / "results" / "second-time-corrected.parquet"
    other = folder / "results" / "second-time-paper.parquet"
    missing.unlink()
    before = other.stat().st_mtime_ns
    run(folder, 1)
    assert files(folder) == files(in_peace)
    assert other.stat().st_mtime_ns == before
    assert not (folder / "parts").exists()


def test_a_damaged_part_is_refused_by_name_and_run_again_once_it_is_deleted(in_peace, tmp_path):
    folder = shutil.copytree(in_peace, tmp_path / "damaged")
    whole = folder / "results" / "second-time-paper.parquet"
    for k in range(2):
        part = folder / "parts" / "second-time-paper" / f"{k:04d}.parquet"
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(whole.read_bytes()[:-99])
    whole.unlink()
    with pytest.raises(ValueError, match=r"0000\.parquet is damaged .* Delete it and run the same"):
        run(folder, 1)
    shutil.rmtree(folder / "parts")
    run(folder, 1)
    assert files(folder) == files(in_peace)


def test_a_damaged_result_is_refused_by_name(in_peace, tmp_path):
    folder = shutil.copytree(in_peace, tmp_path / "damaged")
    (folder / "results" / "second-time-paper.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"second-time-paper\.parquet is damaged .* Delete it and"):
        Results(folder).runs("second-time", "paper")


def test_a_finished_directory_is_not_run_again(in_peace):
    before = {path: path.stat().st_mtime_ns for path in (in_peace / "results").iterdir()}
    run(in_peace, 1)
    assert {path: path.stat().st_mtime_ns for path in (in_peace / "results").iterdir()} == before


def test_results_are_read_by_study_and_column(in_peace):
    results = Results(in_peace)
    assert results.has("second-time", "paper")
    assert not results.has("first-time", "paper")
    runs = results.runs("second-time", "corrected")
    assert runs.seeds == tuple(range(11))
    assert len(runs.strategies) == 6
    assert runs.runs[0].thetas.shape == (3, 2)
    ends = results.runs("second-penalty", "paper")
    assert len(ends.runs) == 4 * 2 * 11
    assert ends.penalties == SCALE.penalty_values
    assert all(len(run.metrics["utility"]) == 1 for run in ends.runs)


def test_results_are_sent_to_workers_as_their_folder(in_peace):
    results = Results(in_peace)
    runs = results.runs("second-time", "paper")
    sent = pickle.dumps(results)
    assert len(sent) < 1000  # without the runs that have been read
    assert pickle.loads(sent).runs("second-time", "paper").strategies == runs.strategies


def test_results_that_are_not_there_say_how_to_make_them(in_peace, tmp_path):
    with pytest.raises(ValueError, match="`consequential reproduce lending --out"):
        Results(in_peace).lending()
    with pytest.raises(ValueError, match=r"holds no results: it has no manifest\.json"):
        Results(tmp_path)


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(processes, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["simulate", "second_setting", "--strategies", "logistic-iterative"]
    arguments += ["--steps", "200", "--seeds", "40", "--out", str(out)]
    process = processes.Process(target=command, args=(arguments, tmp_path / "errors"))
    process.start()
    while not n_written(out) and process.is_alive():
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGINT)
    process.join(60)
    assert process.exitcode == 130
    err = (tmp_path / "errors").read_text()
    assert f"what is done is kept in {out}; the same command goes on from there" in err
    assert "Traceback" not in err
    kept = {path: path.stat().st_mtime_ns for path in (out / "parts" / "runs").iterdir()}
    assert 1 <= len(kept) < 4
    seen = []
    original = Simulation.run

    def counted(self, numbers, n_jobs, tick):
        seen.extend(out / "parts" / "runs" / f"{number:04d}.parquet" for number in numbers)
        return original(self, numbers, n_jobs, tick)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Simulation, "run", counted)
        assert main(arguments) == 0
    assert not set(seen) & set(kept)
    assert len(seen) + len(kept) == 4
    assert "of 40 runs" in capsys.readouterr().out
