"""The best fair rule for a model: a threshold that moves with the groups' chances.

With `q(x)` the probability of label 1 and `a_z(x)` the coefficient of group z's benefit, the policy
that maximises `E[(q - c) pi]` under `|b_z - b_z'| <= g` accepts where
`q(x) - c - sum_z nu_z a_z(x) >= 0`. Of several bounds each adds such a sum. A bound on acceptance
adds a number to the cost, mu >= 0 if it is an upper and mu <= 0 if it is a lower one; a bound on
one group's adds `mu_z a_z(x)`. The numbers nu and mu solve a convex problem, the dual, so that
there are no local optima. It is solved here for `pi = sigma((q - c - sum nu a) / width)`, the
optimum with a little entropy added. That is a logistic policy over the columns of `Scores` and
randomises at ties.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from consequential.learning.constraints import GapBound
from consequential.policy.scores import COUNTED

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

_WIDTH = 0.01  # of the band where the rule randomises, in standard deviations of the prediction
_SOLVED_ON = 50_000  # rows, at most
_HIGHEST = 100.0  # multiplier of a lower bound; what people gain is less than 1


@dataclass(frozen=True, slots=True)
class FairRule:
    """The dual problem of one log: gains and rates as linear functions of score columns.

    `counted` are the accepted people of each group, by whom they count. Divided by how many there
    are, they are the benefits of fairness notions, and with `"people"` acceptance rates.
    """

    inputs: Floats  # (n, 1 + columns), the first column constant
    gain: Floats  # coefficients of the inputs
    accepted: Floats  # coefficients of everybody's acceptance rate
    counted: Mapping[str, Floats]  # coefficients by group, (groups, 1 + columns)

    @classmethod
    def of(cls, columns: Floats, whom: tuple[str, ...], n_groups: int, cost: float) -> FairRule:
        """Return the problem of a model that does not see the group, from its score columns.

        `whom` are the people among whom groups are modelled, in the order of the columns.
        """
        inputs = _inputs(columns)
        constant, gain = np.zeros((2, inputs.shape[1]))
        constant[0], gain[:2] = 1.0, (-cost, 1.0)
        counted = {}
        for k, each in enumerate(whom):
            own = 2 + k * (n_groups - 1) + np.arange(n_groups - 1)
            people = np.zeros((n_groups, inputs.shape[1]))
            people[np.arange(1, n_groups), own] = 1.0
            # the first group is whoever is left
            people[0, :2], people[0, own] = COUNTED[each], -1.0
            counted[each] = people
        return cls(inputs, gain, constant, counted)

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
        counted = {each: np.kron(own, np.array(COUNTED[each])) for each in whom}
        gain, constant = (np.tile(block, n_groups) for block in ([-cost, 1.0], [1.0, 0.0]))
        return cls(inputs, gain, constant, counted)

    @property
    def width(self) -> float:
        """The width of the band where the rule randomises."""
        return max(_WIDTH * float(np.std(self.inputs @ self.gain)), 1e-9)

    def theta(
        self,
        bounds: Sequence[GapBound] = (),
        most: tuple[float, ...] = (),
        least: tuple[float, ...] = (),
        penalty: float = 0.0,
    ) -> Floats:
        """Return the logistic policy's parameters; without a bound those of the plain threshold.

        `bounds` are those on the differences between groups' rates; `most` and `least` bound
        acceptance rates, see `acceptance_bounds`. `penalty` is that of the objective.
        """
        rows, limits = [], []
        if penalty > 0.0:
            for counted in self.counted.values():
                rates = self._rates(counted)
                rows += list(rates - rates.mean(axis=0))
        n_punished = len(rows)
        limits += [0.0] * n_punished
        for bound in bounds:
            for each in self.counted if bound.whom is None else bound.whom:
                rates = self._rates(bound.united(self.counted[each]))
                first, second = np.nonzero(~np.eye(len(rates), dtype=np.bool_))
                rows += list(rates[first] - rates[second])
                limits += [bound.max_gap] * len(first)
        for sign, rate_bounds in ((1.0, most), (-1.0, least)):
            for k, limit in enumerate(rate_bounds):
                if np.isfinite(limit) and sign * limit < 1.0:
                    last = k == len(rate_bounds) - 1
                    rate = self.accepted if last else self._rates(self.counted["people"])[k]
                    rows.append(sign * rate)
                    limits.append(sign * limit)
        if not rows:
            return self.gain / self.width
        prices = self._prices(np.array(rows), np.array(limits), np.full(n_punished, penalty))
        return (self.gain - prices) / self.width

    def _rates(self, counted: Floats) -> Floats:
        """Divide what is counted of each group by how many people that is."""
        people = np.maximum(counted @ self.inputs.mean(axis=0), 1e-12)
        rates: Floats = counted / people[:, None]
        return rates

    def _prices(self, bounded: Floats, limits: Floats, penalties: Floats) -> Floats:
        """Return the bounded rates, each times its multiplier in the dual's optimum, added up.

        The first rows may be deviations that are punished and not bounded. Such a multiplier has
        any sign and `nu^2 / (4 penalty)` in the dual, the conjugate of `penalty deviation^2`.
        """
        from scipy.optimize import minimize

        def dual(multipliers: Floats, width: float) -> tuple[float, Floats]:
            theta = (self.gain - multipliers @ bounded) / width
            eta = self.inputs @ theta
            chance = expit(eta)
            moments = chance @ self.inputs / len(eta)
            # log(1 + exp(eta)), in a third of the time of np.logaddexp
            softplus = np.maximum(eta, 0.0) - np.log(np.maximum(chance, 1.0 - chance))
            value = width * float(softplus.mean()) + float(limits @ multipliers)
            value += float(softness @ multipliers**2) / 2.0
            return value, limits - bounded @ moments + softness * multipliers

        softness = np.zeros(len(bounded))
        softness[: len(penalties)] = 0.5 / penalties
        found = np.zeros(len(bounded))  # one multiplier, at least 0, for each bound
        least = [None if k < len(penalties) else 0.0 for k in range(len(bounded))]
        # where no policy accepts as many as a lower bound (below 0 here) asks for, the dual has no
        # optimum
        largest = [_HIGHEST if limit < 0.0 else None for limit in limits]
        for width in (30.0 * self.width, 5.0 * self.width, self.width):
            found = minimize(
                dual,
                found,
                args=(width,),
                jac=True,
                method="L-BFGS-B",
                bounds=list(zip(least, largest, strict=True)),
            ).x
        prices: Floats = found @ bounded
        return prices


def _kept(n: int) -> Codes:
    return np.linspace(0, n - 1, min(n, _SOLVED_ON)).astype(np.intp)


def _inputs(columns: Floats) -> Floats:
    kept = columns[_kept(len(columns))]
    return np.column_stack([np.ones(len(kept)), kept])
