"""Commands that operate the service, from `work` and `learn` to `verify` and `report`."""

from __future__ import annotations

import argparse
import gc
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Event, Thread
from typing import TYPE_CHECKING, TypeVar

from consequential.cli.parser import needing_service
from consequential.files import write_atomically

if TYPE_CHECKING:
    from consequential.service.cohorts import Cohorts
    from consequential.service.database import Store
    from consequential.service.settings import ServiceSettings

with needing_service():
    import sqlalchemy  # noqa: F401

T = TypeVar("T")

_WAIT = 300.0  # seconds for a worker to end its round
_BEGINNING, _END = datetime(1971, 1, 1, tzinfo=UTC), datetime(3000, 1, 1, tzinfo=UTC)


@contextmanager
def _opened(options: argparse.Namespace) -> Iterator[tuple[Store, ServiceSettings]]:
    """Open the service of the directory that a command was given."""
    from consequential.service.database import open_store
    from consequential.service.problems import Problem
    from consequential.service.settings import ServiceSettings

    settings = ServiceSettings.load(options.directory)
    store = open_store(settings)
    try:
        yield store, settings
    except Problem as problem:
        raise ValueError(problem.detail) from None
    finally:
        store.close()


def work(options: argparse.Namespace) -> int:
    """Do what is due, now and then, until SIGTERM or Ctrl-C."""
    from consequential.service import worker
    from consequential.service.app import log_as_lines
    from consequential.service.records import now

    stop = Event()
    with _opened(options) as (store, settings):
        if options.once:
            worker.work(store, settings, now(), options.cluster)
            return 0
        for ends in (signal.SIGTERM, signal.SIGINT):
            signal.signal(ends, lambda *_: stop.set())
        if options.follow:
            Thread(target=_follow, args=[stop], daemon=True).start()
        log_as_lines()
        gc.freeze()  # or freezing a cohort spends half its time on looking for garbage in modules
        worker.run(store, settings, stop, scheduler=options.cluster)
    return 0


def _follow(stop: Event) -> None:
    sys.stdin.read()  # until the parent has closed it, or has died
    stop.set()


def learn(options: argparse.Namespace) -> int:
    """Learn a candidate from the frozen cohorts of a loop."""
    from consequential.service import learning

    with _cohorts(options) as (cohorts, time):
        frozen = cohorts.frozen()
        digest = learning.learn(cohorts, frozen, time)()
    print(f"{digest}: learned from {len(frozen)} cohorts; it is proven on those that come")
    return 0


def freeze(options: argparse.Namespace) -> int:
    """Freeze a period of a loop again, as a new version."""
    with _cohorts(options) as (cohorts, time):
        row = cohorts.freeze_again(options.cohort, time, "operator")
    print(
        f"version {row['version']} of {row['period']}: {row['rows']} decisions. Candidates that "
        "were looked at on the version before are withdrawn at their next look"
    )
    return 0


@contextmanager
def _cohorts(options: argparse.Namespace) -> Iterator[tuple[Cohorts, datetime]]:
    """Open the cohorts of a loop while no worker works, with the time that it is for the loop."""
    from consequential.service.cohorts import all_cohorts
    from consequential.service.database import only_worker
    from consequential.service.records import now

    with _opened(options) as (store, settings):
        cohorts = _of_loop(all_cohorts(store, settings.directory), options.loop)
        with only_worker(store, settings.directory, _WAIT):
            yield cohorts, cohorts.clock(now())


def _of_loop(known: Mapping[str, T], loop: str) -> T:
    if loop not in known:
        raise ValueError(f"no loop {loop!r}; there are {', '.join(known) or 'none'}")
    return known[loop]


def key(options: argparse.Namespace) -> int:
    """Make or revoke the keys of a name, or list all."""
    from consequential.service import keys
    from consequential.service.records import now
    from consequential.tables import text_table

    with _opened(options) as (store, _), store.write() as connection:
        if options.name is None:
            if options.revoke or options.scopes:
                raise ValueError("whose key? say --name NAME")
            known = keys.accounts(connection).values()
            rows = [[a.name, " ".join(sorted(a.scopes)), "revoked" * a.revoked] for a in known]
            print("\n".join(text_table([["name", "scopes", ""], *sorted(rows)], ruled=True)))
        elif options.revoke:
            count = keys.revoke_keys(connection, options.name, now())
            if count == 0:
                raise ValueError(f"{options.name!r} has no key that is in force")
            print(f"{count} key{'s' * (count > 1)} revoked")
        else:
            made = keys.create_key(connection, options.name, options.scopes or (), now())
            print(f"the key of {options.name}, shown only now:\n  {made}")
    return 0


