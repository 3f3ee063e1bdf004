"""Routing: routes that ask for a key first and read strict JSON, their routers and description."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic_core import to_json

from consequential.service import bodies
from consequential.service.applications import LIST_LENGTH, LIST_LIMIT, check_media_type, read_json
from consequential.service.problems import MEDIA_TYPE, Problem
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


# --- what the description of the routes says where types alone do not say it

_TEXT = {"type": "string"}
_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {"status": {"type": "integer"}}
    | dict.fromkeys(("type", "title", "code", "detail"), _TEXT),
}
_REASONS = {
    400: "No JSON, or JSON that contradicts itself",
    401: "No key, or one that is unknown or revoked",
    403: "The key is not good for this",
    404: "No such thing",
    409: "It contradicts what is stored",
    410: "It was forgotten",
    413: "The body is too large",
    415: "Another media type is needed",
    422: "A value that cannot be used",
    503: "Try again later, with the same ids",
}
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"description": why, "content": {MEDIA_TYPE: {"schema": _PROBLEM}}}
    for status, why in _REASONS.items()
}

APPLICATION = bodies.ApplicationBody.model_json_schema()
_ITEMS = {"type": "array", "minItems": 1, "maxItems": LIST_LENGTH, "items": APPLICATION}
BATCH = {
    "type": "object",
    "required": ["applications"],
    "properties": {"applications": _ITEMS},
    "additionalProperties": False,
}

_ID = "01985f2e-7c3a-7d7e-a798-4661c3a7ec41"
_POLICY = "9efadef13507acef79009d3779dfe193ca7d0c334915f2263616b38322da50d8"
APPLICATION_EXAMPLE = {
    "application_id": "A-17",
    "subject_id": "P-4",
    "amount": 1.0,
    "features": {"income": 2100, "purpose": "car"},
}
OUTCOMES_EXAMPLE = {
    "outcomes": [
        {"event_id": "E-1", "decision_id": _ID, "label": 1, "happened": "2027-05-01T12:00:00Z"}
    ]
}
OVERRIDES_EXAMPLE = {
    "overrides": [{"decision_id": _ID, "accepted": False, "why": "the papers were forged"}]
}
ATTRIBUTES_EXAMPLE = {"sensitive": [{"subject_id": "P-4", "attribute": "sex", "value": "f"}]}
DEPLOYMENT_EXAMPLE = {"shares": {_POLICY: 1.0}, "evidence": 17, "why": "agreed on 3 March"}
POLICY_EXAMPLE = {"format": "consequential policy", "schema": 3}
SETTINGS_EXAMPLE = {
    "cost": 0.6,
    "floor": 0.05,
    "period": "month",
    "horizon": 12,
    "sensitive": "sex",
    "max_gap": 0.1,
    "acceptance": [0.3, 0.9],
    "gate": {"confidence": 0.95, "margin": 0.0},
    "features": {
        "income": {"low": 0, "high": 20000, "phrase": "Income", "shape": "spline"},
        "purpose": {"words": ["car", "home"], "phrase": "Purpose"},
    },
}


def shown(example: Any) -> dict[str, Any]:
    """Return what adds an example to a route whose body FastAPI describes."""
    return {"requestBody": {"content": {"application/json": {"example": example}}}}


def described(schema: dict[str, Any], example: Any, *optional: str) -> dict[str, Any]:
    """Return the description of a route of a loop that reads its body itself."""
    parameters: list[dict[str, Any]] = [
        {"name": "loop", "in": "path", "required": True, "schema": _TEXT}
    ]
    parameters += [{"name": name, "in": "query", "schema": _TEXT} for name in optional]
    media = {"schema": schema, "example": example}
    return {
        "parameters": parameters,
        "requestBody": {"required": True, "content": {"application/json": media}},
    }


# --- routers

_security = [Security(HTTPBearer(auto_error=False, description="a key of consequential key"))]
plain = APIRouter(route_class=_PlainRoute, responses=REFUSALS, dependencies=_security)
watching = APIRouter(route_class=_PlainRoute)  # without a key
router = APIRouter(route_class=_Route, responses=REFUSALS, dependencies=_security)
