"""Algorithm 1: collect, learn, deploy, again [K20: ConsequentialLearning]."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from consequential.lab.algorithm.sequences import Sequence, sequence_named
from consequential.log import DecisionLog
from consequential.policy import DecisionRule

__all__ = ["Collector", "Learner", "TimeStep", "consequential_learning"]


class Collector(Protocol):
    """Anywhere decisions can be taken and logged: a world, or a service."""

    def collect(
        self, rule: DecisionRule, n: int, rng: np.random.Generator, *, time_step: int
    ) -> DecisionLog:
        """Decide on n people and return what came of it."""
        ...


class NextRule(Protocol):
    """The next rule with notes; a learner that has no notes returns the rule alone."""

    @property
    def policy(self) -> DecisionRule:
        """The rule for the next step."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What went wrong, in words; empty when nothing did."""
        ...


class Learner(Protocol):
    """From a rule and a log to a better rule: `UpdatePolicy`, `FitPredictor` and the like."""

    def __call__(
        self, policy: Any, log: DecisionLog, *, rng: np.random.Generator, time_step: int
    ) -> DecisionRule | NextRule:
        """Return the rule for the next step."""
        ...


@dataclass(frozen=True, slots=True)
class TimeStep:
    """One time step: the rule that decided, what it collected, and the rule learned from it.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> run = cq.consequential_learning(cq.worlds.second_setting(), cq.AcceptAll(), None,
    ...     time_steps=2, n_proposals=100, rng=np.random.default_rng(0))
    >>> [(step.time_step, step.log.n_accepted) for step in run]
    [(0, 100), (1, 100)]
    """

    time_step: int
    policy: DecisionRule
    log: DecisionLog
    learned: DecisionRule
    notes: tuple[str, ...]


def consequential_learning(
    world: Collector,
    policy: DecisionRule,
    learner: Learner | None,
    *,
    sequence: str | Sequence = "iterative",
    time_steps: int,
    n_proposals: int,
    rng: np.random.Generator,
) -> Iterator[TimeStep]:
    """Deploy a rule, learn from what it brings, and yield one `TimeStep` per time step.

    Parameters
    ----------
    world
        Where people come from: anything with `collect`.
    policy
        The rule to start with.
    learner
        `UpdatePolicy`, `FitPredictor`, a function of your own, or None for a rule that never
        changes. It is called as `learner(policy, log, rng=rng, time_step=t)` and returns the next
        rule, or an object with the rule as `policy` and a tuple of sentences as `notes`.
    sequence
        `"iterative"`, `"aggregated"`, or a `Sequence` such as `LastSteps(5)`.
    time_steps, n_proposals
        The paper's T and N.
    rng
        All randomness of the run. Step t uses its own streams, so runs with equal seeds see
        the same people at each step whatever they decide.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.first_setting()
    >>> learner = cq.UpdatePolicy(cq.Objective(world.cost), n_iterations=128, batch_size=256)
    >>> steps = cq.consequential_learning(world, world.initial_policy("logistic"), learner,
    ...     time_steps=5, n_proposals=32_768, rng=np.random.default_rng(0))
    >>> [round(world.exact(step.policy).utility, 2) for step in steps]
    [0.14, 0.17, 0.18, 0.18, 0.18]
    """
    if time_steps < 1 or n_proposals < 1:
        raise ValueError("time_steps and n_proposals are at least 1")
    if learner is not None and not callable(learner):
        raise TypeError(
            "a learner is called as learner(policy, log, rng=..., time_step=...) and returns the "
            f"next rule, but {_kind(learner)} cannot be called"
        )
    policy = _checked_rule(policy, "the rule to start with")
    sequence = sequence_named(sequence)
    kept: DecisionLog | None = None
    for time_step in range(time_steps):
        collect_rng, learn_rng = rng.spawn(2)
        log = world.collect(policy, n_proposals, collect_rng, time_step=time_step)
        learned, notes = policy, tuple[str, ...]()
        if learner is not None:
            kept = sequence.extend(kept, log, learn_rng)
            update = learner(policy, kept, rng=learn_rng, time_step=time_step)
            learned = _checked_rule(getattr(update, "policy", update), "what a learner returns")
            given = getattr(update, "notes", ())
            notes = (given,) if isinstance(given, str) else tuple(given)
        yield TimeStep(time_step, policy, log, learned, notes)
        policy = learned


def _checked_rule(rule: Any, what: str) -> DecisionRule:
    if isinstance(rule, DecisionRule):
        return rule
    raise TypeError(
        f"{what} must be a rule that decides, such as a Policy, a ThresholdPolicy or AcceptAll(), "
        f"not {_kind(rule)}"
    )


def _kind(thing: Any) -> str:
    return f"the class {thing.__name__}" if isinstance(thing, type) else type(thing).__name__
