"""Linear functionals of a policy's propensities, `S_k = sum_i A[i, k] pi_i + kappa_k`.

A is never stored as a dense matrix: a functional that exists once per group is one value per row
plus the row's group code. A is built from a `Tally`, which counts how many people each row stands
for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

NOBODY = 1e-300  # a denominator up to this means that nobody is in the group

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


def valued_mix(by_label: tuple[float, float]) -> Mix:
    """Return the mix that counts people by a value for each label.

    If both values are equal, all people are counted, which needs no label.
    """
    if np.isclose(by_label[0], by_label[1], rtol=1e-12, atol=1e-12):
        return by_label[0], 0.0, 0.0
    return 0.0, by_label[1], by_label[0]


def mean_shape(at_reject: tuple[float, float], at_accept: tuple[float, float]) -> Shape:
    """Return the mean of `f(d, y)`, given as pairs over y = 0, 1."""
    change = (at_accept[0] - at_reject[0], at_accept[1] - at_reject[1])
    return Shape(valued_mix(change), valued_mix(at_reject))


@dataclass(frozen=True, slots=True)
class Benefit:
    """A benefit of each group: a linear functional, or a ratio of two.

    `b_z = (sum_{i in z} values_i pi_i + constant_z) / (sum_{i in z} denominator_i pi_i)`, the
    division only where there is a denominator. `defined` says for which groups the log allows
    an estimate at all.

    What a row adds to the constant is `constants`, and what it adds to the total that values
    were divided by is `counted`, which sums to one in each group: the total is random too, and
    intervals must know it. `scale` is one over the total, `shape` how the rows were weighed.

    Numbers can be added to a benefit, and it can be multiplied by one: `1 - tally.share(values)` is
    the share that is rejected.
    """

    values: Floats
    constant: Floats
    defined: NDArray[np.bool_]
    denominator: Floats | None = None
    constants: Floats | None = None
    counted: Floats | None = None
    scale: Floats | None = None
    shape: Shape | None = None

    __array_ufunc__ = None  # so that NumPy's numbers leave arithmetic to this class

    def _affine(self, factor: Any, offset: Any) -> Benefit:
        """Return `factor b + offset`."""
        if not (isinstance(factor, Real) and isinstance(offset, Real)):
            raise TypeError(
                "a benefit is added to a number or multiplied by one. Where two benefits must be "
                "equal across groups, return both: (one, other)"
            )
        factor, offset = float(factor), float(offset)
        values, constant = factor * self.values, factor * self.constant
        constants = None if self.constants is None else factor * self.constants
        if self.denominator is not None:
            values = values + offset * self.denominator
        else:
            constant = constant + offset
            if constants is not None and self.counted is not None:
                constants = constants + offset * self.counted
        return replace(self, values=values, constant=constant, constants=constants, shape=None)

    def __add__(self, number: float) -> Benefit:
        return self._affine(1.0, number)

    def __sub__(self, number: float) -> Benefit:
        return self.__rsub__(number)._affine(-1.0, 0.0)

    def __rsub__(self, number: float) -> Benefit:
        return self._affine(-1.0, number)

    def __mul__(self, number: float) -> Benefit:
        return self._affine(number, 0.0)

    __radd__ = __add__
    __rmul__ = __mul__


@dataclass(frozen=True, slots=True)
class Tally:
    """How many people each row stands for: in all, with label 1, and with label 0.

    In a log a row stands for itself, and for `w` people with its label; in a world whose truth
    is known a row is a point with its mass. `sizes` is the number of people by group.
    `normalised` holds weights that were scaled to average one, where they were. Where the rows
    are part of a larger log, `totals` is how many people, positives and negatives each group of
    that log has, and `sizes` is the larger log's too.

    Labels that nobody knows: `unsupported` is how many people of a row no weight stands for,
    because people like them were never accepted or because weights were clipped; they are counted
    neither as positives nor as negatives. `missing` is how many of the negatives are accepted
    people whose label is missing, taken for failures. None where there are none.
    """

    people: Floats
    positives: Floats
    negatives: Floats
    group: NDArray[np.intp]
    sizes: Floats
    normalised: Floats | None = None
    totals: Floats | None = None  # (3, groups)
    unsupported: Floats | None = None
    missing: Floats | None = None

    @property
    def unknown(self) -> Floats | None:
        """How many people of each row have a label that nobody knows."""
        parts = [part for part in (self.unsupported, self.missing) if part is not None]
        return sum(parts[1:], parts[0]) if parts else None

    def filled(self, positive: NDArray[np.bool_] | bool) -> Tally:
        """Return the tally with unknown labels made 1 for these rows and 0 for the others."""
        unknown = self.unknown
        if unknown is None:
            return self
        negatives = self.negatives if self.missing is None else self.negatives - self.missing
        # what a model predicts for people who were never accepted does not count as known
        known = 1.0 if self.unsupported is None else (self.unsupported < 1.0).astype(np.float64)
        return replace(
            self,
            positives=known * self.positives + np.where(positive, unknown, 0.0),
            negatives=known * negatives + np.where(positive, 0.0, unknown),
            unsupported=None,
            missing=None,
        )

    def by_group(self, values: Floats) -> Floats:
        """Return the sum of one value per row, group by group."""
        totals: Floats = np.bincount(self.group, values, len(self.sizes)).astype(np.float64)
        return totals

    def benefit(self, shape: Shape) -> Benefit:
        """Return the benefit of a shape as functionals over the rows."""
        totals = self.sizes if shape.share_of is None else self.total(shape.counted)
        scale, defined = _inverse(totals)
        by_row = scale[self.group]
        denominator = None
        if shape.denominator is not None:
            denominator = self.mixed(shape.denominator) * by_row
        return Benefit(
            self.mixed(shape.values) * by_row,
            self.total(shape.constant) * scale,
            defined,
            denominator,
            constants=self.mixed(shape.constant) * by_row,
            counted=self.mixed(shape.counted) * by_row,
            scale=scale,
            shape=shape,
        )

    def mixed(self, mix: Mix) -> Floats:
        """Each row's people, positives and negatives, weighted and added."""
        columns = zip(mix, (self.people, self.positives, self.negatives), strict=True)
        parts = [share * column for share, column in columns if share]
        return sum(parts[1:], parts[0]) if parts else np.zeros(len(self.people))

    def total(self, mix: Mix) -> Floats:
        """By group, the sum of a mix over the whole log."""
        if self.totals is not None:
            return np.asarray(mix) @ self.totals
        return self.by_group(self.mixed(mix))

    def share(self, values: ArrayLike) -> Benefit:
        """Within each group, the share of `values` that the policy accepts."""
        counted = np.asarray(values)
        if counted.shape != self.people.shape or counted.dtype.kind not in "biuf":
            raise ValueError(
                "a share is of one number per row, such as tally.people, tally.positives or "
                f"tally.negatives, not {values!r}"
            )
        if self.totals is not None:
            raise ValueError(
                "a share of values of one's own cannot be added up over pieces of a log: build "
                "the notion with tally.benefit or tally.mean"
            )
        scale, defined = _inverse(self.by_group(counted))
        shares = counted * scale[self.group]
        nothing = np.zeros(len(shares))
        return Benefit(
            shares, np.zeros(len(scale)), defined, constants=nothing, counted=shares, scale=scale
        )

    def mean(self, at_reject: tuple[float, float], at_accept: tuple[float, float]) -> Benefit:
        """Within each group, the mean of `f(d, y)` given as pairs over y = 0, 1."""
        return self.benefit(mean_shape(at_reject, at_accept))


