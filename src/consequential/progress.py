"""Progress: bars in a terminal, for work that takes longer than two seconds."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import TypeVar

_Item = TypeVar("_Item")
_DELAY = 2.0


def shown(items: Iterable[_Item], what: str) -> Iterable[_Item]:
    """Return the items; while one goes through them, a terminal shows how many are left."""
    from tqdm import tqdm

    total = len(items) if isinstance(items, Sized) else None
    # None: shown only where standard error is a terminal
    return tqdm(items, desc=what, total=total, leave=False, delay=_DELAY, disable=None)
