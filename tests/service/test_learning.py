"""Learning: when a candidate is due, what it is learned from, and what cannot be learned from."""

from __future__ import annotations

import contextlib
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from learning_loop import LOOP, SETTINGS, Rehearsal, rule, tables

import consequential as cq
from consequential.learning import rows as solver_rows
from consequential.policy import policy_digest
from consequential.service import learning, schema
from consequential.service.candidates import candidates
from consequential.service.cohorts import rows_of
from consequential.service.exports import as_log, joined, log_columns
from consequential.service.learning import learned_policy
from consequential.service.policies import checked_policy
from consequential.service.problems import Problem
from consequential.service.records import now
from consequential.service.settings import loop_settings
from consequential.service.verify import verify


def days(first: int, last: int) -> list[str]:
    """The names of cohorts."""
    return [f"2026-01-{k:02}-1" for k in range(first, last + 1)]


def learned(loop: Rehearsal) -> list[list[str]]:
    """The cohorts that each candidate was learned from."""
    cohorts = {row["policy"]: json.loads(row["cohorts"]) for row in loop.rows(schema.policy)}
    with loop.store.read() as connection:
        return [cohorts[row["policy"]] for row in candidates(connection, LOOP)]


def learn(loop: Rehearsal) -> str:
    cohorts = loop.cohorts()
    return learning.learn(cohorts, cohorts.frozen(), cohorts.clock(now()))()


def frozen_rows(cohorts) -> pa.Table:
    return rows_of(cohorts.directory, cohorts.frozen(), cohorts.settings)


def refused(loop: Rehearsal) -> Problem:
    """Why nothing can be learned, which leaves nothing behind."""
    before = [len(loop.rows(table)) for table in (schema.policy, schema.candidate, schema.event)]
    with pytest.raises(Problem) as raised:
        learn(loop)
    after = [len(loop.rows(table)) for table in (schema.policy, schema.candidate, schema.event)]
    assert before == after
    return raised.value


def failures(loop: Rehearsal) -> list[dict[str, str]]:
    rows = [row for row in loop.rows(schema.event) if row["what"] == "work failed"]
    return [json.loads(row["about"]) for row in rows]


# --- when


def test_a_candidate_is_learned_whenever_the_number_of_cohorts_has_doubled(store, service):
    loop = Rehearsal.of(store, service)
    loop.days(4)
    assert learned(loop) == [days(1, 1), days(1, 2)]
    row = loop.rows(schema.candidate)[0]
    assert (row["seed"], row["version"], row["by"]) == (0, 1, "worker")
    parents = {each["parent"] for each in loop.rows(schema.policy) if each["by"] == "worker"}
    assert parents == {loop.harsh}
    before = tables(loop)
    loop.work()
    assert tables(loop) == before
    assert failures(loop) == []
    assert list(verify(store, service.secret)) == []


def test_many_cohorts_give_candidates_from_the_first_of_them_at_once(sqlite_loop, monkeypatch):
    loop = sqlite_loop
    monkeypatch.setattr(learning, "due", lambda *_: [])
    loop.days(6, n=200)
    assert learned(loop) == []
    monkeypatch.undo()
    loop.work()
    assert learned(loop) == [days(1, 1), days(1, 2), days(1, 4)]
    looks = loop.rows(schema.evaluation)
    found = {row["candidate_number"]: json.loads(row["cohorts"]) for row in looks}
    assert found == {1: days(2, 4), 2: days(3, 4)}


def test_after_a_promotion_a_candidate_is_learned_from_all_cohorts_once(rehearsed):
    loop = rehearsed
    loop.decide()
    loop.work()  # five cohorts
    assert len(learned(loop)) == 3
    best = loop.rows(schema.candidate)[0]["policy"]
    loop.approve({best: 1.0}, why="a trial")
    loop.work()
    assert learned(loop)[3:] == [days(1, 5)]
    loop.work()
    assert len(learned(loop)) == 4


