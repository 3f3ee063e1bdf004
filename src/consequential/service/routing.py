"""Routing: routes that ask for a key first and read strict JSON, and the routers they are on."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic_core import to_json

from consequential.service import openapi
from consequential.service.applications import LIST_LIMIT, check_media_type, read_json
from consequential.service.problems import Problem
from consequential.service.state import Service

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


def allowed(scope: str) -> Callable[[Endpoint], Endpoint]:
    """Mark an endpoint with the scope that a key needs."""

    def mark(endpoint: Endpoint) -> Endpoint:
        vars(endpoint)["scope"] = scope
        return endpoint

    return mark


class _Route(APIRoute):
    """A route that asks for a key first, and then reads strict JSON."""

    def get_route_handler(self) -> Handler:
        handle, scope = super().get_route_handler(), vars(self.endpoint)["scope"]

        async def handler(request: Request) -> Response:
            request.state.account = service_of(request).account(request, scope)
            if self.body_field is not None:
                body = await read_body(request, LIST_LIMIT)
                request._body, request._json = body, read_json(body, LIST_LIMIT)
            return await handle(request)

        return handler


class _PlainRoute(APIRoute):
    """A route that answers a request itself: FastAPI only describes it."""

    def get_route_handler(self) -> Handler:
        endpoint: Handler = self.endpoint
        return endpoint


def service_of(request: Request) -> Service:
    """Return the service that a request is for."""
    service: Service = request.app.state.service
    return service


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body of a JSON request; reading ends at the limit."""
    check_media_type(request.headers.get("content-type"))
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise Problem("too_large", 413, f"the body has more than {limit} bytes")
    return bytes(body)


def answered(content: Any, status: int = 200) -> Response:
    """Return values as an answer in JSON."""
    return Response(to_json(content), status, media_type="application/json")


# --- routers

_security = [Security(HTTPBearer(auto_error=False, description="a key of consequential key"))]
plain = APIRouter(route_class=_PlainRoute, responses=openapi.REFUSALS, dependencies=_security)
watching = APIRouter(route_class=_PlainRoute)  # without a key
router = APIRouter(route_class=_Route, responses=openapi.REFUSALS, dependencies=_security)
