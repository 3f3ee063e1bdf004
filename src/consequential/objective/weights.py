"""Weights: accepted people stand in for the rejected ones they resemble.

Estimand: for any `h`, `sum_i w_i h(x_i, y_i) / N` estimates `E[h(X, Y)]` over *all* applicants
although y is known for accepted people only. A rejected row's weight is 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consequential.log import DecisionLog, DecisionLogError

Floats = NDArray[np.float64]


class Weighting(ABC):
    """How a row's weight follows from the log."""

    @abstractmethod
    def weights(self, log: DecisionLog, *, within_group: bool = False) -> Floats:
        """One weight a row; `within_group` for sums that are normalised group by group."""


def _inverse(decision: NDArray[np.bool_], propensity: Floats) -> Floats:
    return np.divide(1.0, propensity, out=np.zeros(len(propensity)), where=decision)


@dataclass(frozen=True, slots=True)
class InversePropensity(Weighting):
    """`w = d / p`, the paper's: unbiased for every linear functional [K20: ips-utility].

    Examples
    --------
    >>> import consequential as cq
    >>> log = cq.DecisionLog.from_arrays([[0.0], [1.0]], [1, 0], [0.25, 0.5], [1, None])
    >>> cq.InversePropensity().weights(log)
    array([4., 0.])
    """

    def weights(self, log: DecisionLog, *, within_group: bool = False) -> Floats:
        """Return `d / p`."""
        return _inverse(log.decision, log.propensity)


@dataclass(frozen=True, slots=True)
class Clipped(Weighting):
    """`w = min(d / p, maximum)`: less variance, and biased wherever it binds.

    Examples
    --------
    >>> import consequential as cq
    >>> log = cq.DecisionLog.from_arrays([[0.0], [1.0]], [1, 0], [0.25, 0.5], [1, None])
    >>> cq.Clipped(3.0).weights(log)
    array([3., 0.])
    """

    maximum: float

    def __post_init__(self) -> None:
        if not self.maximum >= 1.0:
            raise ValueError(f"weights are clipped at 1 or above, not at {self.maximum!r}")

    def weights(self, log: DecisionLog, *, within_group: bool = False) -> Floats:
        """Return `min(d / p, maximum)`."""
        return np.minimum(_inverse(log.decision, log.propensity), self.maximum)


@dataclass(frozen=True, slots=True)
class SelfNormalised(Weighting):
    """`w N / sum w`: weights that average to one, in the log or within each group.

    Not the self-normalised estimator of off-policy libraries, whose divisor depends on the
    policy being evaluated; this one does not, so every functional stays linear.

    Examples
    --------
    >>> import consequential as cq
    >>> log = cq.DecisionLog.from_arrays([[0.0], [1.0]], [1, 0], [0.25, 0.5], [1, None])
    >>> cq.SelfNormalised().weights(log)
    array([2., 0.])
    """

    def weights(self, log: DecisionLog, *, within_group: bool = False) -> Floats:
        """Return `d / p` divided by its mean."""
        plain = _inverse(log.decision, log.propensity)
        if not within_group:
            total = plain.sum()
            return plain * (len(log) / total) if total > 0 else plain
        totals = np.bincount(log.group, plain, len(log.groups))
        scale = np.divide(log.group_counts, totals, out=np.zeros(len(totals)), where=totals > 0)
        return plain * scale[log.group]


@dataclass(frozen=True, slots=True)
class BalanceHeuristic(Weighting):
    """`w = d / sum_t (N_t / N) pi_t(x)` over the policies that filled the log.

    Lower variance than each row's own propensity where the policies were fixed beforehand;
    biased where later ones were learned from earlier rows. Needs the log's `policies`.

    Examples
    --------
    >>> import consequential as cq
    >>> log = cq.DecisionLog.from_arrays(
    ...     [[0.0], [0.0]], [1, 1], [0.25, 0.75], [1, 0], time_step=[0, 1],
    ...     policies={0: cq.EveryNth(4), 1: cq.RejectAll().with_floor(0.75)})
    >>> cq.BalanceHeuristic().weights(log)
    array([2., 2.])
    """

    def weights(self, log: DecisionLog, *, within_group: bool = False) -> Floats:
        """Return one over the average propensity of all the policies, for accepted rows."""
        steps, counts = np.unique(log.time_step, return_counts=True)
        missing = [int(step) for step in steps if int(step) not in log.policies]
        if missing:
            raise DecisionLogError(
                f"the balance heuristic needs the policy of every time step; the log has none "
                f"for {missing[:3]}{' and more' if len(missing) > 3 else ''}"
            )
        accepted = np.flatnonzero(log.decision)
        features = log.features[accepted]
        sensitive = log.sensitive[accepted]
        averaged = np.zeros(len(accepted))
        for step, count in zip(steps, counts, strict=True):
            share = np.full(len(log.groups), count / len(log))
            if within_group:
                here = np.bincount(log.group[log.time_step == step], minlength=len(log.groups))
                share = here / np.maximum(log.group_counts, 1)
            rule = log.policies[int(step)]
            averaged += share[log.group[accepted]] * rule.propensity(features, sensitive)
        if len(averaged) and averaged.min() <= 0:
            raise DecisionLogError(
                f"row {accepted[averaged.argmin()]} was accepted, but no policy of the log would "
                "have accepted it: these are not the policies that decided"
            )
        weights = np.zeros(len(log))
        weights[accepted] = 1.0 / averaged
        return weights


@dataclass(frozen=True, slots=True)
class Unweighted(Weighting):
    """`w = d`: the accepted people as if they were everybody. The mistake, for comparison.

    Examples
    --------
    >>> import consequential as cq
    >>> log = cq.DecisionLog.from_arrays([[0.0], [1.0]], [1, 0], [0.25, 0.5], [1, None])
    >>> cq.Unweighted().weights(log)
    array([1., 0.])
    """

    def weights(self, log: DecisionLog, *, within_group: bool = False) -> Floats:
        """Return the decisions."""
        return log.decision.astype(np.float64)


def effective_sample_size(weights: Floats) -> float:
    """`(sum w)^2 / sum w^2`: how many equally weighted rows say as much.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> cq.effective_sample_size(np.array([1.0, 1.0, 0.0, 4.0]))
    2.0
    """
    squares = float(weights @ weights)
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0
