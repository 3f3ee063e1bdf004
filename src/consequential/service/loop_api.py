"""Loop API: routes of loops, their policies and candidates, and what they decide with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request, Response
from fastapi.responses import JSONResponse
from sqlalchemy import Table, select

from consequential.service import approval, bodies, candidates, learning, loops, policies, schema
from consequential.service.api import (
    SECURITY,
    KeyedRoute,
    PlainRoute,
    allowed,
    as_json,
    json_body,
    service_of,
)
from consequential.service.applications import LIST_LIMIT, checked_id
from consequential.service.openapi import (
    DEPLOYMENT_EXAMPLE,
    POLICY_EXAMPLE,
    REFUSALS,
    SETTINGS_EXAMPLE,
    described,
    shown,
)
from consequential.service.problems import Problem
from consequential.service.records import now

Settings = Annotated[dict[str, Any], Body()]

_LISTED = 1000  # rows of a list, the newest
_JSON = ("shares", "cohorts", "summary", "checklist", "counts")

plain = APIRouter(route_class=PlainRoute, responses=REFUSALS, dependencies=SECURITY)
router = APIRouter(route_class=KeyedRoute, responses=REFUSALS, dependencies=SECURITY)


@router.get("/v1/loops/{loop}")
@allowed("read")
def get_loop(request: Request, loop: str) -> JSONResponse:
    """Return the settings in force, and all versions before."""
    service_of(request).live(loop)
    with service_of(request).store.read() as connection:
        versions = loops.loop_versions(connection, loop)
    return JSONResponse({"loop": loop, **versions[0], "versions": versions})


@router.put("/v1/loops/{loop}", openapi_extra=shown(SETTINGS_EXAMPLE))
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
    openapi_extra=described({"type": "object"}, POLICY_EXAMPLE, "parent", "cohorts"),
)
@allowed("learn")
async def propose(request: Request) -> Response:
    """Propose a policy, the file that `save_policy` writes, to be deployed by another person."""
    service = service_of(request)
    by = service.account(request, "learn").name
    live = service.live(request.path_params["loop"])
    body = await json_body(request, LIST_LIMIT)
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
        with service.store.write() as connection:
            at = loops.clock(connection, live.loop, live.settings, now())
            return policies.propose(
                connection, live, document, by, at, parent=parent, cohorts=cohorts
            )

    return as_json({"policy": await service.on_thread(stored)}, 201)


@router.post(
    "/v1/loops/{loop}/deployments",
    status_code=201,
    openapi_extra=shown(DEPLOYMENT_EXAMPLE),
)
@allowed("approve")
def deploy(request: Request, loop: str, body: bodies.Deployment) -> dict[str, int]:
    """Decide with these policies from now on; a canary or a roll back is a deployment, too.

    The share of a candidate rises by the evidence of the last evaluation that it passed; without
    evidence it takes the scope admin, and a reason.
    """
    service, account = service_of(request), request.state.account
    live = service.live(loop)
    told: dict[str, Any] = {"evidence": body.evidence, "why": body.why}
    with service.store.write() as connection:
        at = loops.clock(connection, loop, live.settings, now())
        number = approval.approve(connection, live, body.shares, account, at, **told)
    service.refresh()
    return {"number": number}


@router.post("/v1/loops/{loop}/learn", status_code=202, openapi_extra=shown({}))
@allowed("learn")
def learn(request: Request, loop: str, body: bodies.Learn) -> dict[str, str]:
    """Ask the worker to learn from all frozen cohorts; the candidate comes later."""
    service, by = service_of(request), request.state.account.name
    live = service.live(loop)
    with service.store.write() as connection:
        at = loops.clock(connection, loop, live.settings, now())
        return {"request": learning.ask(connection, loop, by, at)}


@router.get("/v1/loops/{loop}/learn")
@allowed("read")
def get_learning(request: Request, loop: str) -> JSONResponse:
    """Return what became of the requests to learn, the newest first."""
    service_of(request).live(loop)
    with service_of(request).store.read() as connection:
        return JSONResponse({"requests": learning.asked(connection, loop)[::-1][:_LISTED]})


@router.get("/v1/loops/{loop}/candidates")
@allowed("read")
def get_candidates(request: Request, loop: str) -> JSONResponse:
    """Return the policies that wait for their proof, and those that did, the newest first."""
    service_of(request).live(loop)
    with service_of(request).store.read() as connection:
        found = candidates.candidates(connection, loop)
    return JSONResponse({"candidates": found[::-1][:_LISTED]})


@router.post("/v1/loops/{loop}/withdrawals", status_code=201, openapi_extra=shown({"candidate": 1}))
@allowed("learn")
def withdraw(request: Request, loop: str, body: bodies.Withdrawal) -> dict[str, int]:
    """Let a candidate wait no longer."""
    service, by = service_of(request), request.state.account.name
    live = service.live(loop)
    with service.store.write() as connection:
        at = loops.clock(connection, loop, live.settings, now())
        candidates.withdraw(connection, loop, body.candidate, by, at)
    return {"candidate": body.candidate}


def _listing(name: str, table: Table, hidden: tuple[str, ...] = ()) -> None:
    """Add a route that lists a loop's rows, the newest first."""

    @router.get(f"/v1/loops/{{loop}}/{name}", name=name, description=f"A loop's {name}.")
    @allowed("read")
    def listed(request: Request, loop: str) -> JSONResponse:
        service_of(request).live(loop)
        columns = [column for column in table.c if column.name not in hidden]
        order = next(table.c[name] for name in ("number", "date", "id") if name in table.c)
        wanted = select(*columns).where(table.c.loop == loop).order_by(order.desc()).limit(_LISTED)
        with service_of(request).store.read() as connection:
            rows = schema.rows(connection, wanted)
        return JSONResponse({name: [_readable(row) for row in rows]})


def _readable(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with its JSON as values."""
    return {name: json.loads(value) if name in _JSON else value for name, value in row.items()}


_listing("policies", schema.policy, hidden=("content",))
_listing("deployments", schema.deployment)
_listing("epochs", schema.epoch)
_listing("days", schema.day)
_listing("cohorts", schema.cohort)
_listing("evaluations", schema.evaluation)
_listing("guardrails", schema.guardrail)
