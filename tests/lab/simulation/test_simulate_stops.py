"""simulate: a bar on standard error, Ctrl-C, and arguments that cannot work."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from tiny_worlds import Districts, Interrupting, Stay, assert_same_run, assert_same_runs

import consequential as cq
from consequential.lab.simulation import compiled_sweep
from consequential.lab.simulation.simulate import checked_experiment, stream


def simulated(strategies=None, **options) -> cq.Runs:
    options = {"seeds": 3, "progress": False, "n_proposals": 40} | options
    return cq.simulate(Districts(), strategies or Stay("idle"), **options)


# --- progress


def test_a_bar_counts_the_steps_of_all_runs_on_standard_error(capsys):
    simulated(penalties=[0.0, 1.0], progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "18.0/18.0" in err
    assert "step/s" in err


def test_without_progress_nothing_is_printed(capsys):
    simulated()
    assert capsys.readouterr() == ("", "")


# --- Ctrl-C


@pytest.mark.parametrize("at_step", [None, 0, 2])
def test_ctrl_c_keeps_the_runs_that_are_done_and_says_so(at_step, capsys):
    runs = simulated([Stay("idle"), Interrupting(2, at_step)])
    assert runs.interrupted
    assert [(run.strategy, run.seed) for run in runs.runs] == [
        ("idle", 0),
        ("idle", 1),
        ("interrupting", 0),
    ]
    assert "interrupted: keeping the 3 of 6 runs that are done" in capsys.readouterr().err


@pytest.mark.parametrize("at_step", [None, 1])
def test_ctrl_c_in_the_first_run_leaves_nothing_to_keep(at_step):
    with pytest.raises(KeyboardInterrupt):
        simulated([Interrupting(1, at_step), Stay("idle")])


def test_runs_kept_after_ctrl_c_are_the_runs_they_would_have_been():
    kept, whole = simulated(Interrupting(2)), simulated(Interrupting(99))
    assert_same_run(kept.runs[0], whole.runs[0])
    assert not whole.interrupted


@pytest.mark.parametrize("drifts", [False, True])
def test_ctrl_c_keeps_the_compiled_runs_of_the_seeds_that_are_done(monkeypatch, drifts):
    world = cq.worlds.drift(steps=2) if drifts else cq.worlds.first_setting()
    options = {"penalties": [0.0, 1.0], "time_steps": 2, "n_proposals": 40, "progress": False}
    whole = cq.simulate(world, cq.lab.LearnToDecide(), seeds=[5, 6], n_jobs=1, **options)
    fill = compiled_sweep.fill_proposals

    def interrupted(world, seed, *rest):
        if seed == 7:
            raise KeyboardInterrupt
        fill(world, seed, *rest)

    monkeypatch.setattr(compiled_sweep, "fill_proposals", interrupted)
    kept = cq.simulate(world, cq.lab.LearnToDecide(), seeds=[5, 6, 7, 8], n_jobs=1, **options)
    assert kept.interrupted
    assert_same_runs(kept, whole)
    with pytest.raises(KeyboardInterrupt):  # there is nothing to keep
        cq.simulate(world, cq.lab.LearnToDecide(), seeds=[7, 8], n_jobs=1, **options)


def test_another_error_is_not_taken_for_an_interruption():
    class Broken(Stay):
        def start(self, world, rng):
            raise RuntimeError("no start")

    with pytest.raises(RuntimeError, match="no start"):
        simulated([Stay("idle"), Broken("broken")])


@pytest.fixture
def interrupted() -> cq.Runs:
    """Seeds 0 and 1 with both penalties, then seed 2 with the first only."""
    return simulated(Interrupting(6), penalties=[0.0, 1.0])


def test_interrupted_runs_are_summarised_as_far_as_they_got(interrupted):
    rows = interrupted.summary().rows
    assert [(row["penalty"], row["runs"]) for row in rows] == [(0.0, 3), (1.0, 2)]


def test_a_penalty_that_was_not_reached_has_no_row():
    runs = simulated([Stay("idle"), Interrupting(2)], penalties=[0.0, 1.0], seeds=1)
    rows = runs.summary().rows
    assert [(row["strategy"], row["penalty"]) for row in rows] == [
        ("idle", 0.0),
        ("idle", 1.0),
        ("interrupting", 0.0),
    ]


def test_interrupted_runs_are_plotted_over_time(interrupted):
    (line,) = interrupted.plot(penalty=1.0).lines
    assert len(line.get_xdata()) == 4


def test_interrupted_runs_are_plotted_over_penalties(interrupted):
    (line,) = interrupted.plot(over="penalty").lines
    expected = [
        np.median(interrupted.metric("utility", "interrupting", p)[:, -1]) for p in (0.0, 1.0)
    ]
    np.testing.assert_allclose(line.get_ydata(), expected)


@pytest.mark.parametrize("how", [{"over": "penalty"}, {"penalty": 1.0}], ids=str)
def test_a_strategy_that_was_not_reached_does_not_hide_the_others(how):
    runs = simulated([Stay("idle"), Interrupting(2)], penalties=[0.0, 1.0], seeds=1)
    assert "idle" in [line.get_label() for line in runs.plot(**how).lines]


def test_interrupted_runs_stay_so_in_a_file(interrupted, tmp_path):
    interrupted.save(tmp_path / "runs.parquet")
    loaded = cq.Runs.load(tmp_path / "runs.parquet")
    assert loaded.interrupted
    assert len(loaded.runs) == 5


# --- arguments


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategies": []}, "give strategies with names of their own"),
        ({"strategies": [Stay("twin"), Stay("twin")]}, r"names of their own, not \['twin', 'twin'"),
        ({"seeds": 0}, "at least one seed and one penalty"),
        ({"seeds": -3}, "at least one seed and one penalty"),
        ({"seeds": []}, "at least one seed and one penalty"),
        ({"penalties": []}, "at least one seed and one penalty"),
        ({"seeds": [-1]}, "non-negative"),
        ({"time_steps": -1}, "at least 1"),
        ({"n_proposals": -5}, "at least 1"),
        ({"fairness": "justice"}, "unknown fairness notion 'justice'; choose one of"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"n_jobs": 0, "strategies": cq.lab.LearnToDecide()}, "n_jobs"),
        ({"strategies": cq.lab.LearnToDecide("probit")}, "unknown link 'probit'; choose one of"),
        ({"strategies": cq.lab.LearnToDecide("logistic", "weekly")}, "unknown sequence 'weekly'"),
        ({"strategies": cq.lab.LearnToDecide(floor=1.0)}, r"floor lies in \[0, 1\), not 1.0"),
        (
            {"strategies": cq.lab.LearnToDecide(), "penalties": [-1.0]},
            "penalty is finite and not neg",
        ),
        ({"strategies": cq.lab.LearnToDecide(), "penalties": [np.nan]}, "penalty is finite"),
    ],
)
def test_arguments_that_cannot_work_are_refused_with_a_reason(options, message):
    options = {"strategies": Stay("idle"), "seeds": 2, "progress": False} | options
    with pytest.raises(ValueError, match=message):
        cq.simulate(Districts(), **options)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"time_steps": 0}, id="no time step is not the default"),
        pytest.param({"n_proposals": 0}, id="no proposal is not the default"),
        pytest.param({"seeds": [1, 1]}, id="a seed given twice counts twice"),
        pytest.param({"penalties": [0.5, 0.5]}, id="a penalty given twice counts twice"),
        pytest.param({"penalties": [-1.0]}, id="nobody looks at the penalty"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(options):
    with pytest.raises(ValueError, match=r"at least 1|twice|penalty"):
        simulated(**options)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({"penalties": (p for p in (0.0, 2.0))}, 6, id="penalties from a generator"),
        pytest.param({"seeds": np.int64(3)}, 3, id="a number of seeds of numpy's"),
    ],
)
def test_numbers_may_come_from_anywhere(options, expected):
    assert len(simulated(**options).runs) == expected


def test_seeds_and_penalties_may_be_arrays():
    runs = simulated(seeds=np.arange(2), penalties=np.array([0.0, 2.0]))
    assert runs.seeds == (0, 1)
    assert runs.penalties == (0.0, 2.0)


# --- threads that take seeds of their own


class Failing(cq.worlds.World):
    """People who cannot be drawn after a while."""

    cost = 0.5
    n_drawn = 0

    def propose(self, n, rng):
        self.n_drawn += 1
        if self.n_drawn > 20:
            raise RuntimeError("nobody comes any more")
        return rng.normal(size=(n, 1)), rng.integers(2, size=n)

    def label_probability(self, features, sensitive):
        return np.full(len(features), 0.6)


def test_an_error_in_a_thread_is_raised_where_it_was_asked_for():
    with pytest.raises(RuntimeError, match="nobody comes any more"):
        cq.simulate(
            Failing(), cq.lab.LearnToDecide(), seeds=4, time_steps=30, n_proposals=200,
            n_jobs=2, progress=False,
        )  # fmt: skip


def test_threads_stop_where_nobody_wants_the_rest(monkeypatch):
    taken, fill = [], compiled_sweep.fill_proposals

    def counted(*arguments):
        taken.append(arguments)
        fill(*arguments)

    monkeypatch.setattr(compiled_sweep, "fill_proposals", counted)
    world = cq.worlds.second_setting()
    experiment, seeds = checked_experiment(
        world, cq.lab.LearnToDecide(), seeds=8, penalties=[0.0], time_steps=10_000
    )
    before = set(threading.enumerate())
    steps = stream(experiment, seeds, 2)
    assert next(steps)[0] > 0
    steps.close()
    assert len(taken) < 40_000  # of 80 000: how many were taken by then depends on the machine
    assert not [one for one in threading.enumerate() if one not in before and one.is_alive()]


@pytest.mark.parametrize(("n_seeds", "n_jobs"), [(2, 8), (1, -2)])
def test_runs_do_not_depend_on_how_seeds_share_threads(n_seeds, n_jobs):
    options = {"seeds": n_seeds, "penalties": [0.0, 10.0], "time_steps": 3, "progress": False}
    world, strategy = cq.worlds.second_setting(), cq.lab.LearnToDecide(sequence="aggregated")
    alone = cq.simulate(world, strategy, n_jobs=1, **options)
    shared = cq.simulate(world, strategy, n_jobs=n_jobs, **options)
    assert_same_runs(alone, shared)
