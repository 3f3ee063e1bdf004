"""Runs: what is in them, their summary and their frames."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tiny_worlds import Districts, handmade_run, handmade_runs

import consequential as cq
from consequential.lab.simulation import Runs, RunsError

FIRST, SECOND = "logistic, iterative", "deterministic, aggregated"


@pytest.fixture
def runs() -> Runs:
    return handmade_runs()


def test_strategies_keep_their_order_and_numbers_increase():
    runs = handmade_runs(penalties=(0.5, 0.0), seeds=(2, 0))
    assert runs.strategies == (FIRST, SECOND)
    assert runs.penalties == (0.0, 0.5)
    assert runs.seeds == (0, 2)


# --- select, metric, final_policy


def test_runs_are_selected_by_strategy_and_penalty(runs):
    found = runs.select(SECOND, 0.5)
    assert [(r.strategy, r.penalty, r.seed) for r in found] == [(SECOND, 0.5, k) for k in range(3)]


def test_the_only_penalty_need_not_be_named():
    runs = handmade_runs(penalties=(0.5,))
    assert runs.select(FIRST) == runs.select(FIRST, 0.5)


def test_a_metric_has_one_row_per_seed_and_one_column_per_step(runs):
    values = runs.metric("utility", FIRST, 0.5)
    assert values.shape == (3, 4)
    for row, run in zip(values, runs.select(FIRST, 0.5), strict=True):
        assert_array_equal(row, run.metrics["utility"])


def test_the_final_policy_is_that_of_strategy_seed_and_penalty(runs):
    policy = runs.final_policy(SECOND, seed=2, penalty=0.5)
    assert policy is runs.select(SECOND, 0.5)[2].policy
    assert runs.final_policy(SECOND, penalty=0.5) is runs.select(SECOND, 0.5)[0].policy


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda r: r.select("guessing"), r"no strategy 'guessing'; there are \['logistic, iter"),
        (lambda r: r.select(FIRST), r"name the penalty: one of \[0.0, 0.5\]"),
        (lambda r: r.select(FIRST, 0.25), "no runs of 'logistic, iterative' with penalty 0.25"),
        (lambda r: r.metric("profit", FIRST, 0.0), r"no metric 'profit'; there are \['utility'"),
        (lambda r: r.metric("utility", FIRST), "name the penalty"),
        (lambda r: r.final_policy(FIRST, seed=9, penalty=0.0), r"no seed 9; there are \[0, 1, 2\]"),
        (lambda r: r.final_policy("x"), "no strategy 'x'"),
        (lambda r: r.plot("profit", penalty=0.0), "no metric 'profit'"),
        (lambda r: r.plot("utility"), "name the penalty"),
        (lambda r: r.plot("utility", penalty=0.0, strategies=["x"]), "no strategy 'x'"),
    ],
)
def test_asking_for_what_is_not_there_says_what_is(runs, ask, message):
    with pytest.raises(RunsError, match=message):
        ask(runs)


def test_notes_name_the_run_they_belong_to():
    noted = handmade_run(FIRST, 0.5, 3, notes=("step 1: too few", "step 2: none"))
    runs = Runs((handmade_run(), noted), "w", ("a", "b"), "demographic_parity")
    assert runs.notes == (
        "logistic, iterative, penalty 0.5, seed 3, step 1: too few",
        "logistic, iterative, penalty 0.5, seed 3, step 2: none",
    )


# --- summary


def test_a_summary_has_one_row_per_strategy_and_penalty(runs):
    summary = runs.summary()
    assert [(row["strategy"], row["penalty"], row["runs"]) for row in summary.rows] == [
        (FIRST, 0.0, 3),
        (FIRST, 0.5, 3),
        (SECOND, 0.0, 3),
        (SECOND, 0.5, 3),
    ]
    assert summary.n_steps == 3


@pytest.mark.parametrize("n_seeds", [1, 2, 5, 8])
def test_quartiles_are_those_of_the_last_step_over_seeds(n_seeds):
    runs = handmade_runs(seeds=range(n_seeds))
    for row in runs.summary().rows:
        found = runs.select(row["strategy"], row["penalty"])
        for name in found[0].metrics:
            last = sorted(run.metrics[name][-1] for run in found)
            for quartile, value in zip((0.25, 0.5, 0.75), row[name], strict=True):
                # linear between order statistics, written out
                at = quartile * (n_seeds - 1)
                below, above = last[int(at)], last[min(int(at) + 1, n_seeds - 1)]
                assert_allclose(value, below + (at - int(at)) * (above - below))


def test_a_benefit_nobody_can_measure_stays_unknown_in_the_summary():
    run = handmade_run()
    unknown = replace(run, metrics=run.metrics | {"benefit a": np.full(4, np.nan)})
    (row,) = Runs((unknown,), "w", ("a", "b"), "predictive_parity").summary().rows
    assert np.isnan(row["benefit a"]).all()
    assert np.isfinite(row["utility"]).all()


def cells(line: str) -> list[str]:
    return re.split(r" {2,}", line)


SHOWN = ("utility", "effective_utility", "benefit_gap", "acceptance")


def test_a_printed_summary_is_a_table(runs):
    head, rule, *rows, last_rule, note = str(runs.summary()).splitlines()
    columns = ["strategy", "penalty", *(name.replace("_", " ") for name in SHOWN)]
    assert cells(head) == columns
    assert rule == last_rule == "-" * max(len(line) for line in [head, *rows])
    for row, values in zip(rows, runs.summary().rows, strict=True):
        assert cells(row)[:2] == [values["strategy"], f"{values['penalty']:g}"]
        for column in columns[1:]:
            start = head.index(f"  {column}") + 2
            assert row[start - 2 : start] == "  "
            assert row[start] != " "
    assert "3 steps" in note
    assert "median [lower quartile, upper quartile]" in note
    assert "3 runs" in note


@pytest.mark.parametrize("n_seeds", [1, 3])
def test_a_printed_summary_shows_the_median_and_then_the_quartiles(n_seeds):
    summary = handmade_runs(seeds=range(n_seeds)).summary()
    for line, row in zip(str(summary).splitlines()[2:-2], summary.rows, strict=True):
        for text, name in zip(cells(line)[2:], SHOWN, strict=True):
            low, middle, high = row[name]
            found = [float(number) for number in re.findall(r"-?[\d.]+", text)]
            assert_allclose(found, [middle, low, high] if n_seeds > 1 else [middle], atol=5e-5)
    assert ("quartile" in str(summary)) is (n_seeds > 1)


@pytest.mark.parametrize(
    "value",
    [
        0.25,
        -0.25,
        0.0,
        1.0,
        -1.5,
        2.0625,
        10.25,
        -100.5,
    ],
)
def test_a_printed_number_is_the_number(value):
    """A benefit of one's own may be of any size."""
    run = handmade_run()
    run = replace(run, metrics=run.metrics | {"benefit_gap": np.full(4, value)})
    text = str(Runs((run,), "w", ("a", "b"), "benefit_parity").summary())
    assert float(cells(text.splitlines()[2])[4]) == value


