"""Crews: the runs of one strategy that go through compiled code side by side."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.learning import (
    Aggregated,
    FitPredictor,
    GradientStep,
    Iterative,
    PreconditionedStep,
    Sequence,
    UpdatePolicy,
    ascent,
    prediction,
)
from consequential.learning import compiled as learning_compiled
from consequential.objective import (
    Clipped,
    Fairness,
    InversePropensity,
    SelfNormalised,
    Shape,
    ShapedFairness,
    Unweighted,
    Weighting,
)
from consequential.policies import DecisionRule, Policy, ThresholdPolicy, logistic_model
from consequential.policies.compiled import bend_of
from consequential.simulation.functionals import Notion, Weighing
from consequential.simulation.runs import theta_of
from consequential.simulation.step import (
    LABELS_ALIKE,
    NOBODY_ACCEPTED,
    Happened,
    Learning,
)
from consequential.worlds import World

Floats = NDArray[np.float64]
Learner = UpdatePolicy | FitPredictor

_WEIGHTINGS = (InversePropensity, Clipped, SelfNormalised, Unweighted)
_MOST_GROUPS = 62  # groups without a row are reported as bits of one integer


def learns_compiled(learner: Any, sequence: Sequence, world: World) -> bool:
    """Whether learner, sequence and world are made of parts that the compiled step knows."""
    if not (world.decides_as_usual and type(sequence) in (Iterative, Aggregated)):
        return False
    if type(learner) is FitPredictor:
        return learner.classifier is None and 0.0 < learner.threshold < 1.0
    return (
        type(learner) is UpdatePolicy
        and learner.engine == "compiled"
        and not learner.shuffle
        and _weighs_compiled(learner.objective.weighting)
        and _has_shapes(learner.objective.fairness)
        and learner.objective.rejection_utility == (0.0, 0.0)
        and len(world.groups) <= _MOST_GROUPS
    )


def _weighs_compiled(weighting: Weighting) -> bool:
    if isinstance(weighting, Clipped) and weighting.pessimistic:
        return False
    return type(weighting) in _WEIGHTINGS


def _has_shapes(fairness: Fairness | None) -> bool:
    if fairness is None:
        return True
    return (
        isinstance(fairness, ShapedFairness) and type(fairness).benefits is ShapedFairness.benefits
    )


def penalty_alone_differs(first: Learner, penalty: float, learner: Any) -> bool:
    """Whether a learner is the first one but for the penalty of its objective."""
    if isinstance(first, FitPredictor):
        return bool(learner == first)
    if first.objective.fairness is None:
        return bool(learner == first and penalty == 0.0)
    return bool(learner == replace(first, objective=replace(first.objective, penalty=penalty)))


def start_compiled(starts: list[Any], learner: Learner) -> bool:
    """Whether the compiled step knows the first rules, which may differ in theta alone."""
    if isinstance(learner, FitPredictor):
        return all(
            type(start) is ThresholdPolicy
            and start.threshold == learner.threshold
            and theta_of(start) is not None
            for start in starts
        )
    return all(
        type(start) is Policy
        and learning_compiled.knows(start, learner.step)
        and bend_of(start) == bend_of(starts[0])
        and start.theta.shape == starts[0].theta.shape
        for start in starts
    )


def notion_of(fairness: ShapedFairness | None) -> Notion:
    """Return a fairness notion as numbers."""
    shapes: tuple[Shape, ...] = () if fairness is None else fairness.shapes()
    none = (0.0, 0.0, 0.0)

    def mixes(chosen: list[tuple[float, float, float]]) -> Floats:
        return np.array(chosen, dtype=np.float64).reshape(len(shapes), 3)

    label_free = all(
        shape.denominator is None and not any(shape.values[1:]) and not any(shape.constant[1:])
        and not any((shape.share_of or none)[1:])
        for shape in shapes
    )  # fmt: skip
    return Notion(
        values=mixes([shape.values for shape in shapes]),
        constant=mixes([shape.constant for shape in shapes]),
        share_of=mixes([shape.share_of or none for shape in shapes]),
        denominator=mixes([shape.denominator or none for shape in shapes]),
        by_size=np.array([shape.share_of is None for shape in shapes], dtype=np.bool_),
        is_ratio=np.array([shape.denominator is not None for shape in shapes], dtype=np.bool_),
        label_free=label_free,
    )


def weighing_of(weighting: Weighting, *, accepted_only: bool) -> Weighing:
    """Return a weighting and normalisation as numbers."""
    return Weighing(
        largest=float(weighting.maximum) if isinstance(weighting, Clipped) else float("inf"),
        weighted=not isinstance(weighting, Unweighted),
        self_normalised=isinstance(weighting, SelfNormalised),
        accepted_only=accepted_only,
    )


@dataclass(slots=True)
class Crew:
    """Runs of one strategy, a row a run: all penalties of the first seed, then of the next."""

    name: str
    learner: Learner
    sequence: Sequence
    starts: list[DecisionRule]  # one a seed
    penalties: tuple[float, ...]
    time_steps: int
    thetas: Floats = field(init=False)
    path: Floats = field(init=False)  # (runs, time steps + 1, inputs)
    happened: Happened = field(init=False)

    def __post_init__(self) -> None:
        first = np.array([theta_of(start) for start in self.starts])
        self.thetas = np.repeat(first, len(self.penalties), axis=0)
        self.path = np.empty((len(self.thetas), self.time_steps + 1, self.thetas.shape[1]))
        self.path[:, 0] = self.thetas
        shape = self.time_steps, self.n_runs
        self.happened = Happened(
            np.zeros(shape),
            np.zeros(shape),
            np.zeros(shape, dtype=np.int64),
            np.zeros(shape),
            np.zeros(shape),
            np.zeros(shape, dtype=np.int64),
        )

    @property
    def n_runs(self) -> int:
        """How many runs there are."""
        return len(self.thetas)

    @property
    def raw_inputs(self) -> bool:
        """Whether inputs are (1, x), whatever the seed."""
        return all(
            not isinstance(start, Policy) or (start.feature_map is None and not start.groups)
            for start in self.starts
        )

    def learning(self, world_cost: float) -> Learning:
        """Return what the runs have in common, as numbers."""
        learner, start = self.learner, self.starts[0]
        assert isinstance(learner, UpdatePolicy)
        assert isinstance(start, Policy)
        objective, step = learner.objective, learner.step
        link = bend_of(start)
        assert link is not None
        return Learning(
            world_cost=world_cost,
            cost=objective.cost,
            link=link,
            notion=notion_of(objective.fairness),  # type: ignore[arg-type]
            weighing=weighing_of(
                objective.weighting, accepted_only=objective.normalisation == "paper"
            ),
            ascent=learning_compiled.numbers_of(
                step, objective, learner.n_iterations, learner.batch_size, learner.n_reference
            ),
            enough_rows=step.enough_rows if isinstance(step, PreconditionedStep) else 0.0,
            n_checked=ascent.CHECKED,
        )

    def base_rate(self, time_step: int) -> float:
        """Return the step's rate where data are plenty."""
        step = self.learner.step  # type: ignore[union-attr]
        assert isinstance(step, GradientStep | PreconditionedStep)
        return step.rate(time_step)

    def rule(self, run: int, time_step: int) -> DecisionRule:
        """Return the rule a run had at a time step."""
        start, theta = self.starts[run // len(self.penalties)], self.path[run, time_step]
        if isinstance(start, Policy):
            return start.at(theta)
        assert isinstance(start, ThresholdPolicy)
        return ThresholdPolicy(logistic_model(theta), start.threshold)

    def notes(self, run: int, groups: tuple[Any, ...]) -> tuple[str, ...]:
        """Say what went wrong in a run, as the learners themselves would."""
        rejected, before, after, absences = (values[:, run] for values in self.happened[2:])
        remarkable = (rejected != 0) | (absences != 0) | ascent.lowered(before, after)
        found = []
        for time_step in np.flatnonzero(remarkable).tolist():
            code = int(rejected[time_step])
            notes: tuple[str, ...]
            if isinstance(self.learner, FitPredictor):
                said = {
                    NOBODY_ACCEPTED: prediction.NOBODY_ACCEPTED,
                    LABELS_ALIKE: prediction.LABELS_ALIKE,
                    1: prediction.NOT_REACHED,
                }
                notes = (said[code],) if code else ()
            elif code == NOBODY_ACCEPTED:
                notes = (ascent.NOBODY_ACCEPTED,)
            else:
                bits = int(absences[time_step])
                absent = sorted(str(g) for z, g in enumerate(groups) if bits >> z & 1)
                notes = (ascent.absent_note(absent),) if absent else ()
                notes += ascent.update_notes(
                    code, self.learner.n_iterations, before[time_step], after[time_step]
                )
            found += [f"step {time_step}: {note}" for note in notes]
        return tuple(found)
