"""Candidates: looks at them, approval by evidence, and what ends them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from learning_loop import LOOP, SETTINGS, Rehearsal, rule

from consequential.service import schema
from consequential.service.candidates import candidates, withdraw
from consequential.service.forgetting import forget
from consequential.service.problems import Problem
from consequential.service.records import now
from consequential.service.verify import verify


def states(loop: Rehearsal) -> list[str]:
    with loop.store.read() as connection:
        return [row["state"] for row in candidates(connection, LOOP)]


def looks(loop: Rehearsal, candidate: int) -> list[dict[str, Any]]:
    rows = [row for row in loop.rows(schema.evaluation) if row["candidate_number"] == candidate]
    return sorted(rows, key=lambda row: int(row["number"]))


def refused(loop: Rehearsal, shares: dict[str, float], **told: Any) -> tuple[int, str]:
    before = len(loop.rows(schema.deployment))
    with pytest.raises(Problem) as raised:
        loop.approve(shares, **told)
    assert len(loop.rows(schema.deployment)) == before
    return raised.value.status, raised.value.code


def proven(loop: Rehearsal) -> dict[str, Any]:
    """The last look at the first candidate, which has passed."""
    last = looks(loop, 1)[-1]
    assert last["passed"]
    return last


# --- looks


def test_each_cohort_is_a_look_at_every_candidate_and_each_is_kept(rehearsed):
    first, second = looks(rehearsed, 1), looks(rehearsed, 2)
    names = [f"2026-01-0{k}-1" for k in (2, 3, 4)]
    assert [json.loads(row["cohorts"]) for row in first] == [names[:1], names[:2], names]
    assert [json.loads(row["cohorts"]) for row in second] == [names[1:2], names[1:]]
    assert {row["against"] for row in first} == {rehearsed.harsh}
    assert [row["alpha"] for row in (first[0], second[0])] == pytest.approx([0.05 / 2, 0.05 / 6])
    assert sorted(row["number"] for row in (*first, *second)) == [1, 2, 3, 4, 5]
    lines = json.loads(first[0]["checklist"])
    assert {"name", "passed", "value", "low", "high", "limit", "sentence", "needed"} == {*lines[0]}
    assert first[0]["passed"] == all(line["passed"] for line in lines)


def test_changed_settings_are_looked_at_again_but_bounds_stay_as_filed(rehearsed, monkeypatch):
    from consequential.service import looks as looking

    seen = []
    look = looking.gate.look

    def watched(new, old, log, settings, number, limits):
        gate = settings.gate
        seen.append((gate.tuned_for, gate.confidence, gate.margin, *limits))
        return look(new, old, log, settings, number, limits)

    monkeypatch.setattr(looking.gate, "look", watched)
    before = looks(rehearsed, 1)
    lax = {"effective": 20, "tuned_for": 9, "margin": 0.5, "confidence": 0.5}
    rehearsed.put(gate=lax, floor=0.05, largest_amount=9.0)
    rehearsed.work()
    after = looks(rehearsed, 1)
    assert after[-1]["alpha"] == before[-1]["alpha"]
    assert [row["version"] for row in after] == [1] * len(before) + [2]
    assert after[-1]["cohorts"] == before[-1]["cohorts"]
    assert not after[-1]["passed"]
    # of the two that have proving cohorts
    assert seen == [(1000, 0.95, 0.5, 0.1, 1.0)] * 2


def test_a_smaller_margin_is_for_candidates_that_are_filed_later(sqlite_loop):
    sqlite_loop.put(gate=SETTINGS["gate"] | {"margin": 0.9})
    sqlite_loop.days(4)
    sqlite_loop.put()
    sqlite_loop.work()
    line = json.loads(looks(sqlite_loop, 1)[-1]["checklist"])[0]
    assert (line["name"], line["limit"]) == ("utility", 0.9)


def test_a_feature_that_is_asked_for_later_takes_no_decision_from_a_proof(rehearsed):
    before = looks(rehearsed, 1)[-1]
    age = {"low": 0, "high": 99, "phrase": "Age"}
    rehearsed.put(features=SETTINGS["features"] | {"age": age})
    rehearsed.work()
    last = looks(rehearsed, 1)[-1]
    assert last["version"] == 2
    assert last["checklist"] == before["checklist"]


def failures(loop: Rehearsal) -> list[str]:
    return [row["about"] for row in loop.rows(schema.event) if row["what"] == "work failed"]


def test_a_candidate_whose_proving_cohorts_were_deleted_is_withdrawn(rehearsed):
    before = [looks(rehearsed, number) for number in (1, 2)]
    rehearsed.put(retention=1)
    rehearsed.day = "2026-03-01"
    rehearsed.days(3)
    assert states(rehearsed)[:3] == ["withdrawn", "withdrawn", "waiting"]
    assert [looks(rehearsed, number) for number in (1, 2)] == before
    assert looks(rehearsed, 3)  # which had none before
    told = [about for about in failures(rehearsed) if "looking at candidate" in about]
    assert len(told) == 2
    assert all("proving cohorts are not as they were" in about for about in told)


def test_a_candidate_is_withdrawn_when_a_proving_cohort_is_frozen_again(rehearsed):
    rehearsed.cohorts().freeze("2026-01-02", now())
    rehearsed.days(1)
    assert states(rehearsed) == ["withdrawn", "waiting", "waiting"]


def test_a_proof_goes_on_without_people_who_were_forgotten(rehearsed):
    forget(rehearsed.store, rehearsed.service.directory, "2026-01-02-7", now())
    before = len(looks(rehearsed, 1))
    rehearsed.days(1)
    assert states(rehearsed) == ["waiting"] * 3
    last = looks(rehearsed, 1)
    assert len(last) == before + 1
    assert json.loads(last[-1]["cohorts"])[:2] == ["2026-01-02-2", "2026-01-03-1"]
    assert failures(rehearsed) == []


# --- approval


def test_a_second_person_approves_by_the_evidence_and_all_others_end(store, service):
    loop = Rehearsal.of(store, service)
    loop.days(5)
    evidence = proven(loop)
    new = evidence["candidate"]
    canary = {new: 0.1, loop.harsh: 0.9}
    told = {"scopes": ["approve"], "evidence": evidence["number"]}
    assert loop.approve(canary, **told) == 2
    assert states(loop) == ["waiting", "waiting"]
    assert loop.approve({new: 1.0}, **told, why="agreed") == 3
    assert states(loop) == ["live", "ended"]
    said = {row["number"]: row["evidence"] for row in loop.rows(schema.deployment)}
    assert said == {
        1: "without evidence: as ever",
        2: f"evaluation {evidence['number']}",
        3: f"evaluation {evidence['number']}: agreed",
    }
    # again it is refused, and so is everything about one that has ended
    assert refused(loop, {new: 1.0}, **told) == (409, "already_deployed")
    other = looks(loop, 2)[-1]
    told["evidence"] = other["number"]
    assert refused(loop, {other["candidate"]: 1.0}, **told) == (409, "candidate_ended")
    # back it goes without evidence, by anybody who may approve
    assert loop.approve({loop.harsh: 1.0}, scopes=["approve"]) == 4
    assert loop.rows(schema.deployment)[-1]["loop"] == LOOP
    assert states(loop) == ["ended", "ended"]
    told["evidence"] = evidence["number"]
    assert refused(loop, {new: 0.5, loop.harsh: 0.5}, **told) == (409, "candidate_ended")
    assert list(verify(store, service.secret)) == []


def test_evidence_must_be_the_last_passed_look_at_what_rises(rehearsed):
    loop, evidence = rehearsed, proven(rehearsed)
    new, other = evidence["candidate"], looks(loop, 2)[-1]["candidate"]
    told: dict[str, Any] = {"scopes": ["approve"]}
    assert refused(loop, {new: 1.0}, **told) == (403, "evidence")
    assert refused(loop, {new: 1.0}, **told, evidence=99) == (422, "unknown_evaluation")
    old = looks(loop, 1)[0]["number"]
    assert refused(loop, {new: 1.0}, **told, evidence=old) == (409, "evidence_changed")
    told["evidence"] = evidence["number"]
    assert refused(loop, {other: 1.0}, **told) == (422, "shares")
    assert refused(loop, {new: 0.5, other: 0.5}, **told) == (422, "shares")
    assert refused(loop, {"f" * 64: 1.0}, **told) == (422, "unknown_policy")
    assert refused(loop, {new: 0.5}, **told) == (422, "shares")


def test_a_checklist_that_changed_since_it_was_shown_is_refused(rehearsed):
    shown = proven(rehearsed)
    rehearsed.decide()
    rehearsed.work()
    told = {"evidence": shown["number"], "scopes": ["approve"]}
    assert refused(rehearsed, {shown["candidate"]: 1.0}, **told) == (409, "evidence_changed")
    told["evidence"] = proven(rehearsed)["number"]
    assert rehearsed.approve({shown["candidate"]: 1.0}, **told) == 2


def test_settings_that_changed_since_the_look_are_refused_until_the_next_one(rehearsed):
    shown = proven(rehearsed)
    rehearsed.put(cost=0.49)
    told = {"evidence": shown["number"], "scopes": ["approve"]}
    assert refused(rehearsed, {shown["candidate"]: 1.0}, **told) == (409, "settings_changed")
    rehearsed.work()
    told["evidence"] = proven(rehearsed)["number"]
    assert rehearsed.approve({shown["candidate"]: 1.0}, **told) == 2


def test_a_candidate_that_has_not_passed_is_refused(rehearsed):
    rehearsed.put(gate=SETTINGS["gate"] | {"margin": 0.9})
    rehearsed.work()
    last = looks(rehearsed, 1)[-1]
    told = {"evidence": last["number"], "scopes": ["approve"]}
    assert refused(rehearsed, {last["candidate"]: 1.0}, **told) == (409, "not_passed")


def test_an_author_does_not_approve(rehearsed):
    own = rehearsed.propose(rule(0.0), by="anna", cohorts=["2026-01-01"])
    rehearsed.days(1)
    last = looks(rehearsed, 4)[-1]
    assert last["candidate"] == own
    assert json.loads(last["cohorts"]) == ["2026-01-05-1"]
    told = {"evidence": last["number"], "scopes": ["approve"]}
    assert refused(rehearsed, {own: 1.0}, by="anna", **told) == (403, "own_policy")


def test_without_evidence_it_takes_admin_and_a_reason(rehearsed):
    bold = rehearsed.propose(rule(-1.0), cohorts=["none"])
    assert refused(rehearsed, {bold: 0.5, rehearsed.harsh: 0.5}) == (422, "evidence")
    assert refused(rehearsed, {bold: 1.0}, scopes=["approve"], why="x") == (403, "evidence")
    rehearsed.approve({bold: 1.0}, why="the regulator asks for it")
    newest = max(rehearsed.rows(schema.deployment), key=lambda row: row["number"])
    assert newest["evidence"] == "without evidence: the regulator asks for it"


def test_shares_of_a_candidate_shrink_without_evidence(rehearsed):
    shown = proven(rehearsed)
    new, told = shown["candidate"], {"scopes": ["approve"]}
    rehearsed.approve({new: 0.3, rehearsed.harsh: 0.7}, evidence=shown["number"], **told)
    rehearsed.approve({new: 0.1, rehearsed.harsh: 0.9}, **told)
    assert refused(rehearsed, {new: 0.2, rehearsed.harsh: 0.8}, **told) == (403, "evidence")
    rehearsed.approve({rehearsed.harsh: 1.0}, **told)


def test_rolling_back_undoes_what_came_later_and_is_not_undone_without_evidence(store, service):
    loop, told = Rehearsal.of(store, service), {"scopes": ["approve"]}
    old, first, second = loop.harsh, loop.propose(rule(0.5)), loop.propose(rule(0.0), by="carl")
    canary = {first: 0.1, old: 0.9}
    for shares in (canary, {first: 1.0}, {second: 1.0}):
        loop.approve(shares, why="a trial")
    assert refused(loop, {first: 1.0}, by="anna", **told) == (403, "own_policy")  # its author
    loop.approve({first: 1.0}, **told)
    assert refused(loop, {second: 1.0}, **told) == (403, "evidence")
    loop.approve({old: 1.0}, **told)  # a canary lies in between
    for shares in (canary, {first: 1.0}, {second: 1.0}):
        assert refused(loop, shares, **told) == (403, "evidence")
    # what was deployed anew can be rolled back to again
    loop.approve({second: 0.3, old: 0.7}, why="a trial")
    loop.approve({second: 0.2, old: 0.8}, by="carl", **told)
    assert refused(loop, {second: 0.3, old: 0.7}, **told) == (403, "evidence")
    loop.approve({first: 1.0}, why="a trial")
    assert refused(loop, {old: 1.0}, by="anna", **told) == (403, "own_policy")
    loop.approve({second: 0.2, old: 0.8}, **told)
    loop.approve({old: 1.0}, **told)
    said = [row["evidence"] for row in loop.rows(schema.deployment) if row["number"] >= 10]
    assert sorted(said) == ["roll back", "roll back"]


def test_a_withdrawn_candidate_waits_no_longer(rehearsed):
    shown = proven(rehearsed)
    with rehearsed.store.write() as connection:
        withdraw(connection, LOOP, 1, "anna", now())
    assert states(rehearsed) == ["withdrawn", "waiting", "waiting"]
    told = {"evidence": shown["number"]}
    assert refused(rehearsed, {shown["candidate"]: 1.0}, **told) == (409, "candidate_ended")
    before = len(looks(rehearsed, 1))
    rehearsed.decide()
    rehearsed.work()
    assert len(looks(rehearsed, 1)) == before
    for number, code in ((1, "candidate_ended"), (9, "unknown_candidate")):
        with pytest.raises(Problem) as raised, rehearsed.store.write() as connection:
            withdraw(connection, LOOP, number, "anna", now())
        assert raised.value.code == code


# --- proposals


def test_a_policy_is_proposed_with_the_cohorts_it_was_learned_from(rehearsed):
    for cohorts in (
        None,
        ["2019-01-01"],
        ["2026-01-05"],  # not frozen yet
        ["2026-01-01-2"],
        ["2026-01"],
        ["2026-01-01", "tomorrow"],
        ["2026-01-06-1x"],
    ):
        with pytest.raises(Problem) as raised:
            rehearsed.propose(rule(0.3), cohorts=cohorts)
        assert (raised.value.status, raised.value.code) == (422, "cohorts"), cohorts
    assert len(rehearsed.rows(schema.candidate)) == 3
    rehearsed.propose(rule(0.4), cohorts=["none"])
    since = {row["number"]: row["since"] for row in rehearsed.rows(schema.candidate)}
    assert since[4] == "2026-01-06"


def test_a_persons_policy_is_not_proven_on_cohorts_that_were_frozen_when_it_was_proposed(rehearsed):
    rehearsed.propose(rule(0.3), cohorts=["2026-01-02", "2026-01-01-1"])
    rehearsed.work()
    since = {row["number"]: row["since"] for row in rehearsed.rows(schema.candidate)}
    assert since == {1: "2026-01-01", 2: "2026-01-02", 3: "2026-01-04", 4: "2026-01-04"}
    assert looks(rehearsed, 4) == []


def test_what_a_policy_was_learned_from_is_not_taken_back(rehearsed):
    own = rehearsed.propose(rule(0.3), cohorts=["none"])
    assert rehearsed.propose(rule(0.3), cohorts=["2026-01-01"]) == own
    assert len(rehearsed.rows(schema.candidate)) == 4
    with rehearsed.store.write() as connection:
        withdraw(connection, LOOP, 4, "anna", now())
    rehearsed.propose(rule(0.3), cohorts=["2026-01-01"])
    since = {row["number"]: row["since"] for row in rehearsed.rows(schema.candidate)}
    assert since[5] == "2026-01-06"
