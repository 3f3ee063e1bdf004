"""Deciding: the policies that are deployed, their scores and reasons, and replay from the log."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Row, Table, func, select
from sqlalchemy.exc import SQLAlchemyError

from consequential.policy import NamedFeatures, Policy, policy_from_json
from consequential.policy.features import table_columns
from consequential.policy.reasons import ScoreRises, score_rises
from consequential.service import schema
from consequential.service.chance import uniform
from consequential.service.settings import LoopSettings, loop_settings, period_after

_log = logging.getLogger(__name__)
Floats = NDArray[np.float64]
Person = Mapping[str, float | str]
Reasons = list[dict[str, Any]]

_MOST_REASONS = 4
_NEWEST = 8  # policies that are loaded before anybody deploys them
_DIGITS = 6  # of what a reason is worth; the last bits depend on the machine
_TOLERANCE = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """A policy and the share of decisions that is its own."""

    digest: str
    share: float
    policy: Policy


@dataclass(frozen=True, slots=True, eq=False)
class Live:
    """What a loop decides with: a version of its settings, and a deployment.

    Without a deployment the number is 0 and there are no shares. The policy with the largest
    share comes first: score and reasons are its own.
    """

    loop: str
    version: int
    settings: LoopSettings
    number: int
    shares: tuple[Share, ...]

    def propensity(self, people: Sequence[Person]) -> Floats:
        """Return the propensities of all policies together."""
        return self._mixed(
            [
                share.policy.propensity(policy_features(share.policy, people))
                for share in self.shares
            ]
        )

    def scored(self, people: Sequence[Person]) -> Scored:
        """Return the same with scores, and with how much each feature holds them down."""
        first = self.shares[0].policy
        features = first.looked_at(policy_features(first, people))
        found = score_rises(first, features)
        each = [first.scored(found.score, features)]
        each += [
            share.policy.propensity(policy_features(share.policy, people))
            for share in self.shares[1:]
        ]
        return Scored(self._mixed(each), found)

    def _mixed(self, each: list[Floats]) -> Floats:
        if len(each) == 1:
            return each[0]
        mixed = sum(share.share * one for share, one in zip(self.shares, each, strict=True))
        # shares may sum to a little less than 1: who is accepted by all policies is accepted
        return np.where(np.min(each, axis=0) >= 1.0, 1.0, np.minimum(mixed, 1.0))

    def answer(self, row: Mapping[str, Any], commitment: str, reasons: Reasons) -> dict[str, Any]:
        """Return what an applicant is told; the same later as when it was decided."""
        return {
            "id": row["id"],
            "application_id": row["application_id"],
            "accepted": row["accepted"],
            "propensity": row["propensity"],
            "policy": self.shares[0].digest,
            "deployment": self.number,
            "epoch": row["epoch"],
            "commitment": commitment,
            "reasons": reasons,
            "due": period_after(row["cohort"], self.settings.horizon),
            "digest": row["digest"],
        }

    def answer_again(self, row: Mapping[str, Any], commitment: str) -> dict[str, Any]:
        """Return what an applicant was told, from the database."""
        reasons: Reasons = []
        if not row["accepted"] and row["features"] is not None:
            reasons = self.reasons(self.scored([json.loads(row["features"])]), 0)
        return self.answer(row, commitment, reasons)

    def reasons(self, scored: Scored, place: int) -> Reasons:
        """Return what holds down the score of one of the people, most first."""
        found = scored.found
        rises = sorted(zip(found.rises[place].tolist(), found.names, strict=True), reverse=True)
        return [
            {
                "feature": name,
                "phrase": self.settings.features[name].phrase,
                "lost": float(f"{rise:.{_DIGITS}g}"),
            }
            for rise, name in rises[:_MOST_REASONS]
            if rise > 0.0
        ]


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Propensities of people, with scores and rises by the first policy."""

    propensity: Floats
    found: ScoreRises


def policy_features(policy: Policy, people: Sequence[Person]) -> NamedFeatures:
    """Return the columns that a policy looks at, in its order; words as raw columns."""
    first = people[0]
    names = table_columns(policy.raw_columns, tuple(first))
    numbers = [name for name in names if not isinstance(first[name], str)]
    matrix = np.array([[person[name] for name in numbers] for person in people], dtype=np.float64)
    words = {
        name: np.array([person[name] for person in people], dtype=object)
        for name in names
        if isinstance(first[name], str)
    }
    return NamedFeatures(matrix.reshape(len(people), len(numbers)), numbers, None, words)


# --- from the database