def _inverse(totals: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return one over each total, 0 where there is nobody to divide by, and where there is."""
    defined = totals > 0
    return np.divide(1.0, totals, out=np.zeros(len(totals)), where=defined), defined


@dataclass(frozen=True)
class Sums:
    """The values of the functionals at one policy."""

    utility: float
    numerators: Floats  # (benefits, groups)
    denominators: Floats  # (benefits, groups); ones where a benefit is linear
    acceptance: Floats | None = None  # rates of the groups, then of everybody, where counted

    @cached_property
    def benefits(self) -> Floats:
        """Benefit by notion and group; NaN where nobody is there to measure it on."""
        undefined = np.full_like(self.numerators, np.nan)
        return np.divide(self.numerators, self.denominators, out=undefined, where=self.usable)

    @cached_property
    def usable(self) -> NDArray[np.bool_]:
        """Where the denominator is not 0."""
        return self.denominators > NOBODY


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The rows of A for one objective on one log."""

    utility: Floats
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
        return Sums(float(self.utility @ propensity), numerators, denominators)

    def row_slopes(self, utility: float, numerators: Floats, denominators: Floats) -> Floats:
        """Return `A @ dF/dS`, one number per row, from the derivative of F in each of the sums."""
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
        return Coefficients(scale * utility, benefits, self.group[rows], self.n_groups)

    def _by_group(self, values: Floats) -> Floats:
        totals: Floats = np.bincount(self.group, values, self.n_groups).astype(np.float64)
        return totals
