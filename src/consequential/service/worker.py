"""Worker: epochs, days, cohorts and retention, each done when it is due.

Every unit of work is one transaction under a unique key, so a worker may be stopped at any moment,
and the next one goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime
from threading import Event

from consequential.service.chance import open_epochs, reveal_keys
from consequential.service.closing import close_day, days_due
from consequential.service.cohorts import Cohorts, all_cohorts
from consequential.service.database import LockedError, Store, only_worker
from consequential.service.forgetting import retain
from consequential.service.records import now
from consequential.service.settings import ServiceSettings

_INTERVAL = 30.0  # seconds
_log = logging.getLogger(__name__)


def work(store: Store, settings: ServiceSettings, time: datetime) -> None:
    """Do all that is due: open and reveal epochs, close days, freeze cohorts, keep to retention.

    What fails in one loop is raised when all other loops are done.
    """
    with only_worker(store, settings.directory):
        failed = list(_failures(store, settings, time))
    if failed:
        raise failed[0]


def _failures(store: Store, settings: ServiceSettings, time: datetime) -> Iterator[Exception]:
    for cohorts in (*all_cohorts(store, settings.directory).values(), None):
        try:
            if cohorts is None:
                _close(store, "", time)
            elif not cohorts.settings.rehearsal or cohorts.first_period():  # else it has no time
                _work_on(cohorts, settings.secret, cohorts.clock(time))
        except Exception as error:
            loop = cohorts.loop if cohorts else ""
            _log.exception("work failed", extra={"about": {"loop": loop}})
            yield error


def _work_on(cohorts: Cohorts, secret: bytes, time: datetime) -> None:
    store, loop = cohorts.store, cohorts.loop
    with store.write() as connection:
        open_epochs(connection, loop, cohorts.settings, secret, time)
        revealed = reveal_keys(connection, loop, secret, time)
    for epoch in revealed:
        _say("epoch revealed", loop=loop, epoch=epoch)
    closed = _close(store, loop, time)  # after the keys, so that closed days can be verified
    for period in cohorts.due(time):
        row = cohorts.freeze(period, time)
        _say("cohort frozen", loop=loop, period=period, digest=row["file_digest"])
    if closed and (forgotten := retain(cohorts, time)).decisions:
        _say("retention over", loop=loop, decisions=forgotten.decisions)


def _close(store: Store, loop: str, time: datetime) -> bool:
    """Close the days that are over, and return whether there were any."""
    days = days_due(store, loop, time)
    for day in days:
        if not close_day(store, loop, day):
            break  # a row came meanwhile; the next round closes the day
    return bool(days)


def run(store: Store, settings: ServiceSettings, stop: Event, interval: float = _INTERVAL) -> None:
    """Work until `stop` is set; of several workers one works at a time."""
    while not stop.is_set():
        try:
            work(store, settings, now())
        except LockedError:  # another worker works
            pass
        except Exception:  # the database may be away for a while: try again
            _log.exception("work failed")
        stop.wait(interval)


def _say(what: str, **about: str | int) -> None:
    _log.info(what, extra={"about": about})
