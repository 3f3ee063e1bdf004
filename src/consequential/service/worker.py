"""Worker: epochs, days, cohorts, candidates, guardrails and retention, each done when it is due.

Every unit of work is one transaction under a unique key, so a worker may be stopped at any moment,
and the next one goes on. A unit that fails is written down and stops no other.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from threading import Event
from typing import Any, TypeVar

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from consequential.service import learning, looks, schema
from consequential.service.alarms import Watch
from consequential.service.candidates import settings_version
from consequential.service.chance import open_epochs, reveal_keys
from consequential.service.closing import close_day, days_due
from consequential.service.cohorts import Cohorts, Row, all_cohorts
from consequential.service.database import LockedError, Store, only_worker
from consequential.service.forgetting import retain
from consequential.service.problems import Problem
from consequential.service.records import canonical, first_id, now, stamp
from consequential.service.settings import ServiceSettings, period_start
from consequential.workers import cluster

T = TypeVar("T")

FAILED = "work failed"
_INTERVAL = 30.0  # seconds
_BROKEN = 500  # the status of problems that somebody has to solve
_log = logging.getLogger(__name__)


def work(
    store: Store, settings: ServiceSettings, time: datetime, scheduler: str | None = None
) -> None:
    """Do all that is due: epochs, days, cohorts, candidates, guardrails, retention.

    With a Dask scheduler its workers learn candidates and look at them. What fails is written down,
    and raised when everything else is done.
    """
    failed: list[Exception] = []
    with only_worker(store, settings.directory):
        for cohorts in (*all_cohorts(store, settings.directory).values(), None):
            loop = cohorts.loop if cohorts else ""
            try:
                if cohorts is None:
                    _close(store, "", time)
                elif (
                    not cohorts.settings.rehearsal or cohorts.first_period()
                ):  # else it has no time
                    failed += _work_on(cohorts, settings.secret, cohorts.clock(time), scheduler)
            except Exception as error:
                _log.exception("work failed", extra={"about": {"loop": loop}})
                failed.append(error)
    if failed:
        raise failed[0]


def _work_on(
    cohorts: Cohorts, secret: bytes, time: datetime, scheduler: str | None
) -> list[Exception]:
    """Do what is due in one loop, and return what failed."""
    with cohorts.store.read() as connection:
        version = settings_version(connection, cohorts.loop)
    rounds = _Round(cohorts, time, version, scheduler)
    rounds.attempt("epochs", partial(_epochs, cohorts, secret, time))
    days = days_due(cohorts.store, cohorts.loop, time)
    # after the keys, so that closed days can be verified
    rounds.attempt("closing", lambda: _close(cohorts.store, cohorts.loop, time))
    rounds.prove()  # what a round that was interrupted left
    for period in cohorts.due(time):
        if not rounds.attempt(f"freezing {period}", partial(_freeze, cohorts, period, time)):
            break  # proofs rest on cohorts in order
        rounds.prove()
    rounds.answer()
    rounds.watch()
    if days:
        rounds.attempt("retention", partial(_retain, cohorts, time))
    return rounds.failed


@dataclass(frozen=True, slots=True)
class _Round:
    """One round of work on a loop."""

    cohorts: Cohorts
    time: datetime
    version: int  # of the settings
    scheduler: str | None  # of a cluster
    failed: list[Exception] = field(default_factory=list)

    def attempt(self, unit: str, do: Callable[[], T]) -> T | None:
        """Do a unit of work and return its result; None where it failed."""
        try:
            return do()
        except Exception as error:
            self._write_down(unit, error)
            return None

    def together(self, units: Mapping[str, Callable[[Any], Callable[[], Any] | None]]) -> None:
        """Begin all units of work, so that a cluster does them at once, and end each in order."""

        def do() -> None:
            with nullcontext() if self.scheduler is None else cluster(self.scheduler) as client:
                begun = {unit: self.attempt(unit, partial(units[unit], client)) for unit in units}
                for unit, end in begun.items():
                    if end is not None:
                        self.attempt(unit, end)

        if units:
            self.attempt("reaching the cluster", do)  # all else is attempted one by one

    def _write_down(self, unit: str, error: Exception) -> None:
        """Store what failed, once a day; cohorts that do not allow it yet are no failure."""
        loop, about = self.cohorts.loop, self._about(unit)
        is_problem = isinstance(error, Problem) and error.status < _BROKEN
        if not is_problem:
            _log.error(FAILED, extra={"about": {"loop": loop, "unit": unit}}, exc_info=error)
            self.failed.append(error)
        # other errors might quote values of people
        about["error"] = str(error) if isinstance(error, Problem) else type(error).__name__
        event, said = schema.event.c, canonical(about)
        same = (event.loop == loop) & (event.what == FAILED) & (event.about == said)
        try:
            with self.cohorts.store.write() as connection:
                if connection.execute(select(event.id).where(same)).first() is None:
                    schema.add_event(connection, loop, self.time, "worker", FAILED, said)
        except SQLAlchemyError:  # the database may be away, which may be what failed
            _log.exception("a failure could not be stored")

    def _about(self, unit: str) -> dict[str, Any]:
        return {"unit": unit, "date": stamp(self.time)[:10], "version": self.version}

    def _has_failed(self, unit: str) -> bool:
        """Whether a unit has failed today with these settings."""
        event, about = schema.event.c, self._about(unit)
        today = event.id >= first_id(period_start(about["date"]))
        told = select(event.about).where(event.loop == self.cohorts.loop, event.what == FAILED)
        with self.cohorts.store.read() as connection:
            failed = connection.execute(told.where(today)).scalars().all()
        return any(about.items() <= json.loads(each).items() for each in failed)

    def prove(self) -> None:
        """Learn the candidates that are due, and look at all that wait.

        What could not be learned from some cohorts is tried again the next day.
        """
        frozen = self.cohorts.frozen()
        due = {
            f"learning from {count} cohorts": frozen[:count]
            for count in learning.due(self.cohorts, frozen)
        }
        self.together(
            {
                unit: partial(learning.learn, self.cohorts, used, self.time)
                for unit, used in due.items()
                if not self._has_failed(unit)
            }
        )
        self.together(
            {
                f"looking at candidate {row['number']}": partial(
                    looks.look, self.cohorts, row, frozen, self.time
                )
                for row in looks.waiting(self.cohorts)
            }
        )

    def answer(self) -> None:
        """Learn where somebody has asked for it."""
        for asked in learning.requests(self.cohorts):
            again = partial(learning.answer, self.cohorts, asked, self.time)
            self.together({"learning as asked": again})

    def watch(self) -> None:
        """Look at the guardrails of the days that were closed, and roll back if they say so."""
        watch = Watch(self.cohorts)
        for date in watch.due():
            self.attempt(f"guardrails of {date}", partial(self._watch, watch, date))
        self.attempt("roll back", partial(self._roll_back, watch))

    def _watch(self, watch: Watch, date: str) -> None:
        for error in watch.look(date, self.time):
            self._write_down("guardrails", error)

    def _roll_back(self, watch: Watch) -> None:
        number = watch.roll_back(self.time)
        if number is not None:
            _say("rolled back", loop=self.cohorts.loop, deployment=number)


def _epochs(cohorts: Cohorts, secret: bytes, time: datetime) -> None:
    with cohorts.store.write() as connection:
        open_epochs(connection, cohorts.loop, cohorts.settings, secret, time)
        revealed = reveal_keys(connection, cohorts.loop, secret, time)
    for epoch in revealed:
        _say("epoch revealed", loop=cohorts.loop, epoch=epoch)


def _close(store: Store, loop: str, time: datetime) -> None:
    """Close the days that are over."""
    for day in days_due(store, loop, time):
        if not close_day(store, loop, day):
            break  # a row came meanwhile; the next round closes the day


def _freeze(cohorts: Cohorts, period: str, time: datetime) -> Row:
    row = cohorts.freeze(period, time)
    _say("cohort frozen", loop=cohorts.loop, period=period, digest=row["file_digest"])
    return row


def _retain(cohorts: Cohorts, time: datetime) -> None:
    if (forgotten := retain(cohorts, time)).decisions:
        _say("retention over", loop=cohorts.loop, decisions=forgotten.decisions)


def run(
    store: Store,
    settings: ServiceSettings,
    stop: Event,
    interval: float = _INTERVAL,
    scheduler: str | None = None,
) -> None:
    """Work until `stop` is set; of several workers one works at a time."""
    while not stop.is_set():
        try:
            work(store, settings, now(), scheduler)
        except LockedError:  # another worker works
            pass
        except Exception:  # the database may be away for a while: try again
            _log.exception(FAILED)
        stop.wait(interval)


def _say(what: str, **about: str | int) -> None:
    _log.info(what, extra={"about": about})
