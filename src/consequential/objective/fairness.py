"""Fairness notions: which benefit must be equal across groups.

A notion only says how its benefits weigh the rows of a `Tally`; it never sees a policy, an
optimiser or a penalty. New notions add columns, never a branch in a loop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from consequential.objective.functionals import (
    LABELLED,
    NEGATIVES,
    PEOPLE,
    POSITIVES,
    Benefit,
    Mix,
    Shape,
)

Floats = NDArray[np.float64]


def mean_shape(at_reject: tuple[float, float], at_accept: tuple[float, float]) -> Shape:
    """Return the mean of `f(d, y)`, given as pairs over y = 0, 1.

    Parts that do not depend on y are counted on all people: they need no label.
    """
    change = (at_accept[0] - at_reject[0], at_accept[1] - at_reject[1])
    return Shape(valued_mix(change), valued_mix(at_reject))


def valued_mix(by_label: tuple[float, float]) -> Mix:
    """Return the mix that counts people by a value which depends on their label."""
    if np.isclose(by_label[0], by_label[1], rtol=1e-12, atol=1e-12):
        return by_label[0], 0.0, 0.0
    return 0.0, by_label[1], by_label[0]


@dataclass(frozen=True, slots=True)
class Tally:
    """How many people each row stands for: in all, with label 1, and with label 0.

    In a log a row stands for itself, and for `w` people with its label; in a world whose truth
    is known a row is a point with its mass. `sizes` is the number of people by group.
    `normalised` holds weights that were scaled to average one, where they were. Where the rows
    are part of a larger log, `whole` is how many people, positives and negatives each group of
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
    whole: Floats | None = None  # (3, groups)
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
        # what a model says of people who were never accepted is not knowledge
        told = 1.0 if self.unsupported is None else (self.unsupported < 1.0).astype(np.float64)
        return replace(
            self,
            positives=told * self.positives + np.where(positive, unknown, 0.0),
            negatives=told * negatives + np.where(positive, 0.0, unknown),
            unsupported=None,
            missing=None,
        )

    def by_group(self, values: Floats) -> Floats:
        """Sum of one value a row, group by group."""
        totals: Floats = np.bincount(self.group, values, len(self.sizes)).astype(np.float64)
        return totals

    def benefit(self, shape: Shape) -> Benefit:
        """Return the benefit of a shape as functionals over the rows."""
        counted = self.mixed(shape.counted)
        totals = self.sizes if shape.share_of is None else self.total(shape.counted)
        defined = totals > 0
        scale = np.divide(1.0, totals, out=np.zeros(len(totals)), where=defined)
        by_row = scale[self.group]
        denominator = None
        if shape.denominator is not None:
            denominator = self.mixed(shape.denominator) * by_row
        constants = self.mixed(shape.constant)
        return Benefit(
            self.mixed(shape.values) * by_row,
            self.total(shape.constant) * scale,
            defined,
            denominator,
            constants * by_row,
            counted * by_row,
            scale,
            shape,
        )

    def mixed(self, mix: Mix) -> Floats:
        """Each row's people, positives and negatives, weighted and added."""
        columns = zip(mix, (self.people, self.positives, self.negatives), strict=True)
        parts = [share * column for share, column in columns if share]
        return sum(parts[1:], parts[0]) if parts else np.zeros(len(self.people))

    def total(self, mix: Mix) -> Floats:
        """By group, the sum of a mix over the whole log."""
        return (
            np.asarray(mix) @ self.whole
            if self.whole is not None
            else self.by_group(self.mixed(mix))
        )

    def share(self, values: Floats) -> Benefit:
        """Within each group, the share of `values` that the policy accepts."""
        if self.whole is not None:
            raise ValueError(
                "a share of values of one's own cannot be added up over pieces of a log: build "
                "the notion with tally.benefit or tally.mean"
            )
        totals = self.by_group(values)
        defined = totals > 0
        scale = np.divide(1.0, totals, out=np.zeros(len(totals)), where=defined)
        shares = values * scale[self.group]
        return Benefit(
            shares,
            np.zeros(len(totals)),
            defined,
            constants=np.zeros(len(shares)),
            counted=shares,
            scale=scale,
        )

    def mean(self, at_reject: tuple[float, float], at_accept: tuple[float, float]) -> Benefit:
        """Within each group, the mean of `f(d, y)` given as pairs over y = 0, 1."""
        return self.benefit(mean_shape(at_reject, at_accept))

    def valued(self, by_label: tuple[float, float]) -> Floats:
        """Each row's people times a value that depends on their label."""
        return self.mixed(valued_mix(by_label))


