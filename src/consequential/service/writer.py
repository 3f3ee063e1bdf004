"""Writer: the group commit; nobody is answered before their decision is on disk.

Requests queue up. One task takes all that wait, and a thread of its own looks up which of them
were decided before, scores and draws the others together, inserts them in one transaction and
answers when that is committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from operator import itemgetter
from time import perf_counter
from typing import Any, NamedTuple

import prometheus_client as prometheus
from sqlalchemy import Connection, insert, select
from sqlalchemy.exc import IntegrityError, OperationalError

from consequential.service import schema
from consequential.service.applications import Application
from consequential.service.chance import commitment_of, epoch_key, open_epochs, uniform
from consequential.service.database import Store, says_closed
from consequential.service.deciding import Live, live_at
from consequential.service.problems import Problem
from consequential.service.records import canonical, hidden_digest, moment, new_salt, now, stamp
from consequential.service.settings import period_of

_CAPACITY = 8_192  # applications that may wait
_GROUP = 2_000  # applications in one transaction
_EPOCHS = 1_000  # whose keys are kept at hand
_ATTEMPTS = 5
_JUMP = timedelta(days=366)  # of a rehearsal's clock, at most

_log = logging.getLogger(__name__)
_decisions = prometheus.Counter("consequential_decisions", "Decisions stored", ["loop"])
_accepted = prometheus.Counter("consequential_accepted", "Decisions stored that accept")
_waiting = prometheus.Gauge("consequential_waiting", "Applications that wait to be decided")
_seconds = prometheus.Histogram(
    "consequential_longest_seconds", "Longest time from a request to its answer, by the group"
)
_groups = prometheus.Histogram(
    "consequential_group_size", "Decisions in one commit", buckets=[2**k for k in range(12)]
)

Key = tuple[str, str]  # a loop, and an application's id or an epoch
Body = dict[str, Any]
Clocks = Mapping[str, datetime]  # of rehearsals


class Answer(NamedTuple):
    """The answers to one request, and whether one of its decisions is new."""

    is_new: bool
    decisions: list[Body]


class _Request(NamedTuple):
    live: Live
    applications: Sequence[Application]
    answer: asyncio.Future[Answer]
    since: float


class _New(NamedTuple):
    """A decision that is still to be drawn."""

    live: Live
    application: Application


class _Epoch(NamedTuple):
    key: bytes
    commitment: str


class Writer:
    """The one that decides and writes, group by group."""

    def __init__(self, store: Store, secret: bytes) -> None:
        self._store, self._secret = store, secret
        self._requests: deque[_Request] = deque()
        self._n_waiting = 0  # applications
        self._some, self._ends = asyncio.Event(), False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self._epochs: dict[Key, _Epoch] = {}
        self._task = asyncio.create_task(self._run())

    async def decide(self, live: Live, applications: Sequence[Application]) -> Answer:
        """Decide on applications, all or none; returns when they are on disk."""
        if self._ends or self._n_waiting + len(applications) > _CAPACITY:
            raise Problem("busy", 503, "too many applications wait: try again with the same ids")
        answer = asyncio.get_running_loop().create_future()
        request = _Request(live, applications, answer, perf_counter())
        self._requests.append(request)
        self._n_waiting += len(applications)
        self._some.set()
        return await request.answer

    async def close(self) -> None:
        """Decide on all that waits, and end."""
        self._ends = True
        self._some.set()
        await self._task
        self._thread.shutdown()

    async def _run(self) -> None:
        run = asyncio.get_running_loop().run_in_executor
        while not self._ends or self._requests:
            await self._some.wait()
            self._some.clear()
            while group := self._next_group():
                answers = await run(self._thread, self._answers, group)
                _seconds.observe(perf_counter() - group[0].since)
                for request, answer in zip(group, answers, strict=True):
                    if request.answer.cancelled():  # the client has gone; the decision stays
                        continue
                    if isinstance(answer, Answer):
                        request.answer.set_result(answer)
                    else:
                        request.answer.set_exception(answer)

    def _next_group(self) -> list[_Request]:
        group: list[_Request] = []
        size = 0
        while self._requests and size + len(self._requests[0].applications) <= _GROUP:
            group.append(self._requests.popleft())
            size += len(group[-1].applications)
        self._n_waiting -= size
        _waiting.set(self._n_waiting)
        return group

    # --- on the thread

    def _answers(self, group: list[_Request]) -> list[Answer | Problem]:
        """Decide on a group; where that fails, on each request alone, so that one does no harm."""
        try:
            return self._committed(group)
        except OperationalError as error:
            _log.error("decisions could not be stored: %s", type(error.orig).__name__)
            why = "the database does not answer: try again, same ids"
            return [Problem("storage", 503, why) for _ in group]
        except Exception as error:
            if len(group) > 1:
                return [self._answers([request])[0] for request in group]
            if isinstance(error, IntegrityError) and says_closed(error):
                return [Problem("day_closed", 409, "the books of that day are closed")]
            _log.exception("a decision failed")
            return [Problem("internal", 500, "the decision failed; nothing was stored")]

    def _committed(self, group: list[_Request]) -> list[Answer | Problem]:
        """Insert all as new; where an id is there already, look up which ones, and repeat."""
        for attempt in range(_ATTEMPTS):
            try:
                time = now()
                self._open_epochs(group, time)
                with self._store.write() as connection:
                    clocks = _clocks(connection, group)
                    is_far = any(_jumps(request, clocks, time) for request in group)
                    rows = _stored(connection, group) if attempt or is_far else {}
                    answers, new = self._decided(connection, group, rows, clocks, time)
            except IntegrityError:
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                _count(new)
                return answers
        raise AssertionError

    def _decided(
        self,
        connection: Connection,
        group: list[_Request],
        rows: dict[Key, Body],
        clocks: Clocks,
        time: datetime,
    ) -> tuple[list[Answer | Problem], list[Body]]:
        undecided: dict[Key, _New] = {}
        own: list[dict[Key, _New] | Problem] = []
        for request in group:
            try:
                found = _undecided(request, rows, undecided)
                if found and _jumps(request, clocks, time):
                    raise _too_far(clocks[request.live.loop])
                undecided |= found
                own.append(found)
            except Problem as problem:
                own.append(problem)
        new, bodies = self._drawn(undecided.values(), time)
        if new:
            # in the same order in every process, or two of them could wait for each other
            new.sort(key=itemgetter("loop", "application_id"))
            connection.execute(insert(schema.decision), new)
        past: dict[tuple[str, int, int], Live] = {}
        for key, row in rows.items():  # what was answered, by what decided it at the time
            place = row["loop"], row["version"], row["deployment"]
            if place not in past:
                past[place] = live_at(connection, *place)
            bodies[key] = past[place].answer_again(row, row["commitment"])
        answers = [
            each if isinstance(each, Problem) else Answer(bool(each), _bodies(request, bodies))
            for request, each in zip(group, own, strict=True)
        ]
        return answers, new

    def _drawn(self, some: Iterable[_New], time: datetime) -> tuple[list[Body], dict[Key, Body]]:
        """Return rows and answers: scored together, each drawn with its own number."""
        rows: list[Body] = []
        bodies: dict[Key, Body] = {}
        by_live: dict[Live, list[Application]] = {}
        for live, application in some:
            by_live.setdefault(live, []).append(application)
        for live, applications in by_live.items():
            scored = live.scored([application.features for application in applications])
            chances = zip(scored.propensity.tolist(), scored.found.score.tolist(), strict=True)
            for place, (application, chance) in enumerate(zip(applications, chances, strict=True)):
                row, commitment = self._row(live, application, application.time or time, *chance)
                reasons = [] if row["accepted"] else live.reasons(scored, place)
                bodies[live.loop, row["application_id"]] = live.answer(row, commitment, reasons)
                rows.append(row)
        return rows, bodies

    def _row(
        self, live: Live, application: Application, time: datetime, propensity: float, score: float
    ) -> tuple[Body, str]:
        """Return the row of a decision, drawn now, and the commitment of its epoch."""
        name = period_of(live.settings.epoch, time)
        epoch = self._epochs[live.loop, name]
        u = uniform(epoch.key, live.loop, application.subject)
        features, salt = canonical(application.features), new_salt()
        values = {
            "application_id": application.application_id,
            "subject_id": application.subject_id,
            "version": live.version,
            "cohort": period_of(live.settings.period, time),
            "epoch": name,
            "deployment": live.number,
            "features": features,
            "salt": salt,
            "features_digest": hidden_digest(salt, features),
            "amount": application.amount,
            "score": score,
            "propensity": propensity,
            "u": u,
            "accepted": u < propensity,
        }
        return schema.made_row(schema.decision, live.loop, time, values), epoch.commitment

    def _open_epochs(self, group: list[_Request], time: datetime) -> None:
        """Store the commitment of each epoch before anybody is drawn with its key."""
        if len(self._epochs) > _EPOCHS:
            self._epochs.clear()
        for request in group:
            for each in sorted({one.time or time for one in request.applications}):
                live, name = request.live, period_of(request.live.settings.epoch, each)
                if (live.loop, name) not in self._epochs:
                    with self._store.write() as connection:
                        open_epochs(connection, live.loop, live.settings, self._secret, each)
                    key = epoch_key(self._secret, live.loop, name)
                    self._epochs[live.loop, name] = _Epoch(key, commitment_of(key))


def _count(rows: list[Body]) -> None:
    """Add decisions that are on disk to the figures for Prometheus."""
    for loop, count in Counter(row["loop"] for row in rows).items():
        _decisions.labels(loop).inc(count)
    _accepted.inc(sum(row["accepted"] for row in rows))
    _groups.observe(len(rows))


def _stored(connection: Connection, group: list[_Request]) -> dict[Key, Body]:
    """Return the rows of applications that were decided before."""
    wanted: dict[str, list[str]] = {}
    for request in group:
        theirs = (application.application_id for application in request.applications)
        wanted.setdefault(request.live.loop, []).extend(theirs)
    found: dict[Key, Body] = {}
    table, epoch = schema.decision, schema.epoch
    for loop, ids in wanted.items():
        before = (
            select(table, epoch.c.commitment)
            .join(epoch, (epoch.c.loop == table.c.loop) & (epoch.c.epoch == table.c.epoch))
            .where(table.c.loop == loop, table.c.application_id.in_(ids))
        )
        for row in schema.rows(connection, before):
            found[loop, row["application_id"]] = row
    return found


def _clocks(connection: Connection, group: list[_Request]) -> Clocks:
    """Return the time of the last decision of each rehearsal, by loop."""
    table = schema.decision
    found = {}
    for loop in {each.live.loop for each in group if each.live.settings.rehearsal}:
        last = select(table.c.time).where(table.c.loop == loop).order_by(table.c.id.desc())
        if time := connection.execute(last.limit(1)).scalar():
            found[loop] = moment(time)
    return found


def _jumps(request: _Request, clocks: Clocks, now: datetime) -> bool:
    """Whether a rehearsal's clock would jump: days would be closed, which cannot be undone."""
    clock = clocks.get(request.live.loop)
    return clock is not None and any(
        abs((application.time or now) - clock) > _JUMP for application in request.applications
    )


