"""Linear functionals of a policy's propensities, `S_k = sum_i A[i, k] pi_i + kappa_k`.

A is never stored as a dense matrix: a functional that exists once a group is one value a row
plus the row's group code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

# a denominator below this is nobody accepted; dividing by it would overflow
NOBODY = 1e-300

# weights of a row's people, of its positives and of its negatives
Mix = tuple[float, float, float]
NONE: Mix = (0.0, 0.0, 0.0)
PEOPLE: Mix = (1.0, 0.0, 0.0)
POSITIVES: Mix = (0.0, 1.0, 0.0)
NEGATIVES: Mix = (0.0, 0.0, 1.0)
LABELLED: Mix = (0.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Shape:
    """How a benefit weighs the rows of any tally.

    `b_z = (sum_{i in z} values pi + constant) / total`, the total being the group's size or the
    group's sum of `share_of`; with a denominator, `b_z = sum values pi / sum denominator pi`.
    """

    values: Mix
    constant: Mix = NONE
    share_of: Mix | None = None
    denominator: Mix | None = None

    @property
    def counted(self) -> Mix:
        """What the total is the sum of."""
        return PEOPLE if self.share_of is None else self.share_of

    @property
    def labelled(self) -> bool:
        """Whether anything in it needs labels."""
        mixes = (self.values, self.constant, self.counted, self.denominator or NONE)
        return any(mix[1] != 0.0 or mix[2] != 0.0 for mix in mixes)


@dataclass(frozen=True, slots=True)
class Benefit:
    """A benefit of each group: a linear functional, or a ratio of two.

    `b_z = (sum_{i in z} values_i pi_i + constant_z) / (sum_{i in z} denominator_i pi_i)`, the
    division only where there is a denominator. `defined` says for which groups the log allows
    an estimate at all.

    What a row adds to the constant is `constants`, and what it adds to the total that values
    were divided by is `counted`, which sums to one in each group: the total is random too, and
    intervals must know it. `scale` is one over the total, `shape` how the rows were weighed.
    """

    values: Floats
    constant: Floats
    defined: NDArray[np.bool_]
    denominator: Floats | None = None
    constants: Floats | None = None
    counted: Floats | None = None
    scale: Floats | None = None
    shape: Shape | None = None


@dataclass(frozen=True, slots=True)
class Sums:
    """What an objective looks at: the functionals' values at one policy."""

    utility: float
    numerators: Floats  # (benefits, groups)
    denominators: Floats  # (benefits, groups); ones where a benefit is linear

    @property
    def benefits(self) -> Floats:
        """Benefit by notion and group; NaN where nobody is there to measure it on."""
        undefined = np.full_like(self.numerators, np.nan)
        return np.divide(self.numerators, self.denominators, out=undefined, where=self.usable)

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Where there is anybody to divide by."""
        return self.denominators > NOBODY


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The rows of A for one objective on one log."""

    utility: Floats
    utility_constant: float
    benefits: tuple[Benefit, ...]
    group: Codes
    n_groups: int

    def sums(self, propensity: Floats) -> Sums:
        """Return all functionals at these propensities (or drawn decisions)."""
        shape = (len(self.benefits), self.n_groups)
        numerators, denominators = np.zeros(shape), np.ones(shape)
        for k, benefit in enumerate(self.benefits):
            numerators[k] = benefit.constant + self._by_group(benefit.values * propensity)
            if benefit.denominator is not None:
                denominators[k] = self._by_group(benefit.denominator * propensity)
            numerators[k, ~benefit.defined] = np.nan
        return Sums(
            float(self.utility @ propensity) + self.utility_constant, numerators, denominators
        )

    def row_slopes(self, utility: float, numerators: Floats, denominators: Floats) -> Floats:
        """`A @ dF/dS`, a number a row, from the derivative of F in each of the sums."""
        slopes = utility * self.utility
        for k, benefit in enumerate(self.benefits):
            slopes = slopes + numerators[k][self.group] * benefit.values
            if benefit.denominator is not None:
                slopes = slopes + denominators[k][self.group] * benefit.denominator
        return slopes

    def shares(self) -> Floats:
        """Return the groups' shares of the rows."""
        return self._by_group(np.ones(len(self.group))) / max(len(self.group), 1)

    def take(self, rows: NDArray[np.intp] | slice) -> Coefficients:
        """Return the same functionals estimated from some of the rows, scaled up to all."""
        utility = self.utility[rows]
        scale = len(self.utility) / max(len(utility), 1)

        def taken(column: Floats | None) -> Floats | None:
            return None if column is None else scale * column[rows]

        benefits = tuple(
            replace(
                benefit,
                values=scale * benefit.values[rows],
                denominator=taken(benefit.denominator),
                constants=taken(benefit.constants),
                counted=taken(benefit.counted),
                scale=None if benefit.scale is None else scale * benefit.scale,
            )
            for benefit in self.benefits
        )
        return Coefficients(
            scale * utility, self.utility_constant, benefits, self.group[rows], self.n_groups
        )

    def _by_group(self, values: Floats) -> Floats:
        totals: Floats = np.bincount(self.group, values, self.n_groups).astype(np.float64)
        return totals
