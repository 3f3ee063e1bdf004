"""Views: the routes of pages, who may open them, and what a template is given."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from consequential.service import schema
from consequential.service.deciding import Live
from consequential.service.keys import (
    SESSION_COOKIE,
    SESSION_LASTS,
    Account,
    account_of_id,
    account_of_key,
    new_session,
    signed_in,
)
from consequential.service.pages import changes, sections
from consequential.service.pages.rendering import render
from consequential.service.pages.report import report
from consequential.service.problems import Problem
from consequential.service.records import now, stamp
from consequential.service.state import Service

PAGES = ("overview", "outcomes", "people", "candidates", "decision", "audit")
_LARGEST_FORM = 16_384  # bytes
_LARGEST_REPORT = 300_000  # decisions: verifying them takes a quarter of a minute
_SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
# titles and advice by the code of a problem, or else by its status
_HELP: dict[str | int, tuple[str, str]] = {
    "origin": (
        "Not sent",
        "Open the page again and send its form from there. If this happens every time, a proxy in "
        "front of the service does not pass on the Host header.",
    ),
    401: ("Signed out", "Sign in with a key that is in force."),
    403: (
        "Not allowed", "Another key may be good for this; whoever runs the service gives keys out."
    ),
    404: ("Not found", "Choose a page above, or look a decision up by its id."),
    409: (
        "Not done",
        "Nothing was changed. Look at the page again: somebody else may have been faster.",
    ),
    503: ("Not now", "The service is busy or its database does not answer. Try again in a moment."),
}  # fmt: skip
_reporting = Lock()

Form = dict[str, str]
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


@dataclass(frozen=True, slots=True)
class Visit:
    """Somebody who is signed in and asks for a page."""

    service: Service
    account: Account
    request: Request
    form: Form  # of a GET, what the address asks for

    def live(self) -> Live:
        """Return the loop that the page is about."""
        return self.service.live(self.request.path_params["loop"])


def _page(view: Callable[[Visit], Response]) -> Handler:
    """Make a view a route: it needs a session, and its problems are pages, too."""

    @wraps(view)
    async def handler(request: Request) -> Response:
        service: Service = request.app.state.service
        visit: Visit | None = None
        try:
            form = await _form(request)
            account = await service.on_thread(lambda: _account(service, request))
            if account is None:
                if request.method == "POST":
                    raise Problem("session", 401, "your session has ended: nothing was changed")
                return _redirect(f"/sign-in?next={quote(_address(request))}")
            visit = Visit(service, account, request, form)
            account.require("read")
            return await service.on_thread(lambda: view(visit))
        except Problem as problem:
            return help_page(request, problem, visit)
        except SQLAlchemyError:
            return help_page(request, Problem("storage", 503, "the database does not answer"))

    return handler


async def _form(request: Request) -> Form:
    if request.method != "POST":
        return dict(request.query_params)
    _check_origin(request)
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LARGEST_FORM:
            raise Problem("too_large", 413, "the form has too much in it")
    return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))


def _account(service: Service, request: Request) -> Account | None:
    cookie = request.cookies.get(SESSION_COOKIE, "")
    identifier = signed_in(service.settings.secret, cookie, now())
    if identifier is None:
        return None
    with service.store.read() as connection:
        return account_of_id(connection, identifier)


def _address(request: Request) -> str:
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def _redirect(address: str) -> Response:
    return RedirectResponse(address, 303, headers=_SECURITY)


def _html(text: str, status: int = 200) -> Response:
    return HTMLResponse(text, status, headers=_SECURITY)


def _shown(visit: Visit, template: str, status: int = 200, **context: Any) -> Response:
    """Answer with a page of a loop."""
    live: Live = context["live"]
    frame = {
        "account": visit.account,
        "loops": visit.service.loops(),
        "pages": PAGES,
        "page": template,
        "alarms": sections.alarms(visit.service, live.loop),
    }
    return _html(render(f"{template}.html", **frame, loop_name=live.loop, **context), status)


# --- problems


def wants_page(request: Request) -> bool:
    """Whether somebody at a browser asks, and not a program."""
    return "text/html" in request.headers.get("accept", "")


def help_page(request: Request, problem: Problem, visit: Visit | None = None) -> Response:
    """Answer with a page that says what is wrong and where to go."""
    service: Service = request.app.state.service
    known = {
        "account": visit.account if visit else None,
        "loops": service.loops() if visit else [],
        "pages": PAGES,
    }
    other = "Not done", "Nothing was changed. Go back and try again."
    title, help_ = _HELP.get(problem.code) or _HELP.get(problem.status, other)
    return _html(
        render("problem.html", **known, title=title, detail=problem.detail, help=help_),
        problem.status,
    )


# --- signing in and out


@_page
def _first_loop(visit: Visit) -> Response:
    loops = visit.service.loops()
    if not loops:
        raise Problem("unknown_loop", 404, "this service has no loop yet: make one with PUT "
                      "/v1/loops/{name}, or consequential init --example")  # fmt: skip
    return _redirect(f"/loops/{loops[0]}")


async def _sign_in(request: Request) -> Response:
    service: Service = request.app.state.service
    try:
        form = await _form(request)
    except Problem as problem:
        return help_page(request, problem)
    following = form.get("next", "/")
    if not following.startswith("/") or following.startswith(("//", "/\\")):
        following = "/"  # never to another site
    if request.method == "GET":
        return _html(render("sign-in.html", next=following, wrong=""))

    def checked() -> tuple[str, str]:
        with service.store.read() as connection:
            found = account_of_key(connection, form.get("key", "").strip())
        if found is None:
            return "", "This key is not known."
        identifier, account = found
        if account.revoked:
            return "", "This key was revoked."
        if "read" not in account.scopes:
            return "", "This key is not good for reading: pages need the scope read."
        return identifier, ""

    identifier, wrong = await service.on_thread(checked)
    if wrong:
        return _html(render("sign-in.html", next=following, wrong=wrong), 401)
    answer = _redirect(following)
    answer.set_cookie(
        SESSION_COOKIE,
        new_session(service.settings.secret, identifier, now()),
        max_age=int(SESSION_LASTS.total_seconds()),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


async def _sign_out(request: Request) -> Response:
    try:
        await _form(request)
    except Problem as problem:
        return help_page(request, problem)
    answer = _redirect("/sign-in")
    answer.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict")
    return answer


# --- pages of a loop


def _section(page: str, section: Callable[[Service, Live], dict[str, Any]]) -> Handler:
    """Return the route of a page that only shows something."""

    @_page
    def view(visit: Visit) -> Response:
        live = visit.live()
        return _shown(visit, page, live=live, **section(visit.service, live))

    return view


@_page
def _candidates(visit: Visit) -> Response:
    live = visit.live()
    found = sections.candidates(visit.service, live, visit.account)
    return _shown(visit, "candidates", live=live, done=visit.form.get("done", ""), **found)


@_page
def _change(visit: Visit) -> Response:
    """Show what a change will do; sent as a form, do it."""
    live, service = visit.live(), visit.service
    kind = visit.form.get("kind", "")
    visit.account.require(changes.SCOPES.get(kind, "approve"))
    if visit.request.method == "POST":
        with service.changing(live.loop) as (connection, live, at):
            done = changes.do(connection, live, visit.account, visit.form, at)
        service.refresh()
        return _redirect(f"/loops/{live.loop}/candidates?{urlencode({'done': done})}")
    with service.store.read() as connection:
        change = changes.asked_for(connection, live, visit.account, visit.form)
    lines = [] if change.evaluation is None else json.loads(change.evaluation["checklist"])
    return _shown(visit, "change", live=live, change=change, lines=lines)


@_page
def _decision(visit: Visit) -> Response:
    live, asked = visit.live(), visit.form.get("of", "").strip()
    found = sections.decision(visit.service, live, asked, replay="replay" in visit.form)
    status = 404 if asked and found["row"] is None else 200
    return _shown(visit, "decision", status, live=live, asked=asked, **found)


@_page
def _audit(visit: Visit) -> Response:
    live = visit.live()
    found = sections.audit(
        visit.service, live, visit.form.get("before", ""), visit.form.get("verify", "")
    )
    return _shown(visit, "audit", live=live, **found)


@_page
def _report(visit: Visit) -> Response:
    """Answer with the report as a file, one at a time: all rows are verified for it."""
    loop, day = visit.live().loop, schema.day.c
    closed = select(func.sum(day.rows)).where(day.table == schema.decision.name)
    with visit.service.store.read() as connection:
        rows = connection.execute(closed).scalar() or 0
    if rows > _LARGEST_REPORT:
        raise Problem("too_large", 413, f"{rows} decisions would keep the service busy for long: "
                      "run consequential report on the server")  # fmt: skip
    if not _reporting.acquire(blocking=False):
        raise Problem("busy", 503, "another report is being written: try again in a minute")
    try:
        text = report(visit.service, loop, now())
    finally:
        _reporting.release()
    kept = {"Content-Disposition": f'attachment; filename="{loop}-{stamp(now())[:10]}.html"'}
    return HTMLResponse(text, headers=_SECURITY | kept)


@_page
def _choose(visit: Visit) -> Response:
    """Go to the same page of another loop."""
    page = visit.form.get("page", "")
    loop = visit.service.live(visit.form.get("loop", "")).loop
    tail = f"/{page}" if page in PAGES[1:] else ""
    return _redirect(f"/loops/{loop}{tail}")


def routes() -> list[Route | Mount]:
    """Return the routes of all pages."""
    static = StaticFiles(directory=Path(__file__).parent / "static")
    found: list[Route | Mount] = [
        Route("/", _first_loop),
        Route("/sign-in", _sign_in, methods=["GET", "POST"]),
        Route("/sign-out", _sign_out, methods=["POST"]),
        Route("/loops", _choose),
        Route("/loops/{loop}", _section("overview", sections.overview)),
        Route("/loops/{loop}/outcomes", _section("outcomes", sections.outcomes)),
        Route("/loops/{loop}/people", _section("people", sections.people)),
        Route("/loops/{loop}/candidates", _candidates),
        Route("/loops/{loop}/candidates/change", _change, methods=["GET", "POST"]),
        Route("/loops/{loop}/decision", _decision),
        Route("/loops/{loop}/audit", _audit),
        Route("/loops/{loop}/audit/report", _report),
        Mount("/static", static),
    ]
    return found


def _check_origin(request: Request) -> None:
    """Refuse a form that another site sent."""
    origin = request.headers.get("origin") or request.headers.get("referer") or ""
    if urlsplit(origin).netloc != request.headers.get("host"):
        raise Problem("origin", 403, "this form was not sent from a page of this service")
