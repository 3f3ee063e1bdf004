"""Runs in files: exact, whole, and refused with a reason where they are not runs."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.naive_bayes import GaussianNB
from tiny_worlds import Districts, assert_same_run, handmade_run, handmade_runs, tiny

import consequential as cq
from consequential.lab.simulation import Runs, RunsError
from consequential.lab.simulation.runs import FORMAT


@pytest.fixture
def file(tmp_path):
    return tmp_path / "runs.parquet"


def through(file, runs: Runs) -> Runs:
    runs.save(file)
    return Runs.load(file)


def assert_same_runs(loaded: Runs, runs: Runs) -> None:
    assert (loaded.world, loaded.groups) == (runs.world, runs.groups)
    assert (loaded.fairness, loaded.interrupted) == (runs.fairness, runs.interrupted)
    for run, other in zip(loaded.runs, runs.runs, strict=True):
        assert_same_run(run, other)


# --- there and back


@pytest.mark.parametrize(
    "world", [Districts, lambda: tiny(cq.worlds.lending())], ids=["districts", "lending"]
)
def test_simulated_runs_come_back_to_the_last_bit(world, file):
    strategies = [
        cq.lab.LearnToPredict(fair=True),
        cq.lab.LearnToDecide("semi_logistic", "aggregated", floor=0.1),
        cq.lab.LearnToDecide("logistic"),
    ]
    runs = cq.simulate(
        world(),
        strategies,
        seeds=[5, 2],
        penalties=[0.0, 1 / 3],
        fairness="equal_opportunity",
        progress=False,
    )
    assert_same_runs(through(file, runs), runs)


def test_a_loaded_policy_decides_as_the_saved_one(file):
    runs = cq.simulate(
        tiny(cq.worlds.lending()), cq.lab.LearnToDecide("semi_logistic"), seeds=1, progress=False
    )
    scores = np.linspace(300, 850, 300)[:, None]
    before, after = (r.runs[0].policy.propensity(scores) for r in (runs, through(file, runs)))
    assert before.tobytes() == after.tobytes()


def test_awkward_numbers_and_words_come_back(file):
    run = handmade_run('größer, <b> & "x" \'', 1e-300, 2**40, notes=("step 0: 'ä'", ""))
    awkward = [np.nan, np.inf, -0.0, 5e-324]
    odd = replace(run, metrics=run.metrics | {"utility": np.array(awkward)})
    runs = Runs((odd, handmade_run()), "wörld\n", ("a", 1, 2.5, True), "x", interrupted=True)
    assert_same_runs(through(file, runs), runs)


@pytest.mark.parametrize("groups", [(0, 1), ("f", "m"), (0.5, 1.5), (False, True)], ids=str)
def test_groups_keep_their_types(file, groups):
    loaded = through(file, handmade_runs(groups=groups))
    assert [(group, type(group)) for group in loaded.groups] == [(g, type(g)) for g in groups]


def test_runs_with_a_single_step_come_back(file):
    runs = Runs(tuple(handmade_run(seed=k, n_rows=2) for k in range(3)), "w", (), "x")
    assert_same_runs(through(file, runs), runs)


def test_a_summary_is_the_same_before_and_after(file):
    runs = handmade_runs()
    assert str(through(file, runs).summary()) == str(runs.summary())


def test_saving_again_writes_the_same_bytes(file, tmp_path):
    runs = handmade_runs()
    through(file, runs).save(tmp_path / "again.parquet")
    assert (tmp_path / "again.parquet").read_bytes() == file.read_bytes()


def test_the_file_is_a_table_for_other_tools(file):
    handmade_runs().save(file)
    assert pq.read_table(file).column_names[:4] == ["strategy", "penalty", "seed", "time_step"]


# --- classifiers that cannot be stored


class OwnClassifier(GaussianNB):
    """A class that another process may not have."""


def test_metrics_are_kept_where_a_classifier_cannot_be(file):
    classifier = OwnClassifier()
    strategies = [cq.lab.LearnToPredict("aggregated", classifier), cq.lab.LearnToDecide()]
    runs = cq.simulate(Districts(), strategies, seeds=2, progress=False)
    loaded = through(file, runs)
    for run, other in zip(loaded.select(runs.strategies[0]), runs.runs, strict=False):
        assert run.policy is None
        for name, values in run.metrics.items():
            assert values.tobytes() == other.metrics[name].tobytes()
    with pytest.raises(RunsError, match="policy could not be stored in the file"):
        loaded.final_policy("deterministic, aggregated")
    assert isinstance(loaded.final_policy("logistic, iterative"), cq.Policy)


def test_runs_without_policies_can_be_saved_again(file):
    runs = Runs((replace(handmade_run(), policy=None),), "w", (), "x")
    assert_same_runs(through(file, runs), runs)


# --- files that are not runs


def test_a_missing_file_is_named(file):
    with pytest.raises(FileNotFoundError, match=r"no file .*runs\.parquet"):
        Runs.load(file)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"strategy,seed\n", b"\x00" * 500], ids=str)
def test_a_file_that_is_no_parquet_is_refused(file, content):
    file.write_bytes(content)
    with pytest.raises(RunsError, match=r"runs\.parquet is damaged or no Parquet file"):
        Runs.load(file)


def rewritten(file, change) -> None:
    """Save runs, then change the table or what is written about it."""
    handmade_runs(seeds=(0,)).save(file)
    table = pq.read_table(file)
    table, about = change(table, json.loads(table.schema.metadata[FORMAT.encode()]))
    pq.write_table(table.replace_schema_metadata({FORMAT: json.dumps(about)}), file)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda t, a: (t, a | {"policies": []}), id="no policies"),
        pytest.param(lambda t, a: (t, a | {"policies": [{"type": "?"}] * 4}), id="bad policies"),
        pytest.param(lambda t, a: (t, a | {"notes": []}), id="no notes"),
        pytest.param(lambda t, a: (t.drop_columns(["time_step"]), a), id="no time steps"),
        pytest.param(lambda t, a: (t.slice(0, 0), a), id="no rows"),
    ],
)
def test_runs_with_parts_missing_are_refused_with_the_files_name(file, change):
    rewritten(file, change)
    with pytest.raises(RunsError, match=r"runs\.parquet"):
        Runs.load(file)


def test_a_file_with_a_changed_byte_is_refused_or_says_the_same(file):
    runs = handmade_runs(strategies=("logistic, iterative",), seeds=(0,))
    runs.save(file)
    whole = file.read_bytes()
    for at in range(4, len(whole), 29):
        damaged = bytearray(whole)
        damaged[at] ^= 0xFF
        file.write_bytes(damaged)
        try:
            loaded = Runs.load(file)
        except RunsError:
            continue
        assert_same_runs(loaded, runs)
