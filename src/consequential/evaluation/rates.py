"""Rates: shares of weighted people, with intervals that cover even where few people carry them.

A true positive rate is `A / (A + B)`, with weighted counts of the positives that a rule accepts
and of those that it rejects: `A = sum w y pi` and `B = sum w y (1 - pi)`, where `w = d / p`.
Where the log has accepted nobody who counts in B, the estimate is 1 and its estimated variance 0,
although it is known how many such people there were, and how small their chances. So:

1. A count `s = sum w a` of people with weights w, each with a share a of the count (here `pi` or
   `1 - pi`), has the variance `v = sum w^2 a^2`. Where few people are in it, those with large
   weights are often missing, and both sums are too small. So the count is taken to have the mean
   `m = s + k / 2` and the variance `u = v + k^2`, where `k = sum a^2 / p / sum a`, over everybody
   of the group, is what the next person is expected to add; `n = m^2 / u` equally weighted people
   carry it. It is like a gamma variable of shape n and mean m, and the rate like a beta variable.
   With equal weights this is nearly Jeffreys' interval of a proportion; in large logs the usual
   normal one.
2. A person whom the rule accepts with a probability adds to both counts. The numbers of people
   that carry A and B are multiplied so that the variance of `log(A / B)` is right:
   `1/n_A + 1/n_B - 2 sum w^2 y pi (1 - pi) / (m_A m_B)`. There is less of such overlap if pi is
   measured from the lowest to the highest propensity of the rule, between which every rate of it
   lies: `A = sum w y (pi - lowest)` and `B = sum w y (highest - pi)`.
3. Neither count can exceed the number of people it is a part of.

False positive rates are the same with `1 - y` for y; predictive values are made of accepted
positives and accepted negatives. All follow from sums over rows, which add up over the chunks of
a log.

References
----------
Fay and Feuer (1997), Confidence intervals for directly standardized rates: a method based on the
gamma distribution, Statistics in Medicine 16. Tiwari, Clegg and Zou (2006), Efficient interval
estimation for age-adjusted cancer rates, Statistical Methods in Medical Research 15. Newcombe
(1998), Interval estimation for the difference between independent proportions, Statistics in
Medicine 17. Zou and Donner (2008), Construction of confidence limits about effect measures: a
general approach, Statistics in Medicine 27.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

from consequential.evaluation.estimate import Additive
from consequential.objective.functionals import LABELLED, NEGATIVES, NOBODY, POSITIVES, Shape

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

FEW = 15.0  # people in effect; intervals of rates that fewer carry are wide and cautious
_MANY = 1e4  # people in effect whose count is as good as normal
# benefits that are shares of weighted people, and what `RateSums` calls them
RATES = {
    Shape(POSITIVES, share_of=POSITIVES): "true_positive_rates",
    Shape(NEGATIVES, share_of=NEGATIVES): "false_positive_rates",
    Shape(POSITIVES, share_of=LABELLED, denominator=LABELLED): "predictive_values",
}


def ratio(part: Any, total: Floats, otherwise: float = 0.0) -> Floats:
    """Return `part / total`, or something else where there is nobody to divide by."""
    found = np.full(np.broadcast_shapes(np.shape(part), total.shape), otherwise)
    np.divide(part, total, out=found, where=np.abs(total) > NOBODY)
    return found


@dataclass(frozen=True, slots=True)
class Count:
    """A weighted count of people in each group, and what the next of them would add.

    `people` is what the count would be if everybody had the label in question.
    """

    total: Floats
    squares: Floats
    weight: Floats
    people: Floats

    @property
    def mean(self) -> Floats:
        """The count with half a person more."""
        return self.total + 0.5 * self.weight

    @property
    def effective(self) -> Floats:
        """How many equally weighted people carry the count; 0 where nobody could."""
        return ratio(self.mean**2, self.squares + self.weight**2)

    def at_most(self, span: float) -> Count:
        """Return the count if everybody had the label; one person adds no more than `span`."""
        return Count(self.people, span * self.people, np.full_like(self.people, span), self.people)


def log_odds_variance(
    counted: Count, others: Count, shared: Floats | float
) -> tuple[Floats, Floats]:
    """Return the variance of `log(A / B)`, and by how much less that is than without overlap."""
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = 1.0 / counted.effective + 1.0 / others.effective
        variance = apart - 2.0 * shared / (counted.mean * others.mean)
        # rounding may leave nothing where the rule hardly differs between people
        variance = np.maximum(variance, 1e-12 * apart)
        return variance, apart / variance


def share_quantile(counted: Count, others: Count, shared: Floats | float, level: float) -> Floats:
    """Return a quantile of `A / (A + B)` for gamma variables; NaN where both are nothing."""
    variance, gain = log_odds_variance(counted, others, shared)
    a, b = gain * counted.effective, gain * others.effective
    # the inverse of the beta distribution is exact to 1e6 and more
    a_few, b_few = np.minimum(a, 1e6), np.minimum(b, 1e6)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        beta = betaincinv(a_few, b_few, level) / a_few
        beta = beta * b_few / betaincinv(b_few, a_few, 1.0 - level)
        normal = np.exp(ndtri(level) * np.sqrt(variance))
        odds = np.where(np.minimum(a, b) > _MANY, normal, beta) * counted.mean / others.mean
        quantile: Floats = odds / (1.0 + odds)
    return quantile


@dataclass(frozen=True)
class RateSums(Additive):
    """All that rows contribute to true and false positive rates and to predictive values.

    `positives` and `negatives` are weighted by d / p; of `everybody` each person counts once, and
    1 / p in squares. Each has five sums by group: of weights times 1 and pi, and of squared weights
    times 1, pi and pi^2.
    """

    positives: Floats
    negatives: Floats
    everybody: Floats
    lowest: float  # of the rule's propensities
    highest: float

    extremes: ClassVar = {"lowest": min, "highest": max}

    @classmethod
    def of(
        cls,
        weights: Floats,
        outcome: Floats,
        chance: Floats,
        propensity: Floats,
        group: Codes,
        n_groups: int,
        *,
        n_rows: int | None = None,
    ) -> RateSums:
        """Add up the rows of a log, or of a chunk of a log of `n_rows`.

        `weights` and `outcome` are 0 where there is no label. `chance` is one over the weight that
        a person has or would have if accepted, 0 for people who never could be. People with
        smaller chances than one in `n_rows` are not expected to be seen at all, and count with
        that chance. `propensity` is that of the rule in question.
        """

        def moments(weights: Floats, squares: Floats) -> Floats:
            once, twice = weights * propensity, squares * propensity
            columns = (weights, once, squares, twice, twice * propensity)
            return np.stack([np.bincount(group, each, n_groups) for each in columns])

        rows = len(weights) if n_rows is None else n_rows
        possible = (chance > 0.0).astype(np.float64)
        positive = weights * outcome
        negative = weights - positive
        reached = propensity[chance > 0.0]
        return cls(
            moments(positive, weights * positive),
            moments(negative, weights * negative),
            moments(possible, possible / np.maximum(chance, 1.0 / max(rows, 1))),
            float(reached.min(initial=1.0)),
            float(reached.max(initial=0.0)),
        )

    def rates(self, shape: Shape | None) -> Rates | None:
        """Return the rates that a benefit of this shape is; None where it is another one."""
        return getattr(self, RATES[shape]) if shape in RATES else None

    @property
    def true_positive_rates(self) -> Rates:
        """The share of each group's positives that the rule accepts."""
        return self._accepted_share(self.positives, ("true positive rate", "positives"))

    @property
    def false_positive_rates(self) -> Rates:
        """The share of each group's negatives that the rule accepts."""
        return self._accepted_share(self.negatives, ("false positive rate", "negatives"))

    @property
    def predictive_values(self) -> Rates:
        """The share of positives among the people of each group that the rule accepts."""
        positives, negatives = self.positives[1], self.negatives[1]
        return Rates(
            ratio(positives, positives + negatives, np.nan),
            self._count(self.positives, 0.0),
            self._count(self.negatives, 0.0),
            np.zeros_like(positives),
            ("predictive value", "accepted positives or few accepted negatives"),
        )

    def _accepted_share(self, labelled: Floats, kind: tuple[str, str]) -> Rates:
        low, high = self.lowest, self.highest
        if low > high:  # nobody could be accepted
            low, high = 0.0, 1.0
        _, _, square, times_pi, times_square = labelled
        return Rates(
            ratio(labelled[1], labelled[0], np.nan),
            self._count(labelled, low),
            self._count(labelled, high, below=True),
            # the sum of squared weights times (pi - low) (high - pi)
            (low + high) * times_pi - times_square - low * high * square,
            (kind[0], f"accepted or few rejected {kind[1]}"),
            low,
            high,
        )

    def _count(self, labelled: Floats, end: float, *, below: bool = False) -> Count:
        """Count people by how far their propensities are above an end, or below it."""

        def counted(moments: Floats) -> tuple[Floats, Floats]:
            one, pi, square, times_pi, times_square = moments
            total = pi - end * one
            squares = times_square - 2.0 * end * times_pi + end**2 * square
            return -total if below else total, squares

        people = counted(self.everybody)
        # one average person of the log more, since a group may have nobody with a share
        n = max(float(self.everybody[0].sum()), 1.0)
        shares, squares = (each + each.sum() / n for each in people)
        seen, seen_squares = np.maximum(counted(labelled), 0.0)
        return Count(seen, seen_squares, ratio(squares, shares), people[0])


