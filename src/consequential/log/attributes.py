"""Attributes: the sensitive columns of a log, and the groups of their combinations."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.log.checks import checked_groups
from consequential.log.columns import DecisionLogError, column_name

if TYPE_CHECKING:
    from consequential.log.decision_log import DecisionLog

Attributes = dict[str, tuple[Hashable, ...]]


def intersection(values: Iterable[Any]) -> str:
    """Return the name of the group of people who have these values, one for each attribute.

    Examples
    --------
    >>> from consequential.log.attributes import intersection
    >>> intersection(["f", 1])
    'f & 1'
    """
    return " & ".join(map(str, values))


def grouped(
    sensitive: ArrayLike | Mapping[str, ArrayLike] | None,
    groups: Sequence[Hashable] | None,
    n: int,
) -> tuple[NDArray[np.intp], tuple[Hashable, ...], Attributes]:
    """Return each person's group code, the names of the groups, and the attributes.

    With several columns the groups are the intersections that occur, or those in `groups`, tuples
    of values. An attribute lists the value of each group in one column.
    """
    if not isinstance(sensitive, Mapping):
        codes, names = checked_groups(sensitive, groups, n)
        return codes, names, {name: names} if (name := column_name(sensitive)) else {}
    if len(sensitive) == 1:
        ((name, column),) = sensitive.items()
        codes, names = checked_groups(column, groups, n)
        return codes, names, {name: names}
    columns = [checked_groups(column, None, n) for column in sensitive.values()]
    sizes = [len(values) for _, values in columns]
    cells, cell = np.unique(
        np.ravel_multi_index([codes for codes, _ in columns], sizes), return_inverse=True
    )
    places = np.transpose(np.unravel_index(cells, sizes))
    seen = [tuple(values[k] for (_, values), k in zip(columns, at, strict=True)) for at in places]
    known = seen if groups is None else [tuple(group) for group in groups]  # type: ignore[arg-type]
    names = tuple(map(intersection, known))
    unknown = [group for group in seen if group not in known]
    if unknown:
        raise DecisionLogError(f"unknown sensitive group {unknown[0]!r}; known: {known}")
    if len(set(names)) < len(names):
        raise DecisionLogError(f"two groups have the same name in {list(names)}: rename values")
    codes = np.array([known.index(group) for group in seen], dtype=np.intp)[cell]
    return codes, names, dict(zip(sensitive, zip(*known, strict=True), strict=True))


def in_order(values: Iterable[Hashable]) -> tuple[Hashable, ...]:
    """Return the groups of one attribute: its different values, sorted."""
    return tuple(np.unique(np.array(list(values))).tolist())


def attribute_of(log: Any, name: str) -> tuple[Hashable, ...]:
    """Return the value that each group of a log, or of a scan, has in one of its attributes."""
    if name not in log.attributes:
        known = ", ".join(map(repr, log.attributes)) or "none with a name"
        raise DecisionLogError(f"no sensitive attribute {name!r} in the log; it has {known}")
    found: tuple[Hashable, ...] = log.attributes[name]
    return found


def by_attribute(log: DecisionLog, attribute: str) -> DecisionLog:
    """Return the log with the groups of one sensitive attribute in place of the intersections.

    Columns are shared with the log, and a policy that was learned from it counts as learned from
    the result.

    Examples
    --------
    >>> import consequential as cq
    >>> log = cq.DecisionLog.from_arrays(
    ...     [[0.3], [0.9], [0.1]], [0, 1, 1], [0.4, 0.8, 0.2], [None, 1, 0],
    ...     sensitive={"sex": ["f", "m", "f"], "age": ["old", "old", "young"]})
    >>> log.groups, log.by("sex").groups
    (('f & old', 'f & young', 'm & old'), ('f', 'm'))
    """
    values = attribute_of(log, attribute)
    groups = in_order(values)
    codes = np.array([groups.index(value) for value in values], dtype=np.intp)
    found = replace(log, group=codes[log.group], groups=groups, attributes={attribute: groups})
    found.__dict__["fingerprint"] = log.fingerprint
    return found
