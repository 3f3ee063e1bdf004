"""Compiled runs: the runs of one strategy and seed as arrays and numbers, for kernels."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.lab.algorithm import prediction, update
from consequential.lab.algorithm.prediction import FitPredictor
from consequential.lab.algorithm.sequences import Aggregated, Iterative, Sequence, sequence_named
from consequential.lab.algorithm.steps import PreconditionedStep
from consequential.lab.algorithm.update import UpdatePolicy
from consequential.lab.kernels.functionals import Learning, Notion
from consequential.lab.kernels.step import LABELS_ALIKE, NOBODY_ACCEPTED, StepOutcome
from consequential.lab.simulation.replay import Experiment
from consequential.lab.simulation.runs import Run, theta_of
from consequential.lab.worlds import World
from consequential.objective.fairness import Fairness, ShapedFairness
from consequential.objective.functionals import Shape
from consequential.objective.weightings import (
    Clipped,
    InversePropensity,
    SelfNormalised,
    Unweighted,
)
from consequential.policy import DecisionRule, Policy, ThresholdPolicy, link_numbers, logistic_model

Floats = NDArray[np.float64]
Learner = UpdatePolicy | FitPredictor
Starts = dict[str, list[DecisionRule]]  # first rules by strategy, one per seed

_WEIGHTINGS = (InversePropensity, Clipped, SelfNormalised, Unweighted)
_MOST_GROUPS = 62  # groups without a row are reported as bits of one integer


def compiled_starts(experiment: Experiment, seeds: list[int]) -> Starts:
    """Return the first rules of the strategies that kernels know; others run in Python."""
    starts: Starts = {}
    for strategy in experiment.strategies:
        sequence = sequence_named(strategy.sequence)
        learner: Any = experiment.learner(strategy, experiment.penalties[0])
        if _knows_learner(learner, sequence, experiment.world) and all(
            _only_penalty_differs(learner, penalty, experiment.learner(strategy, penalty))
            for penalty in experiment.penalties
        ):
            found = [experiment.start(strategy, seed) for seed in seeds]
            if _knows_starts(found, learner):
                starts[strategy.name] = found
    return starts


def _knows_learner(learner: Any, sequence: Sequence, world: World) -> bool:
    """Whether learner, sequence and world are made of parts that kernels know."""
    if not (world.decides_as_usual and type(sequence) in (Iterative, Aggregated)):
        return False
    if type(learner) is FitPredictor:
        return learner.classifier is None and 0.0 < learner.threshold < 1.0
    return (
        type(learner) is UpdatePolicy
        and learner.engine == "compiled"
        and not learner.shuffle
        and update.is_compiled(learner.step)
        and type(learner.objective.weighting) in _WEIGHTINGS
        and _has_shapes(learner.objective.fairness)
        and len(world.groups) <= _MOST_GROUPS
    )


def _has_shapes(fairness: Fairness | None) -> bool:
    if fairness is None:
        return True
    return (
        isinstance(fairness, ShapedFairness) and type(fairness).benefits is ShapedFairness.benefits
    )


def _only_penalty_differs(first: Learner, penalty: float, learner: Any) -> bool:
    """Whether a learner is the first one with another penalty in its objective."""
    if isinstance(first, FitPredictor):
        return bool(learner == first)
    if first.objective.fairness is None:
        return bool(learner == first and penalty == 0.0)
    return bool(learner == replace(first, objective=replace(first.objective, penalty=penalty)))


def _knows_starts(starts: list[Any], learner: Learner) -> bool:
    """Whether kernels know the first rules, which may differ only in theta."""
    if isinstance(learner, FitPredictor):
        return all(
            type(start) is ThresholdPolicy
            and start.threshold == learner.threshold
            and theta_of(start) is not None
            for start in starts
        )
    return all(
        type(start) is Policy
        and link_numbers(start) is not None
        and link_numbers(start) == link_numbers(starts[0])
        and start.theta.shape == starts[0].theta.shape
        for start in starts
    )


def _notion(fairness: ShapedFairness | None) -> Notion:
    """Return a fairness notion as numbers."""
    shapes: tuple[Shape, ...] = () if fairness is None else fairness.shapes()
    none = (0.0, 0.0, 0.0)

    def mixes(chosen: list[tuple[float, float, float]]) -> Floats:
        return np.array(chosen, dtype=np.float64).reshape(len(shapes), 3)

    return Notion(
        values=mixes([shape.values for shape in shapes]),
        constant=mixes([shape.constant for shape in shapes]),
        share_of=mixes([shape.share_of or none for shape in shapes]),
        denominator=mixes([shape.denominator or none for shape in shapes]),
        by_size=np.array([shape.share_of is None for shape in shapes], dtype=np.bool_),
        is_ratio=np.array([shape.denominator is not None for shape in shapes], dtype=np.bool_),
        label_free=not any(shape.labelled or shape.denominator for shape in shapes),
    )


@dataclass(slots=True)
class CompiledRuns:
    """The runs of one strategy and seed, one row per penalty."""

    name: str
    learner: Learner
    sequence: Sequence
    seed: int
    start: DecisionRule
    penalties: tuple[float, ...]
    time_steps: int
    thetas: Floats = field(init=False)
    path: Floats = field(init=False)  # (runs, time steps + 1, inputs)
    outcome: StepOutcome = field(init=False)

    def __post_init__(self) -> None:
        self.thetas = np.tile(np.asarray(theta_of(self.start)), (len(self.penalties), 1))
        self.path = np.empty((len(self.thetas), self.time_steps + 1, self.thetas.shape[1]))
        self.path[:, 0] = self.thetas
        shape = self.time_steps, self.n_runs
        gain, effective, before, after = (np.zeros(shape) for _ in range(4))
        rejected, absent = (np.zeros(shape, dtype=np.int64) for _ in range(2))
        self.outcome = StepOutcome(gain, effective, rejected, before, after, absent)

    @property
    def n_runs(self) -> int:
        """How many runs there are."""
        return len(self.thetas)

    @property
    def has_plain_inputs(self) -> bool:
        """Whether inputs are (1, x)."""
        start = self.start
        return not isinstance(start, Policy) or (start.feature_map is None and not start.groups)

    def learning(self, world_cost: float) -> Learning:
        """Return what the runs have in common, as numbers."""
        learner, start = self.learner, self.start
        assert isinstance(learner, UpdatePolicy)
        assert isinstance(start, Policy)
        objective, step, weighting = learner.objective, learner.step, learner.objective.weighting
        link = link_numbers(start)
        assert link is not None
        return Learning(
            world_cost=world_cost,
            cost=objective.cost,
            link=link,
            notion=_notion(objective.fairness),  # type: ignore[arg-type]
            ascent=learner.numbers(learner.batch_size, 1.0),
            enough_rows=step.enough_rows if isinstance(step, PreconditionedStep) else 0.0,
            n_checked=update.CHECKED,
            largest_weight=float(weighting.maximum) if isinstance(weighting, Clipped) else np.inf,
            weighted=not isinstance(weighting, Unweighted),
            self_normalised=isinstance(weighting, SelfNormalised),
            accepted_only=objective.normalisation == "paper",
            max_passes=learner.max_passes or 0,
        )

    def rate(self, time_step: int) -> float:
        """Return the learning rate where data are plenty."""
        assert isinstance(self.learner, UpdatePolicy)
        return self.learner.step.rate(time_step)

    def rule(self, run: int, time_step: int) -> DecisionRule:
        """Return the rule that a run had at a time step."""
        start, theta = self.start, self.path[run, time_step]
        if isinstance(start, Policy):
            return start.at(theta)
        assert isinstance(start, ThresholdPolicy)
        return ThresholdPolicy(logistic_model(theta), start.threshold)

    def notes(self, run: int, groups: tuple[Any, ...]) -> tuple[str, ...]:
        """Say what went wrong in a run, in the words of the learners themselves."""
        rejected, before, after, absences = (values[:, run] for values in self.outcome[2:])
        remarkable = (rejected != 0) | (absences != 0) | update.lowered(before, after)
        found = []
        for time_step in np.flatnonzero(remarkable).tolist():
            code = int(rejected[time_step])
            notes: tuple[str, ...]
            if isinstance(self.learner, FitPredictor):
                notes = (_PREDICTION_NOTES[code],) if code else ()
            elif code == NOBODY_ACCEPTED:
                notes = (update.NOBODY_ACCEPTED,)
            else:
                bits = int(absences[time_step])
                absent = sorted(str(g) for z, g in enumerate(groups) if bits >> z & 1)
                notes = (update.absent_note(absent),) if absent else ()
                notes += update.update_notes(
                    code, self.learner.n_iterations, before[time_step], after[time_step]
                )
            found += [f"step {time_step}: {note}" for note in notes]
        return tuple(found)

    def results(self, groups: tuple[Any, ...], measured: list[dict[str, Floats]]) -> list[Run]:
        """Return the runs as `simulate` returns them, given the true metrics of their policies."""
        gained = np.cumsum(self.outcome.gain.T, axis=1) / np.arange(1, self.time_steps + 1)
        effective = np.column_stack([gained, gained[:, -1]])
        sizes = np.column_stack([np.full(self.n_runs, np.nan), self.outcome.effective.T])
        return [
            Run(
                self.name,
                self.penalties[run],
                self.seed,
                {
                    "utility": metrics["utility"],
                    "effective_utility": effective[run],
                    "benefit_gap": metrics["benefit_gap"],
                    "acceptance": metrics["acceptance"],
                    "effective_sample_size": sizes[run],
                    **{f"benefit {group}": metrics[f"benefit {group}"] for group in groups},
                },
                self.rule(run, self.time_steps),
                self.notes(run, groups),
                self.path[run],
            )
            for run, metrics in enumerate(measured)
        ]


_PREDICTION_NOTES = {
    NOBODY_ACCEPTED: prediction.NOBODY_ACCEPTED,
    LABELS_ALIKE: prediction.LABELS_ALIKE,
    1: prediction.NOT_REACHED,
}
