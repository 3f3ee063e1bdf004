"""Loops: their settings, changed by adding a version, and what time it is for them."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, exists, select

from consequential.service import schema
from consequential.service.chance import open_epochs
from consequential.service.deciding import Live, live_loops
from consequential.service.policies import checked_policy, policy_row
from consequential.service.problems import Problem
from consequential.service.records import canonical, moment
from consequential.service.settings import LoopSettings, checked_loop_name, loop_settings

_log = logging.getLogger(__name__)
# decisions that were taken cannot be counted by other rules
_KEPT = ("period", "horizon", "sensitive")


def put_loop(
    connection: Connection, name: str, document: Any, secret: bytes, by: str, time: datetime
) -> int:
    """Make a loop, or a new version of its settings; return the version.

    The first two epochs' commitments are stored with a new loop, before it decides on anybody.
    """
    try:
        settings = loop_settings(document)
        checked_loop_name(name)
    except ValueError as error:
        raise Problem("settings", 422, str(error)) from None
    before = live_loops(connection, {}).get(name)
    if before is not None:
        if before.settings == settings:
            return before.version
        time = clock(connection, name, before.settings, time)
        _check_change(connection, before, settings)
    version = 1 if before is None else before.version + 1
    values = {"version": version, "settings": canonical(document), "by": by}
    schema.add(connection, schema.loop, name, time, values)
    schema.add_event(connection, name, time, by, "loop changed", str(version))
    if not settings.rehearsal:
        open_epochs(connection, name, settings, secret, time)
    return version


def _check_change(connection: Connection, before: Live, settings: LoopSettings) -> None:
    """Refuse settings that contradict decisions that wait for outcomes, or the live policies."""
    decision, cohort = schema.decision.c, schema.cohort.c
    own = decision.loop == before.loop
    frozen = select(cohort.period).where(cohort.loop == before.loop)
    if before.settings.rehearsal != settings.rehearsal and _any(connection, own):
        raise Problem(
            "rehearsal", 422,
            "people of a rehearsal and real ones cannot be in one loop, where policies would be "
            "learned from both: make a new loop",
        )  # fmt: skip
    changed = [key for key in _KEPT if getattr(before.settings, key) != getattr(settings, key)]
    if changed and _any(connection, own, decision.cohort.not_in(frozen)):
        raise Problem(
            "cohorts_wait", 422,
            f"{changed[0]!r} cannot change while cohorts wait for outcomes: make a new loop "
            "with the new settings, and let this one end",
        )  # fmt: skip
    for share in before.shares:
        row = policy_row(connection, before.loop, share.digest)
        try:
            checked_policy("" if row is None else row["content"], settings)
        except Problem as problem:
            raise Problem(
                "policy_deployed", 422,
                f"the policy that decides now does not fit: {problem.detail}. Deploy one that "
                "does first",
            ) from None  # fmt: skip


def _any(connection: Connection, *decisions: Any) -> bool:
    """Whether there are such decisions."""
    return bool(connection.execute(select(exists().where(*decisions))).scalar())


def loop_versions(connection: Connection, name: str) -> list[Mapping[str, Any]]:
    """Return all versions of a loop's settings, the newest first."""
    table = schema.loop
    wanted = select(table).where(table.c.loop == name).order_by(table.c.version.desc())
    return [
        {name: row[name] for name in ("version", "by", "time")}
        | {"settings": json.loads(row["settings"])}
        for row in schema.rows(connection, wanted)
    ]


def settings_in_force(connection: Connection) -> dict[str, LoopSettings]:
    """Return the last version of the settings of all loops that this version can read."""
    rows = select(schema.loop.c.loop, schema.loop.c.settings).order_by(schema.loop.c.version)
    found = {}
    for name, document in dict(connection.execute(rows).all()).items():
        try:
            found[name] = loop_settings(json.loads(document))
        except ValueError:
            _log.exception("settings cannot be read", extra={"about": {"loop": name}})
    return found


def clock(connection: Connection, loop: str, settings: LoopSettings, time: datetime) -> datetime:
    """Return what time it is for a loop: in a rehearsal, that of the last decision."""
    if not settings.rehearsal:
        return time
    decision = schema.decision
    last = select(decision.c.time).where(decision.c.loop == loop).order_by(decision.c.id.desc())
    found = connection.execute(last.limit(1)).scalar()
    return time if found is None else moment(found)