def _too_far(clock: datetime) -> Problem:
    return Problem(
        "clock", 422,
        f"the rehearsal is at {stamp(clock)[:10]}, and this is more than {_JUMP.days} days away: "
        "go there in steps",
    )  # fmt: skip


def _undecided(
    request: _Request, rows: dict[Key, Body], others: dict[Key, _New]
) -> dict[Key, _New]:
    """Return the decisions that a request still needs; refuse one that contradicts another."""
    found: dict[Key, _New] = {}
    for index, application in enumerate(request.applications):
        key = request.live.loop, application.application_id
        same = others.get(key) or found.get(key)
        if key in rows:
            problem = _contradiction(application, rows[key])
        elif same is None:
            found[key] = _New(request.live, application)
            continue
        else:
            problem = None if same.application == application else _differs()
        if problem is not None:
            if len(request.applications) > 1:
                problem.extra["index"] = index
            raise problem
    return found


def _contradiction(application: Application, row: Body) -> Problem | None:
    if row["features"] is None:
        return Problem("forgotten", 410, "this application was decided, and then forgotten")
    given = canonical(application.features), application.subject_id, application.amount
    same = given == (row["features"], row["subject_id"], row["amount"])
    return None if same else _differs()


def _differs() -> Problem:
    return Problem(
        "application_differs", 409, "this application was decided with other features: use a new id"
    )


def _bodies(request: _Request, bodies: dict[Key, Body]) -> list[Body]:
    loop = request.live.loop
    return [bodies[loop, each.application_id] for each in request.applications]
