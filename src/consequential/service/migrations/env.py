"""Environment: how Alembic runs the migrations of one of the two databases."""

from __future__ import annotations

from alembic import context


def migrate() -> None:
    """Run the migrations, or write their SQL."""
    options = context.config.attributes
    connection = options.get("connection")
    schema = "sensitive" if options["part"] == "sensitive" and not options["sqlite"] else None
    if connection is None:  # SQL for the administrator of a PostgreSQL
        context.configure(
            dialect_name="postgresql", version_table_schema=schema, output_buffer=options["output"]
        )
    else:
        context.configure(
            connection=connection, version_table_schema=schema, transactional_ddl=True
        )
    with context.begin_transaction():
        context.run_migrations()


if hasattr(context, "config"):  # Alembic runs this file; everybody else only imports it
    migrate()
