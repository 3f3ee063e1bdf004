"""API: the routes, each with the scope that a key needs for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from functools import partial
from threading import BoundedSemaphore
from typing import Annotated, Any

from fastapi import Body, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from sqlalchemy import Connection, Table, select

from consequential.service import (
    alarms,
    bodies,
    candidates,
    exports,
    learning,
    loops,
    outcomes,
    policies,
    routing,
    schema,
)
from consequential.service.applications import (
    DECISION_LIMIT,
    LIST_LIMIT,
    Application,
    application_ids,
    checked_id,
    read_application,
    read_batch,
    read_json,
)
from consequential.service.closing import open_books
from consequential.service.problems import Problem
from consequential.service.records import now
from consequential.service.routing import (
    allowed,
    answered,
    plain,
    read_body,
    router,
    service_of,
    watching,
)
from consequential.service.settings import LoopSettings
from consequential.service.writer import Answer

Settings = Annotated[dict[str, Any], Body()]

_PARQUET = "application/vnd.apache.parquet"
_FIRST, _LAST = date(1971, 1, 1), date(2999, 1, 1)
_LISTED = 1000  # rows of a list, the newest
_JSON = ("shares", "cohorts", "summary", "checklist", "counts")
_exports = BoundedSemaphore(2)  # each takes memory, and a connection for a while


# --- deciding


@plain.post(
    "/v1/loops/{loop}/decisions",
    status_code=201,
    response_model=bodies.DecisionBody,
    responses={200: {"model": bodies.DecisionBody, "description": "It was decided before"}},
    openapi_extra=routing.described(routing.APPLICATION, routing.APPLICATION_EXAMPLE),
)
@allowed("decide")
async def decide(request: Request) -> Response:
    """Decide on one applicant; the same application again gets the same answer."""
    answer = await _decided(request, DECISION_LIMIT, lambda *given: [read_application(*given)])
    return answered(answer.decisions[0], 201 if answer.is_new else 200)


@plain.post(
    "/v1/loops/{loop}/decisions/batch",
    status_code=201,
    response_model=bodies.Decisions,
    responses={200: {"model": bodies.Decisions, "description": "All were decided before"}},
    openapi_extra=routing.described(routing.BATCH, {"applications": [routing.APPLICATION_EXAMPLE]}),
)
@allowed("decide")
async def decide_batch(request: Request) -> Response:
    """Decide on up to 1000 applicants, all or none."""
    answer = await _decided(request, LIST_LIMIT, read_batch)
    return answered({"decisions": answer.decisions}, 201 if answer.is_new else 200)


async def _decided(
    request: Request, limit: int, read: Callable[[Any, LoopSettings], list[Application]]
) -> Answer:
    service = service_of(request)
    service.account(request, "decide")
    live = service.deciding(request.path_params["loop"])
    value = read_json(await read_body(request, limit), limit)
    try:
        applications = read(value, live.settings)
    except Problem as problem:
        # what was decided before the settings changed gets the answer that it got
        ids = application_ids(value) if problem.status == 422 else []
        before = await service.on_thread(partial(service.live_before, live.loop, ids))
        if before is None:
            raise
        live, applications = before, read(value, before.settings)
    return await service.writer.decide(live, applications)


@router.get("/v1/decisions/{id}")
@allowed("read")
def decision(request: Request, id: str) -> JSONResponse:
    """Return a decision with its reasons, outcome and override."""
    store = service_of(request).store
    return JSONResponse(outcomes.decision_document(store, checked_id(id, "id")))


@router.get("/v1/decisions/{id}/replay")
@allowed("read")
def replay(request: Request, id: str) -> JSONResponse:
    """Compute a decision again from the log."""
    service = service_of(request)
    found = outcomes.replay_document(service.store, checked_id(id, "id"), service.settings.secret)
    return JSONResponse(found)


# --- reporting


@router.post("/v1/outcomes", openapi_extra=routing.shown(routing.OUTCOMES_EXAMPLE))
@allowed("report")
def report_outcomes(request: Request, body: bodies.OutcomesBody) -> dict[str, int]:
    """Report what became of accepted people; in any order, and more than once."""
    with service_of(request).store.write() as connection:
        by = request.state.account.name
        return {"new": outcomes.add_outcomes(connection, body.outcomes, by, now())}


@router.post("/v1/overrides", openapi_extra=routing.shown(routing.OVERRIDES_EXAMPLE))
@allowed("report")
def report_overrides(request: Request, body: bodies.Overrides) -> dict[str, int]:
    """Report what was done where it is not what was decided."""
    with service_of(request).store.write() as connection:
        by = request.state.account.name
        return {"new": outcomes.add_overrides(connection, body.overrides, by, now())}


@router.post("/v1/sensitive", openapi_extra=routing.shown(routing.ATTRIBUTES_EXAMPLE))
@allowed("sensitive")
def report_sensitive(request: Request, body: bodies.Attributes) -> dict[str, int]:
    """Report sensitive attributes, which decide nothing."""
    store, at, by = service_of(request).store, now(), request.state.account.name
    with store.read() as connection:
        known = {each.sensitive for each in loops.settings_in_force(connection).values()}
    for index, item in enumerate(body.sensitive):
        if item.attribute not in known:
            why = f"no loop has the sensitive attribute {item.attribute!r}, so it is not stored"
            raise Problem("unknown_attribute", 422, why, index=index)
    with open_books(store, "", at), store.write_sensitive() as connection:
        return {"new": outcomes.add_attributes(connection, body.sensitive, by, at)}


# --- loops, policies, deployments


@router.get("/v1/loops/{loop}")
@allowed("read")
def get_loop(request: Request, loop: str) -> JSONResponse:
    """Return the settings in force, and all versions before."""
    service_of(request).live(loop)
    with service_of(request).store.read() as connection:
        versions = loops.loop_versions(connection, loop)
    return JSONResponse({"loop": loop, **versions[0], "versions": versions})


@router.put("/v1/loops/{loop}", openapi_extra=routing.shown(routing.SETTINGS_EXAMPLE))
@allowed("admin")
def put_loop(request: Request, loop: str, document: Settings) -> dict[str, int]:
    """Make a loop, or a new version of its settings."""
    service = service_of(request)
    by = request.state.account.name
    with service.store.write() as connection:
        version = loops.put_loop(connection, loop, document, service.settings.secret, by, now())
    service.refresh()
    return {"version": version}


@plain.post(
    "/v1/loops/{loop}/policies",
    status_code=201,
    openapi_extra=routing.described(
        {"type": "object"}, routing.POLICY_EXAMPLE, "parent", "cohorts"
    ),
)
@allowed("learn")
async def propose(request: Request) -> Response:
    """Propose a policy, the file that `save_policy` writes, to be deployed by another person."""
    service, loop = service_of(request), request.path_params["loop"]
    by = service.account(request, "learn").name
    service.live(loop)
    body = await read_body(request, LIST_LIMIT)
    try:
        document = body.decode()
    except UnicodeDecodeError:
        raise Problem("not_utf8", 400, "the body is not UTF-8") from None
    told = request.query_params.get("cohorts", "")
    cohorts = [each for each in told.split(",") if each] or None
    parent = request.query_params.get("parent")
    if parent is not None:
        checked_id(parent, "parent")

    def stored() -> str:
        with service.changing(loop) as (connection, live, at):
            return policies.propose(
                connection, live, document, by, at, parent=parent, cohorts=cohorts
            )

    return answered({"policy": await service.on_thread(stored)}, 201)


@router.post(
    "/v1/loops/{loop}/deployments",
    status_code=201,
    openapi_extra=routing.shown(routing.DEPLOYMENT_EXAMPLE),
)
@allowed("approve")
def deploy(request: Request, loop: str, body: bodies.Deployment) -> dict[str, int]:
    """Decide with these policies from now on; a canary or a roll back is a deployment, too.

    The share of a candidate rises by the evidence of the last evaluation that it passed; without
    evidence it takes the scope admin, and a reason.
    """
    service, account = service_of(request), request.state.account
    told: dict[str, Any] = {"evidence": body.evidence, "why": body.why}
    with service.changing(loop) as (connection, live, at):
        number = policies.approve(connection, live, body.shares, account, at, **told)
    service.refresh()
    return {"number": number}


@router.post("/v1/loops/{loop}/learn", status_code=202, openapi_extra=routing.shown({}))
@allowed("learn")
def learn(request: Request, loop: str, body: bodies.Learn) -> dict[str, str]:
    """Ask the worker to learn from all frozen cohorts; the candidate comes later."""
    with service_of(request).changing(loop) as (connection, _, at):
        return {"request": learning.ask(connection, loop, request.state.account.name, at)}


@router.post(
    "/v1/loops/{loop}/withdrawals", status_code=201, openapi_extra=routing.shown({"candidate": 1})
)
@allowed("learn")
def withdraw(request: Request, loop: str, body: bodies.Withdrawal) -> dict[str, int]:
    """Let a candidate wait no longer."""
    with service_of(request).changing(loop) as (connection, _, at):
        candidates.withdraw(connection, loop, body.candidate, request.state.account.name, at)
    return {"candidate": body.candidate}


# --- lists, the newest first


def _listing(
    path: str, read: Callable[[Connection, str], list[dict[str, Any]]], name: str = ""
) -> None:
    """Add a route that lists what a loop has."""
    name = name or path

    @router.get(f"/v1/loops/{{loop}}/{path}", name=name, description=f"A loop's {name}.")
    @allowed("read")
    def listed(request: Request, loop: str) -> JSONResponse:
        service_of(request).live(loop)
        with service_of(request).store.read() as connection:
            return JSONResponse({name: read(connection, loop)[:_LISTED]})


def _rows(table: Table, connection: Connection, loop: str) -> list[dict[str, Any]]:
    columns = [column for column in table.c if column is not schema.policy.c.content]
    order = next(table.c[name] for name in ("number", "date", "id") if name in table.c)
    wanted = select(*columns).where(table.c.loop == loop).order_by(order.desc()).limit(_LISTED)
    return [_readable(row) for row in schema.rows(connection, wanted)]


def _readable(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with its JSON as values."""
    found = {name: json.loads(value) if name in _JSON else value for name, value in row.items()}
    # less those on the page of people, it would tell how many are in small groups
    found.get("counts", {}).pop(exports.UNKNOWN, None)
    return found


