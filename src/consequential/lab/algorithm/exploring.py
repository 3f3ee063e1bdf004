"""FitPosterior: from logs to the policy that explores where labels could still change decisions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtri

from consequential.lab.algorithm.patterns import Patterns
from consequential.lab.algorithm.posterior import Posterior, inverse, weighted_squares
from consequential.learning.constraints import GapBound
from consequential.learning.fair_rule import FairRule
from consequential.learning.outcome import counted_by
from consequential.log import DecisionLog, DecisionLogError
from consequential.objective.fairness import Fairness, ShapedFairness
from consequential.objective.functionals import NONE
from consequential.objective.weightings.weights import counted_rows
from consequential.policy import FeatureSummary, Policy, PosteriorPolicy
from consequential.policy.posterior import inputs_in_chunks
from consequential.policy.rules import checked_floor
from consequential.policy.scores import COUNTED

__all__ = ["FitPosterior"]

Floats = NDArray[np.float64]
Rows = NDArray[np.intp] | slice
Explore = Literal["sampling", "optimistic", "pseudo_labels"]

_PEOPLE = 50_000  # on whom rates of groups are computed, at most
_CELLS = 4_000_000  # numbers in the inputs of these people, at most
_SAMPLED = 8_192  # of them, where a rough sum will do, and for models of groups per step
_PSEUDO_LABELS = 32  # per step
_GROWTH = 1.1  # prices of a model that accumulates are found anew after so many times the steps


@dataclass(slots=True, eq=False)
class FitPosterior:
    """Fit a Bayesian logistic regression to labels, and accept with the probability of a gain.

    Returns a `PosteriorPolicy` after every step. It remembers what it has learned, so make one per
    run.

    Parameters
    ----------
    cost
        What accepting costs.
    fairness, penalty, max_gap
        The notion, which is about rates of acceptance among all people or those of one label; what
        its gap costs, `penalty/2 gap^2`; and the largest gap allowed. The cut moves with the
        chances of the groups as in the best fair rule for the model, whose dual is solved over the
        posterior: it is the gap of the exploring policy that is punished or bounded.
    explore
        `"sampling"` accepts with the probability that accepting is worth it (Thompson sampling,
        each person with a draw of their own); `"optimistic"` accepts everybody whose chances are
        better than even, and others twice as often; `"pseudo_labels"` thresholds the model that is
        fitted to the data and 32 of the rejected people as if they had label 1 (PLOT).
    foresight
        Exploring is for what the rule would not learn anyhow. It is judged by the posterior after
        `foresight` times as many more steps as there were, without any exploration: 0 for plain
        Thompson sampling.
    floor, early_floor
        After step t nobody is accepted with less probability than `floor + early_floor / (1 + t)`.
    feature_map
        A scikit-learn transformer, fitted to the people of the first log; `Curves()` by default.
    accumulate
        Whether a log has only rows that are new; otherwise it has all there are to learn from.
    patterns
        Whether people with the very same features (a covariate pattern) also learn from each
        other's labels, by a random effect per pattern. It is done where people return: in at least
        a quarter of the first log. Policies, and their files, then have a list of the patterns.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.second_setting()
    >>> steps = cq.consequential_learning(
    ...     world, world.initial_policy(), cq.lab.FitPosterior(world.cost),
    ...     time_steps=6, n_proposals=4096, rng=np.random.default_rng(0))
    >>> [round(world.exact(step.policy).utility, 1) for step in steps]
    [0.0, 0.1, 0.1, 0.1, 0.1, 0.1]
    """

    cost: float
    fairness: Fairness | None = None
    penalty: float = 0.0
    max_gap: float | None = None
    explore: Explore = "sampling"
    foresight: float = 10.0
    floor: float = 0.0
    early_floor: float = 0.0
    feature_map: Any = None
    accumulate: bool = True
    patterns: bool = True
    _model: Policy | None = field(default=None, init=False, repr=False)
    _label: Posterior | None = field(default=None, init=False, repr=False)
    _groups: dict[tuple[str, int], Posterior] = field(default_factory=dict, init=False, repr=False)
    _patterns: Patterns | None = field(default=None, init=False, repr=False)
    _people: Floats | None = field(default=None, init=False, repr=False)
    _prices: Floats = field(default_factory=lambda: np.zeros(0), init=False, repr=False)
    _next_prices: float = field(default=0.0, init=False, repr=False)
    _n_steps: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.explore not in ("sampling", "optimistic", "pseudo_labels"):
            raise ValueError(
                f"explore is 'sampling', 'optimistic' or 'pseudo_labels', not {self.explore!r}"
            )
        checked_floor(self.floor)
        checked_floor(self.early_floor)
        if self.max_gap is not None:
            GapBound(self.max_gap)  # checks it
        if not 0.0 <= self.foresight < np.inf:
            raise ValueError(f"foresight is finite and not negative, not {self.foresight!r}")
        if self._is_fair and not _has_rates(self.fairness):
            raise ValueError(
                "a posterior's cut can move for demographic parity, equal opportunity and "
                "equalised odds, rates of acceptance among people of some kind; learn with "
                "LearnToDecide for another notion"
            )

    def __call__(
        self, policy: Any, log: DecisionLog, *, rng: np.random.Generator, time_step: int = 0
    ) -> PosteriorPolicy:
        """Learn from a log and return the policy for the next step; the last one is not used."""
        if log.value_range is not None:
            raise DecisionLogError(
                "a posterior is of labels of 0 and 1, and this log has values: learn from it with "
                "FairPolicyLearner or UpdatePolicy"
            )
        if self._model is None:
            self._model = _first_model(self.feature_map, log)
            self._patterns = Patterns.among(log.features) if self.patterns else None
        self._n_steps += 1
        log = log.settled()
        people, labelled = np.asarray(log.features), counted_rows(log)
        phi = np.concatenate([part for _, part in inputs_in_chunks(self._model, people)])
        shuffled = rng.permutation(len(phi))
        some = phi[shuffled[:_SAMPLED]]
        if self._patterns is None:
            label = self._updated(self._label, phi, phi[labelled], log.outcome[labelled])
            covariance = self._foreseen(label, some, len(phi))
        else:
            label, covariance = self._updated_by_pattern(phi, log, labelled)
        self._label, mean = label, label.mean
        if self.explore == "pseudo_labels":
            mean, covariance = self._with_pseudo_labels(label, some, rng), covariance * 0.0
        found = PosteriorPolicy(
            self._model.at(mean),
            covariance,
            self.cost,
            self.explore == "optimistic",
            min(self.floor + self.early_floor / (1.0 + time_step), 0.5),
        )
        if self._patterns is not None:
            found = self._patterns.put_into(found, certain=self.explore == "pseudo_labels")
        if not self._is_fair:
            return found
        self._meet(people[shuffled])
        # a model of the groups that forgets needs all rows at once
        rows = shuffled[:_SAMPLED] if self.accumulate else slice(None)
        chances, counted = self._chances(phi, log, rows, labelled)
        # prices are right for one model only: one fitted anew, to other rows, needs its own
        if self._n_steps >= self._next_prices or not self.accumulate:
            self._next_prices = _GROWTH * self._n_steps
            self._prices = self._fair_prices(found, chances, counted, rng)
        return replace(found, prices=self._prices, chances=chances, counted=counted)

    @property
    def _is_fair(self) -> bool:
        return self.fairness is not None and (self.penalty > 0.0 or self.max_gap is not None)

    def _updated(
        self, known: Posterior | None, all_rows: Floats, phi: Floats, labels: Floats
    ) -> Posterior:
        assert self._model is not None
        if known is None:
            known = Posterior.before(self._model.feature_map, all_rows)
        elif not self.accumulate:
            known = known.forgotten()
        return known.updated(phi, labels)

    def _meet(self, people: Floats) -> None:
        """Remember people without their labels, the last ones first."""
        assert self._model is not None
        if self.accumulate and self._people is not None:
            people = np.vstack([people, self._people])
        self._people = people[: min(_PEOPLE, _CELLS // self._model.theta.size)]

    def _updated_by_pattern(
        self, phi: Floats, log: DecisionLog, labelled: NDArray[np.bool_]
    ) -> tuple[Posterior, Floats]:
        """Count labels by pattern; return the posterior, and the covariance foreseen."""
        known = self._patterns
        assert known is not None
        assert self._model is not None
        if not self.accumulate:
            known.forget()
        known.add(np.asarray(log.features), phi, labelled, log.outcome)
        label = known.updated(self._label or Posterior.before(self._model.feature_map, phi))
        return label, known.foreseen(label, float(logit(self.cost)), self.foresight)

    def _foreseen(self, label: Posterior, people: Floats, n_rows: int) -> Floats:
        """Return the covariance after as many more steps as foreseen, without exploration."""
        q = expit(people @ label.mean)
        n_seen = n_rows * (self._n_steps if self.accumulate else 1)
        weight = self.foresight * n_seen / len(people) * np.where(q > self.cost, q * (1.0 - q), 0.0)
        return inverse(label.precision + weighted_squares(people, weight))

    def _with_pseudo_labels(
        self, label: Posterior, people: Floats, rng: np.random.Generator
    ) -> Floats:
        rejected = np.flatnonzero(people @ label.mean < logit(self.cost))
        chosen = rng.permutation(rejected)[:_PSEUDO_LABELS]
        return label.optimistic(people[chosen])

    def _chances(
        self, phi: Floats, log: DecisionLog, sample: Rows, labelled: NDArray[np.bool_]
    ) -> tuple[Floats, tuple[str, ...]]:
        """Return models of every group but the first, among the people that the notion counts."""
        rows = {
            "people": sample,
            "positives": np.flatnonzero(labelled & (log.outcome == 1.0)),
            "negatives": np.flatnonzero(labelled & (log.outcome == 0.0)),
        }
        found, counted = [], []
        for whom in counted_by(self.fairness):
            own, group = phi[rows[whom]], log.group[rows[whom]]
            for code in range(1, len(log.groups)):
                member = (group == code).astype(np.float64)
                known = self._updated(self._groups.get((whom, code)), phi, own, member)
                self._groups[whom, code] = known
                found.append(known.mean)
                counted.append(whom)
        return np.array(found), tuple(counted)

    def _fair_prices(
        self,
        policy: PosteriorPolicy,
        chances: Floats,
        counted: tuple[str, ...],
        rng: np.random.Generator,
    ) -> Floats:
        """Return the prices of the best fair rule for the people met."""
        people = self._people
        assert people is not None
        # one draw from each person's posterior: their acceptances add up to the policy's rates
        normal = rng.permutation(ndtri((np.arange(len(people)) + 0.5) / len(people)))
        if self.explore == "optimistic":
            normal = np.abs(normal)
        columns = np.empty((len(people), 1 + len(counted)))
        for rows, phi in inputs_in_chunks(policy.model, people):
            mean, deviation = policy.log_odds(people[rows], phi)
            q = columns[rows, 0] = expit(mean + normal[rows] * deviation)
            for k, (whom, theta) in enumerate(zip(counted, chances, strict=True)):
                constant, slope = COUNTED[whom]
                columns[rows, 1 + k] = (constant + slope * q) * expit(phi @ theta)
        whoms = tuple(dict.fromkeys(counted))
        n_groups = 1 + len(counted) // max(len(whoms), 1)
        rule = FairRule.of(columns, whoms, n_groups, self.cost)
        bounds = () if self.max_gap is None else (GapBound(self.max_gap),)
        return rule.gain - rule.width * rule.theta(bounds, penalty=self.penalty)


def _first_model(feature_map: Any, log: DecisionLog) -> Policy:
    """Return a model that knows nothing yet, on a feature map fitted to the people of a log."""
    from sklearn.base import clone

    from consequential.policy.curves import Curves

    fitted = clone(Curves() if feature_map is None else feature_map).fit(log.features)
    n = int(fitted.transform(log.features[:1]).shape[1])
    return Policy(
        np.zeros(n + 1),
        feature_map=fitted,
        feature_names=log.feature_names,
        summary=FeatureSummary.of(log.features, log.feature_names),
    )


def _has_rates(fairness: Fairness | None) -> bool:
    """Whether every benefit is a rate of acceptance among all people, or those of one label."""
    return isinstance(fairness, ShapedFairness) and all(
        shape.values == shape.counted
        and sorted(shape.values) == [0.0, 0.0, 1.0]
        and shape.constant == NONE
        and shape.denominator is None
        for shape in fairness.shapes()
    )
