"""Fairness notions: which benefit must be equal across groups.

A notion only says how its benefits weigh the rows of a `Tally`; it never sees a policy, an
optimiser or a penalty. New notions add columns, never a branch in a loop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
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
    Shape,
    Tally,
    mean_shape,
)

__all__ = [
    "BenefitParity",
    "Bound",
    "DemographicParity",
    "EqualOpportunity",
    "EqualisedOdds",
    "Fairness",
    "PredictiveParity",
    "ShapedFairness",
    "fairness_named",
]

Floats = NDArray[np.float64]


class Fairness(ABC):
    """A notion of fairness: benefits that should be equal for all groups.

    Examples
    --------
    A notion of your own says how its benefits weigh people, here those with label 0 that are
    rejected:

    >>> import consequential as cq
    >>> class SparedFailure(cq.fairness.Fairness):
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
    """A notion given by shapes, which compiled code and logs read in pieces can use.

    Examples
    --------
    The false positive rate: of the people with label 0, the share that is accepted.

    >>> import consequential as cq
    >>> from consequential.objective.functionals import NEGATIVES, Shape
    >>> class EqualRisk(cq.fairness.ShapedFairness):
    ...     name = "equal_risk"
    ...     def shapes(self):
    ...         return (Shape(NEGATIVES, share_of=NEGATIVES),)
    >>> world = cq.worlds.first_setting()
    >>> round(world.exact(world.initial_policy(), fairness=EqualRisk()).benefit_gap, 4)
    0.0891
    """

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
    >>> cq.Objective(cost=0.5, fairness=cq.fairness.DemographicParity(), penalty=1.0).fairness
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
    >>> cq.fairness.fairness_named("equal_opportunity")
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
    >>> cq.fairness.fairness_named("equalised_odds")
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
    >>> cq.fairness.fairness_named("predictive_parity")
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
    A correct decision as the benefit:

    >>> import consequential as cq
    >>> notion = cq.fairness.BenefitParity(lambda d, y: float(d == y))
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


@dataclass(frozen=True, slots=True)
class Together(ShapedFairness):
    """Several notions at once: all their benefits, each of them once."""

    notions: tuple[Fairness, ...]
    name = "several_notions"

    def shapes(self) -> tuple[Shape, ...]:
        """Return the notions' shapes, one notion after the other."""
        every: list[Shape] = []
        for notion in self.notions:
            if not isinstance(notion, ShapedFairness):
                raise ValueError(
                    f"{type(notion).__name__} is given by benefits: beside other notions one must "
                    "be a fairness.ShapedFairness, which is given by shapes"
                )
            every += notion.shapes()
        return tuple(dict.fromkeys(every))


NOTIONS: dict[str, type[Fairness]] = {
    notion.name: notion
    for notion in (DemographicParity, EqualOpportunity, EqualisedOdds, PredictiveParity)
}
# what American English and fairlearn call them, less `_difference` and `_ratio` of its metrics
_OTHER_NAMES = {
    "statistical_parity": "demographic_parity",
    "selection_rate": "demographic_parity",
    "selection_rate_parity": "demographic_parity",
    "DemographicParity": "demographic_parity",
    "true_positive_rate": "equal_opportunity",
    "true_positive_rate_parity": "equal_opportunity",
    "TruePositiveRateParity": "equal_opportunity",
    # shares that add up to one are equal where the others are
    "false_negative_rate": "equal_opportunity",
    "false_negative_rate_parity": "equal_opportunity",
    "equalized_odds": "equalised_odds",
    "EqualizedOdds": "equalised_odds",
}


