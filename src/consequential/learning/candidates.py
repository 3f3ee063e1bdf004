"""Candidates: rules that a learner compares on rows they were not learned from, and its choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation import CrossFitted, Estimate, Evaluation
from consequential.evaluation.contrasts import normal_quantile
from consequential.evaluation.estimate import Result
from consequential.evaluation.evaluate import evaluation
from consequential.evaluation.intervals import Normal
from consequential.evaluation.weighted_log import WeightedLog
from consequential.learning.bounds import asked_bounds, compared_in, first_bound
from consequential.learning.fitting import Fitted
from consequential.learning.modelled import Modelled
from consequential.objective.objective import Objective
from consequential.objective.weightings import Weighting
from consequential.tables import text_table

Floats = NDArray[np.float64]
Fit = Callable[[Modelled, np.random.Generator], Fitted]

# how a policy can be learned, the one with the least variance first
METHODS: dict[str, Fit] = {
    "model": Modelled.model_rule,
    "scores": Modelled.score_search,
    "direct": Modelled.direct_search,
    "accept all": Modelled.accept_all,
    "reject all": Modelled.reject_all,
}
_SURELY_BETTER = 2.0  # standard errors by which a candidate must beat the method before it
_MARGIN = 0.5  # standard errors of the gap by which a learner stays inside its bound
_TRIVIAL = ("accept all", "reject all")
_CONFIDENCE = 0.95
_SURELY_BROKEN = 2.0  # standard errors by which a bound must be exceeded to count as broken
_CONTRADICTED = 2.0  # standard errors by which labels must contradict the gap of a model
_FURTHER = 0.02  # by which the estimated gap of what is taken instead may be further off a bound


@dataclass(frozen=True, slots=True)
class Candidate(Result):
    """One rule of a comparison, evaluated on rows it was not learned from.

    Attributes
    ----------
    name
        The rule: a method of the learner, or a rule to compare with.
    value
        What it is worth, cross-fitted and doubly robust.
    difference
        Its utility less that of the policy that was chosen, on the same rows; None for that one.
    within_bound
        Whether its gap and its acceptance may be within the bounds asked for; True without any.
    chosen
        Whether it is the one that was chosen.
    """

    name: str
    value: Evaluation
    difference: Estimate | None
    within_bound: bool
    chosen: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Candidates(Result):
    """A table of candidates, evaluated on rows they were not learned from."""

    entries: tuple[Candidate, ...]

    @property
    def chosen(self) -> Candidate:
        """The candidate that was chosen."""
        return next(entry for entry in self.entries if entry.chosen)

    def __getitem__(self, name: str) -> Candidate:
        return {entry.name: entry for entry in self.entries}[name]

    def __repr__(self) -> str:
        rows = [["", "utility", "less the chosen", "accepted", "gap", ""]]
        for entry in self.entries:
            value = entry.value
            rows.append(
                [
                    f"{'->' if entry.chosen else '  '} {entry.name}",
                    repr(value.utility),
                    "" if entry.difference is None else repr(entry.difference),
                    f"{value.acceptance.value:.1%}",
                    repr(value.benefit_gap),
                    "" if entry.within_bound else "breaks a bound",
                ]
            )
        return "\n".join(text_table(rows, align="<>"))


def chosen_among(
    modelled: Modelled, methods: tuple[str, ...]
) -> tuple[str, CrossFitted, Candidates]:
    """Cross-fit the methods; return which one to take, its cross-fitted policies and the table.

    The first method, the one with the least variance, is taken unless another one, or accepting or
    rejecting everybody, is better by more than two standard errors of the difference. A candidate
    that breaks a bound, on the gap or on acceptance, by more than two standard errors gives way to
    any that does not. Of a small group all that is known may be that a bound is not surely broken,
    and utility is gained by breaking it: what replaces another candidate must not look further off
    the bound. What the learner's penalty takes off a candidate counts against it.
    """
    crossed = {method: modelled.crossed(METHODS[method], method) for method in methods}
    n_folds, fold = len(crossed[methods[0]].by_fold), modelled.outcome.fold
    rejected = np.full(len(fold), modelled.learner.floor)  # the floor explores even so
    constant = {"accept all": np.ones(len(fold)), "reject all": rejected}
    crossed |= {
        name: CrossFitted(np.broadcast_to(propensity, (n_folds, len(fold))), fold)
        for name, propensity in constant.items()
    }
    propensities = {name: each.values for name, each in crossed.items()} | {
        "plain regression": _thresholded(modelled, modelled.outcome.regression),
        "past rule": modelled.log.propensity,
    }
    contest = _Contest.of(modelled, propensities)
    name = contest.choice(tuple(crossed))
    return name, crossed[name], contest.table(name)


def inside_bounds(modelled: Modelled) -> Modelled:
    """Return the same with bounds on gaps that are tighter by half a standard error.

    What just keeps a bound on the rows it was learned from exceeds it among other people more often
    than not. Half an error costs little utility, and a whole one was hardly kept more often. The
    error is that of the rule for the model without any bound.
    """
    if not modelled.bounds:
        return modelled
    plain = {"plain": _thresholded(modelled, modelled.outcome.predicted)}
    values = _Contest.of(modelled, plain).values["plain"]
    return replace(
        modelled,
        bounds=tuple(
            replace(
                bound, max_gap=max(bound.max_gap - _MARGIN * value.benefit_gap.standard_error, 0.0)
            )
            if value.benefit_gap.known
            else bound
            for bound, value in zip(modelled.bounds, values, strict=True)
        ),
    )


def _thresholded(modelled: Modelled, predicted: Floats) -> Floats:
    """Return the propensities of a rule that accepts where the prediction reaches the cost."""
    cost = modelled.learner.cost if modelled.log.cost is None else modelled.log.cost
    return (predicted >= cost).astype(np.float64)


@dataclass(frozen=True, slots=True)
class _Contest:
    """Propensities to compare on the rows of a log, and what they are worth."""

    modelled: Modelled
    gains: Floats  # what accepting each person is worth
    propensities: Mapping[str, Floats]
    values: Mapping[str, tuple[Evaluation, ...]]  # under each bound, the first at first
    predicted: Mapping[str, tuple[Evaluation, ...]]  # the same by the model alone
    penalties: Mapping[str, float]

    @classmethod
    def of(cls, modelled: Modelled, propensities: Mapping[str, Floats]) -> _Contest:
        learner = modelled.learner
        bounds = asked_bounds(learner) or (first_bound(learner),)

        def evaluated(weighting: Weighting) -> dict[str, tuple[Evaluation, ...]]:
            compared = [
                WeightedLog.of(
                    Objective(learner.cost, bound.notion, weighting=weighting),
                    compared_in(modelled.log, bound),
                )
                for bound in bounds
            ]
            return {
                name: tuple(_evaluated(weighted, propensity) for weighted in compared)
                for name, propensity in propensities.items()
            }

        gains, penalties = _gains_and_penalties(modelled, propensities)
        values, predicted = map(evaluated, (modelled.doubly_robust, modelled.by_model))
        return cls(modelled, gains, propensities, values, predicted, penalties)

    def difference(self, name: str, other: str) -> Estimate:
        """Return one rule's utility less another's; rows on which they agree add no error."""
        each = self.gains * (self.propensities[name] - self.propensities[other])
        value, error = float(each.mean()), float(each.std()) / len(each) ** 0.5
        reach, of = normal_quantile(_CONFIDENCE) * error, self.values[name][0].utility
        return replace(of, value=value, low=value - reach, high=value + reach, standard_error=error)

    def excess(self, name: str) -> float:
        """Return by how much a rule's gaps exceed their bounds, as far as can be told.

        The model's gap has far less variance than the one corrected by weighted labels, and stands
        unless these contradict it.
        """
        gaps = []
        for value, modelled in zip(self.values[name], self.predicted[name], strict=True):
            gap, predicted = value.benefit_gap, modelled.benefit_gap
            off = abs(gap.value - predicted.value)
            gaps.append(gap if off > _CONTRADICTED * gap.standard_error else predicted)
        return self._beyond(gaps)

    def _beyond(self, gaps: Sequence[Estimate], less: float = 0.0) -> float:
        """Return by how much gaps, less some standard errors, exceed their bounds."""
        # with bounds=() in place of the learner's own there is nothing to keep
        asked = asked_bounds(self.modelled.learner) if self.modelled.bounds else ()
        return max(
            (
                abs(gap.value) - less * gap.standard_error - bound.max_gap
                for gap, bound in zip(gaps, asked, strict=False)
                if gap.known
            ),
            default=0.0,
        )

    def within(self, name: str) -> bool:
        """Return whether a rule may be within the bounds."""
        modelled = self.modelled
        gaps = [value.benefit_gap for value in self.values[name]]
        if self._beyond(gaps, less=_SURELY_BROKEN) > 0.0:
            return False
        for sign, rates in ((1.0, modelled.most), (-1.0, modelled.least)):
            for code, rate in enumerate(rates):
                everybody = code == len(rates) - 1
                mine = slice(None) if everybody else modelled.log.group == code
                each = self.propensities[name][mine]
                error = float(each.std()) / max(len(each), 1) ** 0.5
                if sign * (float(each.mean()) - rate) > _SURELY_BROKEN * error:
                    return False
        return True

    def choice(self, names: tuple[str, ...]) -> str:
        kept = [name for name in names if self.within(name)] or [names[0]]
        chosen = kept[0]
        for name in kept[1:]:
            gain = self.difference(name, chosen)
            more = gain.value - self.penalties[name] + self.penalties[chosen]
            # trivial rules have no variance of learning to be wary of
            sure = 0.0 if chosen in _TRIVIAL else _SURELY_BETTER
            furthest = max(self.excess(chosen), 0.0) + _FURTHER
            if more > sure * gain.standard_error and self.excess(name) <= furthest:
                chosen = name
        return chosen

    def table(self, chosen: str) -> Candidates:
        entries = [
            Candidate(
                name,
                values[0],
                None if name == chosen else self.difference(name, chosen),
                self.within(name),
                name == chosen,
            )
            for name, values in self.values.items()
        ]
        return Candidates(tuple(entries))


def _gains_and_penalties(
    modelled: Modelled, propensities: Mapping[str, Floats]
) -> tuple[Floats, dict[str, float]]:
    """Return what accepting each person is worth, and what the penalty takes off each rule."""
    learner = modelled.learner
    notion, weighting = first_bound(learner).notion, modelled.doubly_robust
    penalised = Objective(learner.cost, notion, learner.penalty, weighting=weighting)
    coefficients = penalised.coefficients(modelled.log)
    sums = {name: coefficients.sums(each) for name, each in propensities.items()}
    penalties = {name: each.utility - penalised.value_at(each) for name, each in sums.items()}
    return len(modelled.log) * coefficients.utility, penalties


def _evaluated(weighted: WeightedLog, propensity: Floats) -> Evaluation:
    measured = weighted.measure(propensity)
    intervals = Normal(_CONFIDENCE)
    return evaluation(weighted.objective, measured, intervals)
