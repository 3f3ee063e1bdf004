"""Commands of the service: `init`, `serve` and `migrate`."""

from __future__ import annotations

import argparse
import json
import logging
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from consequential.cli.parser import needing_service

if TYPE_CHECKING:
    from consequential.service.database import Store
    from consequential.service.settings import ServiceSettings

with needing_service():
    import fastapi  # noqa: F401
    import sqlalchemy  # noqa: F401
    import uvicorn

_log = logging.getLogger(__name__)
_WATCHED = 1.0  # seconds until the worker is looked at again
_FLOOR = 0.1
_EXAMPLE = {
    "cost": 0.7,
    "floor": _FLOOR,
    "horizon": 12,
    "sensitive": "group",
    "features": {"score": {"low": 300, "high": 850, "phrase": "Credit score"}},
}
_CUT, _SLOPE, _MEDIAN = 720.0, 0.02, 645.0  # a harsh rule: most people lie below it

_TRY = """Serve it:
  consequential serve {directory}
and then try
  curl -s {url}/v1/loops/lending/decisions {key} -H 'Content-Type: application/json' \\
      -d '{{"application_id": "A-1", "subject_id": "P-1", "features": {{"score": 612}}}}'
  curl -s {url}/v1/loops/lending {key}
  curl -s {url}/v1/loops/lending/epochs {key}"""


def init(options: argparse.Namespace) -> int:
    """Make the directory of a service: settings, a secret, tables and a first key."""
    directory: Path = options.directory
    key = make_service(directory, options.database or "", example=options.example)
    print(f"made {directory}. This key may do everything, and is shown only now:\n  {key}")
    if options.example:
        header = f"-H 'Authorization: Bearer {key}'"
        print(_TRY.format(directory=directory, url="http://127.0.0.1:8000", key=header))
    return 0


def make_service(directory: Path, database: str = "", *, example: bool = False) -> str:
    """Make the same and return the key."""
    from consequential.service.database import migrate, open_store
    from consequential.service.keys import SCOPES, create_key
    from consequential.service.records import now
    from consequential.service.settings import ServiceSettings

    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    with ExitStack() as undo:
        for name, content in (
            ("secret", secrets.token_hex(32)),
            ("service.json", json.dumps({"database": database}, indent=2) + "\n"),
        ):
            _write_new(directory / name, content)
            undo.callback((directory / name).unlink)
        settings = ServiceSettings.load(directory)
        migrate(settings)
        store = open_store(settings)
        with store.write() as connection:
            key = create_key(connection, "first", SCOPES, now(), by="init")
        if example:
            _make_example(store, settings)
        store.close()
        undo.pop_all()  # all went well
    return key


def _write_new(file: Path, content: str) -> None:
    """Write a file that nobody else may read; a secret that is there is never replaced."""
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise FileExistsError(f"{file} is there already: choose another folder") from None
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(content)


def _make_example(store: Store, settings: ServiceSettings) -> None:
    """Make the lending loop, and deploy a harsh rule that explores with a floor of 0.1."""
    from consequential.policy import FeatureSummary, Policy, policy_to_json
    from consequential.service.deciding import live_loops
    from consequential.service.loops import put_loop
    from consequential.service.policies import deploy, propose
    from consequential.service.records import now

    people = [[_MEDIAN + each] for each in range(-150, 151, 25)]
    rule = Policy(
        [-_SLOPE * _CUT, _SLOPE],
        "smooth_semi_logistic",
        floor=_FLOOR,
        feature_names=["score"],
        summary=FeatureSummary.of(people, ["score"]),
    )
    with store.write() as connection:
        put_loop(connection, "lending", _EXAMPLE, settings.secret, "init", now())
        live = live_loops(connection, {})["lending"]
        digest = propose(connection, live, policy_to_json(rule), "example", now())
        deploy(
            connection, live, {digest: 1.0}, "init", now(), evidence="without evidence: an example"
        )


def serve(options: argparse.Namespace) -> int:
    """Serve decisions over HTTP until SIGTERM or Ctrl-C; what was asked before is finished."""
    from consequential.service.app import log_as_lines, make_app
    from consequential.service.database import locked
    from consequential.service.settings import ServiceSettings

    settings = ServiceSettings.load(options.directory)
    with ExitStack() as stack:
        if settings.is_sqlite:
            stack.enter_context(locked(settings.directory))
        log_as_lines()
        app = make_app(settings)
        if not options.no_worker:
            stack.enter_context(_worker(settings.directory))
        # uvicorn ends in order and then raises the signal again, for whoever handled it before
        signal.signal(signal.SIGTERM, lambda *_: None)
        config = uvicorn.Config(
            app,
            host=options.host,
            port=options.port,
            log_config=None,
            access_log=False,
            server_header=False,
        )
        uvicorn.Server(config).run()
    return 0


@contextmanager
def _worker(directory: Path) -> Iterator[None]:
    """Run a worker as a child, again if it ends; it ends with this process, however that ends."""
    command = [sys.executable, "-m", "consequential", "work", str(directory), "--follow"]
    stop = Event()

    def watch() -> None:
        while not stop.is_set():
            with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
                while child.poll() is None and not stop.wait(_WATCHED):
                    pass
            if not stop.is_set():  # else leaving the block closed the pipe, and the child ended
                _log.error("the worker ended with status %s and is started again", child.returncode)

    with ThreadPoolExecutor(1) as thread:
        watching = thread.submit(watch)
        try:
            yield
        finally:
            stop.set()
    watching.result()


def migrate(options: argparse.Namespace) -> int:
    """Bring the tables to this version, or print the SQL that would."""
    from consequential.service import database
    from consequential.service.settings import ServiceSettings

    if options.sql:
        print(database.migration_sql())
        return 0
    database.migrate(ServiceSettings.load(options.directory))
    print("the tables are those of this version")
    return 0