def test_what_gives_the_live_policy_again_is_not_learned_again_and_again(rehearsed, monkeypatch):
    newest = max(rehearsed.rows(schema.candidate), key=lambda row: row["number"])
    rehearsed.approve({newest["policy"]: 1.0}, why="a trial")
    calls: list[Any] = []
    learn = learning.learn
    monkeypatch.setattr(
        learning, "learn", lambda *told, **more: calls.append(told) or learn(*told, **more)
    )
    rehearsed.work()
    rehearsed.work()
    assert len(calls) == 1
    assert len(rehearsed.rows(schema.candidate)) == 3


def test_the_window_leaves_old_cohorts_out(rehearsed):
    rehearsed.put(gate=SETTINGS["gate"] | {"window": 2})
    learn(rehearsed)
    assert learned(rehearsed)[-1] == days(3, 4)


def test_learning_is_asked_for_and_answered_by_the_worker(rehearsed):
    with rehearsed.store.write() as connection:
        request = learning.ask(connection, LOOP, "anna", now())
    rehearsed.put(cost=0.4)
    rehearsed.work()
    with rehearsed.store.read() as connection:
        (told,) = learning.asked(connection, LOOP)
    assert (told["id"], told["by"]) == (request, "anna")
    assert told["answer"]["policy"] in {row["policy"] for row in rehearsed.rows(schema.candidate)}
    assert len(learned(rehearsed)) == 4
    rehearsed.work()
    assert len(learned(rehearsed)) == 4


def test_a_failure_is_tried_again_when_the_settings_or_the_day_have_changed(
    sqlite_loop, monkeypatch
):
    loop, calls = sqlite_loop, []

    def fails(*told: Any) -> None:
        calls.append(told)
        raise MemoryError

    monkeypatch.setattr(learning, "learned_policy", fails)
    loop.days(2, n=50)
    loop.decide(50)
    for expected in (1, 1):
        with contextlib.suppress(MemoryError):
            loop.work()
        assert len(calls) == expected
    loop.put(cost=0.4)
    with pytest.raises(MemoryError):
        loop.work()
    assert len(calls) == 2
    assert sorted(told["version"] for told in failures(loop)) == [1, 2]
    monkeypatch.undo()
    loop.days(1, n=50)
    assert days(1, 1) in learned(loop)


def test_an_answer_is_written_with_the_candidate_or_neither_is(rehearsed, monkeypatch):
    with rehearsed.store.write() as connection:
        request = learning.ask(connection, LOOP, "anna", now())

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    rehearsed.put(cost=0.4)
    before = len(rehearsed.rows(schema.candidate))
    monkeypatch.setattr(learning, "_tell", killed)
    with pytest.raises(KeyboardInterrupt):
        learning.answer(rehearsed.cohorts(), request, now())
    assert len(rehearsed.rows(schema.candidate)) == before


# --- the same again


def test_learning_again_gives_the_same_policy(rehearsed):
    splines = {"low": -9, "high": 9, "phrase": "Score", "shape": "spline"}
    rehearsed.put(features=SETTINGS["features"] | {"score": splines}, max_gap=0.3)
    digest, cohorts = learn(rehearsed), rehearsed.cohorts()
    again = learned_policy(frozen_rows(cohorts), cohorts.settings)
    assert policy_digest(again) == digest
    assert again.feature_map is not None
    checked_policy(cq.policy_to_json(again), cohorts.settings)


def test_the_number_of_threads_makes_no_difference(rehearsed, monkeypatch):
    cohorts, digests = rehearsed.cohorts(), set()
    table = pa.concat_tables([frozen_rows(cohorts)] * 20)  # each thread has some
    for threads in (1, 2):
        monkeypatch.setattr(solver_rows, "_n_threads", lambda n=threads: n)
        digests.add(policy_digest(learned_policy(table, cohorts.settings)))
    assert len(digests) == 1


