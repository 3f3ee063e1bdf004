"""Database: engines for SQLite and PostgreSQL that lose nothing, and their tables' version."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.exc import IntegrityError, OperationalError

from consequential.files import new_folder, sync
from consequential.service.settings import ServiceSettings

_WAIT = 30  # seconds for another process that writes
_WORKS = "another worker works: only one may at a time"


class DatabaseError(ValueError):
    """A database that the service cannot use."""


class LockedError(DatabaseError):
    """Another process does what only one may do."""


@dataclass(frozen=True, slots=True)
class Store:
    """The two databases: rows of loops, and the sensitive attributes apart from them."""

    main: Engine
    apart: Engine

    @property
    def is_sqlite(self) -> bool:
        """Whether the databases are files."""
        return self.main.dialect.name == "sqlite"

    def read(self) -> AbstractContextManager[Connection]:
        """Return a transaction that only reads."""
        return self.main.begin()

    def write(self) -> AbstractContextManager[Connection]:
        """Return a transaction; when it ends without an error, what it wrote is on disk."""
        return self.main.execution_options(writes=True).begin()

    def read_sensitive(self) -> AbstractContextManager[Connection]:
        """Return a transaction that reads attributes."""
        return self.apart.begin()

    def write_sensitive(self) -> AbstractContextManager[Connection]:
        """Return a transaction that writes attributes."""
        return self.apart.execution_options(writes=True).begin()

    def close(self) -> None:
        """Close all connections."""
        self.main.dispose()
        self.apart.dispose()


def open_store(settings: ServiceSettings) -> Store:
    """Open the databases; refuse those with other tables, or that might lose a commit.

    Tables of SQLite are brought to this version; those of PostgreSQL are their administrator's.
    """
    with ExitStack() as undo:
        store = connected(settings)
        undo.callback(store.close)
        for part, engine in _parts(store):
            with _usable(engine) as connection:
                lacks_tables = _lacks_tables(connection, part)
                if lacks_tables and not store.is_sqlite:
                    raise DatabaseError("the database lacks tables: run consequential migrate")
                if lacks_tables:
                    _upgrade(connection, part)
                if not store.is_sqlite:
                    _check_durable(connection)
        undo.pop_all()
    return store


def connected(settings: ServiceSettings) -> Store:
    """Return engines for the databases, as they are."""
    apart = _engine(settings.sensitive)
    if settings.is_sqlite:
        apart = apart.execution_options(schema_translate_map={"sensitive": None})
    return Store(_engine(settings.database), apart)


def migrate(settings: ServiceSettings) -> None:
    """Bring the tables of both databases to this version; refuse those of an unknown one."""
    with closing(connected(settings)) as store:
        for part, engine in _parts(store):
            with _usable(engine) as connection:
                if _lacks_tables(connection, part):
                    _upgrade(connection, part)


def migration_sql() -> str:
    """Return what `migrate` does, as SQL for the administrator of a PostgreSQL."""
    from alembic import command

    output = StringIO()
    for part in ("main", "sensitive"):
        if part == "sensitive":
            output.write("create schema if not exists sensitive;\n")
        config = _config(part, sqlite=False)
        config.attributes["output"] = output
        command.upgrade(config, "head", sql=True)
    return output.getvalue()


@contextmanager
def locked(
    directory: Path, name: str = "service", wait: float = 0.0, why: str = ""
) -> Iterator[None]:
    """Hold the directory: two services on one SQLite would each answer for the other's rows."""
    import fcntl

    def is_mine() -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    handle = os.open(directory / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _wait_for(
            is_mine, wait, why or f"another process serves {directory}: stop it, or use PostgreSQL"
        )
        yield
    finally:
        os.close(handle)


@contextmanager
def only_worker(store: Store, directory: Path, wait: float = 0.0) -> Iterator[None]:
    """Be the only one that writes files of cohorts; the lock ends with the process that has it."""
    if store.is_sqlite:
        with locked(directory, "worker", wait, _WORKS):
            yield
        return
    with store.main.connect() as connection:
        lock = text("select pg_try_advisory_lock(20117)")
        _wait_for(lambda: connection.execute(lock).scalar_one(), wait, _WORKS)
        connection.commit()
        try:
            yield
        finally:
            connection.execute(text("select pg_advisory_unlock(20117)"))
            connection.commit()


def _wait_for(is_mine: Callable[[], bool], seconds: float, else_why: str) -> None:
    end = monotonic() + seconds
    while not is_mine():
        if monotonic() >= end:
            raise LockedError(else_why)
        sleep(0.1)


def back_up(store: Store, settings: ServiceSettings, target: Path) -> None:
    """Copy databases, cohorts, settings and the secret to a new folder, complete or not at all.

    Each database is copied as it was at one moment; writers need not wait. The copy is a service
    that can be served.
    """
    if not store.is_sqlite:
        raise DatabaseError(
            "PostgreSQL has its own tools: pg_dump for a copy, pg_basebackup and archived WAL for "
            "every moment. Copy the directory and its secret, too"
        )
    if target.exists():
        raise FileExistsError(f"{target} exists: choose another folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(target, mode=0o700) as unfinished:
        _vacuum(store.main, unfinished / "service.db")
        _vacuum(store.apart, unfinished / "sensitive.db")
        (unfinished / "service.json").write_text('{"database": ""}\n', encoding="utf-8")
        if (settings.directory / "secret").exists():  # it may come from the environment
            shutil.copy2(settings.directory / "secret", unfinished)
        if (settings.directory / "cohorts").exists():
            shutil.copytree(settings.directory / "cohorts", unfinished / "cohorts")
        for path in unfinished.rglob("*"):
            sync(path)
    sync(target.parent)


def says_closed(error: IntegrityError) -> bool:
    """Whether a trigger refused a row because the books of its day are closed."""
    diagnosis = getattr(error.orig, "diag", None)  # its detail would quote the row
    message = error.orig if diagnosis is None else diagnosis.message_primary
    return str(message).endswith(": the day is closed")


def _parts(store: Store) -> tuple[tuple[str, Engine], ...]:
    return ("main", store.main), ("sensitive", store.apart)


@contextmanager
def _usable(engine: Engine) -> Iterator[Connection]:
    """Begin a transaction that says in a sentence why a database cannot be used."""
    try:
        with engine.execution_options(writes=True).begin() as connection:
            yield connection
    except OperationalError as error:
        reason = str(error.orig).splitlines()[0]
        raise DatabaseError(f"the database cannot be used: {reason}") from None


def _engine(url: str) -> Engine:
    if url.startswith("postgresql"):
        return create_engine(
            url.replace("postgresql://", "postgresql+psycopg://", 1), hide_parameters=True
        )
    if not url.startswith("sqlite"):
        kind = url.partition(":")[0]  # the rest may have a password
        raise DatabaseError(
            "a database is SQLite in the folder, or given as postgresql://user@host/name; this "
            f"begins with {kind!r}"
        )
    options = {"timeout": _WAIT, "isolation_level": None}
    engine = create_engine(url, connect_args=options, hide_parameters=True)
    file = Path(str(engine.url.database))
    if not file.exists():  # SQLite would let others read it; its other files get the same mode
        file.touch(mode=0o600)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        for pragma in ("journal_mode = wal", "synchronous = full", "foreign_keys = on"):
            connection.execute(f"pragma {pragma}")
        # what is deleted is overwritten, so that forgetting leaves nothing in the file
        connection.execute("pragma secure_delete = on")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("begin immediate" if writes else "begin")

    return engine


def _check_durable(connection: Connection) -> None:
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        if connection.execute(text(f"show {setting}")).scalar_one() == "off":
            raise DatabaseError(
                f"PostgreSQL runs with {setting} off and might lose what it has confirmed: "
                "switch it on"
            )


def _lacks_tables(connection: Connection, part: str) -> bool:
    """Whether tables of this version are missing; refuse tables of a version unknown to it."""
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    options = {"version_table_schema": _schema(connection, part)}
    found = MigrationContext.configure(connection, opts=options).get_current_revision()
    script = ScriptDirectory.from_config(_config(part, sqlite=True))
    if found not in (None, *(each.revision for each in script.walk_revisions())):
        raise DatabaseError(
            f"the database was made by another version of consequential (its tables: {found}): "
            "install that version, or start a new service with `consequential init`"
        )
    return found != script.get_current_head()


def _schema(connection: Connection, part: str) -> str | None:
    return "sensitive" if part == "sensitive" and connection.dialect.name != "sqlite" else None


def _upgrade(connection: Connection, part: str) -> None:
    from alembic import command

    if _schema(connection, part):
        connection.execute(text("create schema if not exists sensitive"))
    config = _config(part, sqlite=connection.dialect.name == "sqlite")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _config(part: str, *, sqlite: bool) -> Any:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "consequential.service:migrations")
    config.attributes.update(part=part, sqlite=sqlite)
    return config


def _vacuum(engine: Engine, file: Path) -> None:
    file.touch(mode=0o600)  # as the one that is copied, wherever the copy is taken
    connection = engine.raw_connection()
    try:
        connection.cursor().execute("vacuum into ?", (str(file),))
    finally:
        connection.close()