def fairness_named(notion: str | Fairness) -> Fairness:
    """Look a notion up by name, also by fairlearn's; check a `Fairness` and pass it through.

    Examples
    --------
    >>> import consequential as cq
    >>> cq.fairness.fairness_named("demographic_parity")
    DemographicParity()
    >>> cq.fairness.fairness_named("equalized_odds")
    EqualisedOdds()
    """
    if isinstance(notion, ShapedFairness):
        return notion
    if isinstance(notion, Fairness):
        return _checked(notion)
    if isinstance(notion, type) and issubclass(notion, Fairness):
        raise ValueError(f"{notion.__name__} is a class: make one, {notion.__name__}()")
    name = (
        notion.removesuffix("_difference").removesuffix("_ratio") if isinstance(notion, str) else ""
    )
    name = _OTHER_NAMES.get(name, name)
    if name in NOTIONS:
        return NOTIONS[name]()
    close = get_close_matches(name.lower(), NOTIONS, n=1, cutoff=0.7)
    advice = "".join(f"write {each!r}; " for each in close)
    raise ValueError(
        f"unknown fairness notion {notion!r}; {advice}choose one of {', '.join(NOTIONS)}, or make "
        "a fairness.ShapedFairness of your own"
    )


def needs_labels(notion: Fairness) -> bool:
    """Whether a notion counts people by their label; True where that is not known."""
    shapes = [benefit.shape for benefit in notion.benefits(_four_people())]
    return any(shape is None or shape.labelled for shape in shapes)


def _four_people() -> Tally:
    """Two people of each of two groups, who may have either label."""
    ones, halves, group = np.ones(4), np.full(4, 0.5), np.array([0, 0, 1, 1])
    return Tally(ones, halves, halves, group, np.array([2.0, 2.0]))


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound on the gap of one notion, between the groups of one sensitive attribute or of all.

    Attributes
    ----------
    fairness
        The notion, or its name.
    max_gap
        The largest difference allowed between any two groups' benefits.
    by
        The sensitive attribute whose groups are compared, a column of the log. None compares all
        groups of the log; of several sensitive columns these are the intersections.

    Examples
    --------
    >>> import consequential as cq
    >>> bound = cq.fairness.Bound("equal_opportunity", 0.05, by="age")
    >>> print(bound)
    equal_opportunity by age: gap at most 0.05
    """

    fairness: str | Fairness
    max_gap: float
    by: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "fairness", fairness_named(self.fairness))
        if not 0.0 <= self.max_gap <= 1.0:
            raise ValueError(f"max_gap lies between 0 and 1, not {self.max_gap!r}")

    @property
    def notion(self) -> Fairness:
        """The notion itself, where it was given by name."""
        return fairness_named(self.fairness)

    def __str__(self) -> str:
        by = "" if self.by is None else f" by {self.by}"
        return f"{self.notion.name}{by}: gap at most {self.max_gap:g}"


def _checked(notion: Fairness) -> Fairness:
    """Try a notion of a user's own on four people, two of each group."""
    kind = type(notion).__name__
    if not isinstance(getattr(notion, "name", None), str):
        raise TypeError(f'{kind} has no name: write name = "..." in the class')
    try:
        found = notion.benefits(_four_people())
    except Exception:  # whatever is wrong is seen where it happens, on the user's own log
        return notion
    benefits = found if isinstance(found, tuple | list) else (found,)
    for benefit in benefits:
        if not isinstance(benefit, Benefit):
            raise TypeError(
                f"{kind}.benefits must return benefits, such as (tally.share(tally.negatives),) or "
                f"(tally.mean(at_reject=(0, 0), at_accept=(0, 1)),), not {type(benefit).__name__}"
            )
    if not isinstance(found, tuple | list):
        raise TypeError(f"{kind}.benefits must return a tuple: write (benefit,) for one of them")
    return notion


def benefit_gap(benefits: Floats) -> float:
    """`b0 - b1` for two groups, largest minus smallest for more; the widest of several notions.

    Groups whose benefit is undefined (NaN) are left out; with fewer than two left the gap is 0.

    Examples
    --------
    >>> import numpy as np
    >>> from consequential.objective.fairness import benefit_gap
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
