"""Approval: what decides changes by a second person, and by evidence."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, select

from consequential.service import schema
from consequential.service.candidates import (
    ROLL_BACK,
    SMALLER,
    Deployed,
    Shares,
    candidates,
    deployed,
    newest_evaluation,
    settings_version,
)
from consequential.service.deciding import Live
from consequential.service.keys import Account
from consequential.service.policies import add_deployment, check_shares, policy_row
from consequential.service.problems import Problem

WITHOUT_EVIDENCE = "without evidence"


def approve(
    connection: Connection,
    live: Live,
    shares: Shares,
    account: Account,
    time: datetime,
    *,
    evidence: int | None = None,
    why: str = "",
) -> int:
    """Deploy shares, if evidence or what was before allows it; return the deployment's number.

    `evidence` is the number of the last evaluation of the candidate whose share rises. Without it
    shares that were deployed before may be deployed again, unless they were rolled back from, and
    shares of candidates may shrink; anything else takes the scope `admin` and a reason, and is
    marked so. Nobody raises the share of their own policy.
    """
    check_shares(connection, live, shares)
    now = deployed(connection, live.loop)
    if dict(shares) == dict(now.shares):
        raise Problem("already_deployed", 409, "the loop decides with these shares already")
    more = [digest for digest, share in shares.items() if share > now.shares.get(digest, 0.0)]
    for digest in more:
        row = policy_row(connection, live.loop, digest)
        if row is not None and row["by"] == account.name:
            raise Problem("own_policy", 403, "a second person deploys a policy, not its author")
    rising = [digest for digest in more if digest != now.live]
    if evidence is not None:
        _check_evidence(connection, live.loop, now, rising, evidence)
        said = f"evaluation {evidence}"
    elif any(dict(shares) == dict(before) for before in now.before):
        said = ROLL_BACK
    elif not rising:
        said = SMALLER
    else:
        if "admin" not in account.scopes:
            raise Problem(
                "evidence", 403,
                "give the number of the evaluation that the candidate passed; without evidence "
                f"only a key with admin may deploy, and that of {account.name} has it not",
            )  # fmt: skip
        if not why.strip():
            raise Problem("evidence", 422, "without evidence say why: it is shown everywhere")
        said = WITHOUT_EVIDENCE
    told = f"{said}: {why.strip()}" if why.strip() else said
    return add_deployment(connection, live.loop, shares, account.name, time, told)


def _check_evidence(
    connection: Connection, loop: str, now: Deployed, rising: list[str], evidence: int
) -> None:
    """Refuse evidence that is not the last word about the one candidate whose share rises."""
    table = schema.evaluation
    asked = select(table).where(table.c.loop == loop, table.c.number == evidence)
    shown = schema.row(connection, asked)
    if shown is None:
        raise Problem("unknown_evaluation", 422, f"the loop has no evaluation {evidence}")
    number = shown["candidate_number"]
    state = {row["number"]: row["state"] for row in candidates(connection, loop)}[number]
    if state != "waiting" or shown["against"] != now.live:
        raise Problem("candidate_ended", 409, f"the candidate waits no longer: it is {state}")
    newest = newest_evaluation(connection, loop, number)
    assert newest is not None
    if newest["number"] != evidence:
        raise Problem(
            "evidence_changed", 409,
            f"the candidate was looked at again: evaluation {newest['number']} is the last",
        )  # fmt: skip
    if shown["version"] != settings_version(connection, loop):
        raise Problem(
            "settings_changed", 409,
            "the settings have changed since this evaluation: the worker will look again",
        )  # fmt: skip
    if not shown["passed"]:
        raise Problem("not_passed", 409, "the candidate has not passed all checks")
    if rising != [shown["candidate"]]:
        raise Problem(
            "shares", 422, "the evidence is about one candidate: only its share may rise by it"
        )