def live_loops(connection: Connection, known: Mapping[str, Live]) -> dict[str, Live]:
    """Return what each loop decides with now; what is known already is not read again.

    A loop that cannot be read, such as one with settings of a later version, stays as it is known.
    """
    numbers = _newest(connection, schema.deployment, "number")
    lives = dict(known)
    for loop, version in _newest(connection, schema.loop, "version").items():
        number, before = numbers.get(loop, 0), known.get(loop)
        if before is None or (before.version, before.number) != (version, number):
            try:
                lives[loop] = live_at(connection, loop, version, number)
            except SQLAlchemyError:
                raise
            except Exception as error:
                _log.error("the loop %s could not be read: %s", loop, type(error).__name__)
    return lives


def live_at(connection: Connection, loop: str, version: int, number: int) -> Live:
    """Return what a loop decided with at a version of its settings and a deployment."""
    settings = _settings(_row(connection, schema.loop, loop, "version", version).settings)
    if number == 0:
        return Live(loop, version, settings, 0, ())
    stored = json.loads(_row(connection, schema.deployment, loop, "number", number).shares)
    shares = [
        Share(digest, share, _policy(row.content))
        for digest, share in stored.items()
        for row in (_row(connection, schema.policy, loop, "policy", digest),)
    ]
    shares.sort(key=lambda each: (-each.share, each.digest))
    return Live(loop, version, settings, number, tuple(shares))


def settings_until(connection: Connection, loop: str, version: int) -> list[LoopSettings]:
    """Return all versions of a loop's settings up to one of them, in order."""
    return [live_at(connection, loop, k, 0).settings for k in range(1, version + 1)]


def live_before(connection: Connection, loop: str, ids: Sequence[str]) -> Live | None:
    """Return what decided on all these applications, if they were decided, and by the same."""
    table = schema.decision
    wanted = select(table.c.version, table.c.deployment).where(
        table.c.loop == loop, table.c.application_id.in_(ids)
    )
    rows = [tuple(row) for row in connection.execute(wanted)]
    if len(rows) < len(set(ids)) or len(set(rows)) != 1:
        return None
    return live_at(connection, loop, *rows[0])


def _newest(connection: Connection, table: Table, number: str) -> dict[str, int]:
    found = select(table.c.loop, func.max(table.c[number])).group_by(table.c.loop)
    return {row[0]: row[1] for row in connection.execute(found)}


def _row(connection: Connection, table: Table, loop: str, column: str, value: Any) -> Row[Any]:
    wanted = select(table).where(table.c.loop == loop, table.c[column] == value)
    return connection.execute(wanted).one()


@lru_cache(maxsize=64)
def _settings(text: str) -> LoopSettings:
    return loop_settings(json.loads(text))


@lru_cache(maxsize=64)
def _policy(content: str) -> Policy:
    policy = policy_from_json(content)
    if not isinstance(policy, Policy):
        raise TypeError("a policy of another kind was stored")
    return policy


def load_newest(connection: Connection, known: str) -> str:
    """Load the policies that were stored last, unless the last is known; return its identifier."""
    table = schema.policy.c
    newest = connection.execute(select(func.max(table.id))).scalar() or ""
    if newest != known:
        last = select(table.content).order_by(table.id.desc()).limit(_NEWEST)
        for content in connection.execute(last).scalars():
            with suppress(Exception):  # whoever deploys it is told what is wrong
                _policy(content)
    return newest


# --- replay


@dataclass(frozen=True, slots=True)
class Replay:
    """A decision as it is computed again from what was logged.

    Attributes
    ----------
    u, propensity, accepted
        What comes out now; u is None as long as the key of the epoch is not known, and the
        propensity where the features are forgotten.
    agrees
        Whether all that can be computed is what was logged.
    """

    u: float | None
    propensity: float | None
    accepted: bool
    agrees: bool


def replayed(
    live: Live | None, rows: Sequence[Mapping[str, Any]], key: bytes | None
) -> list[Replay]:
    """Replay decisions of one deployment and one epoch.

    The propensity may differ by 1e-12, u not at all, and the action follows from what was logged.
    """
    kept = [row for row in rows if row["features"] is not None and live is not None]
    again: dict[str, float] = {}
    if live is not None and kept:
        found = live.propensity([json.loads(row["features"]) for row in kept])
        again = {row["id"]: float(each) for row, each in zip(kept, found, strict=True)}
    return [_replay(row, again.get(row["id"]), key) for row in rows]


def _replay(row: Mapping[str, Any], propensity: float | None, key: bytes | None) -> Replay:
    subject = row["application_id"] if row["subject_id"] is None else row["subject_id"]
    u = None if key is None else uniform(key, row["loop"], subject)
    accepted = row["u"] < row["propensity"]
    agrees = (
        (u is None or u == row["u"])
        and (propensity is None or abs(propensity - row["propensity"]) <= _TOLERANCE)
        and accepted == row["accepted"]
    )
    return Replay(u, propensity, accepted, agrees)
