"""Policies: proposed, checked against the loop they are for, and deployed by a second person.

What decides changes by evidence, or with a reason that is shown everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, select

from consequential.policy import Policy, PolicyError, policy_digest, policy_from_json
from consequential.policy.features import table_columns
from consequential.service import schema
from consequential.service.candidates import (
    NO_COHORTS,
    ROLL_BACK,
    SMALLER,
    WITHOUT_EVIDENCE,
    Deployed,
    Shares,
    candidates,
    deployed,
    file_candidate,
    last_learned,
    newest_evaluation,
    settings_version,
)
from consequential.service.deciding import Live, Person, Share
from consequential.service.keys import Account
from consequential.service.problems import Problem
from consequential.service.records import canonical
from consequential.service.settings import LoopSettings, Words, period_of

# nobody above the cut is refused by lot, and every refusal has reasons from the score
_LINKS = ("semi_logistic", "smooth_semi_logistic")


def checked_policy(text: str, settings: LoopSettings) -> Policy:
    """Return the policy that a JSON text has, if the loop can decide with it."""
    try:
        policy = policy_from_json(text)
    except PolicyError as error:
        raise Problem("policy_unreadable", 422, str(error)) from None
    if not isinstance(policy, Policy):
        kind = type(policy).__name__
        raise Problem("policy_kind", 422, f"a loop decides with a Policy, not with a {kind}")
    _check(policy, settings)
    return policy


def _check(policy: Policy, settings: LoopSettings) -> None:
    """Refuse a policy that does not keep what the loop promises."""
    if policy.link.name not in _LINKS:
        raise Problem(
            "policy_link", 422,
            f"the link is {policy.link.name}: with {' or '.join(_LINKS)} chance only ever grants",
        )  # fmt: skip
    columns = table_columns(policy.raw_columns, tuple(settings.features))
    if policy.uses_sensitive or settings.sensitive in columns:
        raise Problem(
            "policy_sensitive",
            422,
            "the policy uses the sensitive attribute, which must not decide",
        )
    lacking = [name for name in columns if name not in settings.features]
    if lacking or not columns:
        what = f"wants {lacking[0]!r}, which the loop lacks" if lacking else "names no features"
        raise Problem("policy_feature", 422, f"the policy {what}")
    if policy.floor < settings.floor:
        raise Problem(
            "policy_floor", 422,
            f"the policy's floor is {policy.floor:g}, the loop's {settings.floor:g}: "
            "use policy.with_floor",
        )  # fmt: skip
    if policy.overrules:
        raise Problem(
            "policy_support", 422,
            "the policy refuses people whom its log does not support, below the loop's floor: "
            "learn it with unsupported='trust_model'",
        )  # fmt: skip
    if policy.summary is None:
        raise Problem("policy_reference", 422, "the policy has no summary of people, so no reasons")
    try:
        trial = Live("", 0, settings, 0, (Share("", 1.0, policy),))
        trial.scored(_trial_people(settings))
    except (ValueError, TypeError, KeyError) as error:
        raise Problem(
            "policy_feature", 422, f"the policy cannot decide on people of this loop: {error}"
        ) from None


def _trial_people(settings: LoopSettings) -> list[Person]:
    """Return people at the ends of every feature, and with every word."""
    ends = {
        name: kind.words if isinstance(kind, Words) else (kind.low, kind.high)
        for name, kind in settings.features.items()
    }
    most = max(map(len, ends.values()))
    return [{name: each[k % len(each)] for name, each in ends.items()} for k in range(most)]


def propose(
    connection: Connection,
    live: Live,
    text: str,
    by: str,
    time: datetime,
    *,
    parent: str | None = None,
    cohorts: Sequence[str] | None = None,
    seed: int | None = None,
) -> str:
    """Store a policy, a candidate for deployment, and return its digest; again is as well as once.

    `cohorts` are those it was learned from, None where they are not told; only the worker has a
    `seed`.
    """
    digest = policy_digest(checked_policy(text, live.settings))
    period = period_of(live.settings.period, time)
    since = last_learned(connection, live.loop, cohorts, period, by_worker=seed is not None)
    if policy_row(connection, live.loop, digest) is None:
        if parent is not None and policy_row(connection, live.loop, parent) is None:
            raise Problem("unknown_policy", 422, f"no policy {parent} in this loop, its parent")
        values = {"policy": digest, "content": text, "by": by, "parent": parent}
        named = [name for name in cohorts or () if name != NO_COHORTS]
        values["cohorts"] = canonical(sorted(named))
        schema.add(connection, schema.policy, live.loop, time, values)
        schema.add_event(connection, live.loop, time, by, "policy proposed", digest)
    told: dict[str, Any] = {"version": live.version, "by": by, "seed": seed}
    file_candidate(connection, live.loop, digest, time, since=since, **told)
    return digest


def deploy(
    connection: Connection,
    live: Live,
    shares: Mapping[str, float],
    by: str,
    time: datetime,
    *,
    evidence: str = "",
) -> int:
    """Decide with these policies from now on, whatever the evidence; return the number.

    What people ask for goes through `approve`.
    """
    _check_shares(connection, live, shares)
    return _add_deployment(connection, live.loop, shares, by, time, evidence)


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
    _check_shares(connection, live, shares)
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
    return _add_deployment(connection, live.loop, shares, account.name, time, told)


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


def _check_shares(connection: Connection, live: Live, shares: Mapping[str, float]) -> None:
    """Refuse shares that are none, and policies that cannot decide."""
    # a comparison with NaN is false
    if (
        not all(share > 0.0 for share in shares.values())
        or not abs(sum(shares.values()) - 1) < 1e-9
    ):
        raise Problem("shares", 422, "shares are above 0 and sum to 1")
    for digest in shares:
        row = policy_row(connection, live.loop, digest)
        if row is None:
            raise Problem("unknown_policy", 422, f"no policy {digest} in this loop")
        checked_policy(row["content"], live.settings)


def _add_deployment(
    connection: Connection,
    loop: str,
    shares: Mapping[str, float],
    by: str,
    time: datetime,
    evidence: str,
) -> int:
    """Store a deployment and return its number."""
    table = schema.deployment
    last = select(func.max(table.c.number)).where(table.c.loop == loop)
    number = int(connection.execute(last).scalar() or 0) + 1
    values = {"number": number, "shares": canonical(dict(shares)), "by": by, "evidence": evidence}
    schema.add(connection, table, loop, time, values)
    schema.add_event(connection, loop, time, by, "deployed", canonical(dict(shares)))
    return number


def policy_row(connection: Connection, loop: str, digest: str) -> dict[str, Any] | None:
    """Return a stored policy, if the loop has it."""
    table = schema.policy
    wanted = select(table).where(table.c.loop == loop, table.c.policy == digest)
    return schema.row(connection, wanted)


def stored_policy(connection: Connection, loop: str, digest: str) -> Policy:
    """Return a policy that the loop has."""
    row = policy_row(connection, loop, digest)
    policy = None if row is None else policy_from_json(row["content"])
    if not isinstance(policy, Policy):
        raise Problem("unknown_policy", 422, f"no policy {digest} in this loop")
    return policy