for _name, _table in {
    "policies": schema.policy,
    "deployments": schema.deployment,
    "epochs": schema.epoch,
    "days": schema.day,
    "cohorts": schema.cohort,
    "evaluations": schema.evaluation,
    "guardrails": schema.guardrail,
}.items():
    _listing(_name, partial(_rows, _table))
_listing("candidates", lambda *of: candidates.candidates(*of)[::-1])
_listing("learn", lambda *of: learning.asked(*of)[::-1], "requests")


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
    if table == schema.cohort.name and not sensitive:
        raise Problem("scope", 403, "the counts of cohorts take a key with the scope sensitive")
    if not _exports.acquire(blocking=False):
        raise Problem("busy", 503, "other exports are being made: try again")
    try:
        if table:
            copied = exports.copy_of(service.store, table, loop, first, last)
            return Response(copied, media_type=_PARQUET)
        found = exports.export(service.store, loop, settings, first, last, sensitive=sensitive)
    finally:
        _exports.release()
    return Response(found.content, media_type=_PARQUET)


# --- watching


@watching.get("/healthz")
async def healthz(request: Request) -> Response:
    """Say that the process runs."""
    return answered({"status": "ok"})


@watching.get("/readyz", responses={503: routing.REFUSALS[503]})
async def readyz(request: Request) -> Response:
    """Say whether the service can decide: the database answers, and it is not about to end."""
    service = service_of(request)
    if not await service.on_thread(service.is_ready):
        raise Problem("not_ready", 503, "the database does not answer, or the service ends")
    return answered({"status": "ok"})


@watching.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Return figures for Prometheus."""
    service = service_of(request)
    await service.on_thread(partial(alarms.measure, service.store))
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