@dataclass(frozen=True, slots=True)
class Rates:
    """The rate `counted / (counted + others)` of each group, between `lowest` and `highest`.

    `shared` is the sum of the products of what each person adds to the two counts, and `kind` what
    the rate and the people who carry it are called.
    """

    values: Floats
    counted: Count
    others: Count
    shared: Floats
    kind: tuple[str, str]
    lowest: float = 0.0
    highest: float = 1.0

    def bounds(self, confidence: float) -> Floats:
        """Return lower and upper ends for each group, also where a rate has no value.

        An estimate may lie outside: at 0 or 1, or where its weights stand for too many people.
        """
        tail, span = (1.0 - confidence) / 2.0, self.highest - self.lowest
        ends = np.stack(
            [
                share_quantile(self.counted, self.others, self.shared, level)
                for level in (tail, 1.0 - tail)
            ]
        )
        # limits that seldom matter are allowed a quarter of the error, on top
        most, rest = self.counted.at_most(span), self.others.at_most(span)
        least = share_quantile(self.counted, rest, 0.0, tail / 4.0)
        largest = share_quantile(most, self.others, 0.0, 1.0 - tail / 4.0)
        limited = np.stack([np.fmax(ends[0], least), np.fmin(ends[1], largest)])
        # with wrong propensities, weights may stand for so many people that nothing is left
        ends = np.where(limited[0] < limited[1], limited, ends)
        ends = np.where(np.isnan(ends), [[0.0], [1.0]], ends)
        bounds: Floats = self.lowest + span * ends
        return bounds

    @property
    def standard_errors(self) -> Floats:
        """Of the rates, with the variances that the intervals are made of."""
        share = ratio(self.counted.mean, self.counted.mean + self.others.mean)
        variance, _ = log_odds_variance(self.counted, self.others, self.shared)
        slope = (self.highest - self.lowest) * share * (1.0 - share)
        return np.where(slope > 0.0, slope * np.sqrt(np.nan_to_num(variance)), 0.0)

    @property
    def effective(self) -> Floats:
        """How many equally weighted people carry the smaller count; infinite for a constant."""
        if self.highest == self.lowest:
            return np.full_like(self.values, np.inf)
        return np.minimum(self.counted.effective, self.others.effective)


