"""Keys: who may do what; of a key only its hash is stored."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, select, update

from consequential.service import schema
from consequential.service.problems import Problem
from consequential.service.records import canonical, stamp

SCOPES = ("decide", "report", "sensitive", "read", "learn", "approve", "admin")
SESSION_COOKIE, SESSION_LASTS = "consequential_session", timedelta(hours=12)
_NAME_LENGTH = 100


@dataclass(frozen=True, slots=True)
class Account:
    """A key's owner and what it is for.

    Examples
    --------
    >>> from consequential.service.keys import Account
    >>> Account("shop", frozenset({"decide"})).revoked
    False
    """

    name: str
    scopes: frozenset[str]
    revoked: bool = False

    def require(self, scope: str) -> None:
        """Refuse what the key is not good for."""
        if scope not in self.scopes:
            raise Problem("scope", 403, f"the key of {self.name} is not good for {scope}")


def create_key(
    connection: Connection, name: str, scopes: Sequence[str], time: datetime, by: str = "operator"
) -> str:
    """Store a new key of 256 random bits and return it, which cannot be done again."""
    if not 0 < len(name) <= _NAME_LENGTH or not name.isprintable():
        raise ValueError(f"a name has 1 to {_NAME_LENGTH} printable characters, not {name!r}")
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        raise ValueError(
            f"scopes are {', '.join(SCOPES)}, not {', '.join(unknown)}"
            if unknown
            else f"say what the key is for: scopes are {', '.join(SCOPES)}"
        )
    key = secrets.token_urlsafe(32)
    values = {"name": name, "scopes": canonical(sorted(set(scopes))), "key_hash": key_hash(key)}
    row = schema.add(connection, schema.account, "", time, values | {"revoked": None})
    schema.add_event(connection, "", time, by, "key created", row["id"])
    return key


def revoke_keys(connection: Connection, name: str, time: datetime, by: str = "operator") -> int:
    """Revoke all keys of a name and return how many there were."""
    account = schema.account
    theirs = select(account.c.id).where(account.c.name == name, account.c.revoked.is_(None))
    found = connection.execute(theirs).scalars().all()
    for identifier in found:
        revoked = update(account).where(account.c.id == identifier).values(revoked=stamp(time))
        connection.execute(revoked)
        schema.add_event(connection, "", time, by, "key revoked", identifier)
    return len(found)


def accounts(connection: Connection) -> dict[str, Account]:
    """Return all accounts by the hash of their key."""
    rows = connection.execute(select(schema.account)).mappings()
    return {row["key_hash"]: account_of(row) for row in rows}


def account_of(row: Mapping[Any, Any]) -> Account:
    """Return what a row says."""
    scopes = frozenset(json.loads(row["scopes"]))
    return Account(row["name"], scopes, row["revoked"] is not None)


def authenticated(known: Mapping[str, Account], header: str | None, scope: str) -> Account:
    """Return whose key an `Authorization: Bearer KEY` header has, if it is good for the scope.

    Examples
    --------
    >>> from consequential.service.keys import Account, authenticated, key_hash
    >>> known = {key_hash("s3cret"): Account("shop", frozenset({"decide"}))}
    >>> authenticated(known, "Bearer s3cret", "decide").name
    'shop'
    >>> authenticated(known, "Bearer s3cret", "read")
    Traceback (most recent call last):
    ...
    consequential.service.problems.Problem: the key of shop is not good for read
    """
    kind, _, key = (header or "").partition(" ")
    if kind.lower() != "bearer" or not key.strip():
        raise Problem("no_key", 401, "send Authorization: Bearer KEY")
    found = known.get(key_hash(key.strip()))
    if found is None:
        raise Problem("unknown_key", 401, "this key is not known")
    if found.revoked:
        raise Problem("revoked_key", 401, f"this key of {found.name} is revoked")
    found.require(scope)
    return found


def key_hash(key: str) -> str:
    """Return what is stored of a key; random keys of 256 bits need no slow hash."""
    return hashlib.sha256(key.encode()).hexdigest()


# --- sessions: a signed cookie says who signed in and when; the database, what they may do


def new_session(secret: bytes, account: str, time: datetime) -> str:
    """Return the cookie of an account that signs in.

    Examples
    --------
    >>> from datetime import UTC, datetime, timedelta
    >>> from consequential.service.keys import new_session, signed_in
    >>> morning = datetime(2026, 3, 2, 9, tzinfo=UTC)
    >>> cookie = new_session(b"s" * 32, "0198", morning)
    >>> signed_in(b"s" * 32, cookie, morning + timedelta(hours=8))
    '0198'
    >>> signed_in(b"s" * 32, cookie, morning + timedelta(hours=13)) is None
    True
    """
    content = f"{account}.{int(time.timestamp())}"
    return f"{content}.{_signature(secret, content)}"


def signed_in(secret: bytes, cookie: str, time: datetime) -> str | None:
    """Return the account that a cookie was made for, unless it is too old or not ours."""
    content, _, signature = cookie.rpartition(".")
    if not hmac.compare_digest(signature.encode(), _signature(secret, content).encode()):
        return None
    account, _, since = content.rpartition(".")
    age = time.timestamp() - int(since)
    return account if -60.0 <= age <= SESSION_LASTS.total_seconds() else None


def _signature(secret: bytes, content: str) -> str:
    key = hmac.digest(secret, b"sessions of pages", hashlib.sha256)
    return hmac.digest(key, content.encode(), hashlib.sha256).hex()


def account_of_key(connection: Connection, key: str) -> tuple[str, Account] | None:
    """Return the account whose key this is, with its identifier."""
    return _account(connection, schema.account.c.key_hash == key_hash(key))


def account_of_id(connection: Connection, identifier: str) -> Account | None:
    """Return an account as it is now: a key that was revoked is out at once."""
    found = _account(connection, schema.account.c.id == identifier)
    return None if found is None or found[1].revoked else found[1]


def _account(connection: Connection, condition: object) -> tuple[str, Account] | None:
    row = schema.row(connection, select(schema.account).where(condition))  # type: ignore[arg-type]
    return None if row is None else (row["id"], account_of(row))
