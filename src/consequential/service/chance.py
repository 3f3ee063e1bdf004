"""Chance: the number each decision is drawn with, which nobody can choose or foresee.

An epoch has a key, made of the service's secret. The key's SHA-256, the commitment, is stored and
shown before the epoch begins, and the key itself a day after it has ended: then everybody can
recompute every draw.
"""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime, timedelta

from sqlalchemy import Connection, select, update

from consequential.service import schema
from consequential.service.records import canonical, stamp
from consequential.service.settings import LoopSettings, period_after, period_of, period_start

_BITS = 53
REVEALED_AFTER = timedelta(days=1)


class ChanceError(ValueError):
    """The service's secret is not the one that an epoch's commitment was made of."""


def epoch_key(secret: bytes, loop: str, epoch: str) -> bytes:
    """Return the key of an epoch."""
    return hmac.digest(secret, canonical([loop, epoch]).encode(), "sha256")


def commitment_of(key: bytes) -> str:
    """Return what is shown of a key before it may be known."""
    return hashlib.sha256(key).hexdigest()


def uniform(key: bytes, loop: str, subject: str) -> float:
    """Return the number in [0, 1) of a subject: the same for each of their applications.

    Examples
    --------
    >>> from consequential.service.chance import uniform
    >>> round(uniform(b"key", "lending", "P-4"), 6)
    0.548485
    """
    drawn = hmac.digest(key, canonical([1, loop, subject]).encode(), "sha256")
    return float(int.from_bytes(drawn[:8]) >> (64 - _BITS)) / float(2**_BITS)


def open_epochs(
    connection: Connection, loop: str, settings: LoopSettings, secret: bytes, time: datetime
) -> dict[str, str]:
    """Make sure that the epoch of a moment and the next one are open; return their commitments."""
    current = period_of(settings.epoch, time)
    names = [current, period_after(current)]
    stored = select(schema.epoch.c.epoch, schema.epoch.c.commitment).where(
        schema.epoch.c.loop == loop, schema.epoch.c.epoch.in_(names)
    )
    known: dict[str, str] = {row.epoch: row.commitment for row in connection.execute(stored)}
    for name in names:
        commitment = commitment_of(epoch_key(secret, loop, name))
        if name not in known:
            row = {
                "epoch": name,
                "start": stamp(period_start(name)),
                "end": stamp(period_start(period_after(name))),
                "commitment": commitment,
                "key": None,
            }
            schema.add(connection, schema.epoch, loop, time, row)
        elif known[name] != commitment:
            raise _other_secret(loop, name)
        known[name] = commitment
    return known


def check_secret(connection: Connection, secret: bytes) -> None:
    """Refuse a secret that is not the one that the open epochs' commitments were made of."""
    table = schema.epoch
    columns = select(table.c.loop, table.c.epoch, table.c.commitment)
    for loop, name, commitment in connection.execute(columns.where(table.c.key.is_(None))):
        if commitment_of(epoch_key(secret, loop, name)) != commitment:
            raise _other_secret(loop, name)


def stored_commitment(connection: Connection, loop: str, epoch: str) -> str:
    """Return what was shown of an epoch's key."""
    table = schema.epoch
    wanted = select(table.c.commitment).where(table.c.loop == loop, table.c.epoch == epoch)
    return str(connection.execute(wanted).scalar_one())


def _other_secret(loop: str, epoch: str) -> ChanceError:
    return ChanceError(
        f"the secret is not the one that epoch {epoch} of the loop {loop!r} was opened "
        "with: start the service with the secret it had before"
    )


def reveal_keys(connection: Connection, loop: str, secret: bytes, time: datetime) -> list[str]:
    """Store the keys of the epochs that ended a day ago; return the epochs' names."""
    ended = select(schema.epoch.c.id, schema.epoch.c.epoch, schema.epoch.c.commitment).where(
        schema.epoch.c.loop == loop,
        schema.epoch.c.key.is_(None),
        schema.epoch.c.end <= stamp(time - REVEALED_AFTER),
    )
    rows = connection.execute(ended).all()
    for identifier, name, commitment in rows:
        key = epoch_key(secret, loop, name)
        if commitment_of(key) != commitment:
            raise _other_secret(loop, name)
        connection.execute(
            update(schema.epoch).where(schema.epoch.c.id == identifier).values(key=key.hex())
        )
    return [name for _, name, _ in rows]
