"""Sessions: a signed cookie says who signed in and when; the database says what they may do."""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from sqlalchemy import Connection, select
from starlette.requests import Request

from consequential.service import schema
from consequential.service.keys import Account, account_of, key_hash
from consequential.service.problems import Problem

COOKIE = "consequential_session"
LASTS = timedelta(hours=12)


def new_session(secret: bytes, account: str, time: datetime) -> str:
    """Return the cookie of an account that signs in.

    Examples
    --------
    >>> from datetime import UTC, datetime, timedelta
    >>> from consequential.service.pages.sessions import new_session, signed_in
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
    return account if -60.0 <= age <= LASTS.total_seconds() else None


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


def check_origin(request: Request) -> None:
    """Refuse a form that another site sent."""
    origin = request.headers.get("origin") or request.headers.get("referer") or ""
    if urlsplit(origin).netloc != request.headers.get("host"):
        raise Problem("origin", 403, "this form was not sent from a page of this service")
