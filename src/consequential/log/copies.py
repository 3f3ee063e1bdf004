"""Rows that occur twice although they are decisions about different people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

if TYPE_CHECKING:
    from consequential.log.decision_log import DecisionLog

Hashes = NDArray[np.uint64]

_CHANCE = np.log(1e-3)  # of taking different people for copies, at most
_FEW = 20  # different rows that may all occur an even number of times by chance
_BLOCK = 16_384  # rows that stay in the cache


def copies_said(log: DecisionLog) -> Iterator[str]:
    """Say how many rows are copies of others, where chance does not explain it.

    Equal rows are nothing special where features have few values. But they are copies if every row
    occurs twice, or every row some multiple of three times. And decisions on two different people
    with equal features differ with probability `2 p (1 - p)`, on copies never: so people with equal
    features are put in pairs, and the pairs that were decided differently are counted.
    """
    alike = hashed(log.features, log.group, log.time_step, log.amount, log.cost)
    order = np.argsort(alike, kind="stable")
    new = np.diff(alike[order], prepend=~alike[order[:1]]) != 0
    if new.all():
        return
    rows = hashed(alike, log.decision, log.label, log.propensity)
    _, first, counts = np.unique(rows, return_index=True, return_counts=True)
    if len(first) == len(log):
        return
    copies = np.ones(len(log), dtype=np.bool_)
    copies[first] = False
    what = f"{copies.sum()} rows are exact copies of other rows (first: row {copies.argmax()})"
    advice = "Keep one of each: with copies, intervals are too narrow"
    together = int(np.gcd.reduce(counts))
    if together > 1 and len(counts) >= _FEW:
        yield f"{what}: every row occurs {together} times or a multiple of that. {advice}"
        return
    # every second person in a run of people with equal features, and the one before
    start = np.maximum.accumulate(np.where(new, np.arange(len(log)), 0))
    later = np.flatnonzero((np.arange(len(log)) - start) % 2 == 1)
    one, other = order[later - 1], order[later]
    p = (log.propensity[one] + log.propensity[other]) / 2.0
    expected = float((2.0 * p * (1.0 - p)).sum())
    found = int((log.decision[one] != log.decision[other]).sum())
    if found >= expected / 2:
        return
    # Chernoff's bound on the probability of so few
    if found - expected - float(xlogy(found, found / expected)) < _CHANCE:
        yield (
            f"{what}: of {len(later)} pairs of people with equal features, {expected:.0f} should "
            f"have been decided differently by chance, and {found} were. {advice}"
        )


def hashed(*columns: NDArray[Any] | None) -> Hashes:
    """Return one number per row, equal for equal rows and else different (but for 1 in 2^64)."""
    given = [column for column in columns if column is not None]
    keys = np.random.default_rng(0).integers(2**63, size=sum(map(_width, given)), dtype=np.uint64)
    total = np.zeros(len(given[0]), dtype=np.uint64)
    used = 0
    for column in given:
        multipliers = 2 * keys[used : used + _width(column)] + 1
        used += _width(column)
        for start in range(0, len(total), _BLOCK):
            block = slice(start, start + _BLOCK)
            total[block] += _mixed(column[block].reshape(-1, _width(column)), multipliers)
    return total


def _width(column: NDArray[Any]) -> int:
    return column.shape[1] if column.ndim == 2 else 1


def _mixed(block: NDArray[Any], multipliers: Hashes) -> Hashes:
    if block.dtype != np.uint64:
        # 0 and -0 are equal; so are all that is not a number
        block = (block + 0.0).astype(np.float64).view(np.uint64)
    mixed = (block ^ (block >> np.uint64(32))) * multipliers
    mixed ^= mixed >> np.uint64(29)
    mixed *= multipliers
    mixed ^= mixed >> np.uint64(32)
    found: Hashes = mixed.sum(axis=1, dtype=np.uint64)
    return found