def test_a_feature_may_have_the_name_of_a_column_of_exports():
    """The policy knows it by the name that applications have."""
    settings = loop_settings(SETTINGS | {"features": {"label": SETTINGS["features"]["score"]}})
    columns = log_columns(settings)
    assert columns["features"] == ["label_"]
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    rows = {"label_": [1.5, -1.0, 0.5], "label": [1.0, None, 0.0], "decision": [1, 0, 1],
            "propensity": [1.0, 0.3, 1.0], "amount": [1.0] * 3, "sensitive": ["f", "m", "f"],
            "time": [noon] * 3}  # fmt: skip
    buffer = io.BytesIO()
    pq.write_table(pa.table(rows), buffer)
    log = as_log(joined([buffer.getvalue()], settings), settings)
    assert (log.feature_names, log.groups) == (("label",), ("f", "m"))
    assert log.features[:, 0].tolist() == rows["label_"]


# --- what cannot be learned from


def test_without_a_frozen_cohort_nothing_is_learned(sqlite_loop):
    sqlite_loop.days(1, n=20)
    assert refused(sqlite_loop).code == "no_cohort"
    with pytest.raises(Problem, match="no cohort"), sqlite_loop.store.write() as connection:
        learning.ask(connection, LOOP, "anna", now())


@pytest.mark.parametrize(("label", "code"), [(1, "one_label"), (0, "one_label")])
def test_labels_of_one_kind_teach_nothing_and_the_worker_says_so(sqlite_loop, label, code):
    sqlite_loop.days(3, n=50, label=label)
    assert refused(sqlite_loop).code == code
    sqlite_loop.work()
    (told,) = failures(sqlite_loop)  # once, and no other unit failed
    assert told["unit"] == "learning from 1 cohorts"
    assert "all labels are the same" in told["error"]
    assert {row["name"] for row in sqlite_loop.rows(schema.guardrail)} >= {"chance", "acceptance"}


def test_one_group_allows_no_bound_on_the_gap(sqlite_loop):
    sqlite_loop.put(max_gap=0.2)
    sqlite_loop.days(3, n=60, groups="f")
    assert refused(sqlite_loop).code == "one_group"


def test_a_floor_of_the_past_below_that_of_the_settings_is_refused(rehearsed):
    bold = rehearsed.propose(rule(0.5, floor=0.3), cohorts=["none"])
    rehearsed.approve({bold: 1.0}, why="a higher floor")
    rehearsed.put(floor=0.3)
    problem = refused(rehearsed)
    assert problem.code == "past_floor"
    assert "0.1, below that of the settings, 0.3" in problem.detail


def test_nobody_accepted_means_nothing_to_learn_from(rehearsed):
    cohorts = rehearsed.cohorts()
    table = frozen_rows(cohorts)
    nobody = table.filter([value == 0 for value in table["=decision"].to_pylist()])
    for rows, code in ((nobody, "nobody_accepted"), (table.slice(0, 0), "no_rows")):
        with pytest.raises(Problem) as raised:
            learned_policy(rows, cohorts.settings)
        assert raised.value.code == code


@pytest.mark.parametrize("harm", ["missing", "damaged", "another"])
def test_a_file_that_is_not_the_frozen_one_is_named_and_nothing_learned(rehearsed, harm):
    folder = rehearsed.service.directory / "cohorts" / LOOP
    file = folder / "2026-01-02-1.parquet"
    if harm == "missing":
        file.unlink()
    else:
        other = folder / "2026-01-01-1.parquet"
        file.write_bytes(other.read_bytes() if harm == "another" else file.read_bytes()[:-1] + b"x")
    problem = refused(rehearsed)
    assert (problem.code, problem.status) == ("cohort_file", 503)
    assert str(Path("cohorts") / LOOP / file.name) in problem.detail
    # the worker tells which candidates it could not look at, does everything else, and fails
    rehearsed.decide()
    with pytest.raises(Problem, match=r"2026-01-02-1\.parquet"):
        rehearsed.work()
    assert {told["unit"] for told in failures(rehearsed)} == {"looking at candidate 1"}
    assert {row["period"] for row in rehearsed.rows(schema.cohort)} >= {"2026-01-05"}


def test_decisions_from_before_a_feature_was_asked_for_are_left_out(rehearsed):
    age = {"low": 0, "high": 99, "phrase": "Age"}
    rehearsed.put(features=SETTINGS["features"] | {"age": age})
    assert refused(rehearsed).code == "no_rows"
