"""Rows of parameters in which every pair of values occurs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any


def covering(*factors: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return rows, one value of each factor in each, with every pair of values in some row.

    Rows are completed greedily: each value meets as many values for the first time as it can.
    """
    sizes = [range(len(factor)) for factor in factors]
    missing = {
        (i, a, j, b)
        for i, j in combinations(range(len(factors)), 2)
        for a, b in product(sizes[i], sizes[j])
    }

    def n_new(row: dict[int, int], k: int, value: int) -> int:
        pairs = ((*sorted([(i, a), (k, value)]),) for i, a in row.items())
        return sum((*one, *other) in missing for one, other in pairs)

    rows: list[tuple[Any, ...]] = []
    while missing:
        i, a, j, b = min(missing)
        row = {i: a, j: b}
        for k in set(range(len(factors))) - {i, j}:
            turn = len(rows) % len(sizes[k])  # among equals take turns
            values = [*sizes[k][turn:], *sizes[k][:turn]]
            row[k] = max(values, key=lambda value: n_new(row, k, value))
        missing -= {(*one, *other) for one, other in combinations(sorted(row.items()), 2)}
        rows.append(tuple(factor[row[k]] for k, factor in enumerate(factors)))
    return rows
