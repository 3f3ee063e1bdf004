"""The posterior policy: accept with the probability that a person is worth accepting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from consequential.policy.features import Floats, PolicyError, row_keys, row_products
from consequential.policy.policy import Policy
from consequential.policy.rules import DecisionRule, checked_floor
from consequential.policy.scores import COUNTED
from consequential.shares import checked_share

_SMALLEST = 1e-300  # deviation, so that nothing is divided by 0
_CHUNK = 2**16  # inputs that are computed at a time


@dataclass(frozen=True, slots=True, eq=False)
class PosteriorPolicy(DecisionRule):
    """Accept with probability `P(q(x) > cost)`, q being the unknown probability of label 1.

    The log-odds of q are linear in a feature map, with normal coefficients: `eta(x) = phi(x).theta`
    has mean m(x) and deviation s(x), and the propensity is `Phi((m(x) - logit cost) / s(x))`. It is
    known, so it is logged like any other. Exploration ends where nothing is left to learn.

    Parameters
    ----------
    model
        The mean of the coefficients, as a logistic `Policy`: its propensity is q at the mean.
    covariance
        That of the coefficients. With zeros the policy is a threshold.
    cost
        What accepting costs.
    optimistic
        Accept everybody whose q at the mean exceeds the cost, and others with twice the
        probability: nobody whose chances are better than even is refused by lot.
    floor
        Nobody is accepted with a smaller probability: an audit then has labels of everybody.
    prices
        What the best fair rule for the model (`FairRule`) takes off a person's worth `q - cost`:
        numbers for a constant, for q, and for each of the `chances`. Empty for no fairness.
    chances
        Coefficients of logistic models of groups, one row per entry of `counted`.
    counted
        Among whom each of these models tells the group: `"people"`, `"positives"` (label 1) or
        `"negatives"`.
    patterns
        People whose own labels are known, one row per combination of features: the features, and
        mean and deviation of the log-odds, which take the place of the model's.

    Examples
    --------
    >>> from dataclasses import replace
    >>> import numpy as np, consequential as cq
    >>> policy = cq.PosteriorPolicy(cq.Policy([0.0, 1.0]), np.diag([0.0, 1.0]), cost=0.5)
    >>> policy.propensity([[-1.0], [0.0], [1.0]]).round(3)
    array([0.159, 0.5  , 0.841])
    >>> optimistic = replace(policy, optimistic=True)
    >>> optimistic.propensity([[-1.0], [1.0]]).round(3)
    array([0.317, 1.   ])
    """

    model: Policy
    covariance: Floats
    cost: float
    optimistic: bool = False
    floor: float = 0.0
    prices: Floats = ()  # type: ignore[assignment]  # an array, like the next
    chances: Floats = ()  # type: ignore[assignment]
    counted: Sequence[str] = ()
    patterns: Floats = ()  # type: ignore[assignment]

    def __post_init__(self) -> None:
        n = self.model.theta.size
        n_features = len(self.model.feature_names) or max(np.shape(self.patterns)[-1] - 2, 1)
        shapes = {
            "covariance": (n, n),
            "prices": (2 + len(self.counted) if len(self.prices) else 0,),
            "chances": (len(self.counted), n) if len(self.counted) else (0,),
            "patterns": (len(self.patterns), n_features + 2) if len(self.patterns) else (0,),
        }
        for name, shape in shapes.items():
            values = np.array(getattr(self, name), dtype=np.float64)
            if values.shape != shape or not np.isfinite(values).all():
                raise PolicyError(f"{name} is finite and of shape {shape}, not {values.shape}")
            values.setflags(write=False)
            object.__setattr__(self, name, values)
        if not (np.diag(self.covariance) >= 0.0).all():
            raise PolicyError("variances of the coefficients are not negative")
        if len(self.patterns) and not (self.patterns[:, -1] >= 0.0).all():
            raise PolicyError("deviations of the patterns' log-odds are not negative")
        if self.model.link.name != "logistic" or self.model.floor or self.model.overrules:
            raise PolicyError("the model is a Policy with a logistic link and nothing else")
        if not set(self.counted) <= set(COUNTED):
            raise PolicyError(f"groups are counted among {', '.join(COUNTED)}")
        object.__setattr__(self, "cost", checked_share("the cost", self.cost))
        object.__setattr__(self, "floor", checked_floor(self.floor))
        object.__setattr__(self, "optimistic", bool(self.optimistic))
        object.__setattr__(self, "counted", tuple(self.counted))

    @property
    def inner_rules(self) -> tuple[DecisionRule, ...]:
        """The model."""
        return (self.model,)

    def propensity(self, features: ArrayLike, sensitive: ArrayLike | None = None) -> Floats:
        """Return the posterior probability that accepting is worth its cost, for each row."""
        people = np.asarray(self.model.looked_at(features))
        chance = np.empty(len(people))
        for rows, phi in inputs_in_chunks(self.model, people, sensitive):
            chance[rows] = self._chance(people[rows], phi)
        if self.optimistic:
            chance = np.minimum(2.0 * chance, 1.0)
        found: Floats = self.floor + (1.0 - self.floor) * chance
        return found

    def _chance(self, people: Floats, phi: Floats) -> Floats:
        """Return the probability of a gain."""
        from scipy.special import logit, ndtr

        mean, deviation = self.log_odds(people, phi)
        constant, slope = self._worth(phi)
        with np.errstate(divide="ignore", invalid="ignore"):
            # worth accepting where q is above the cut, or below it where the slope is negative
            cut = logit(np.clip(-constant / slope, 0.0, 1.0))
            above = ndtr(np.sign(slope) * (mean - cut) / np.maximum(deviation, _SMALLEST))
        found: Floats = np.where(slope == 0.0, constant > 0.0, above)
        return found

    def log_odds(self, people: Floats, phi: Floats) -> tuple[Floats, Floats]:
        """Return mean and deviation of people's log-odds, from their features and inputs."""
        mean = row_products(phi, self.model.theta)
        deviation = np.sqrt(np.maximum(((phi @ self.covariance) * phi).sum(axis=1), 0.0))
        if len(self.patterns):
            places = {key: k for k, key in enumerate(row_keys(self.patterns[:, :-2]))}
            codes = np.array([places.get(key, -1) for key in row_keys(people)], dtype=np.intp)
            mean = np.where(codes >= 0, self.patterns[codes, -2], mean)
            deviation = np.where(codes >= 0, self.patterns[codes, -1], deviation)
        return mean, deviation

    def _worth(self, phi: Floats) -> tuple[Floats | float, Floats | float]:
        """Return people's worth as a linear function of q: a constant and a slope.

        Each is one number for everybody, or one per row.
        """
        from scipy.special import expit

        constant, slope = -self.cost, 1.0
        if len(self.prices):
            constant, slope = constant - self.prices[0], slope - self.prices[1]
        for k, whom in enumerate(self.counted):
            price = self.prices[2 + k] * expit(row_products(phi, self.chances[k]))
            base, by_q = COUNTED[whom]
            constant, slope = constant - price * base, slope - price * by_q
        return constant, slope

    def with_floor(self, floor: float) -> PosteriorPolicy:
        """Return the same policy with an exploration floor."""
        return replace(self, floor=floor)


def inputs_in_chunks(
    model: Policy, people: Floats, sensitive: ArrayLike | None = None
) -> Iterator[tuple[slice, Floats]]:
    """Yield people's inputs in chunks that fit into the processor's cache."""
    n_rows = max(_CHUNK // model.theta.size, 1)
    for first in range(0, max(len(people), 1), n_rows):
        rows = slice(first, first + n_rows)
        group = None if sensitive is None else np.asarray(sensitive)[rows]
        yield rows, model.inputs(people[rows], group)
