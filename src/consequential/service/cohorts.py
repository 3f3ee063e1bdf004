"""Cohorts: the decisions of calendar periods, frozen as files when their outcomes are known."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from sqlalchemy import exists, select

from consequential.files import write_atomically
from consequential.log import DecisionLog
from consequential.service import schema
from consequential.service.closing import last_closed
from consequential.service.database import Store
from consequential.service.exports import Export, as_log, export, joined
from consequential.service.loops import clock, settings_in_force
from consequential.service.problems import Problem
from consequential.service.records import canonical, first_id
from consequential.service.settings import LoopSettings, period_after, period_of, period_start

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cohorts:
    """The cohorts of a loop, and the service's directory, which has their files.

    Files never change; a period that is frozen again has a new version.
    """

    store: Store
    directory: Path
    loop: str
    settings: LoopSettings

    def clock(self, time: datetime) -> datetime:
        """Return what time it is for the loop."""
        with self.store.read() as connection:
            return clock(connection, self.loop, self.settings, time)

    def first_period(self) -> str | None:
        """Return the period of the first decision; None as long as there is none."""
        table = schema.decision
        first = select(table.c.cohort).where(table.c.loop == self.loop).order_by(table.c.id)
        with self.store.read() as connection:
            found: str | None = connection.execute(first.limit(1)).scalar()
        return found

    def due(self, time: datetime) -> list[str]:
        """Return the periods that are not frozen, although their outcomes have had their time.

        Their days are closed: nothing can be added to them.
        """
        decision = schema.decision.c
        frozen = {row["period"] for row in self.versions()}
        period, due = self.first_period(), []
        with self.store.read() as connection:
            last = last_closed(connection, self.loop)
            while period and period_start(period_after(period, self.settings.horizon + 1)) <= time:
                since, until = _span(period)
                if last < str((until - timedelta(1)).date()):
                    break
                low, high = first_id(since), first_id(until)
                ours = (decision.id >= low) & (decision.id < high)
                some = exists().where(decision.loop == self.loop, ours)
                if period not in frozen and connection.execute(select(some)).scalar():
                    due.append(period)
                period = period_after(period)
        return due

    def freeze(self, period: str, time: datetime, by: str = "worker") -> Row:
        """Write a period's file and store its digest; return the row."""
        found = export(self.store, self.loop, self.settings, *_span(period))
        return self._keep(period, found, time, by)

    def freeze_again(self, period: str, time: datetime, by: str) -> Row:
        """Write another version of a period's file, with what has been reported since."""
        if not self.kept(self.versions(period), time):
            raise Problem(
                "cohorts", 409,
                f"{period!r} was not frozen yet, or the retention has deleted it: only a frozen "
                "period can be frozen again",
            )  # fmt: skip
        return self.freeze(period, time, by)

    def leave_out(self, period: str, ids: Set[str], time: datetime, by: str) -> int:
        """Store a period's file again without some rows; return how many files were deleted."""
        versions = self.versions(period)
        if not versions or not (self.directory / versions[-1]["file"]).exists():
            return 0
        table = pq.read_table(self.directory / versions[-1]["file"])
        kept = table.filter(pc.invert(pc.is_in(table["id"], pa.array(sorted(ids), pa.string()))))
        if kept.num_rows == table.num_rows:
            return self.remove(versions[:-1])
        buffer, counts = io.BytesIO(), json.loads(versions[-1]["counts"])
        pq.write_table(kept, buffer)
        counts["forgotten"] += counts["rows"] - kept.num_rows
        counts["rows"] = kept.num_rows
        self._keep(period, Export(buffer.getvalue(), counts), time, by)
        return self.remove(versions)

    def _keep(self, period: str, found: Export, time: datetime, by: str) -> Row:
        version = len(self.versions(period)) + 1
        file = Path("cohorts") / self.loop / f"{period}-{version}.parquet"
        (self.directory / file).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.directory / file, found.content)
        values = {
            "period": period,
            "version": version,
            "file": str(file),
            "file_digest": found.digest,
            "rows": found.counts["rows"],
            "counts": canonical(found.counts),
            "by": by,
        }
        with self.store.write() as connection:
            row = schema.add(connection, schema.cohort, self.loop, time, values)
            if version > 1:
                what = "cohort frozen again"
                schema.add_event(connection, self.loop, time, by, what, name_of(row))
        return row

    def versions(self, period: str | None = None) -> list[dict[str, Any]]:
        """Return all that was frozen, or all versions of one period, the last at the end."""
        table = schema.cohort
        wanted = select(table).where(table.c.loop == self.loop).order_by(table.c.version)
        if period is not None:
            wanted = wanted.where(table.c.period == period)
        with self.store.read() as connection:
            return schema.rows(connection, wanted)

    def frozen(self) -> list[dict[str, Any]]:
        """Return the last version of each period, in order of time."""
        return sorted({row["period"]: row for row in self.versions()}.values(), key=_period)

    def kept(self, frozen: Sequence[Row], time: datetime) -> list[Row]:
        """Return the cohorts whose files the retention has not deleted."""
        months = self.settings.retention
        if months is None:
            return list(frozen)
        first = period_start(period_after(period_of("month", time), -months))
        return [row for row in frozen if period_start(row["period"]) >= first]

    def remove(self, versions: Sequence[Row]) -> int:
        """Delete files; return how many there were."""
        there = [path for row in versions if (path := self.directory / row["file"]).exists()]
        for path in there:
            path.unlink()
        return len(there)

    def damaged(self) -> list[str]:
        """Return the files that are not as they were written; deleted ones are no such files."""
        digests = {self.directory / row["file"]: row["file_digest"] for row in self.versions()}
        return [
            str(path.relative_to(self.directory))
            for path, digest in digests.items()
            if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() != digest
        ]


def rows_of(directory: Path, frozen: Sequence[Row], settings: LoopSettings) -> pa.Table:
    """Return the rows of frozen periods; a file that is not the one written is named."""
    return joined([_content(directory, row) for row in frozen], settings)


def log_of(directory: Path, frozen: Sequence[Row], settings: LoopSettings) -> DecisionLog:
    """Return the same rows as a log, in which a missing label speaks against a policy."""
    return as_log(rows_of(directory, frozen, settings), settings, missing="against")


def _content(directory: Path, row: Row) -> bytes:
    path: Path = directory / row["file"]
    content = path.read_bytes() if path.exists() else None
    if content is None or hashlib.sha256(content).hexdigest() != row["file_digest"]:
        what = "missing" if content is None else "not the one that was frozen"
        raise Problem(
            "cohort_file", 503,
            f"the file {row['file']} is {what}: restore it from a backup, or freeze the period "
            "again",
        )  # fmt: skip
    return content


def all_cohorts(store: Store, directory: Path) -> dict[str, Cohorts]:
    """Return the cohorts of all loops."""
    with store.read() as connection:
        found = settings_in_force(connection)
    place = directory.resolve()  # other processes have other working directories
    return {loop: Cohorts(store, place, loop, settings) for loop, settings in found.items()}


def name_of(row: Row) -> str:
    """Return the name of a frozen cohort: its period and version."""
    return f"{row['period']}-{row['version']}"


def _period(row: Row) -> str:
    return str(row["period"])


def _span(period: str) -> tuple[datetime, datetime]:
    return period_start(period), period_start(period_after(period))
