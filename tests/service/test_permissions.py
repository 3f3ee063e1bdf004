"""Who may do what: every route with every scope, and what OpenAPI says of all of them."""

from __future__ import annotations

import httpx
import pytest
from trial import LOOP, Trial, application, make_trial, served_here

from consequential.service import routing
from consequential.service.keys import SCOPES

OPEN = {"/healthz", "/readyz", "/metrics"}


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    return make_trial(tmp_path_factory.mktemp("permissions"))


def routes() -> list[tuple[str, str, str]]:
    """Method, address and needed scope of every route with a key."""
    return [
        (method, route.path, vars(route.endpoint)["scope"])
        for route in (*routing.plain.routes, *routing.router.routes)
        if route.path not in OPEN
        for method in route.methods
    ]


def asked(http: httpx.Client, trial: Trial, scope: str, method: str, path: str) -> httpx.Response:
    address = path.replace("{loop}", "trial").replace("{id}", "none")
    body = {"json": {}} if method in ("POST", "PUT") else {}
    return http.request(method, address, headers=trial.header(scope), **body)


@pytest.mark.parametrize("scope", SCOPES)
def test_a_key_opens_the_routes_of_its_scope_and_no_others(http, trial, scope):
    for method, path, needed in routes():
        answer = asked(http, trial, scope, method, path)
        if scope == needed:
            assert answer.status_code not in (401, 403), path
        else:
            assert (answer.status_code, answer.json()["code"]) == (403, "scope"), path


def test_all_scopes_and_routes_are_there():
    found = routes()
    assert len(found) >= 16
    assert {scope for _, _, scope in found} == set(SCOPES)


def test_without_a_key_only_health_and_metrics_answer(http):
    bare = {"Authorization": ""}
    for method, path, _ in routes():
        body = {"json": {}} if method in ("POST", "PUT") else {}
        answer = http.request(method, path, headers=bare, **body)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    for path in OPEN:
        assert http.get(path, headers=bare).status_code == 200
    assert "consequential_decisions" in http.get("/metrics", headers=bare).text


def test_a_revoked_key_is_refused_within_seconds(http, trial):
    import time

    from consequential.service.database import connected
    from consequential.service.keys import create_key, revoke_keys
    from consequential.service.records import now

    store = connected(trial.settings)
    with store.write() as connection:
        key = create_key(connection, "leaver", ["read"], now())
    header = {"Authorization": f"Bearer {key}"}

    def code() -> str:
        return http.get("/v1/loops/trial", headers=header).json().get("code", "")

    def becomes(wanted: str) -> bool:
        for _ in range(100):
            if code() == wanted:
                return True
            time.sleep(0.1)
        return False

    assert becomes("")
    with store.write() as connection:
        revoke_keys(connection, "leaver", now())
    store.close()
    assert becomes("revoked_key")


def test_openapi_describes_every_route_with_an_example(http):
    document = http.get("/openapi.json").json()
    for method, path, _ in routes():
        told = document["paths"][path][method.lower()]
        assert told["security"]
        assert {"401", "403", "422"} <= set(told["responses"])
        if method in ("POST", "PUT"):
            content = told["requestBody"]["content"]["application/json"]
            assert "example" in content or "examples" in content, path


def test_the_examples_of_openapi_are_answered(http, trial):
    """The examples of decisions fit the loop that OpenAPI speaks of."""
    document = http.get("/openapi.json").json()
    place = document["paths"]["/v1/loops/{loop}/decisions"]["post"]
    example = place["requestBody"]["content"]["application/json"]["example"]
    assert set(example) == {*application(), "subject_id", "amount"}
    assert http.put("/v1/loops/again", json=LOOP).status_code == 200


@pytest.mark.slow
def test_schemathesis_finds_nothing(trial, tmp_path):
    """Requests made from the description, good and bad, never break the service."""
    _schemathesis(trial, tmp_path, examples=60)


def test_schemathesis_finds_nothing_at_first_sight(trial, tmp_path):
    _schemathesis(trial, tmp_path, examples=5)


def _schemathesis(trial: Trial, folder, examples: int) -> None:
    import subprocess
    import sys

    checks = (
        "not_a_server_error,status_code_conformance,content_type_conformance,"
        "response_schema_conformance,negative_data_rejection,unsupported_method,ignored_auth"
    )
    with served_here(trial) as client:
        done = subprocess.run(
            [sys.executable, "-m", "schemathesis.cli", "run",
             f"{client.base_url}/openapi.json", "--header",
             f"Authorization: Bearer {trial.keys['all']}", "--checks", checks, "--seed", "1",
             "--max-examples", str(examples), "--phases", "examples,coverage,fuzzing",
             "--suppress-health-check", "all", "--generation-database", "none"],
            capture_output=True, text=True, cwd=folder, timeout=500,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
