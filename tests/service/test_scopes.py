from __future__ import annotations

import pytest

from consequential.service.keys import SCOPES

# the scope that each route needs, whatever the code says; None where no key is needed
ROUTES = {
    ("post", "/v1/loops/{loop}/decisions"): "decide",
    ("post", "/v1/loops/{loop}/decisions/batch"): "decide",
    ("get", "/v1/decisions/{id}"): "read",
    ("get", "/v1/decisions/{id}/replay"): "read",
    ("post", "/v1/outcomes"): "report",
    ("post", "/v1/overrides"): "report",
    ("post", "/v1/sensitive"): "sensitive",
    ("get", "/v1/loops/{loop}"): "read",
    ("put", "/v1/loops/{loop}"): "admin",
    ("post", "/v1/loops/{loop}/policies"): "learn",
    ("get", "/v1/loops/{loop}/policies"): "read",
    ("post", "/v1/loops/{loop}/deployments"): "approve",
    ("get", "/v1/loops/{loop}/deployments"): "read",
    ("get", "/v1/loops/{loop}/epochs"): "read",
    ("get", "/v1/loops/{loop}/days"): "read",
    ("get", "/v1/loops/{loop}/export"): "read",
    ("get", "/healthz"): None,
    ("get", "/readyz"): None,
    ("get", "/metrics"): None,
}


def test_every_route_is_in_the_matrix(http):
    paths = http.get("/openapi.json").json()["paths"]
    assert {(method, path) for path, methods in paths.items() for method in methods} == set(ROUTES)


def ask(http, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
    """Ask with a body that no route accepts, so that nothing is stored whatever the scope."""
    address = path.format(loop="trial", id="0198")
    http.headers.pop("Authorization", None)
    content = {} if method == "get" else {"content": "[]"}
    kind = {"Content-Type": "application/json"} if content else {}
    answer = http.request(method, address, headers=headers | kind, **content)
    is_problem = answer.headers["Content-Type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"] if is_problem else ""


@pytest.fixture
def bare(http):
    """Requests without the key that they have otherwise."""
    kept = http.headers["Authorization"]
    yield http
    http.headers["Authorization"] = kept


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_route_is_for_keys_with_its_scope_only(bare, trial, method, path):
    needed = ROUTES[method, path]
    if needed is None:
        assert ask(bare, method, path, {})[0] == 200
        return
    assert ask(bare, method, path, {}) == (401, "no_key")
    assert ask(bare, method, path, {"Authorization": "Bearer x"}) == (401, "unknown_key")
    for scope in SCOPES:
        status, code = ask(bare, method, path, trial.header(scope))
        assert (code == "scope") == (scope != needed), (scope, status, code)
        assert (status == 403) == (scope != needed), (scope, status, code)
