"""A log with models of its labels, from which policies are fitted and cross-fitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from consequential.evaluation import CrossFitted
from consequential.evaluation.cross_fitting import checked_folds
from consequential.learning.bounds import (
    Rates,
    asked_bounds,
    at_rate,
    gap_bounds,
    notion_of,
    rate_bounds,
)
from consequential.learning.constraints import Constraint, GapBound
from consequential.learning.fair_rule import FairRule
from consequential.learning.fitting import Fitted, fit_policy
from consequential.learning.inputs import selects_columns, signs_of, template_for
from consequential.learning.models import Model, default_models
from consequential.learning.outcome import Outcome, counted_by, outcome_of
from consequential.log import DecisionLog
from consequential.objective.objective import Objective
from consequential.objective.weightings import DoublyRobust, InversePropensity, Weighting
from consequential.objective.weightings.predicted import ModelOnly, Predicted
from consequential.policy import Policy
from consequential.policy.mapped import MappedColumns
from consequential.policy.scores import Scores, with_groups
from consequential.workers import shown

Floats = NDArray[np.float64]

_FOLDS = 5
_SEARCHED = 1e-6  # shrinkage of the search over scores
_SURE = 30.0  # a score at which acceptance is all but certain
_LARGE = 200_000  # rows from which on two folds are enough


@dataclass(frozen=True, slots=True)
class Modelled:
    """The settled rows of a log, models of their labels, and the learner that asks.

    `bounds` are the bounds on gaps in force: the learner's own, or stricter ones. `most` and
    `least` are bounds on acceptance rates, `signs` the directions of monotone features.
    """

    learner: Any
    log: DecisionLog
    outcome: Outcome
    bounds: tuple[GapBound, ...]
    most: Rates
    least: Rates
    signs: Floats | None

    @classmethod
    def of(
        cls, learner: Any, log: DecisionLog, folds: int | None, *, bounded: bool = False
    ) -> Modelled:
        """Fit and cross-fit the models that the learner asks for; `bounded` for bounds to come."""
        rows = log.settled()
        aware, signs = learner.uses_sensitive, signs_of(learner, rows)
        inputs = with_groups(rows.features, rows.group if aware else None, len(rows.groups))
        if learner.outcome_model is None:
            mapped = learner.feature_map
            if mapped is not None:
                by_name = selects_columns(mapped)
                mapped = MappedColumns(clone(mapped), rows.feature_names, by_name=by_name)
            models = default_models(inputs, int(rows.labelled.sum()), mapped, signs)
        else:
            models = {"outcome_model": Model(lambda: clone(learner.outcome_model), inputs.shape[1])}
        most, least = rate_bounds(learner, rows)
        bounds = gap_bounds(asked_bounds(learner), rows)
        fair = bool(bounds) or learner.min_ratio is not None or learner.penalty > 0
        outcome = outcome_of(
            rows,
            models,
            inputs,
            folds=checked_folds(_folds(len(rows)) if folds is None else folds, len(rows)),
            # a rule that goes by chances of the group need not be monotone
            whom=()
            if aware or signs is not None
            else _modelled_groups(learner, (most, least), fair or bounded),
            sees_group=aware,
            # a bound is best met with the scores that will decide
            deciding=fair or bounded,
        )
        return cls(learner, rows, outcome, bounds, most, least, signs)

    def take(self, rows: NDArray[np.bool_]) -> Modelled:
        """Return the same with some of the rows; the models stay."""
        return replace(self, log=self.log.take(rows), outcome=self.outcome.take(rows))

    @property
    def doubly_robust(self) -> Predicted:
        """The model's predictions, corrected by weighted labels."""
        weighting = self.learner.weighting or InversePropensity()
        if isinstance(weighting, DoublyRobust):
            weighting = weighting.weighting
        return Predicted(weighting=weighting, values=self.outcome.predicted)

    @property
    def by_model(self) -> Predicted:
        """The model's predictions alone."""
        return Predicted(weighting=ModelOnly(), values=self.outcome.predicted)

    def model_rule(self, rng: np.random.Generator) -> Fitted:
        """Return the best rule for the model: a threshold that moves with the groups' chances."""
        modelled = replace(self.by_model, values=self.outcome.deciding[:, 0])
        return self._over_scores(self.outcome.rule_scores, modelled, self.learner.l2, rng)

    def score_search(self, rng: np.random.Generator) -> Fitted:
        """Return the best policy over all scores, by weighted labels, from the model's rule on."""
        l2 = max(self.learner.l2, _SEARCHED)
        return self._over_scores(self.outcome.scores, self.doubly_robust, l2, rng)

    def direct_search(self, rng: np.random.Generator) -> Fitted:
        """Return the best policy over the features, by weighted labels."""
        template, l2 = template_for(self.learner, self.log), self.learner.l2
        return self._fit(template, self.doubly_robust, l2, rng, signs=self.signs)

    def accept_all(self, rng: np.random.Generator) -> Fitted:
        """Return the policy that accepts everybody whom the log supports."""
        return self._alike(_SURE, "accept all", rng)

    def reject_all(self, rng: np.random.Generator) -> Fitted:
        """Return the policy that rejects everybody, but for the exploration floor."""
        return self._alike(-_SURE, "reject all", rng)

    def _alike(self, score: float, name: str, rng: np.random.Generator) -> Fitted:
        """Return a policy that gives everybody the same score."""
        found = self.model_rule(rng)
        blocks = np.zeros_like(found.policy.theta).reshape(-1, self.outcome.n_rule + 1)
        blocks[:, 0] = score
        policy = replace(found.policy, theta=blocks.ravel())
        return replace(found, policy=policy, start=name, fallback=True)

    def crossed(
        self, fit: Callable[[Modelled, np.random.Generator], Fitted], name: str
    ) -> CrossFitted:
        """Return what policies do with each row that were fitted without it."""
        fold, policies = self.outcome.fold, []
        by_fold = np.empty((int(fold.max()) + 1, len(fold)))
        for k in shown(range(len(by_fold)), f"policies, {name}"):
            rng = np.random.default_rng(self.learner.random_state)
            modelled = replace(self, outcome=self.outcome.of_fold(k))
            rest = modelled.take(fold != k)
            policy = decides = fit(rest, rng).policy
            if isinstance(policy.feature_map, Scores):
                own = self.outcome.fold_scores[k]
                rule = policy.feature_map is self.outcome.rule_scores
                decides = rest.deciding_by(own.for_rule() if rule else own, policy)
            by_fold[k] = modelled.propensity(replace(policy, theta=decides.theta))
            policies.append(decides)
        return CrossFitted(by_fold, fold, tuple(policies))

    def propensity(self, policy: Policy) -> Floats:
        """Return a policy's propensities for the rows, by their cross-fitted scores."""
        sensitive = self.log.sensitive if policy.uses_sensitive else None
        if policy.feature_map not in (self.outcome.scores, self.outcome.rule_scores):
            return policy.propensity(self.log.named_features, sensitive)
        blocks = policy.theta.reshape(max(len(policy.groups), 1), -1)
        theta = blocks[self.log.group] if len(blocks) > 1 else blocks
        columns = self._columns(policy.feature_map)
        eta = theta[:, 0] + np.einsum(
            "ij,ij->i", columns, np.broadcast_to(theta[:, 1:], columns.shape)
        )
        return policy.scored(eta, self.log.named_features, sensitive)

    def at_capacity(self, found: Fitted) -> Fitted:
        """Return a policy whose bounds on acceptance hold with the models it decides with."""
        scores = found.policy.feature_map
        if scores not in (self.outcome.scores, self.outcome.rule_scores):
            return found
        return replace(found, policy=self.deciding_by(scores, found.policy))

    def deciding_by(self, scores: Any, policy: Policy) -> Policy:
        """Return a policy over cross-fitted scores, with the scores of models that will decide.

        Bounds on acceptance hold with these.
        """
        crossed, policy = self.propensity(policy), replace(policy, feature_map=scores)
        policy = at_rate(policy, self.log, self.least, crossed, upper=False)
        return at_rate(policy, self.log, self.most, crossed, upper=True)

    def _columns(self, scores: Any) -> Floats:
        """Return the columns of some scores for the rows."""
        outcome = self.outcome
        return outcome.deciding if scores is outcome.rule_scores else outcome.columns

    def _over_scores(
        self, scores: Scores, weighting: Weighting, l2: float, rng: np.random.Generator
    ) -> Fitted:
        """Fit a policy over all score columns, or over those of the rule for the model."""
        learner, outcome = self.learner, self.outcome
        inputs = np.ascontiguousarray(self._columns(scores))
        groups = self.log.groups if learner.uses_sensitive else ()
        n_blocks = max(len(groups), 1)
        zeros = np.zeros((n_blocks, inputs.shape[1] + 1))
        template = Policy(zeros.ravel(), learner.link, floor=learner.floor, groups=groups)
        starts = {}
        for name, theta in self._rules().items():
            start = zeros.copy()
            start[:, : outcome.n_rule + 1] = theta.reshape(n_blocks, -1)
            starts[name] = start.ravel()
        # scores are monotone, and so is what never falls as any of them grows
        signs = None if self.signs is None else np.ones(inputs.shape[1])
        found = self._fit(template, weighting, l2, rng, starts=starts, inputs=inputs, signs=signs)
        return replace(found, policy=replace(found.policy, feature_map=scores))

    def _rules(self) -> dict[str, Floats]:
        """Return parameters of the model's plain threshold, and of the best one under bounds."""
        outcome, learner = self.outcome, self.learner
        cost, n_groups = self.log.mean_cost(learner.cost), len(self.log.groups)
        if learner.uses_sensitive:
            whom = tuple(dict.fromkeys((*counted_by(notion_of(learner)), "people")))
            rule = FairRule.by_group(outcome.deciding, whom, self.log.group, n_groups, cost)
        else:
            whom = tuple(outcome.scores.group_models)
            rule = FairRule.of(outcome.deciding, whom, n_groups, cost)
        rules = {"threshold": rule.theta()}
        by_group = learner.uses_sensitive or self.signs is None  # else nobody's group is modelled
        if by_group and (self.bounds or self.most or self.least):
            rules["bounded threshold"] = rule.theta(self.bounds, self.most, self.least)
        return rules

    def _fit(
        self,
        template: Policy,
        weighting: Weighting,
        l2: float,
        rng: np.random.Generator,
        **options: Any,
    ) -> Fitted:
        learner = self.learner
        found = fit_policy(
            self.log,
            template,
            Objective(learner.cost, notion_of(learner), learner.penalty, weighting=weighting),
            Constraint(None, learner.min_ratio, self.most, self.least, self.bounds),
            l2=l2,
            n_starts=learner.n_starts,
            max_passes=learner.max_passes,
            unsupported=learner.unsupported,
            rng=rng,
            **options,
        )
        return replace(found, remarks=self.outcome.notes)


def _modelled_groups(learner: Any, rates: tuple[Rates, ...], compared: bool) -> tuple[str, ...]:
    """Return among whom groups are modelled for a policy that does not see them."""
    notion = counted_by(notion_of(learner)) if compared else ()
    bounded = ("people",) if any(any(np.isfinite(each[:-1])) for each in rates) else ()
    return tuple(dict.fromkeys((*notion, *bounded)))


def _folds(n_rows: int) -> int:
    """Return how many folds a log is cut into by default."""
    return 2 if n_rows >= _LARGE else min(_FOLDS, max(n_rows, 2))