def test_a_summary_of_unequally_many_runs_says_so():
    runs = handmade_runs()
    partial = Runs(runs.runs[:-1], "w", ("a", "b"), "x", interrupted=True)
    assert "2 to 3 runs" in str(partial.summary())


# --- frames


def test_a_frame_has_one_row_per_run_and_step(runs):
    table = runs.to_frame()
    assert table.column_names[:5] == ["strategy", "penalty", "seed", "time_step", "utility"]
    assert table.num_rows == 12 * 4
    rows = table.to_pylist()
    for k, run in enumerate(runs.runs):
        for t in range(4):
            row = rows[4 * k + t]
            assert (row["strategy"], row["penalty"]) == (run.strategy, run.penalty)
            assert (row["seed"], row["time_step"]) == (run.seed, t)
            assert row["benefit a"] == run.metrics["benefit a"][t]


@pytest.mark.parametrize("backend", ["pyarrow", "pandas", "polars"])
def test_every_backend_has_the_same_columns_and_numbers(runs, backend):
    frame = runs.to_frame(backend)
    assert type(frame).__module__.split(".")[0] == backend
    expected = np.concatenate([run.metrics["utility"] for run in runs.runs])
    assert_array_equal(np.asarray(frame["utility"]), expected)
    sizes = np.concatenate([run.metrics["effective_sample_size"] for run in runs.runs])
    assert_array_equal(np.asarray(frame["effective_sample_size"]), sizes)
    assert list(map(str, np.asarray(frame["strategy"])))[::24] == [FIRST, SECOND]


def test_an_unknown_backend_is_refused(runs):
    with pytest.raises(ValueError, match="unknown backend 'excel'; choose pyarrow, pandas or pol"):
        runs.to_frame("excel")


def test_a_simulation_ends_in_a_frame():
    runs = cq.simulate(Districts(), cq.lab.LearnToDecide(), seeds=2, progress=False)
    frame = runs.to_frame("pandas")
    last = frame[frame["time_step"] == 3]
    assert_array_equal(last["utility"], runs.metric("utility", FIRST)[:, -1])
