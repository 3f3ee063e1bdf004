"""Backup: a copy of a service's directory, taken while it runs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from sqlalchemy import Engine

from consequential.service.database import DatabaseError, Store
from consequential.service.settings import ServiceSettings


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
    unfinished = target.with_name(f".{target.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True, mode=0o700)
    _copy(store.main, unfinished / "service.db")
    _copy(store.apart, unfinished / "sensitive.db")
    (unfinished / "service.json").write_text('{"database": ""}\n', encoding="utf-8")
    if (settings.directory / "secret").exists():  # it may come from the environment
        shutil.copy2(settings.directory / "secret", unfinished)
    if (settings.directory / "cohorts").exists():
        shutil.copytree(settings.directory / "cohorts", unfinished / "cohorts")
    for path in unfinished.rglob("*"):
        _sync(path)
    unfinished.rename(target)
    _sync(target.parent)


def _copy(engine: Engine, file: Path) -> None:
    connection = engine.raw_connection()
    try:
        connection.cursor().execute("vacuum into ?", (str(file),))
    finally:
        connection.close()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
