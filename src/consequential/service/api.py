"""API: routes for deciding, reporting and watching, each with the scope that a key needs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import UTC, date, datetime
from functools import partial
from threading import BoundedSemaphore
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response, Security
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic_core import to_json

from consequential.service import (
    alarms,
    bodies,
    copies,
    exports,
    lookups,
    outcomes,
)
from consequential.service.applications import (
    DECISION_LIMIT,
    LIST_LIMIT,
    Application,
    application_ids,
    check_media_type,
    checked_id,
    read_application,
    read_batch,
    read_json,
)
from consequential.service.closing import open_books
from consequential.service.deciding import Live
from consequential.service.openapi import (
    APPLICATION,
    APPLICATION_EXAMPLE,
    ATTRIBUTES_EXAMPLE,
    BATCH,
    OUTCOMES_EXAMPLE,
    OVERRIDES_EXAMPLE,
    REFUSALS,
    described,
    shown,
)
from consequential.service.problems import Problem
from consequential.service.records import now
from consequential.service.settings import LoopSettings
from consequential.service.state import Service
from consequential.service.writer import Answer

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

_PARQUET = "application/vnd.apache.parquet"
_FIRST, _LAST = date(1971, 1, 1), date(2999, 1, 1)
_exports = BoundedSemaphore(2)  # each takes memory, and a connection for a while


def allowed(scope: str) -> Callable[[Endpoint], Endpoint]:
    """Mark an endpoint with the scope that a key needs."""

    def mark(endpoint: Endpoint) -> Endpoint:
        vars(endpoint)["scope"] = scope
        return endpoint

    return mark


class KeyedRoute(APIRoute):
    """A route that asks for a key first, and then reads strict JSON."""

    def get_route_handler(self) -> Handler:
        """Return what answers a request."""
        handle, scope = super().get_route_handler(), vars(self.endpoint)["scope"]

        async def handler(request: Request) -> Response:
            request.state.account = service_of(request).account(request, scope)
            if self.body_field is not None:
                body = await json_body(request, LIST_LIMIT)
                request._body, request._json = body, read_json(body, LIST_LIMIT)
            return await handle(request)

        return handler


class PlainRoute(APIRoute):
    """A route that answers a request itself: FastAPI only describes it."""

    def get_route_handler(self) -> Handler:
        """Return the endpoint itself."""
        endpoint: Handler = self.endpoint
        return endpoint


def service_of(request: Request) -> Service:
    """Return the service that a request is for."""
    service: Service = request.app.state.service
    return service


async def json_body(request: Request, limit: int) -> bytes:
    """Return the body of a JSON request; reading ends at the limit."""
    check_media_type(request.headers.get("content-type"))
    return await _bytes(request, limit)


async def _bytes(request: Request, limit: int) -> bytes:
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise Problem("too_large", 413, f"the body has more than {limit} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def as_json(content: Any, status: int = 200) -> Response:
    """Return an answer in JSON."""
    return Response(to_json(content), status, media_type="application/json")


# --- routers

SECURITY = [Security(HTTPBearer(auto_error=False, description="a key of consequential key"))]
plain = APIRouter(route_class=PlainRoute, responses=REFUSALS, dependencies=SECURITY)
watching = APIRouter(route_class=PlainRoute)  # without a key
router = APIRouter(route_class=KeyedRoute, responses=REFUSALS, dependencies=SECURITY)


# --- deciding


@plain.post(
    "/v1/loops/{loop}/decisions",
    status_code=201,
    response_model=bodies.Decision,
    responses={200: {"model": bodies.Decision, "description": "It was decided before"}},
    openapi_extra=described(APPLICATION, APPLICATION_EXAMPLE),
)
@allowed("decide")
async def decide(request: Request) -> Response:
    """Decide on one applicant; the same application again gets the same answer."""
    service = service_of(request)
    service.account(request, "decide")
    live = service.deciding(request.path_params["loop"])
    value = read_json(await json_body(request, DECISION_LIMIT), DECISION_LIMIT)
    answer = await _decided(service, live, value, lambda loop: [read_application(value, loop)])
    return as_json(answer.decisions[0], _status(answer))


@plain.post(
    "/v1/loops/{loop}/decisions/batch",
    status_code=201,
    response_model=bodies.Decisions,
    responses={200: {"model": bodies.Decisions, "description": "All were decided before"}},
    openapi_extra=described(BATCH, {"applications": [APPLICATION_EXAMPLE]}),
)
@allowed("decide")
async def decide_batch(request: Request) -> Response:
    """Decide on up to 1000 applicants, all or none."""
    service = service_of(request)
    service.account(request, "decide")
    live = service.deciding(request.path_params["loop"])
    value = read_json(await json_body(request, LIST_LIMIT), LIST_LIMIT)
    answer = await _decided(service, live, value, lambda loop: read_batch(value, loop))
    return as_json({"decisions": answer.decisions}, _status(answer))


async def _decided(
    service: Service, live: Live, value: Any, read: Callable[[LoopSettings], list[Application]]
) -> Answer:
    try:
        applications = read(live.settings)
    except Problem as problem:
        # what was decided before the settings changed gets the answer that it got
        ids = application_ids(value) if problem.status == 422 else []
        before = await service.on_thread(partial(service.live_before, live.loop, ids))
        if before is None:
            raise
        live, applications = before, read(before.settings)
    return await service.writer.decide(live, applications)


def _status(answer: Answer) -> int:
    return 201 if answer.is_new else 200


@router.get("/v1/decisions/{id}")
@allowed("read")
def decision(request: Request, id: str) -> JSONResponse:
    """Return a decision with its reasons, outcome and override."""
    store = service_of(request).store
    return JSONResponse(lookups.decision_document(store, checked_id(id, "id")))


@router.get("/v1/decisions/{id}/replay")
@allowed("read")
def replay(request: Request, id: str) -> JSONResponse:
    """Compute a decision again from the log."""
    service = service_of(request)
    found = lookups.replay_document(service.store, checked_id(id, "id"), service.settings.secret)
    return JSONResponse(found)


# --- reporting


@router.post("/v1/outcomes", openapi_extra=shown(OUTCOMES_EXAMPLE))
@allowed("report")
def report_outcomes(request: Request, body: bodies.Outcomes) -> dict[str, int]:
    """Report what became of accepted people; in any order, and more than once."""
    with service_of(request).store.write() as connection:
        by = request.state.account.name
        return {"new": outcomes.add_outcomes(connection, body.outcomes, by, now())}


@router.post("/v1/overrides", openapi_extra=shown(OVERRIDES_EXAMPLE))
@allowed("report")
def report_overrides(request: Request, body: bodies.Overrides) -> dict[str, int]:
    """Report what was done where it is not what was decided."""
    with service_of(request).store.write() as connection:
        by = request.state.account.name
        return {"new": outcomes.add_overrides(connection, body.overrides, by, now())}


@router.post("/v1/sensitive", openapi_extra=shown(ATTRIBUTES_EXAMPLE))
@allowed("sensitive")
def report_sensitive(request: Request, body: bodies.Attributes) -> dict[str, int]:
    """Report sensitive attributes, which decide nothing."""
    store, at, by = service_of(request).store, now(), request.state.account.name
    with open_books(store, "", at), store.write_sensitive() as connection:
        return {"new": outcomes.add_attributes(connection, body.sensitive, by, at)}


# --- exports


@router.get(
    "/v1/loops/{loop}/export",
    response_class=Response,
    responses={200: {"content": {_PARQUET: {}}, "description": "A Parquet file"}},
)
@allowed("read")
def export(
    request: Request,
    loop: str,
    since: bodies.Day = _FIRST,
    until: bodies.Day = _LAST,
    table: str = "",
) -> Response:
    """Return decisions, or rows of a table as written; groups only with the scope `sensitive`."""
    service = service_of(request)
    settings = service.live(loop).settings
    first, last = (datetime.combine(day, datetime.min.time(), UTC) for day in (since, until))
    sensitive = "sensitive" in request.state.account.scopes
    if not _exports.acquire(blocking=False):
        raise Problem("busy", 503, "other exports are being made: try again")
    try:
        if table:
            copied = copies.copy_of(service.store, table, loop, first, last)
            return Response(copied, media_type=_PARQUET)
        found = exports.export(service.store, loop, settings, first, last, sensitive=sensitive)
    finally:
        _exports.release()
    return Response(found.content, media_type=_PARQUET)


# --- watching


@watching.get("/healthz")
async def healthz(request: Request) -> Response:
    """Say that the process runs."""
    return as_json({"status": "ok"})


@watching.get("/readyz", responses={503: REFUSALS[503]})
async def readyz(request: Request) -> Response:
    """Say whether the service can decide: the database answers, and it is not about to end."""
    service = service_of(request)
    if not await service.on_thread(service.is_ready):
        raise Problem("not_ready", 503, "the database does not answer, or the service ends")
    return as_json({"status": "ok"})


@watching.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Return figures for Prometheus."""
    service = service_of(request)
    await service.on_thread(partial(alarms.measure, service.store))
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
