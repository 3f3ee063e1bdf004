"""What is suspicious in a log although every single row is possible."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consequential.log.copies import copies_said

if TYPE_CHECKING:
    from consequential.log.decision_log import DecisionLog
    from consequential.log.scan import LogScan

Floats = NDArray[np.float64]

_RATE = 1e-3  # of honest logs that are contradicted, at most
_APART = 0.1  # a difference that matters, relative to the smaller share
_FEW = 20  # rows that may rise from one to the next by chance
_IDENTIFIERS = {"account", "case", "customer", "id", "index", "key", "no", "nr", "number", "uuid"}


def propensity_concerns(log: DecisionLog | LogScan) -> tuple[str, ...]:
    """Say whether decisions contradict the logged propensities, and what these may be instead.

    If propensities are those that decisions were drawn with, `sum a (d - p)` has mean 0 and
    variance `sum a^2 p (1 - p)`, for `a = 1` and for `a = 2 p - 1`. Bernstein's inequality bounds
    how often chance leads further away, however small the log: at most one honest log in a
    thousand is contradicted. A contradicted log is compared with what other conventions would mean.
    Propensities that were estimated from the decisions are not tested.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> from consequential.log import propensity_concerns
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
        pieces = list(log.map(_fits, "looking at propensities", settled=False))
    elif log.estimated_propensity:
        return ()
    else:
        pieces = [_fits(log)]
    logged, *others = (reduce(add, fits) for fits in zip(*pieces, strict=True))
    if not logged.contradicted:
        return ()
    said = "decisions do not follow the propensities"
    if logged.off:
        said = f"propensities average {logged.mean:.3f} but a share {logged.share:.3f} was accepted"
    fitting = [f"{fit.name} ({fit.advice})" for fit in others if not fit.contradicted]
    if fitting:
        return (
            f"{said}: they look like {' or '.join(fitting)}. A log needs the probability of "
            "acceptance",
        )
    return (f"{said}: decisions were not drawn with them",) if logged.off else ()


@dataclass(frozen=True, slots=True)
class _Fit:
    """How far decisions are from probabilities of acceptance; the sums over rows add up."""

    name: str
    advice: str
    n: int
    accepted: float
    expected: float
    variance: float
    tilt: float
    tilt_variance: float
    impossible: int

    @classmethod
    def of(cls, name: str, advice: str, decision: NDArray[np.bool_], p: Floats) -> _Fit:
        slope, spread = 2.0 * p - 1.0, p * (1.0 - p)
        return cls(
            name,
            advice,
            len(p),
            float(decision.sum()),
            float(p.sum()),
            float(spread.sum()),
            float(slope @ (decision - p)),
            float(slope**2 @ spread),
            int((p == np.where(decision, 0.0, 1.0)).sum()),
        )

    def __add__(self, other: _Fit) -> _Fit:
        sums = [getattr(self, each.name) + getattr(other, each.name) for each in fields(self)[2:]]
        return _Fit(self.name, self.advice, *sums)

    @property
    def mean(self) -> float:
        return self.expected / self.n

    @property
    def share(self) -> float:
        return self.accepted / self.n

    @property
    def off(self) -> bool:
        """Whether as many were not accepted as were to be expected, by much more than by chance."""
        least = min(self.mean, self.share, 1.0 - self.mean, 1.0 - self.share)
        far = abs(self.mean - self.share) > _APART * least
        return far and _unlikely(self.accepted - self.expected, self.variance)

    @property
    def contradicted(self) -> bool:
        return (
            self.impossible > 0
            or _unlikely(self.accepted - self.expected, self.variance)
            or _unlikely(self.tilt, self.tilt_variance)
        )


def _fits(log: DecisionLog) -> tuple[_Fit, _Fit, _Fit]:
    d, p = log.decision, log.propensity
    return (
        _Fit.of("probabilities of acceptance", "", d, p),
        _Fit.of(
            "probabilities of the action taken",
            "use 1 - p for the rejected",
            d,
            np.where(d, p, 1.0 - p),
        ),
        _Fit.of("probabilities of rejection", "use 1 - p for everybody", d, 1.0 - p),
    )


def _unlikely(distance: float, variance: float) -> bool:
    """Whether a sum of bounded terms is further from its mean than chance would have it.

    Each of two sums may be off on two sides; its terms are at most 1.
    """
    exponent = distance**2 / (2.0 * (variance + abs(distance) / 3.0)) if distance else 0.0
    return bool(4.0 * np.exp(-exponent) < _RATE)


def data_concerns(log: DecisionLog) -> tuple[str, ...]:
    r"""Say what is odd about the rows: copies of others, identifiers and constants for features.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> from consequential.log import data_concerns
    >>> rows = np.random.default_rng(0).normal(size=(40, 1))
    >>> matrix = np.column_stack([rows, np.arange(40), np.ones(40)])
    >>> log = cq.DecisionLog.from_arrays(
    ...     matrix, [1, 0] * 20, [0.5] * 40, [1, None] * 20, feature_names=["x", "row", "one"])
    >>> print(*data_concerns(log), sep="\n")
    the feature 'row' has another whole number in every row: it looks like an identifier, by which
    no rule should go
    the feature 'one' has the same value in all rows: nothing can depend on it
    """
    return (*copies_said(log), *_identifiers(log), *_constants(log))


def _identifiers(log: DecisionLog) -> Iterator[str]:
    n = len(log)
    head = log.features[:1000]
    for k in np.flatnonzero((head == np.floor(head)).all(axis=0)) if n >= _FEW else ():
        column, name = log.features[:, k], log.feature_names[k]
        if np.ptp(column) < n - 1 or not (column == np.floor(column)).all():
            continue
        steps = np.diff(column)
        rising = (steps > 0).all() or (steps < 0).all()
        if rising or (_IDENTIFIERS & _words(name) and len(np.unique(column)) == n):
            yield (
                f"the feature {name!r} has another whole number in every row: it looks like an "
                "identifier, by which no rule should go"
            )


def _words(name: str) -> set[str]:
    """The words of a name, in lower case: of `customerId` and `customer_id` the same two."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return set(re.split(r"[^a-z]+", apart.lower()))


def _constants(log: DecisionLog) -> Iterator[str]:
    if len(log) > 1:
        for k in np.flatnonzero(log.features.min(axis=0) == log.features.max(axis=0)):
            name = log.feature_names[k]
            yield f"the feature {name!r} has the same value in all rows: nothing can depend on it"
