"""Servers to compare: the service, and bare ones that only parse and insert the same bytes.

Arguments: kind (service, bare, single), directory of a service, port.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from sqlalchemy import insert
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from consequential.service import schema
from consequential.service.app import log_as_lines, make_app
from consequential.service.database import Store, open_store
from consequential.service.records import new_id, now, stamp
from consequential.service.settings import ServiceSettings

HASH = "0" * 64
ANSWER = json.dumps(
    {
        "id": "0" * 36, "application_id": "0" * 20, "accepted": False, "propensity": 0.1234567890,
        "policy": HASH, "deployment": 1, "epoch": "2026-11", "commitment": HASH,
        "reasons": [{"feature": "number0", "phrase": "Number 0", "lost": 0.123456}] * 4,
        "due": "2026-12", "digest": HASH,
    }
).encode()  # fmt: skip


def row(application: dict) -> dict:
    """A row of the same size as a decision, without any of the work."""
    time = now()
    return {
        "id": new_id(time), "loop": "bare", "time": stamp(time),
        "application_id": application["application_id"], "subject_id": application["subject_id"],
        "version": 1, "cohort": "2026-11", "epoch": "2026-11", "deployment": 1,
        "features": json.dumps(application["features"]), "salt": HASH[:32],
        "features_digest": HASH, "amount": 1.0, "score": -0.5, "propensity": 0.5, "u": 0.5,
        "accepted": False, "digest": HASH,
    }  # fmt: skip


def insert_rows(store: Store, rows: list[dict]) -> None:
    with store.write() as connection:
        connection.execute(insert(schema.decision), rows)


def bare(store: Store, single: int = 0) -> Starlette:
    """Parse and insert: all that wait in one commit, or each in its own on `single` threads."""
    waiting: deque = deque()
    some = asyncio.Event()
    threads = ThreadPoolExecutor(single or 1)

    async def write() -> None:
        run = asyncio.get_running_loop().run_in_executor
        while True:
            await some.wait()
            some.clear()
            while waiting:
                group = list(waiting)
                waiting.clear()
                await run(threads, insert_rows, store, [each for each, _ in group])
                for _, answer in group:
                    answer.set_result(None)

    @asynccontextmanager
    async def lifespan(_):
        task = asyncio.create_task(write())
        yield
        task.cancel()
        store.close()

    async def decide(request: Request) -> Response:
        made = row(json.loads(await request.body()))
        if single:
            run = asyncio.get_running_loop().run_in_executor
            await run(threads, insert_rows, store, [made])
        else:
            answer = asyncio.get_running_loop().create_future()
            waiting.append((made, answer))
            some.set()
            await answer
        return Response(ANSWER, 201, media_type="application/json")

    path = "/v1/loops/{loop}/decisions"
    return Starlette(routes=[Route(path, decide, methods=["POST"])], lifespan=lifespan)


if __name__ == "__main__":
    kind, directory, port = sys.argv[1:]
    log_as_lines()
    settings = ServiceSettings.load(Path(directory))
    if kind == "service":
        app = make_app(settings)
    else:
        threads = (1 if settings.is_sqlite else 16) if kind == "single" else 0
        app = bare(open_store(settings), threads)
    uvicorn.run(app, port=int(port), log_config=None, access_log=False, server_header=False)
