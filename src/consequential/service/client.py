"""Client: a service's routes as methods; what failed on the way is sent again with the same id."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import httpx

from consequential.service.problems import MEDIA_TYPE, Problem

_TRY_AGAIN = (502, 503, 504)
_LONGEST_WAIT = 5.0  # seconds


@dataclass(frozen=True, slots=True)
class Decision:
    """What the service decided, with the probability of acceptance and, for a refusal, why.

    `digest` is the receipt: keep it, it proves later what was decided. `extra` has the rest of the
    answer.

    Examples
    --------
    >>> from consequential.service.client import Decision
    >>> Decision("0198", False, 0.11, "9c", ({"feature": "income", "lost": 1.2},)).accepted
    False
    """

    id: str
    accepted: bool
    propensity: float
    digest: str
    reasons: tuple[dict[str, Any], ...]
    extra: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, body: dict[str, Any]) -> Self:
        """Return the decision that an answer tells."""
        told = dict(body)
        own = {name: told.pop(name) for name in ("id", "accepted", "propensity", "digest")}
        return cls(**own, reasons=tuple(told.pop("reasons", ())), extra=told)


class Client:
    """A service at an address, asked with a key, in a `with` block.

    Requests can be repeated, because the ids in them make them one event: a lost connection, a lost
    answer or 503 is tried again, `attempts` times in all. What the service refuses is raised as the
    `Problem` that it answered. Other options are those of `httpx.Client`.

    Examples
    --------
    >>> from consequential.service.client import Client
    >>> with Client("http://127.0.0.1:8000", key="...") as client:
    ...     client.attempts
    5
    """

    def __init__(self, url: str, key: str, *, attempts: int = 5, **options: Any) -> None:
        self.attempts = attempts
        headers = {"Authorization": f"Bearer {key}"}
        self._http = httpx.Client(base_url=url, headers=headers, **{"timeout": 10.0} | options)

    # --- deciding

    def decide(
        self, loop: str, application_id: str, features: Mapping[str, float | str], **optional: Any
    ) -> Decision:
        """Decide on one applicant; `optional` are `subject_id`, `amount`, in rehearsals `time`."""
        application = {"application_id": application_id, "features": dict(features), **optional}
        return Decision.of(self._json("POST", f"/v1/loops/{loop}/decisions", application))

    def decide_batch(self, loop: str, applications: Sequence[Mapping[str, Any]]) -> list[Decision]:
        """Decide on up to 1000 applicants, all or none; each is what `decide` takes, as a dict."""
        body = {"applications": list(applications)}
        answer = self._json("POST", f"/v1/loops/{loop}/decisions/batch", body)
        return [Decision.of(each) for each in answer["decisions"]]

    def decision(self, id: str) -> dict[str, Any]:
        """Return a decision with its reasons, outcome and override."""
        return self._json("GET", f"/v1/decisions/{id}")

    def replay(self, id: str) -> dict[str, Any]:
        """Return a decision as it is computed again from the log."""
        return self._json("GET", f"/v1/decisions/{id}/replay")

    # --- reporting

    def report_outcomes(self, outcomes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Report up to 1000 outcomes; the answer says how many were `new`.

        Each has an `event_id` of your own, the `decision_id`, a `label` (None withdraws it), when
        it `happened`, and the event that it `corrects`, if any.
        """
        return self._json("POST", "/v1/outcomes", {"outcomes": list(outcomes)})

    def report_overrides(self, overrides: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Report actions that differ from decisions: `decision_id`, `accepted`, and `why`."""
        return self._json("POST", "/v1/overrides", {"overrides": list(overrides)})

    def report_sensitive(self, attributes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Report people's `subject_id`, `attribute` and `value`, which decide nothing."""
        return self._json("POST", "/v1/sensitive", {"sensitive": list(attributes)})

    # --- running a loop

    def loop(self, loop: str) -> dict[str, Any]:
        """Return the settings in force."""
        return self._json("GET", f"/v1/loops/{loop}")

    def put_loop(self, loop: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Make a loop, or a new version of its settings."""
        return self._json("PUT", f"/v1/loops/{loop}", dict(settings))

    def propose(
        self, loop: str, policy: str, *, parent: str | None = None, cohorts: Sequence[str] = ()
    ) -> str:
        """Propose a policy, as `policy_to_json` writes it; return its digest.

        `parent` is the digest of the one that it was made from. `cohorts` are the frozen
        ones that it was learned from, or `["none"]`; as soon as one is frozen they must be said.
        """
        headers = {"Content-Type": "application/json"}
        path = f"/v1/loops/{loop}/policies"
        told = {"parent": parent, "cohorts": ",".join(cohorts)}
        params = {name: value for name, value in told.items() if value}
        content = policy.encode()
        sent = self._send("POST", path, content=content, headers=headers, params=params)
        return str(sent.json()["policy"])

    def deploy(
        self, loop: str, shares: Mapping[str, float], *, evidence: int | None = None, why: str = ""
    ) -> int:
        """Decide with these policies from now on, by digest; return the deployment's number.

        Shares sum to 1. `evidence` is the number of the last evaluation of the candidate whose
        share rises; without it the key needs `admin`, and `why` a reason. This is not tried again,
        because a second deployment would be another.
        """
        body = {"shares": dict(shares), "evidence": evidence, "why": why}
        sent = self._send("POST", f"/v1/loops/{loop}/deployments", again=False, json=body)
        return int(sent.json()["number"])

    def learn(self, loop: str) -> str:
        """Ask for a candidate from all frozen cohorts; return the request's id.

        What became of it is in `listed(loop, "learn")`.
        """
        sent = self._send("POST", f"/v1/loops/{loop}/learn", again=False, json={})
        return str(sent.json()["request"])

    def withdraw(self, loop: str, candidate: int) -> None:
        """Let a candidate wait no longer, by its number."""
        path = f"/v1/loops/{loop}/withdrawals"
        self._send("POST", path, again=False, json={"candidate": candidate})

    def listed(self, loop: str, what: str) -> list[dict[str, Any]]:
        """Return a loop's `policies`, `deployments`, `days`, `epochs` or `cohorts`.

        What it learned is in `candidates`, `evaluations`, `guardrails` and `learn`.
        """
        answer = self._json("GET", f"/v1/loops/{loop}/{what}")
        found: list[dict[str, Any]] = answer["requests" if what == "learn" else what]
        return found

    def export(self, loop: str, **asked: str) -> bytes:
        """Return the log as the bytes of a Parquet file; `since` and `until` are dates.

        With the name of a `table`, return its rows as they were written, for an auditor.
        """
        return self._send("GET", f"/v1/loops/{loop}/export", params=asked).content

    # --- sending

    def _json(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        sent = {} if body is None else {"json": body}
        answer: dict[str, Any] = self._send(method, path, **sent).json()
        return answer

    def _send(self, method: str, path: str, again: bool = True, **sent: Any) -> httpx.Response:
        last = self.attempts if again else 1
        for attempt in range(1, last + 1):
            wait = min(0.1 * 2.0**attempt, _LONGEST_WAIT)
            try:
                answer = self._http.request(method, path, **sent)
            except httpx.TransportError:
                if attempt == last:
                    raise
            else:
                if answer.status_code not in _TRY_AGAIN or attempt == last:
                    return _accepted(answer)
                wait = _seconds(answer.headers.get("Retry-After"), wait)
            time.sleep(wait)
        raise ValueError(f"attempts is {self.attempts}: it must be at least 1")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()


def _accepted(answer: httpx.Response) -> httpx.Response:
    if answer.is_success:
        return answer
    if answer.headers.get("Content-Type", "").partition(";")[0] != MEDIA_TYPE:
        raise Problem("http", answer.status_code, f"{answer.status_code} {answer.reason_phrase}")
    told = answer.json()
    extra = {k: v for k, v in told.items() if k not in ("type", "title", "status", "code")}
    raise Problem(told["code"], told["status"], **extra)


def _seconds(header: str | None, otherwise: float) -> float:
    try:
        return min(max(float(header or ""), 0.0), _LONGEST_WAIT)
    except ValueError:
        return otherwise
