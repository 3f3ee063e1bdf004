"""The balance heuristic: one weight from all policies that filled a log."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consequential.log import DecisionLog, DecisionLogError
from consequential.objective.weightings.weights import Weighting, inverse_propensity

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
    ...     policies={k: cq.RejectAll().with_floor(p) for k, p in enumerate([0.25, 0.75])})
    >>> cq.weightings.BalanceHeuristic().weights(log)
    array([2., 2.])
    """

    def weights(self, log: DecisionLog) -> Floats:
        """Return one over the average propensity of all the policies, for accepted rows."""
        balanced = _balanced(log)
        return inverse_propensity(log) if _drifted(log, balanced) else balanced

    def group_weights(self, log: DecisionLog) -> Floats:
        """Return the same with each policy's share of a group's rows."""
        if _drifted(log, _balanced(log)):
            return inverse_propensity(log)
        return _balanced(log, log.group)

    def notes(self, log: DecisionLog) -> tuple[str, ...]:
        """Say where the population changed, so that the policies' average does not fit."""
        if not _drifted(log, _balanced(log)):
            return ()
        return (
            "the people who apply, or their labels, changed while policies did: the balance "
            "heuristic would be biased, so each row's own propensity is used instead",
        )


def _balanced(log: DecisionLog, group: NDArray[np.intp] | None = None) -> Floats:
    """Return the weights if nothing drifts, with the policies' shares of all rows or by group."""
    steps = np.unique(log.time_step)
    missing = [int(step) for step in steps if int(step) not in log.policies]
    if missing:
        raise DecisionLogError(
            f"the balance heuristic needs the policy of every time step; the log has none "
            f"for {missing[:3]}{' and more' if len(missing) > 3 else ''}"
        )
    group = np.zeros(len(log), dtype=np.intp) if group is None else group
    sizes = np.maximum(np.bincount(group), 1)
    accepted = log.take(log.decision)
    averaged = np.zeros(len(accepted))
    for step in steps:
        share = np.bincount(group[log.time_step == step], minlength=len(sizes)) / sizes
        rule = log.policies[int(step)]
        averaged += share[group[log.decision]] * accepted.propensity_of(rule)
    if len(averaged) and averaged.min() <= 0:
        row = np.flatnonzero(log.decision)[averaged.argmin()]
        raise DecisionLogError(
            f"row {row} was accepted, but no policy of the log would have accepted it: these "
            "are not the policies that decided"
        )
    weights = np.zeros(len(log))
    weights[log.decision] = 1.0 / averaged
    # where labels are missing at random, fewer rows stand for everybody
    return weights * inverse_propensity(log) * log.propensity


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
