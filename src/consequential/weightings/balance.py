"""The balance heuristic: one weight from all policies that filled a log."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consequential.log import DecisionLog, DecisionLogError
from consequential.weightings.weights import Weighting, inverse_propensity

Floats = NDArray[np.float64]

_DRIFT = 4.0  # standard errors that chance does not explain
_FEWEST = 200  # rows without which a variance within time steps is a guess


@dataclass(frozen=True, slots=True)
class BalanceHeuristic(Weighting):
    """`w = d / sum_t (N_t / N) pi_t(x)` over the policies that filled the log.

    Lower variance than each row's own propensity where the policies were fixed beforehand and
    the same kind of people applied all along; biased where later policies were learned from
    earlier rows. Where the population changed while policies did, the log contradicts these
    weights: then each row's own propensity is used instead, and `notes` says so. Needs the log's
    `policies`.

    Examples
    --------
    >>> import consequential as cq
    >>> log = cq.DecisionLog.from_arrays(
    ...     [[0.0], [0.0]], [1, 1], [0.25, 0.75], [1, 0], time_step=[0, 1],
    ...     policies={0: cq.EveryNth(4), 1: cq.RejectAll().with_floor(0.75)})
    >>> cq.weightings.BalanceHeuristic().weights(log)
    array([2., 2.])
    """

    def weights(self, log: DecisionLog) -> Floats:
        """Return one over the average propensity of all the policies, for accepted rows."""
        return self._unless_drifted(log, within_group=False)

    def group_weights(self, log: DecisionLog) -> Floats:
        """Return the same with each policy's share of a group's rows."""
        return self._unless_drifted(log, within_group=True)

    def _unless_drifted(self, log: DecisionLog, *, within_group: bool) -> Floats:
        overall = self._balanced(log, within_group=False)
        if _drifted(log, overall):
            return inverse_propensity(log)
        return self._balanced(log, within_group=True) if within_group else overall

    def notes(self, log: DecisionLog) -> tuple[str, ...]:
        """Say where the population changed, so that the policies' average does not fit."""
        if not _drifted(log, self._balanced(log, within_group=False)):
            return ()
        return (
            "the people who apply, or their labels, changed while policies did: the balance "
            "heuristic would be biased, so each row's own propensity is used instead",
        )

    def _balanced(self, log: DecisionLog, *, within_group: bool) -> Floats:
        """Return the weights if nothing drifts; infinite where no policy would accept."""
        steps, counts = np.unique(log.time_step, return_counts=True)
        missing = [int(step) for step in steps if int(step) not in log.policies]
        if missing:
            raise DecisionLogError(
                f"the balance heuristic needs the policy of every time step; the log has none "
                f"for {missing[:3]}{' and more' if len(missing) > 3 else ''}"
            )
        accepted = log.take(log.decision)
        averaged = np.zeros(len(accepted))
        for step, count in zip(steps, counts, strict=True):
            share = np.full(len(log.groups), count / len(log))
            if within_group:
                here = np.bincount(log.group[log.time_step == step], minlength=len(log.groups))
                share = here / np.maximum(log.group_counts, 1)
            rule = log.policies[int(step)]
            averaged += share[accepted.group] * accepted.propensity_of(rule)
        if len(averaged) and averaged.min() <= 0:
            row = np.flatnonzero(log.decision)[averaged.argmin()]
            raise DecisionLogError(
                f"row {row} was accepted, but no policy of the log would have accepted it: these "
                "are not the policies that decided"
            )
        weights = np.zeros(len(log))
        weights[log.decision] = 1.0 / averaged
        return weights * inverse_propensity(log) * log.propensity  # thinned where labels are


def _drifted(log: DecisionLog, balanced: Floats) -> bool:
    """Whether balanced weights differ from each row's own by more than chance explains.

    Both count people, and people with label 1, without bias if the population stays the same;
    own propensities do in any case. So the difference of the two counts has mean 0 unless people
    or their labels changed. Its variance is that within time steps.
    """
    if len(log) < _FEWEST:
        return False
    apart = balanced - inverse_propensity(log)
    step = np.unique(log.time_step, return_inverse=True)[1]
    sizes = np.bincount(step)
    for counted in (apart, apart * log.outcome):
        means = np.bincount(step, counted) / sizes
        variance = float(((counted - means[step]) ** 2).sum())
        if abs(float(counted.sum())) > _DRIFT * variance**0.5 + 1e-9 * len(log):
            return True
    return False
