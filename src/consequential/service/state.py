"""State: what a running service knows, read again from the database each second."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from threading import Lock
from typing import Any, TypeVar

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from consequential.service.candidates import settings_version
from consequential.service.chance import check_secret
from consequential.service.database import Store, connected
from consequential.service.deciding import Live, live_at, live_before, live_loops, load_newest
from consequential.service.keys import Account, accounts, authenticated
from consequential.service.loops import clock
from consequential.service.problems import Problem
from consequential.service.records import now
from consequential.service.settings import ServiceSettings
from consequential.service.writer import Writer

_INTERVAL = 1.0  # seconds

_log = logging.getLogger(__name__)
Result = TypeVar("Result")


class Service:
    """The store, the writer, and who may do what with which loops."""

    writer: Writer
    _own: Store
    _poll: asyncio.Task[None]

    def __init__(self, settings: ServiceSettings, store: Store) -> None:
        self.settings, self.store = settings, store
        self._lives: Mapping[str, Live] = {}
        self._accounts: Mapping[str, Account] = {}
        self._newest = ""  # policy that was loaded
        self._ends = False
        self._reads = Lock()  # what was read later must not be replaced by what was read before
        with store.read() as connection:
            check_secret(connection, settings.secret)
        self.refresh()

    async def start(self) -> None:
        """Begin to take decisions."""
        # a connection that no other request can take
        self._own = connected(self.settings)
        self.writer = Writer(self._own, self.settings.secret)
        self._poll = asyncio.create_task(self._refresh_always())

    async def stop(self) -> None:
        """Decide on all that waits, then end."""
        self._ends = True
        self._poll.cancel()
        await self.writer.close()
        self._own.close()
        self.store.close()

    def prepare(self) -> None:
        """Load the newest policies, so that they decide at once when they are deployed.

        The first one with splines takes seconds, in which scikit-learn is imported.
        """
        with self.store.read() as connection:
            self._newest = load_newest(connection, self._newest)

    def refresh(self) -> None:
        """Read settings, deployments and keys again."""
        with self._reads, self.store.read() as connection:
            self._accounts = accounts(connection)
            self._lives = live_loops(connection, self._lives)

    async def _refresh_always(self) -> None:
        preparing: asyncio.Future[None] | None = None  # what is refreshed does not wait for it
        while True:
            await asyncio.sleep(_INTERVAL)
            try:
                await self.on_thread(self.refresh)
                if preparing is None or preparing.done():
                    preparing = asyncio.ensure_future(self.on_thread(self.prepare))
            except Exception as error:  # whatever it is: keys are revoked only if this goes on
                _log.error("settings could not be read: %s", type(error).__name__)

    async def on_thread(self, work: Callable[[], Result]) -> Result:
        """Do something with the database that the event loop should not wait for."""
        return await asyncio.get_running_loop().run_in_executor(None, work)

    def is_ready(self) -> bool:
        """Whether the database answers and requests are welcome."""
        try:
            with self.store.read() as connection:
                connection.execute(text("select 1"))
        except SQLAlchemyError:
            return False
        return not self._ends

    def account(self, request: Any, scope: str) -> Account:
        """Return whose key a request has, if it is good for the scope."""
        return authenticated(self._accounts, request.headers.get("authorization"), scope)

    def live(self, loop: str) -> Live:
        """Return a loop's settings and deployment."""
        found = self._lives.get(loop)
        if found is None:
            raise Problem("unknown_loop", 404, "there is no such loop")
        return found

    def loops(self) -> list[str]:
        """Return the names of all loops, in order."""
        return sorted(self._lives)

    @contextmanager
    def changing(self, loop: str) -> Iterator[tuple[Connection, Live, datetime]]:
        """Begin a transaction that changes a loop: with its settings now, and its time."""
        self.live(loop)
        with self.store.write() as connection:
            live = live_at(connection, loop, settings_version(connection, loop), 0)
            yield connection, live, clock(connection, loop, live.settings, now())

    def live_before(self, loop: str, ids: Sequence[str]) -> Live | None:
        """Return what decided on applications, if all were decided, and by the same."""
        if not ids:
            return None
        with self.store.read() as connection:
            return live_before(connection, loop, ids)

    def deciding(self, loop: str) -> Live:
        """Return the same for a loop that can decide."""
        live = self.live(loop)
        if not live.shares:
            raise Problem("no_deployment", 409, "the loop has no deployment: deploy a policy first")
        return live