def export(options: argparse.Namespace) -> int:
    """Write the decisions of a loop to a Parquet file, or a table's rows as they were written."""
    from consequential.cli.results import check_new_file
    from consequential.service.exports import UNKNOWN, copy_of, export, log_columns
    from consequential.service.loops import settings_in_force

    check_new_file(options.out, overwrite=options.overwrite)
    since, until = _moment(options.since, _BEGINNING), _moment(options.until, _END)
    sensitive = not options.without_sensitive
    with _opened(options) as (store, _):
        with store.read() as connection:
            known = settings_in_force(connection)
        loop = _of_loop(known, options.loop)
        if options.table is not None:
            copied = copy_of(store, options.table, options.loop, since, until)
            write_atomically(options.out, copied, replace=options.overwrite)
            return 0
        found = export(store, options.loop, loop, since, until, sensitive=sensitive)
    write_atomically(options.out, found.content, replace=options.overwrite)
    print(f"{options.out}: {', '.join(f'{name} {n}' for name, n in found.counts.items())}")
    if found.counts["unknown"]:
        print(
            f"{found.counts['unknown']} people have no {loop.sensitive}: they are the group "
            f"{UNKNOWN!r}. Report theirs, or keep that group out of what you say about fairness"
        )
    columns = log_columns(loop, sensitive=sensitive)
    print(f"read it with DecisionLog.from_file({str(options.out)!r}, **{columns})")
    return 0


def _moment(text: str | None, otherwise: datetime) -> datetime:
    if text is None:
        return otherwise
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        raise ValueError(f"a date is written 2026-03-01, not {text!r}") from None


def backup(options: argparse.Namespace) -> int:
    """Copy a service with SQLite while it runs."""
    from consequential.service.database import back_up

    with _opened(options) as (store, settings):
        back_up(store, settings, options.out)
    print(f"{options.out} is a complete service, with its secret: keep it as safe as the first")
    return 0


def verify(options: argparse.Namespace) -> int:
    """Say whether the rows are those that were written; the exit code is 1 if not."""
    from consequential.service.cohorts import all_cohorts
    from consequential.service.verify import file_findings, verify, verify_decision

    with _opened(options) as (store, settings):
        if options.decision is not None:
            found = list(verify_decision(store, options.decision, settings.secret))
        else:
            known = all_cohorts(store, settings.directory).values()
            found = [each for cohorts in known for each in file_findings(cohorts)]
            found += verify(store, settings.secret, options.seal or ())
    for finding in found:
        print(finding)
    print(f"{len(found)} finding{'s' * (len(found) > 1)}" if found else "all as it was written")
    return 1 if found else 0


def forget(options: argparse.Namespace) -> int:
    """Delete what is known of a subject."""
    from consequential.service.forgetting import forget
    from consequential.service.records import now

    with _opened(options) as (store, settings):
        found = forget(store, settings.directory, options.subject, now())
        is_sqlite = store.is_sqlite
    if found.decisions == found.attributes == 0:
        raise ValueError("nothing is known of this subject")
    print(
        f"deleted: features of {found.decisions} decisions, {found.attributes} attributes, and "
        f"{found.files} files that had them. Exports and backups are yours to delete."
    )
    if not is_sqlite:
        print("PostgreSQL's write-ahead log and dumps have the values until they age out.")
    return 0


def report(options: argparse.Namespace) -> int:
    """Write all about a loop to one HTML file."""
    from consequential.cli.results import check_new_file
    from consequential.service.pages.report import report
    from consequential.service.records import now
    from consequential.service.state import Service

    check_new_file(options.out, overwrite=options.overwrite)
    with _opened(options) as (store, settings):
        page = report(Service(settings, store), options.loop, now())
    write_atomically(options.out, page, replace=options.overwrite)
    print(f"wrote {options.out}")
    return 0
