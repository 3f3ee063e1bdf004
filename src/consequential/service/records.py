"""Records: rows as canonical JSON, with digests, identifiers and times that never vary."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

_ENCODER = json.JSONEncoder(
    ensure_ascii=False,
    allow_nan=False,
    sort_keys=True,
    separators=(",", ":"),
    check_circular=False,  # which takes a quarter of the time
)
_EPOCH, _MILLISECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)


def canonical(value: Any) -> str:
    """Return JSON with sorted keys and without spaces: equal values make equal text.

    Examples
    --------
    >>> from consequential.service.records import canonical
    >>> canonical({"b": 1.0, "a": [True, None]})
    '{"a":[true,null],"b":1.0}'
    """
    return _ENCODER.encode(value)


def digest(value: Any) -> str:
    """Return the SHA-256 of a value's canonical JSON.

    Examples
    --------
    >>> from consequential.service.records import digest
    >>> digest([])[:8]
    '4f53cda1'
    """
    return sha256(canonical(value))


def sha256(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def new_salt() -> str:
    """Return 128 random bits, so that nobody can guess what a digest hides."""
    return os.urandom(16).hex()


def hidden_digest(salt: str, content: str) -> str:
    """Return the digest that stands for what may be forgotten, such as features."""
    return sha256(salt + content)


def row_digest(row: Mapping[str, Any], left_out: frozenset[str]) -> str:
    """Return the digest of a row: of all columns but those left out, and its own."""
    return digest(
        {name: value for name, value in row.items() if name != "digest" and name not in left_out}
    )


def now() -> datetime:
    """Return the time, in UTC."""
    return datetime.now(UTC)


@lru_cache  # a group of decisions has one time
def stamp(moment: datetime) -> str:
    """Return a moment as text that sorts in order of time.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from consequential.service.records import stamp
    >>> stamp(datetime(2026, 3, 1, 12, tzinfo=UTC))
    '2026-03-01T12:00:00.000000Z'
    """
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def moment(text: str) -> datetime:
    """Return the moment that `stamp` made a text of."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


def new_id(time: datetime) -> str:
    """Return a UUID of version 7: identifiers sort in order of time, to the millisecond.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from consequential.service.records import new_id
    >>> new_id(datetime(2026, 3, 1, tzinfo=UTC))[:14]
    '019ca6b1-dc00-'
    """
    return _uuid(time, int.from_bytes(os.urandom(10)))


def first_id(time: datetime) -> str:
    """Return the smallest identifier of a moment: the rows of a day lie between two of them."""
    return _uuid(time, 0)


def _uuid(time: datetime, random: int) -> str:
    milliseconds = (time - _EPOCH) // _MILLISECOND
    version, variant = 7 << 76, 2 << 62
    random &= ~((0xF << 76) | (0x3 << 62))
    text = f"{(milliseconds << 80) | random | version | variant:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
