"""Strategies: how a run starts, what it learns from and how."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from consequential.lab.algorithm.algorithm import Learner
from consequential.lab.algorithm.exploring import Explore, FitPosterior
from consequential.lab.algorithm.prediction import FitFairPredictor, FitPredictor
from consequential.lab.algorithm.sequences import Iterative, Sequence, sequence_named
from consequential.lab.algorithm.steps import GradientStep, PreconditionedStep, StepRule
from consequential.lab.algorithm.update import UpdatePolicy
from consequential.lab.worlds import World
from consequential.objective.fairness import Fairness
from consequential.objective.objective import Objective
from consequential.objective.weightings import Weighting
from consequential.policy import DecisionRule, Policy, ThresholdPolicy, as_features, logistic_model

_MAPPED = 4096  # people that feature maps are fitted to
_NAMES = {
    "sampling": "posterior",
    "optimistic": "optimistic posterior",
    "pseudo_labels": "pseudo-labels",
}


class Strategy(ABC):
    """A way to learn in a world, under a name.

    A strategy of your own has a `name` and two methods, `start` and `learner`. `sequence` says
    which data it learns from: `"iterative"` unless you set it. See docs/extend.md.

    Examples
    --------
    Accept everybody in the first step, then threshold a predictor, and keep accepting one in ten:

    >>> import consequential as cq
    >>> class ExploreFirst(cq.lab.Strategy):
    ...     name = "explore first"
    ...     sequence = "aggregated"
    ...     def start(self, world, rng):
    ...         return cq.AcceptAll()
    ...     def learner(self, world, fairness, penalty):
    ...         fit = cq.lab.FitPredictor(world.cost)
    ...         def learn(policy, log, *, rng, time_step):
    ...             return fit(policy, log, rng=rng).policy.with_floor(0.1)
    ...         return learn
    >>> runs = cq.simulate(cq.worlds.first_setting(), ExploreFirst(), seeds=2, time_steps=3,
    ...                    progress=False)
    >>> runs.metric("acceptance", "explore first")[:, 0]
    array([1., 1.])
    """

    sequence: str | Sequence = "iterative"

    @property
    @abstractmethod
    def name(self) -> str:
        """The strategy's name in tables and figures; `name = "..."` in the class will do."""

    @abstractmethod
    def start(self, world: World, rng: np.random.Generator) -> DecisionRule:
        """Return the first rule to deploy."""

    @abstractmethod
    def learner(self, world: World, fairness: Fairness, penalty: float) -> Learner | None:
        """Return what turns data into the next rule; None where the first rule stays."""


@dataclass(frozen=True, slots=True)
class LearnToDecide(Strategy):
    """Learn the policy itself, from its own exploring decisions.

    Parameters
    ----------
    link
        `"logistic"`, `"semi_logistic"` or `"smooth_semi_logistic"`.
    sequence
        `"iterative"`, `"aggregated"` or a `Sequence`.
    normalisation, decisions, weighting
        As in `Objective`.
    step
        A step rule; by default `PreconditionedStep()`, and under `normalisation="paper"` the
        paper's `GradientStep` with the world's learning rate and decay. There the penalty's two
        factors come from the same minibatch too, as printed (`UpdatePolicy(n_reference=0)`).
    floor
        An exploration floor that every policy of the sequence keeps.
    named
        A name for tables and figures, where link and sequence do not say enough.
    n_iterations, max_passes
        How many minibatches an update takes, the world's M by default, and how often it passes over
        its rows at most; see `UpdatePolicy`.
    feature_map
        A scikit-learn transformer, or `Curves()`: the policy is linear in it and not in the
        features. It is fitted to 4096 people of the world, without labels, and the first policy is
        as close to the world's as the map allows.

    Examples
    --------
    >>> import consequential as cq
    >>> cq.lab.LearnToDecide("semi_logistic", "aggregated").name
    'semi-logistic, aggregated'
    """

    link: str = "logistic"
    sequence: str | Sequence = "iterative"
    normalisation: Literal["applicants", "paper"] = "applicants"
    decisions: Literal["expected", "sampled"] = "expected"
    weighting: Weighting | None = None
    step: StepRule | None = None
    floor: float = 0.0
    named: str | None = None
    n_iterations: int | None = None
    max_passes: int | None = None
    feature_map: Any = None

    @property
    def name(self) -> str:
        """The name given, or the link and the sequence."""
        return self.named or f"{self.link.replace('_', '-')}, {sequence_named(self.sequence).name}"

    def start(self, world: World, rng: np.random.Generator) -> DecisionRule:
        """Return the world's initial policy."""
        first = world.initial_policy(self.link, rng=rng).with_floor(self.floor)
        return first if self.feature_map is None else _mapped(first, self.feature_map, world)

    def learner(self, world: World, fairness: Fairness, penalty: float) -> Learner:
        """Return `UpdatePolicy` with the world's M and B."""
        p = world.parameters
        objective = Objective(
            world.cost,
            fairness,
            penalty,
            weighting=self.weighting,
            normalisation=self.normalisation,
            decisions=self.decisions,
        )
        as_printed = self.normalisation == "paper"
        step = self.step
        if step is None and as_printed:
            step = GradientStep(p.learning_rate, p.decay, p.decay_every)
        n_iterations = p.n_iterations if self.n_iterations is None else self.n_iterations
        # people come in random order, and a reservoir keeps them so
        update = UpdatePolicy(
            objective,
            n_iterations,
            p.batch_size,
            step or PreconditionedStep(),
            shuffle=False,
            max_passes=self.max_passes,
        )
        return replace(update, n_reference=0) if as_printed else update


