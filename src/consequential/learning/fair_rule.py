"""The best fair rule for a model: a threshold that moves with the groups' chances.

With `q(x)` the probability of label 1 and `a_z(x)` the coefficient of group z's benefit, the policy
that maximises `E[(q - c) pi]` under `|b_z - b_z'| <= g` accepts where
`q(x) - c - sum_z nu_z a_z(x) >= 0`. A bound on acceptance adds a number mu >= 0 to the cost, or a
bound on one group's `mu_z a_z(x)`. The numbers nu and mu solve a convex problem, the dual, so that
there are no local optima. It is solved here for `pi = sigma((q - c - sum nu a) / width)`, the
optimum with a little entropy added. That is a logistic policy over the columns of `Scores` and
randomises at ties.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from consequential.policies.scores import COUNTED

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

_WIDTH = 0.01  # of the band where the rule randomises, in standard deviations of the prediction
_SOLVED_ON = 50_000  # rows, at most


@dataclass(frozen=True, slots=True)
class FairRule:
    """The dual problem of one log: gains and rates as linear functions of score columns.

    `rates` are those at which people are accepted of each group, by whom they count: the benefits
    of fairness notions, and with `"people"` the groups' acceptance rates.
    """

    inputs: Floats  # (n, 1 + columns), the first column constant
    gain: Floats  # coefficients of the inputs
    accepted: Floats  # coefficients of everybody's acceptance rate
    rates: Mapping[str, Floats]  # coefficients by group, (groups, 1 + columns)

    @classmethod
    def of(cls, columns: Floats, whom: tuple[str, ...], n_groups: int, cost: float) -> FairRule:
        """Return the problem of a model that does not see the group, from its score columns.

        `whom` are the people among whom groups are modelled, in the order of the columns.
        """
        inputs = _inputs(columns)
        constant, gain = np.zeros((2, inputs.shape[1]))
        constant[0], gain[:2] = 1.0, (-cost, 1.0)
        rates = {}
        for k, each in enumerate(whom):
            own = 2 + k * (n_groups - 1) + np.arange(n_groups - 1)
            counted = np.zeros((n_groups, inputs.shape[1]))
            counted[np.arange(1, n_groups), own] = 1.0
            # the first group is whoever is left
            counted[0, :2], counted[0, own] = COUNTED[each], -1.0
            rates[each] = _rates(counted, inputs)
        return cls(inputs, gain, constant, rates)

    @classmethod
    def by_group(
        cls, columns: Floats, whom: tuple[str, ...], group: Codes, n_groups: int, cost: float
    ) -> FairRule:
        """Return the problem of a policy in which each group has parameters of its own."""
        plain, kept = _inputs(columns), _kept(len(group))
        blocks = np.zeros((len(plain), n_groups, 2))
        blocks[np.arange(len(plain)), group[kept]] = plain[:, :2]
        inputs = blocks.reshape(len(plain), -1)
        # a group's rate depends on its own parameters alone
        own = np.eye(n_groups)
        rates = {each: _rates(np.kron(own, np.array(COUNTED[each])), inputs) for each in whom}
        gain, constant = (np.tile(block, n_groups) for block in ([-cost, 1.0], [1.0, 0.0]))
        return cls(inputs, gain, constant, rates)

    @property
    def width(self) -> float:
        """The width of the band where the rule randomises."""
        return max(_WIDTH * float(np.std(self.inputs @ self.gain)), 1e-9)

    def theta(
        self,
        max_gap: float | None,
        most: tuple[float, ...] = (),
        compared: tuple[str, ...] | None = None,
    ) -> Floats:
        """Return the logistic policy's parameters; without a bound those of the plain threshold.

        `max_gap` bounds the difference between any two groups' rates among `compared`, by default
        everybody who is counted; `most` bounds acceptance rates, see `acceptance_bounds`.
        """
        rows, limits = [], []
        if max_gap is not None:
            for each in self.rates if compared is None else compared:
                rates = self.rates[each]
                first, second = np.nonzero(~np.eye(len(rates), dtype=np.bool_))
                rows += list(rates[first] - rates[second])
                limits += [max_gap] * len(first)
        for k, limit in enumerate(most):
            if limit < 1.0:
                last = k == len(most) - 1
                rows.append(self.accepted if last else self.rates["people"][k])
                limits.append(limit)
        if not rows:
            return self.gain / self.width
        return (self.gain - self._prices(np.array(rows), np.array(limits))) / self.width

    def _prices(self, bounded: Floats, limits: Floats) -> Floats:
        """Return the bounded rates, each times its multiplier in the dual's optimum, added up."""
        from scipy.optimize import minimize

        def dual(multipliers: Floats, width: float) -> tuple[float, Floats]:
            theta = (self.gain - multipliers @ bounded) / width
            eta = self.inputs @ theta
            moments = expit(eta) @ self.inputs / len(eta)
            value = width * float(np.logaddexp(0.0, eta).mean()) + float(limits @ multipliers)
            return value, limits - bounded @ moments

        found = np.zeros(len(bounded))  # one multiplier, at least 0, for each bound
        for width in (30.0 * self.width, 5.0 * self.width, self.width):
            found = minimize(
                dual,
                found,
                args=(width,),
                jac=True,
                method="L-BFGS-B",
                bounds=[(0.0, None)] * len(found),
            ).x
        prices: Floats = found @ bounded
        return prices


def _kept(n: int) -> Codes:
    return np.linspace(0, n - 1, min(n, _SOLVED_ON)).astype(np.intp)


def _inputs(columns: Floats) -> Floats:
    kept = columns[_kept(len(columns))]
    return np.column_stack([np.ones(len(kept)), kept])


def _rates(counted: Floats, inputs: Floats) -> Floats:
    """Divide what is counted of each group by how many people that is."""
    rates: Floats = counted / np.maximum(counted @ inputs.mean(axis=0), 1e-12)[:, None]
    return rates
