"""Groups: the sensitive groups of a policy, and which of them each person is in."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.policy.features import PolicyError, unmasked


def plain_groups(groups: Any) -> tuple[Hashable, ...]:
    """Return groups as a tuple of Python values, each of them once."""
    names = tuple(
        group.item() if isinstance(group, np.generic) else group
        for group in (groups.tolist() if hasattr(groups, "tolist") else groups)
    )
    twice = [name for k, name in enumerate(names) if name in names[:k]]
    if twice:
        raise PolicyError(f"the sensitive group {twice[0]!r} is given twice in {list(names)}")
    return names


def group_codes(sensitive: ArrayLike, groups: Sequence[Hashable]) -> NDArray[np.intp]:
    """Return the position of each row's group among `groups`."""
    values = np.atleast_1d(np.asarray(unmasked(sensitive)))
    codes = np.full(values.shape, -1, dtype=np.intp)
    for code, group in enumerate(groups):
        codes[values == group] = code
    if codes.size and codes.min() < 0:
        unknown = values[codes < 0].tolist()[0]
        raise PolicyError(f"unknown sensitive group {unknown!r}; known: {list(groups)}")
    return codes


def sensitive_codes(
    sensitive: ArrayLike | None, groups: Sequence[Hashable], n: int
) -> NDArray[np.intp]:
    """Return the position of each of n people's group; refuse missing groups and other lengths."""
    if sensitive is None:
        raise PolicyError(
            "this policy uses the sensitive attribute: pass `sensitive`, one value per row"
        )
    codes = group_codes(sensitive, groups)
    if codes.shape != (n,):
        raise PolicyError(
            f"sensitive has shape {codes.shape} but features has {n} rows: "
            "one value per row is needed"
        )
    return codes
