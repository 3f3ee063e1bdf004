"""App: the service as one ASGI application, and its log as JSON lines."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import IntegrityError, OperationalError, TimeoutError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Mount, Route

from consequential import __version__
from consequential.service import api, bodies, routing
from consequential.service.database import open_store, says_closed
from consequential.service.pages.charts import import_libraries
from consequential.service.pages.rendering import compile_templates
from consequential.service.pages.views import help_page, routes, wants_page
from consequential.service.problems import MEDIA_TYPE, Problem
from consequential.service.records import now, stamp
from consequential.service.settings import ServiceSettings
from consequential.service.state import Service

_CODES = {404: "not_found", 405: "method"}
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "color_message"}
_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}


def make_app(settings: ServiceSettings) -> Starlette:
    """Return the application of a service; its databases are opened now.

    Decisions have plain routes of their own: FastAPI, which serves and describes everything,
    would cost more than deciding.
    """
    service = Service(settings, open_store(settings))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        import_libraries()
        compile_templates()
        await service.start()
        yield
        await service.stop()

    described = FastAPI(
        title="consequential",
        version=__version__,
        description="Decide with exploring policies, log the propensity, remember the outcome.",
        exception_handlers=_HANDLERS,
        docs_url=None,  # these pages would load scripts from elsewhere
        redoc_url=None,
    )
    for router in (routing.plain, routing.router, routing.watching):
        described.include_router(router)
    hot = [
        Route("/v1/loops/{loop}/decisions", api.decide, methods=["POST"]),
        Route("/v1/loops/{loop}/decisions/batch", api.decide_batch, methods=["POST"]),
    ]
    app = Starlette(
        routes=[*hot, *routes(), Mount("/", described)],
        exception_handlers=_HANDLERS,
        lifespan=lifespan,
    )
    app.state.service = described.state.service = service
    return app


def _answer(problem: Problem, headers: Any = None) -> Response:
    return Response(
        json.dumps(problem.document()),
        problem.status,
        headers={**_HEADERS.get(problem.status, {}), **(headers or {})},
        media_type=MEDIA_TYPE,
    )


async def _refused(_: Request, problem: Any) -> Response:
    return _answer(problem)


async def _http(request: Request, error: Any) -> Response:
    code = _CODES.get(error.status_code, "http")
    problem = Problem(code, error.status_code, str(error.detail))
    if wants_page(request):
        return help_page(request, problem)
    return _answer(problem, error.headers)


async def _invalid(_: Request, error: Any) -> Response:
    return _answer(bodies.as_problem(error.errors()))


async def _unavailable(_: Request, error: Any) -> Response:
    logging.getLogger(__name__).error(
        "no database: %s", type(getattr(error, "orig", error)).__name__
    )
    return _answer(Problem("storage", 503, "the database does not answer: try again, same ids"))


async def _conflict(_: Request, error: Any) -> Response:
    if says_closed(error):
        return _answer(Problem("day_closed", 409, "the books of that day are closed"))
    return _answer(Problem("conflict", 409, "another request did the same just now: try again"))


async def _failed(request: Request, error: Any) -> Response:
    problem = Problem("internal", 500, "this failed; nothing was stored")
    return help_page(request, problem) if wants_page(request) else _answer(problem)


_HANDLERS: dict[Any, Any] = {
    Problem: _refused,
    HTTPException: _http,
    RequestValidationError: _invalid,
    IntegrityError: _conflict,
    OperationalError: _unavailable,
    TimeoutError: _unavailable,  # all connections are in use
    Exception: _failed,
}


class _Lines(logging.Formatter):
    """One JSON object per line; of errors their type and place, never values of people."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": stamp(now()),
            "level": record.levelname.lower(),
            "from": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[1]:
            kind, _, trace = record.exc_info
            line["error"] = kind.__name__ if kind else ""
            line["at"] = [f"{at.filename}:{at.lineno}" for at in traceback.extract_tb(trace)][-5:]
        more = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        return json.dumps(line | more)


def log_as_lines() -> None:
    """Write the log to standard output as JSON lines."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_Lines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)
