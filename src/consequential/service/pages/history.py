"""History: what was proposed, looked at and deployed in a loop."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, select

from consequential.service import schema
from consequential.service.approval import WITHOUT_EVIDENCE
from consequential.service.candidates import ROLL_BACK, SMALLER, candidates, settings_version

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class History:
    """Rows of a loop in order, with their JSON as values; candidates have a `state`."""

    policies: list[Row]
    deployments: list[Row]
    candidates: list[Row]
    looks: dict[int, Row]  # evaluations by number
    version: int  # of the settings in force

    @classmethod
    def of(cls, connection: Connection, loop: str) -> History:
        """Read all of it."""
        looks = _rows(connection, schema.evaluation, loop, "cohorts", "checklist")
        return cls(
            _rows(connection, schema.policy, loop, "cohorts"),
            _rows(connection, schema.deployment, loop, "shares"),
            candidates(connection, loop),
            {row["number"]: row for row in looks},
            settings_version(connection, loop),
        )

    def looks_at(self, candidate: int) -> list[Row]:
        """Return the evaluations of a candidate."""
        return [look for look in self.looks.values() if look["candidate_number"] == candidate]

    def is_proven(self, candidate: Row) -> bool:
        """Whether a candidate waits and has passed under the settings in force."""
        looks = self.looks_at(candidate["number"])
        last = looks[-1] if looks else {"passed": False}
        waits = candidate["state"] == "waiting"
        return bool(waits and last["passed"] and last["version"] == self.version)

    def evidence(self, deployment: Row) -> Row | None:
        """Return the evaluation that a deployment rests on."""
        told = re.match(r"evaluation (\d+)(:|$)", deployment["evidence"])
        return self.looks.get(int(told[1])) if told else None

    def is_unproven(self, deployment: Row) -> bool:
        """Whether an administrator deployed it without evidence, or what was rolled back to."""
        earlier = self.deployments[: deployment["number"] - 1]
        if earlier and deployment["evidence"].startswith((ROLL_BACK, SMALLER)):
            same = [row for row in earlier if row["shares"] == deployment["shares"]]
            return self.is_unproven((same or earlier)[-1])
        return bool(deployment["evidence"].startswith(WITHOUT_EVIDENCE))

    def proofs(self) -> list[tuple[Row, Row]]:
        """Return the deployments that rest on an evaluation, each with it, the newest first."""
        found = ((row, self.evidence(row)) for row in reversed(self.deployments))
        return [(row, look) for row, look in found if look is not None]


def line_of(look: Row, name: str) -> Row | None:
    """Return a line of the checklist of an evaluation."""
    return next((line for line in look["checklist"] if line["name"] == name), None)


def _rows(connection: Connection, table: Table, loop: str, *json_columns: str) -> list[Row]:
    order = table.c.number if "number" in table.c else table.c.id
    columns = [column for column in table.c if column.name != "content"]
    found = schema.rows(connection, select(*columns).where(table.c.loop == loop).order_by(order))
    return [row | {name: json.loads(row[name]) for name in json_columns} for row in found]
