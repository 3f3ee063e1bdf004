"""Looks: each time a cohort is frozen, what it and those before it say of every candidate."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, func, select

from consequential.service import gate, schema
from consequential.service.candidates import (
    candidates,
    deployed,
    newest_evaluation,
    settings_version,
    withdraw,
)
from consequential.service.cohorts import Cohorts, Row, log_of, name_of
from consequential.service.deciding import live_at, settings_until
from consequential.service.policies import stored_policy
from consequential.service.problems import Problem
from consequential.service.records import canonical
from consequential.service.settings import LoopSettings
from consequential.workers import begun

_log = logging.getLogger(__name__)


def waiting(cohorts: Cohorts) -> list[dict[str, Any]]:
    """Return the candidates of a loop that wait for their proof."""
    with cohorts.store.read() as connection:
        found = candidates(connection, cohorts.loop)
    return [row for row in found if row["state"] == "waiting"]


def look(
    cohorts: Cohorts,
    candidate: Row,
    frozen: Sequence[Row],
    time: datetime,
    client: Any = None,
) -> Callable[[], Row | None] | None:
    """Begin to look at a candidate on the cohorts after those it was learned from.

    Returns what ends it and stores what is seen; None where it was looked at already, or where
    there is no such cohort yet. A candidate whose earlier proving cohorts are not there any more is
    withdrawn.
    """
    proving = [row for row in cohorts.kept(frozen, time) if row["period"] > candidate["since"]]
    if not proving:
        return None
    loop, last = cohorts.loop, name_of(proving[-1])
    with cohorts.store.read() as connection:
        version = settings_version(connection, loop)
        if _was_seen(connection, candidate, last, version):
            return None
        before = newest_evaluation(connection, loop, candidate["number"])
        settings = live_at(connection, loop, version, 0).settings
        past = settings_until(connection, loop, candidate["version"])
        against = deployed(connection, loop).live
        assert against is not None  # else nothing could wait
        new = stored_policy(connection, loop, candidate["policy"])
        old = stored_policy(connection, loop, against)
    if before is not None and not _only_grew(cohorts, json.loads(before["cohorts"]), proving):
        with cohorts.store.write() as connection:
            withdraw(connection, loop, candidate["number"], "worker", time)
        raise Problem(
            "proof_lost", 409,
            "the proving cohorts are not as they were at the last look, and bounds hold only while "
            "they grow: the candidate is withdrawn; propose it again",
        )  # fmt: skip
    settings = _as_filed(settings, past[-1])
    number, limits = candidate["number"], gate.Limits.of(past)
    judge = partial(gate.look, new, old, settings=settings, number=number, limits=limits)
    found = begun(partial(_judged, judge, cohorts.directory, proving, settings), client)

    def store() -> Row | None:
        checklist = found()
        values = {
            "candidate": candidate["policy"],
            "candidate_number": number,
            "against": against,
            "cohort": last,
            "cohorts": canonical([name_of(row) for row in proving]),
            "alpha": (1.0 - settings.gate.confidence) / (number * (number + 1)),
            "version": version,
            "passed": checklist.passed,
            "checklist": canonical([_plain(asdict(line)) for line in checklist.lines]),
        }
        with cohorts.store.write() as connection:
            if _was_seen(connection, candidate, last, version):
                return None
            table = schema.evaluation
            last_number = select(func.max(table.c.number)).where(table.c.loop == loop)
            values["number"] = (connection.execute(last_number).scalar() or 0) + 1
            row = schema.add(connection, table, loop, time, values)
        about = {name: row[name] for name in ("loop", "number", "candidate", "passed")}
        _log.info("candidate looked at", extra={"about": about})
        return row

    return store


def _judged(
    judge: Callable[..., gate.Checklist],
    directory: Path,
    proving: Sequence[Row],
    settings: LoopSettings,
) -> gate.Checklist:
    return judge(log_of(directory, proving, settings))


def _only_grew(cohorts: Cohorts, seen: Sequence[str], proving: Sequence[Row]) -> bool:
    """Whether the cohorts of a look are the first of those there are now.

    One that has fewer rows than it had is the same without people who were forgotten.
    """
    versions = {name_of(row): row for row in cohorts.versions()}
    return len(seen) <= len(proving) and all(
        old["period"] == new["period"]
        and (old["version"] == new["version"] or new["rows"] < old["rows"])
        for old, new in zip((versions[name] for name in seen), proving, strict=False)
    )


def _as_filed(settings: LoopSettings, filed: LoopSettings) -> LoopSettings:
    """Return settings under which bounds stay those of the filing, and the margin no smaller.

    Another confidence, like another `tuned_for`, would begin another sequence of bounds, and so
    would another feature, which earlier decisions lack.
    """
    now, then = settings.gate, filed.gate
    margin = max(now.margin, then.margin)
    strict = replace(now, confidence=then.confidence, margin=margin, tuned_for=then.tuned_for)
    return replace(settings, gate=strict, features=filed.features)


def _was_seen(connection: Connection, candidate: Row, cohort: str, version: int) -> bool:
    table = schema.evaluation
    same = select(table.c.id).where(
        table.c.loop == candidate["loop"],
        table.c.candidate_number == candidate["number"],
        table.c.cohort == cohort,
        table.c.version == version,
    )
    return connection.execute(same).first() is not None


def _plain(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line as JSON has it: a number that is not known is null."""
    return {
        name: None if isinstance(value, float) and not isfinite(value) else value
        for name, value in line.items()
    }