def _mapped(policy: Policy, feature_map: Any, world: World) -> Policy:
    """Return a policy over a feature map whose scores are as close as can be to those of another.

    The map is fitted to the same people for every seed.
    """
    from sklearn.base import clone

    features, _ = world.propose(_MAPPED, np.random.default_rng(0))
    people = as_features(features)
    fitted = clone(feature_map).fit(people)
    empty = replace(policy, theta=np.zeros(1), feature_map=fitted)
    inputs = np.column_stack([np.ones(len(people)), empty.mapped(people)])
    theta, *_ = np.linalg.lstsq(inputs, policy.linear_score(people), rcond=1e-8)
    return empty.at(theta)


@dataclass(frozen=True, slots=True)
class LearnToPredict(Strategy):
    """Learn a predictor from the accepted people and threshold it at the cost.

    Parameters
    ----------
    sequence
        `"iterative"`, `"aggregated"` or a `Sequence`.
    classifier
        Any scikit-learn classifier; logistic regression by default.
    fair
        Fit the (logistic) predictor under the fairness penalty.
    named
        A name for tables and figures.

    Examples
    --------
    >>> import consequential as cq
    >>> cq.lab.LearnToPredict("iterative").name
    'deterministic, iterative'
    """

    sequence: str | Sequence = "iterative"
    classifier: Any = None
    fair: bool = False
    named: str | None = None

    def __post_init__(self) -> None:
        if self.fair and self.classifier is not None:
            raise ValueError("the fair predictor is logistic: give no classifier with fair=True")

    @property
    def name(self) -> str:
        """The name given, or deterministic with its sequence."""
        kind = "fair deterministic" if self.fair else "deterministic"
        return self.named or f"{kind}, {sequence_named(self.sequence).name}"

    def start(self, world: World, rng: np.random.Generator) -> DecisionRule:
        """Return the world's initial model, thresholded at the cost."""
        return ThresholdPolicy(logistic_model(world.initial_theta(rng)), world.cost)

    def learner(self, world: World, fairness: Fairness, penalty: float) -> Learner:
        """Return the predictor's fit."""
        if self.fair:
            return FitFairPredictor(Objective(world.cost, fairness, penalty))
        return FitPredictor(world.cost, self.classifier)


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
    >>> world, strategy = cq.worlds.second_setting(), cq.lab.ExploreByPosterior()
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


def paper_strategies(
    normalisation: Literal["applicants", "paper"] = "applicants",
) -> list[Strategy]:
    """Return the paper's six learned strategies.

    With `"applicants"` the estimators are right and the step is ours; with `"paper"` both are
    as printed, decisions drawn anew inside the gradient included. See docs/deviations.md.

    Examples
    --------
    >>> import consequential as cq
    >>> [strategy.name for strategy in cq.paper_strategies()][::3]
    ['deterministic, iterative', 'logistic, aggregated']
    """
    sequences = ("iterative", "aggregated")
    predicting = [LearnToPredict(sequence) for sequence in sequences]
    decisions: Literal["expected", "sampled"] = "expected"
    if normalisation == "paper":
        decisions = "sampled"
    deciding = [
        LearnToDecide(link, sequence, normalisation, decisions)
        for link in ("logistic", "semi_logistic")
        for sequence in sequences
    ]
    return [*predicting, *deciding]