class Fairness(ABC):
    """A notion of fairness: benefits that should be equal for all groups.

    Examples
    --------
    A notion of your own says how its benefits weigh people, here those with label 0 that are
    rejected:

    >>> import consequential as cq
    >>> class SparedFailure(cq.Fairness):
    ...     name = "spared_failure"
    ...     def benefits(self, tally):
    ...         return (tally.mean(at_reject=(1.0, 0.0), at_accept=(0.0, 0.0)),)
    >>> world = cq.worlds.first_setting()
    >>> round(world.exact(world.initial_policy(), fairness=SparedFailure()).benefit_gap, 4)
    -0.1417
    """

    name: ClassVar[str]

    @abstractmethod
    def benefits(self, tally: Tally) -> tuple[Benefit, ...]:
        """Return the notion's benefits as functionals over the rows of a tally."""


class ShapedFairness(Fairness):
    """A notion given by shapes, which compiled code can read as numbers."""

    @abstractmethod
    def shapes(self) -> tuple[Shape, ...]:
        """Return the shape of each benefit."""

    def benefits(self, tally: Tally) -> tuple[Benefit, ...]:
        """Return the shapes over the rows of a tally."""
        return tuple(tally.benefit(shape) for shape in self.shapes())


@dataclass(frozen=True, slots=True)
class DemographicParity(ShapedFairness):
    """Every group is accepted at the same rate: `f(d, y) = d`. Needs no labels.

    Examples
    --------
    >>> import consequential as cq
    >>> cq.Objective(cost=0.5, fairness=cq.DemographicParity(), penalty=1.0).fairness
    DemographicParity()
    """

    name = "demographic_parity"

    def shapes(self) -> tuple[Shape, ...]:
        """Return the acceptance rates."""
        return (Shape(PEOPLE),)


@dataclass(frozen=True, slots=True)
class EqualOpportunity(ShapedFairness):
    """Among people with label 1, every group is accepted at the same rate.

    Examples
    --------
    >>> import consequential as cq
    >>> cq.fairness_named("equal_opportunity")
    EqualOpportunity()
    """

    name = "equal_opportunity"

    def shapes(self) -> tuple[Shape, ...]:
        """Return the true positive rates."""
        return (Shape(POSITIVES, share_of=POSITIVES),)


@dataclass(frozen=True, slots=True)
class EqualisedOdds(ShapedFairness):
    """Among people with label 1, and among those with label 0, groups are accepted alike.

    Examples
    --------
    >>> import consequential as cq
    >>> cq.fairness_named("equalised_odds")
    EqualisedOdds()
    """

    name = "equalised_odds"

    def shapes(self) -> tuple[Shape, ...]:
        """Return the true and the false positive rates."""
        return tuple(Shape(labelled, share_of=labelled) for labelled in (POSITIVES, NEGATIVES))


@dataclass(frozen=True, slots=True)
class PredictiveParity(ShapedFairness):
    """Among accepted people, every group has the same share of label 1.

    A ratio of two functionals that both depend on the policy; undefined for a group of which
    nobody is accepted.

    Examples
    --------
    >>> import consequential as cq
    >>> cq.fairness_named("predictive_parity")
    PredictiveParity()
    """

    name = "predictive_parity"

    def shapes(self) -> tuple[Shape, ...]:
        """Return the positive predictive values."""
        # a ratio does not care for scale; this one keeps numerator and denominator of order one
        return (Shape(POSITIVES, share_of=LABELLED, denominator=LABELLED),)