def contrast_bounds(
    values: Floats, bounds: Floats, signs: Floats, correlation: Floats | None = None
) -> tuple[float, float]:
    """Return an interval for `sum signs values`, from the intervals of the values.

    The square-and-add method (Newcombe; MOVER): the distance from the sum to its lower end is
    made of the distances from the values to those of their ends that make the sum smaller, as
    a standard error is made of standard errors. A value outside of its bounds is moved to them,
    one that is missing to their middle.

    `bounds` has two rows, lower and upper ends. Without `correlation` the estimates are
    independent, as those of different groups are.
    """
    low, high = bounds
    inside = np.where(np.isfinite(values), np.clip(values, low, high), (low + high) / 2.0)
    down, up = inside - low, high - inside
    to_low = signs * np.where(signs > 0.0, down, up)
    to_high = signs * np.where(signs > 0.0, up, down)
    matrix = np.eye(len(values)) if correlation is None else correlation
    below, above = (sqrt(max(float(each @ matrix @ each), 0.0)) for each in (to_low, to_high))
    middle = float(signs @ inside)
    return middle - below, middle + above


def largest_bounds(
    values: Floats, bounds: Floats, together: Floats, contrasts: Floats
) -> tuple[float, float]:
    """Return an interval for the largest of several absolute differences between rates.

    It is at least as large as any difference certainly is, where `together` are bounds that hold
    for all differences at once (at the confidence of `sup_t_quantile`). It is at most as large as
    any difference may be: only the bounds of the truly largest one need to hold, so `bounds` of
    each rate alone will do. `contrasts` has one row per difference: 1 and -1 at its two rates.
    """
    low = high = 0.0
    for signs in contrasts:
        sure = contrast_bounds(values, together, signs)
        wide = contrast_bounds(values, bounds, signs)
        low, high = max(low, sure[0], -sure[1]), max(high, -wide[0], wide[1])
    return low, high


def few_notes(
    rate: str, people: str, groups: Sequence[Hashable], effective: Floats
) -> tuple[str, ...]:
    """Return a note that names the groups whose rate fewer than `FEW` people carry in effect."""
    few = [
        f"{count:.0f} in group {group}"
        for group, count in zip(groups, effective.tolist(), strict=True)
        if count < FEW
    ]
    wide = "Its interval is wide" if len(few) == 1 else "Their intervals are wide"
    return (f"few {people} carry the {rate}: in effect {', '.join(few)}. {wide}",) if few else ()
