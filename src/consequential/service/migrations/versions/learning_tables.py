"""Tables of learning: candidates, looks at them, and guardrails."""

from __future__ import annotations

from alembic import context, op

from consequential.service.migrations.rows import (
    postgresql_rules,
    postgresql_tables,
    sqlite_rules,
    sqlite_tables,
)

revision = "0002"
down_revision = "0001"

_TABLES = {
    "candidate": '"number" integer not null, policy {t}, since {t}, deployment integer not null, '
    '"version" integer not null, seed integer, "by" {t}, unique (loop, "number")',
    "evaluation": '"number" integer not null, candidate {t}, candidate_number integer not null, '
    'against {t}, cohort {t}, cohorts {t}, alpha {f}, "version" integer not null, '
    'passed boolean not null, checklist {t}, unique (loop, "number"), '
    'unique (loop, candidate_number, cohort, "version")',
    "guardrail": 'date {t}, name {t}, value double precision, "limit" double precision, '
    "broken boolean not null, sentence {t}, unique (loop, date, name)",
}


def upgrade() -> None:
    """Make the tables; the database of attributes stays as it is."""
    options = context.config.attributes
    if options["part"] == "sensitive":
        return
    if options["sqlite"]:
        statements = [*sqlite_tables(_TABLES), *sqlite_rules(_TABLES, closed=True)]
    else:
        statements = [
            *postgresql_tables(_TABLES),
            *postgresql_rules(_TABLES, "consequential_service"),
        ]
    for statement in statements:
        op.execute(statement)
