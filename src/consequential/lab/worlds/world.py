"""World: where people come from and labels stay hidden until somebody is accepted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.evaluation import Metrics, Population
from consequential.log import DecisionLog
from consequential.objective.fairness import Fairness, fairness_named
from consequential.policy import (
    DecisionRule,
    NamedFeatures,
    Policy,
    as_features,
    group_codes,
    policy_from_model,
)
from consequential.policy.features import numbered_names
from consequential.policy.links import Link

if TYPE_CHECKING:
    from consequential.lab.kernels.alias_table import AliasTable

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Parameters:
    """How Algorithm 1 is run in a world: T, N, M, B, alpha and its decay, as in the paper.

    Examples
    --------
    >>> import consequential as cq
    >>> cq.worlds.compas().parameters.n_iterations
    2560
    >>> cq.worlds.Parameters(time_steps=60).batch_size
    64
    """

    time_steps: int = 200
    n_proposals: int = 4096
    n_iterations: int = 64
    batch_size: int = 64
    learning_rate: float = 0.5
    decay: float = 1.0
    decay_every: int = 1


@dataclass(frozen=True, slots=True)
class People:
    """Applicants, with the labels that only acceptance would bring to light.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> people = cq.worlds.first_setting().people(1000, np.random.default_rng(0))
    >>> people.features.shape, np.unique(people.label)
    ((1000, 1), array([0., 1.]))
    """

    features: Floats
    group: NDArray[np.intp]
    label: Floats


class World(ABC):
    """A population to decide on.

    A world of your own needs a `cost` and two methods, `propose` and `label_probability`; one
    that changes over time has a third, `at`.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> class Coins(cq.worlds.World):
    ...     cost = 0.5
    ...     def propose(self, n, rng):
    ...         return rng.random((n, 1)), rng.integers(2, size=n)
    ...     def label_probability(self, features, sensitive):
    ...         return features[:, 0]
    >>> log = Coins().collect(cq.AcceptAll(), 4, np.random.default_rng(1))
    >>> log.label
    array([1., 0., 1., 0.])
    >>> round(Coins().measure(cq.AcceptAll()).utility, 2)
    0.0
    """

    cost: float
    name: str = ""
    parameters: Parameters = Parameters()
    feature_names: tuple[str, ...] = ()
    n_held_out = 20_000

    @abstractmethod
    def propose(self, n: int, rng: np.random.Generator) -> tuple[ArrayLike, ArrayLike]:
        """Draw n people: their features, one row each, and their sensitive groups."""

    @abstractmethod
    def label_probability(self, features: Floats, sensitive: NDArray[Any]) -> ArrayLike:
        """Return the probability of label 1 for each person."""

    def at(self, time_step: int) -> World:
        """Return the world as it is at a time step: people, labels and the truth are its own.

        A world that drifts overrides this. Cost, parameters and groups stay as they are.
        """
        return self

    def for_seed(self, seed: int) -> World:
        """Return the world that the runs of a seed live in: this one, unless seeds differ in it."""
        return self

    @property
    def drifts(self) -> bool:
        """Whether the world has an `at` of its own."""
        return getattr(self.at, "__func__", None) is not World.at

    @cached_property
    def groups(self) -> tuple[Hashable, ...]:
        """The sensitive groups, sorted."""
        _, sensitive = self.propose(self.n_held_out, np.random.default_rng(0))
        return tuple(np.unique(np.asarray(sensitive)).tolist())

    def as_alias_table(self) -> AliasTable | None:
        """Return the population as a table to draw from quickly, where the world has one."""
        return None

    @cached_property
    def alias_table(self) -> AliasTable | None:
        """The alias table, unless a subclass of the class that has it changed how people come."""
        kinds = type(self).__mro__
        owner = next(k for k, kind in enumerate(kinds) if "as_alias_table" in vars(kind))
        changed = any(vars(each).keys() & _HOW_PEOPLE_COME for each in (self, *kinds[:owner]))
        return None if changed else self.as_alias_table()

    @property
    def decides_as_usual(self) -> bool:
        """Whether decisions are taken and logged as in any world."""
        return all(
            getattr(getattr(self, name), "__func__", None) is getattr(World, name)
            for name in ("decided", "collect")
        )

    def people(self, n: int, rng: np.random.Generator) -> People:
        """Draw n people with their labels, which decision rules do not see."""
        features, group, probability = self._proposed(n, rng)
        return People(features, group, (rng.random(n) < probability).astype(np.float64))

    def _proposed(
        self, n: int, rng: np.random.Generator
    ) -> tuple[Floats, NDArray[np.intp], Floats]:
        """Draw n people: features, positions among the groups, and label probabilities."""
        features, sensitive = self.propose(n, rng)
        matrix = as_features(features)
        found = self.label_probability(matrix, np.asarray(sensitive))
        probability = np.asarray(found, dtype=np.float64)
        if probability.shape != (len(matrix),):
            raise ValueError(
                f"label_probability must give one number per person, not shape {probability.shape}"
            )
        if not ((probability >= 0) & (probability <= 1)).all():
            raise ValueError("label_probability must give probabilities between 0 and 1")
        return matrix, group_codes(sensitive, self.groups), probability

    def decided(
        self, people: People, rule: DecisionRule, rng: np.random.Generator, time_step: int = 0
    ) -> DecisionLog:
        """Let a rule decide on people; labels of the rejected do not come out."""
        sensitive = None
        if rule.uses_sensitive:
            sensitive = np.array(self.groups, dtype=object)[people.group]
        features = self.named(people.features)
        propensity = np.asarray(rule.propensity(features, sensitive))
        if type(rule).decide is DecisionRule.decide:
            decision = rng.random(propensity.shape) < propensity
        else:
            decision = np.asarray(rule.decide(features, sensitive, rng=rng))
        return DecisionLog(
            features=people.features,
            decision=decision,
            propensity=propensity,
            label=np.where(decision, people.label, np.nan),
            group=people.group,
            time_step=np.full(len(decision), time_step),
            groups=self.groups,
            feature_names=features.names,
            policies={time_step: rule},
        )

    def collect(
        self,
        rule: DecisionRule,
        n: int,
        rng: np.random.Generator,
        *,
        time_step: int | None = None,
    ) -> DecisionLog:
        """Draw n people, decide on them, and log what came of it [K20: CollectData].

        Equal generators give equal people, whatever the rule. Without a time step people come
        from this world as it stands, and are logged as those of step 0.
        """
        people_rng, decision_rng = rng.spawn(2)
        there = self if time_step is None else world_at(self, time_step)
        return self.decided(there.people(n, people_rng), rule, decision_rng, time_step or 0)

    @cached_property
    def held_out(self) -> Population:
        """Held-out people, on whom rules are measured."""
        rng = np.random.default_rng(20_200_626)
        features, group, probability = self._proposed(self.n_held_out, rng)
        return labelled_population(self.named(features), group, probability, self.groups)

    def named(self, features: Floats) -> NamedFeatures:
        """Return features with their names, for rules to find theirs."""
        return NamedFeatures(features, self.feature_names or numbered_names(features.shape[1]))

    def measure(
        self, rule: DecisionRule, fairness: str | Fairness = "demographic_parity"
    ) -> Metrics:
        """Return the rule's metrics: exact where the world knows them, else on held-out people."""
        return self.held_out.metrics(rule, self.cost, fairness_named(fairness))

    def initial_theta(self, rng: np.random.Generator) -> Floats:
        """Return a logistic predictive model fitted on 500 i.i.d. labelled people."""
        from sklearn.linear_model import LogisticRegression

        people = self.people(500, rng)
        model = LogisticRegression(max_iter=1000).fit(people.features, people.label)
        return np.concatenate([model.intercept_, model.coef_[0]])

    def initial_policy(
        self, link: str | Link = "logistic", *, rng: np.random.Generator | None = None
    ) -> Policy:
        """Return the start: a policy that cuts where the initial model predicts the cost."""
        theta = self.initial_theta(rng or np.random.default_rng(0))
        return policy_from_model(theta, self.cost, link)


def world_at(world: World, time_step: int) -> World:
    """Return `world.at(time_step)` once it is known that nothing else than people changed."""
    there = world.at(time_step)
    if there is world:
        return world
    if not isinstance(there, World):
        raise TypeError(f"at({time_step}) must give a world, not {type(there).__name__}")
    for fixed in ("groups", "cost", "parameters"):
        before, now = getattr(world, fixed), getattr(there, fixed)
        if before != now:
            raise ValueError(
                f"at({time_step}) has {fixed} {now!r} where the world has {before!r}: people and "
                f"labels may drift, {fixed} may not. Give both worlds the same `{fixed}`."
            )
    return there


_HOW_PEOPLE_COME = {"propose", "label_probability", "people", "decided", "collect"}


def labelled_population(
    features: Floats,
    group: NDArray[np.intp],
    label: Floats,
    groups: tuple[Hashable, ...],
) -> Population:
    """Equally likely rows, each of one group, as a population."""
    mass = np.zeros((len(features), len(groups)))
    mass[np.arange(len(features)), group] = 1.0 / len(features)
    probability = np.repeat(label[:, None], len(groups), axis=1)
    return Population(features, mass, probability, groups)
