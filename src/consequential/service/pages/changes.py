"""Changes: what a form will do, shown first, and then done once, however often it is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Connection

from consequential.service.candidates import (
    Deployed,
    Shares,
    deployed,
    newest_evaluation,
    one_candidate,
    settings_version,
    withdraw,
)
from consequential.service.deciding import Live
from consequential.service.keys import Account
from consequential.service.policies import approve, policy_row
from consequential.service.problems import Problem
from consequential.service.records import canonical

Kind = Literal["promote", "share", "roll back", "withdraw"]
SCOPES: dict[str, str] = {
    "promote": "approve", "share": "approve", "roll back": "approve", "withdraw": "learn",
}  # fmt: skip
_LARGEST_SHARE = 0.5  # of a candidate that does not become the live policy

Form = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Change:
    """What somebody is about to do.

    Attributes
    ----------
    kind, candidate
        What is done, and with which candidate if it is about one.
    now
        What decides before it.
    shares
        What will decide after it; empty where that does not change.
    evaluation
        The last look at the candidate, if there was one.
    evidence
        Its number, where it is evidence for the change.
    """

    kind: Kind
    candidate: dict[str, Any] | None
    now: Deployed
    shares: Shares
    evaluation: dict[str, Any] | None = None
    evidence: int | None = None

    @property
    def ends_others(self) -> bool:
        """Whether another policy becomes the live one."""
        return bool(self.shares) and self.shares.get(self.now.live or "", 0.0) < max(
            self.shares.values()
        )

    @property
    def needs_reason(self) -> bool:
        """Whether it is done without evidence, which takes the scope `admin`."""
        return self.kind in ("promote", "share") and self.evidence is None

    def sent(self) -> dict[str, str]:
        """Return what the form sends back, so that nothing else is done than was shown."""
        number = "" if self.candidate is None else str(self.candidate["number"])
        return {
            "kind": self.kind,
            "candidate": number,
            "shares": canonical(dict(self.shares)),
            "evidence": "" if self.evidence is None else str(self.evidence),
            "after": str(self.now.number),
        }


def asked_for(connection: Connection, live: Live, account: Account, form: Form) -> Change:
    """Return the change that an address asks for, if the account may do it; nothing is done yet."""
    now, kind = deployed(connection, live.loop), form.get("kind", "")
    if kind == "roll back":
        if not now.before:
            raise Problem("shares", 409, "there is nothing before this deployment to go back to")
        return Change("roll back", None, now, now.before[-1])
    if kind not in ("promote", "share", "withdraw"):
        raise Problem("not_found", 404, "there is no such change")
    candidate = one_candidate(connection, live.loop, form.get("candidate", ""))
    if candidate["state"] != "waiting":
        raise Problem("candidate_ended", 409, f"the candidate is {candidate['state']}")
    if kind == "withdraw":
        return Change("withdraw", candidate, now, {})
    policy = policy_row(connection, live.loop, candidate["policy"])
    if policy is not None and policy["by"] == account.name:
        raise Problem("own_policy", 403, "a second person deploys a policy, not its author")
    seen = newest_evaluation(connection, live.loop, candidate["number"])
    version = settings_version(connection, live.loop)
    evidence = seen["number"] if seen and seen["passed"] and seen["version"] == version else None
    if evidence is None and "admin" not in account.scopes:
        raise Problem("evidence", 403, "without evidence only a key with admin may deploy")
    shares = {candidate["policy"]: 1.0}
    if kind == "share":
        part = _part(form.get("percent", ""))
        shares = {now.live or "": 1.0 - part, candidate["policy"]: part}
    if shares == dict(now.shares):
        raise Problem("already_deployed", 409, "the loop decides with these shares already")
    named: Kind = "promote" if kind == "promote" else "share"
    return Change(named, candidate, now, shares, seen, evidence)


def do(connection: Connection, live: Live, account: Account, form: Form, time: datetime) -> str:
    """Do what a form says, which was shown before; return what was done."""
    if form.get("kind") == "withdraw":
        candidate = one_candidate(connection, live.loop, form.get("candidate", ""))
        if candidate["state"] != "withdrawn":  # else the form was sent twice
            withdraw(connection, live.loop, candidate["number"], account.name, time)
        return f"Candidate {candidate['number']} is withdrawn."
    now, shares = deployed(connection, live.loop), _shares(form.get("shares", ""))
    if str(now.number) != form.get("after"):
        if now.by == account.name and dict(now.shares) == shares:  # the form was sent twice
            return f"Deployment {now.number} is in force."
        raise Problem(
            "already_deployed", 409, f"deployment {now.number} was made since the page was shown"
        )
    evidence = form.get("evidence", "")
    number = approve(
        connection, live, shares, account, time,
        evidence=int(evidence) if evidence.isdecimal() else None, why=form.get("why", ""),
    )  # fmt: skip
    return f"Deployment {number} is in force."


def _part(percent: str) -> float:
    try:
        part = float(percent) / 100.0
    except ValueError:
        part = 0.0
    if not 0.0 < part < _LARGEST_SHARE:
        raise Problem("shares", 422, "a candidate's share is above 0 and below 50 percent")
    return round(part, 6)


def _shares(text: str) -> dict[str, float]:
    try:
        found = json.loads(text)
        return {str(name): float(share) for name, share in found.items()}
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise Problem("shares", 422, "the form does not say what is to decide") from None
