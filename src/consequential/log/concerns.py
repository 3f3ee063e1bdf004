"""Concerns: what is suspicious about a log whose rows are all valid one by one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

if TYPE_CHECKING:
    from consequential.log.decision_log import DecisionLog
    from consequential.log.scan import LogScan

Floats = NDArray[np.float64]
Hashes = NDArray[np.uint64]

_RATE = 1e-3  # share of correct logs that may raise a concern
_APART = 0.1  # a difference that matters, relative to the smaller share
_FEW = 20  # rows in which a pattern may be chance
_BLOCK = 16_384  # rows that stay in the cache
_IDENTIFIERS = {"account", "case", "customer", "id", "index", "key", "no", "nr", "number", "uuid"}

# what propensities may be in place of probabilities of acceptance, and what to do then
_CONVENTIONS = (
    "probabilities of the action taken (use 1 - p for the rejected)",
    "probabilities of rejection (use 1 - p for everybody)",
)


def propensity_concerns(log: DecisionLog | LogScan) -> tuple[str, ...]:
    """Say whether decisions contradict the logged propensities, and what these may be instead.

    If propensities are those that decisions were drawn with, `sum a (d - p)` has mean 0 and
    variance `sum a^2 p (1 - p)`, for `a = 1` and for `a = 2 p - 1`. Bernstein's inequality bounds
    how often chance leads further away, however small the log: at most one correct log in a
    thousand is contradicted. A contradicted log is compared with what other conventions would mean.
    Propensities that were estimated from the decisions are not tested.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> from consequential.log.concerns import propensity_concerns
    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(0.1, 0.6, 2000)
    >>> d = rng.random(2000) < p
    >>> columns = {"features": p, "decision": d, "label": np.where(d, 1.0, np.nan)}
    >>> propensity_concerns(cq.DecisionLog.from_arrays(propensity=p, **columns))
    ()
    >>> taken = np.where(d, p, 1 - p)
    >>> print(*propensity_concerns(cq.DecisionLog.from_arrays(propensity=taken, **columns)))
    propensities average 0.587 but a share 0.344 was accepted: they look like probabilities of the
    action taken (use 1 - p for the rejected). A log needs the probability of acceptance
    """
    from consequential.log.scan import LogScan  # which knows logs, which know of concerns

    if isinstance(log, LogScan):
        sums = sum(log.map(_sums_by_convention, "looking at propensities", settled=False))
    elif log.estimated_propensity:
        return ()
    else:
        sums = _sums_by_convention(log)
    n, accepted, expected, variance, tilt, tilt_variance, impossible = np.asarray(sums).T
    unlikely = _unlikely(accepted - expected, variance)
    contradicted = (impossible > 0) | unlikely | _unlikely(tilt, tilt_variance)
    if not contradicted[0]:
        return ()
    mean, share = expected[0] / n[0], accepted[0] / n[0]
    least = min(mean, share, 1.0 - mean, 1.0 - share)
    off = unlikely[0] and abs(mean - share) > _APART * least
    what = "decisions do not follow the propensities"
    if off:
        what = f"propensities average {mean:.3f} but a share {share:.3f} was accepted"
    if off and share == 1.0:
        everybody = f"everybody was accepted although propensities average {mean:.3f}"
        return (f"{everybody}: a log needs the rejected applicants too, and here they are missing",)
    fitting = [name for name, no in zip(_CONVENTIONS, contradicted[1:], strict=True) if not no]
    if fitting:
        return (
            f"{what}: they look like {' or '.join(fitting)}. A log needs the probability of "
            "acceptance",
        )
    return (f"{what}: decisions were not drawn with them",) if off else ()


def _sums_by_convention(log: DecisionLog) -> Floats:
    """Return sums that tell how far decisions are from propensities, one row per convention.

    They are the number of decisions, how many were accepted, the mean and the variance of that
    number, the sum of `(2 p - 1) (d - p)` and its variance, and how many decisions are impossible.
    """
    d, logged = log.decision, log.propensity
    rows = []
    for p in (logged, np.where(d, logged, 1.0 - logged), 1.0 - logged):
        slope, spread = 2.0 * p - 1.0, p * (1.0 - p)
        impossible = (p == np.where(d, 0.0, 1.0)).sum()
        sums = (len(p), d.sum(), p.sum(), spread.sum(), slope @ (d - p), slope**2 @ spread)
        rows.append((*sums, impossible))
    return np.array(rows, dtype=np.float64)


def _unlikely(distance: Floats, variance: Floats) -> NDArray[np.bool_]:
    """Whether a sum of terms of at most 1 is further from its mean than chance explains.

    Each of two sums may be off on two sides, so four events share the rate.
    """
    scale = 2.0 * (variance + np.abs(distance) / 3.0)
    exponent = np.divide(distance**2, scale, out=np.zeros_like(scale), where=distance != 0)
    return 4.0 * np.exp(-exponent) < _RATE


def data_concerns(log: DecisionLog) -> tuple[str, ...]:
    r"""Say what is odd about the rows: copies of others, identifiers and constants for features.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> from consequential.log.concerns import data_concerns
    >>> rows = np.random.default_rng(0).normal(size=(40, 1))
    >>> matrix = np.column_stack([rows, np.arange(40), np.ones(40)])
    >>> log = cq.DecisionLog.from_arrays(
    ...     matrix, [1, 0] * 20, [0.5] * 40, [1, None] * 20, feature_names=["x", "row", "one"])
    >>> print(*data_concerns(log), sep="\n")
    the feature 'row' has another whole number in every row: it looks like an identifier, by which
    no rule should go
    the feature 'one' has the same value in all rows: nothing can depend on it
    """
    return (*_copies(log), *_identifiers(log), *_constants(log))


def _identifiers(log: DecisionLog) -> Iterator[str]:
    n = len(log)
    head = log.features[:1000]
    for k in np.flatnonzero((head == np.floor(head)).all(axis=0)) if n >= _FEW else ():
        column, name = log.features[:, k], log.feature_names[k]
        if np.ptp(column) < n - 1 or not (column == np.floor(column)).all():
            continue
        steps = np.diff(column)
        rising = (steps > 0).all() or (steps < 0).all()
        apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)  # customerId is two words
        words = set(re.split(r"[^a-z]+", apart.lower()))
        if rising or (_IDENTIFIERS & words and len(np.unique(column)) == n):
            yield (
                f"the feature {name!r} has another whole number in every row: it looks like an "
                "identifier, by which no rule should go"
            )


def _constants(log: DecisionLog) -> Iterator[str]:
    if len(log) > 1:
        for k in np.flatnonzero(log.features.min(axis=0) == log.features.max(axis=0)):
            name = log.feature_names[k]
            yield f"the feature {name!r} has the same value in all rows: nothing can depend on it"


def _copies(log: DecisionLog) -> Iterator[str]:
    """Say how many rows are copies of others, where chance does not explain it.

    Equal rows are nothing special where features have few values. But they are copies if every row
    occurs twice, or every row some multiple of three times. And decisions on two different people
    with equal features differ with probability `2 p (1 - p)`, on copies never: so people with equal
    features are put in pairs, and the pairs that were decided differently are counted.
    """
    person = _person(log)
    alike = row_hashes(*person)
    order = np.argsort(alike, kind="stable")
    new = np.diff(alike[order], prepend=~alike[order[:1]]) != 0
    if new.all():
        return
    rows = row_hashes(*person, log.decision, log.label, log.propensity)
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
    if found - expected - float(xlogy(found, found / expected)) < np.log(_RATE):
        yield (
            f"{what}: of {len(later)} pairs of people with equal features, {expected:.0f} should "
            f"have been decided differently by chance, and {found} were. {advice}"
        )


def people_of(log: DecisionLog) -> Hashes | None:
    """Return one number per row, equal for copies of a row; None where no rows are copies."""
    return row_hashes(*_person(log)) if any(_copies(log)) else None


def _person(log: DecisionLog) -> tuple[NDArray[Any] | None, ...]:
    """Return what was known before a decision."""
    return log.features, log.group, log.time_step, log.amount, log.cost


def row_hashes(*columns: NDArray[Any] | None) -> Hashes:
    """Return one number per row, equal for equal rows and else different (but for 1 in 2^64)."""
    given = [column.reshape(len(column), -1) for column in columns if column is not None]
    n_columns = sum(column.shape[1] for column in given)
    keys = 2 * np.random.default_rng(0).integers(2**63, size=n_columns, dtype=np.uint64) + 1
    hashes = np.empty(len(given[0]), dtype=np.uint64)
    for start in range(0, len(hashes), _BLOCK):
        rows = slice(start, start + _BLOCK)
        # adding 0.0 makes 0 of -0, which are equal
        bits = (np.column_stack([column[rows] for column in given]) + 0.0).view(np.uint64)
        mixed = (bits ^ (bits >> np.uint64(32))) * keys
        mixed ^= mixed >> np.uint64(29)
        mixed *= keys
        mixed ^= mixed >> np.uint64(32)
        hashes[rows] = mixed.sum(axis=1, dtype=np.uint64)
    return hashes
