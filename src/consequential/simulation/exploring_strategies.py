"""Strategies beyond the paper's: exploring by a posterior, and refitting by the solver for logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from consequential.fairness import Fairness
from consequential.learning.algorithm import Learner
from consequential.learning.exploring import Explore, FitPosterior
from consequential.log import DecisionLog
from consequential.policies import DecisionRule
from consequential.sequences import Aggregated, Iterative, Sequence, sequence_named
from consequential.simulation.strategies import Strategy
from consequential.worlds import World

_NAMES = {
    "sampling": "posterior",
    "optimistic": "optimistic posterior",
    "pseudo_labels": "pseudo-labels",
}
_LARGE_SAMPLE = Aggregated(max_rows=262_144)
_GROWTH = 2  # a log is fitted again once so many times the steps have passed


@dataclass(frozen=True, slots=True)
class ExploreByPosterior(Strategy):
    """Accept with the probability that a person is worth accepting, given all labels so far.

    The label's log-odds are a Bayesian linear model over a feature map: see `FitPosterior`. Every
    run starts at the world's initial policy, as the paper's strategies do.

    Parameters
    ----------
    explore
        `"sampling"`, `"optimistic"` or `"pseudo_labels"`, as in `FitPosterior`.
    sequence
        `"iterative"` adds the rows of the last step to the posterior, which needs no other rows;
        `"aggregated"`, or another `Sequence`, fits all rows that it keeps anew. The second forgets
        what it no longer keeps: `LastSteps(k)` follows a world that drifts.
    max_gap
        The largest gap allowed; `simulate(..., penalties=...)` punishes it instead.
    foresight, floor, early_floor, feature_map, patterns
        As in `FitPosterior`.
    named
        A name for tables and figures.

    Examples
    --------
    >>> import consequential as cq
    >>> world, strategy = cq.worlds.second_setting(), cq.ExploreByPosterior()
    >>> runs = cq.simulate(world, strategy, seeds=1, time_steps=10, progress=False)
    >>> runs.metric("utility", "posterior, iterative")[0, -1].round(2)
    np.float64(0.09)
    """

    explore: Explore = "sampling"
    sequence: str | Sequence = "iterative"
    max_gap: float | None = None
    foresight: float = 10.0
    floor: float = 0.0
    early_floor: float = 0.0
    feature_map: Any = None
    patterns: bool = True
    named: str | None = None

    def __post_init__(self) -> None:
        sequence_named(self.sequence)  # checks it, as the next line does with the other options
        FitPosterior(
            0.5,
            max_gap=self.max_gap,
            explore=self.explore,
            foresight=self.foresight,
            floor=self.floor,
            early_floor=self.early_floor,
        )

    @property
    def name(self) -> str:
        """The name given, or how it explores and the sequence."""
        return self.named or f"{_NAMES[self.explore]}, {sequence_named(self.sequence).name}"

    def start(self, world: World, rng: np.random.Generator) -> DecisionRule:
        """Return the world's initial policy."""
        return world.initial_policy("logistic", rng=rng).with_floor(self.floor)

    def learner(self, world: World, fairness: Fairness, penalty: float) -> Learner:
        """Return `FitPosterior`."""
        return FitPosterior(
            world.cost,
            fairness,
            penalty,
            self.max_gap,
            self.explore,
            self.foresight,
            self.floor,
            self.early_floor,
            self.feature_map,
            accumulate=isinstance(sequence_named(self.sequence), Iterative),
            patterns=self.patterns,
        )


@dataclass(frozen=True, slots=True)
class RefitPolicy(Strategy):
    """Learn by `FairPolicyLearner` from the log so far, again and again.

    A fit is made after the first step, and again whenever the number of steps has doubled: eight
    times in 200 steps. In between the policy stays, with a floor that shrinks.

    Parameters
    ----------
    sequence
        `"iterative"`, `"aggregated"` or a `Sequence`. By default all decisions so far, or a sample
        of 262 144, four times as many as `"aggregated"` keeps: the sampling error of the groups'
        rates is an error of the gap, and there are few fits. `"iterative"` are the decisions of the
        last policy [K20: iterative sequence], who decided at every step since the last fit, or a
        sample as large: rows double from fit to fit while the floor halves, so that every fit has
        about as many labels of people whom the policy would refuse.
    max_gap
        The largest gap allowed; `simulate(..., penalties=...)` punishes it instead.
    floor, early_floor
        The policy's exploration floor after step t is `floor + early_floor / (1 + t)`.
    feature_map
        A scikit-learn transformer for the model of the label; `Curves()` by default. For one score
        whose labels change within a short stretch, `Curves(40)` ends nearer to the optimum.
    method
        That of `FairPolicyLearner`.
    named
        A name for tables and figures.

    Examples
    --------
    >>> import consequential as cq
    >>> cq.RefitPolicy().name
    'refitted, aggregated'
    """

    sequence: str | Sequence = _LARGE_SAMPLE
    max_gap: float | None = None
    floor: float = 0.0
    early_floor: float = 0.2
    feature_map: Any = None
    method: Any = "model"
    named: str | None = None

    @property
    def name(self) -> str:
        """The name given, or the sequence."""
        return self.named or f"refitted, {sequence_named(self.sequence).name}"

    def start(self, world: World, rng: np.random.Generator) -> DecisionRule:
        """Return the world's initial policy."""
        return world.initial_policy("logistic", rng=rng).with_floor(self.floor)

    def learner(self, world: World, fairness: Fairness, penalty: float) -> Learner:
        """Return the fit, with the steps it is made after."""
        from sklearn.base import clone
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        from consequential.estimator import FairPolicyLearner
        from consequential.policies import Curves

        mapped = clone(Curves() if self.feature_map is None else self.feature_map)
        solver = FairPolicyLearner(
            cost=world.cost,
            fairness=fairness,
            penalty=penalty,
            max_gap=self.max_gap,
            method=self.method,
            feature_map=mapped if self.method == "direct" else None,
            # with the default solver, which stops early, curves do not bend where labels are rare
            outcome_model=make_pipeline(
                mapped, LogisticRegression(C=10.0, solver="newton-cholesky", max_iter=500)
            ),
            unsupported="trust_model",
        )
        is_iterative = isinstance(sequence_named(self.sequence), Iterative)
        next_fit, rows_per_step = 0, _LARGE_SAMPLE.max_rows
        since_fit: list[DecisionLog] = []

        def learn(
            policy: Any, log: DecisionLog, *, rng: np.random.Generator, time_step: int
        ) -> DecisionRule:
            nonlocal next_fit, rows_per_step
            found: DecisionRule = policy
            if is_iterative:
                since_fit.append(log.take(rng.permutation(len(log))[:rows_per_step]))
            if time_step >= next_fit:
                if is_iterative:
                    log = DecisionLog.concatenate(since_fit)
                    since_fit.clear()
                next_fit = _GROWTH * (time_step + 1) - 1
                rows_per_step = max(_LARGE_SAMPLE.max_rows // (next_fit - time_step), 1)
                found = solver.fit_log(log).policy_
            return found.with_floor(min(self.floor + self.early_floor / (1 + time_step), 0.5))

        return learn