@dataclass(frozen=True, slots=True)
class BenefitParity(ShapedFairness):
    """Every group has the same mean of a benefit `f(d, y)` of your own.

    Examples
    --------
    Being judged correctly as the benefit:

    >>> import consequential as cq
    >>> notion = cq.BenefitParity(lambda d, y: float(d == y))
    >>> world = cq.worlds.first_setting()
    >>> round(world.exact(cq.AcceptAll(), fairness=notion).benefit_gap, 4)
    0.1041
    """

    f: Callable[[int, int], float]
    name = "benefit_parity"

    def shapes(self) -> tuple[Shape, ...]:
        """Return the mean benefits."""
        at_reject = (float(self.f(0, 0)), float(self.f(0, 1)))
        at_accept = (float(self.f(1, 0)), float(self.f(1, 1)))
        if not np.isfinite([*at_reject, *at_accept]).all():
            raise ValueError(f"the benefit f(d, y) must be finite: {at_reject} and {at_accept}")
        return (mean_shape(at_reject, at_accept),)


NOTIONS: dict[str, type[Fairness]] = {
    notion.name: notion
    for notion in (DemographicParity, EqualOpportunity, EqualisedOdds, PredictiveParity)
}
# what American English and fairlearn call them
_OTHER_NAMES = {
    "equalized_odds": "equalised_odds",
    "selection_rate_parity": "demographic_parity",
    "statistical_parity": "demographic_parity",
    "true_positive_rate_parity": "equal_opportunity",
    "DemographicParity": "demographic_parity",
    "EqualizedOdds": "equalised_odds",
    "TruePositiveRateParity": "equal_opportunity",
}
_SHORT = {
    "dp": "demographic_parity",
    "sp": "demographic_parity",
    "eo": "equal_opportunity' or 'equalised_odds",
    "eop": "equal_opportunity",
    "eopp": "equal_opportunity",
    "eodds": "equalised_odds",
    "pp": "predictive_parity",
    "ppv": "predictive_parity",
}


def fairness_named(notion: str | Fairness) -> Fairness:
    """Look a notion up by name, also by fairlearn's; a `Fairness` passes through.

    Examples
    --------
    >>> import consequential as cq
    >>> cq.fairness_named("demographic_parity")
    DemographicParity()
    >>> cq.fairness_named("equalized_odds")
    EqualisedOdds()
    """
    if isinstance(notion, Fairness):
        return notion
    name = _OTHER_NAMES.get(notion, notion) if isinstance(notion, str) else ""
    if name in NOTIONS:
        return NOTIONS[name]()
    plain = name.lower().replace("-", "_").replace(" ", "_")
    known = {*NOTIONS, *_OTHER_NAMES}
    meant = _SHORT.get(plain, "".join(get_close_matches(plain, known, n=1, cutoff=0.8)))
    raise ValueError(
        f"unknown fairness notion {notion!r}; "
        + (f"write '{_OTHER_NAMES.get(meant, meant)}'; " if meant else "")
        + f"choose one of {', '.join(NOTIONS)}"
    )


def benefit_gap(benefits: Floats) -> float:
    """`b0 - b1` for two groups, largest minus smallest for more; the widest of several notions.

    Groups whose benefit is undefined (NaN) are left out; with fewer than two left the gap is 0.

    Examples
    --------
    >>> import numpy as np
    >>> from consequential.objective import benefit_gap
    >>> benefit_gap(np.array([[0.2, 0.5]]))
    -0.3
    >>> round(benefit_gap(np.array([[0.2, 0.5, 0.1]])), 6)
    0.4
    """
    return float(benefit_gaps(np.atleast_2d(benefits)[None])[0])


def benefit_gaps(benefits: Floats) -> Floats:
    """`benefit_gap` of many policies at once, from an array over policies, benefits and groups."""
    known = np.isfinite(benefits)
    if benefits.shape[2] == 2:
        gaps = benefits[:, :, 0] - benefits[:, :, 1]
    else:
        high = np.where(known, benefits, -np.inf).max(axis=2, initial=-np.inf)
        gaps = high - np.where(known, benefits, np.inf).min(axis=2, initial=np.inf)
    gaps = np.where(known.sum(axis=2) >= 2, gaps, 0.0)
    if gaps.shape[1] == 0:
        return np.zeros(len(gaps))
    widest = np.abs(gaps).argmax(axis=1)
    return np.asarray(np.take_along_axis(gaps, widest[:, None], axis=1)[:, 0])
