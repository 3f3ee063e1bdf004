"""Outcome models: what accepted people's labels say of everybody, cross-fitted.

Where selection depends on the features only, a model fitted on accepted people holds for all
applicants. Its predictions for a person of the log come from a fit that did not see that person.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from consequential.learning.models import Model, curved, regression
from consequential.log import DecisionLog
from consequential.log.concerns import Hashes, people_of
from consequential.objective.fairness import Fairness, ShapedFairness
from consequential.objective.functionals import NONE
from consequential.objective.weightings.fractional import are_whole
from consequential.objective.weightings.weights import counted_rows, inverse_propensity
from consequential.policy.scores import Scores, group_chances, log_odds, score_columns
from consequential.workers import shown, threads_for

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]
Rows = NDArray[np.bool_]
_CrossFits = tuple[list[Any], Floats]  # models without each fold and of all rows, and predictions

_SURELY_BETTER = 2.0  # standard errors of the log loss by which a larger model must win
_IMPOSSIBLE = 1e-9  # the least probability of a group in its log loss


@dataclass(frozen=True, slots=True)
class Outcome:
    """Models of the label, and of the groups, with their cross-fitted predictions for a log.

    Attributes
    ----------
    scores
        The models fitted to all accepted people, ready to become a policy's feature map.
    rule_scores
        The first columns alone, which the best rule for the model is made of.
    columns
        The columns of `scores` for the log's people, each by models that did not see the person.
    fold_scores
        The same scores by the models of each fold.
    rule_columns
        The columns of `rule_scores` for all people, by the models of each fold and last by those
        fitted to everybody; None where a rule is learned from cross-fitted columns. Models remember
        the people they were fitted to, but models of other rows than the deciding ones accept more
        or fewer of a group, which moves a gap further.
    predicted
        The cross-fitted probability of label 1.
    regression
        That of the plain regression alone.
    fold
        The fold that each person is in.
    notes
        Which models were taken, and what scikit-learn warned of.
    """

    scores: Scores
    rule_scores: Scores
    fold_scores: tuple[Scores, ...]
    columns: Floats = field(repr=False)
    rule_columns: Floats | None = field(repr=False)  # (folds + 1, people, columns)
    predicted: Floats = field(repr=False)
    regression: Floats = field(repr=False)
    fold: Codes = field(repr=False)
    notes: tuple[str, ...]

    @property
    def n_rule(self) -> int:
        """How many of the columns, the first ones, a rule for the model is made of."""
        n_members = len(self.scores.models) if self.scores.members else 0
        return int(self.columns.shape[1]) - n_members

    @property
    def deciding(self) -> Floats:
        """The columns that a rule for the model decides by."""
        if self.rule_columns is None:
            return self.columns[:, : self.n_rule]
        last: Floats = self.rule_columns[-1]
        return last

    def of_fold(self, k: int) -> Outcome:
        """Return the outcome in which the models of a fold decide."""
        if self.rule_columns is None:
            return self
        return replace(self, rule_columns=self.rule_columns[k : k + 1])

    def take(self, rows: Rows) -> Outcome:
        """Return the predictions of some of the people."""
        return replace(
            self,
            columns=self.columns[rows],
            rule_columns=None if self.rule_columns is None else self.rule_columns[:, rows],
            predicted=self.predicted[rows],
            regression=self.regression[rows],
            fold=self.fold[rows],
        )


def outcome_of(
    log: DecisionLog,
    models: Mapping[str, Model],
    inputs: Floats,
    *,
    folds: int,
    whom: tuple[str, ...] = (),
    sees_group: bool = False,
    deciding: bool = False,
) -> Outcome:
    """Fit models of the label to accepted people of a log, and cross-fit them.

    `inputs` are what the models look at, one row per person. `whom` names the people among whom
    the groups are modelled too: see `counted_by`. `deciding` asks for `rule_columns`.
    """
    n_groups, labels = len(log.groups), log.outcome
    seen, gained = counted_rows(log), labels > log.mean_cost(0.5)
    label = seen.astype(np.intp) + (seen & gained)
    fold = _stratified(folds, log.group, label, people_of(log))
    with warnings.catch_warnings(record=True) as caught, threads_for(len(log)):
        warnings.simplefilter("always")
        fits = [
            _cross_fitted(_Task(name, model, inputs, labels, seen), log_odds, fold)
            for name, model in models.items()
        ]
        groups = _grouped(log, inputs, whom, fold) if whom else {}
    members = np.column_stack([predictions for _, predictions in fits])
    intercept, weights, note = _stacked(members[seen], labels[seen], tuple(models))

    def scores_of(k: int) -> Scores:
        """Return the scores by the models of a fold; the last are those fitted to everybody."""
        return Scores(
            [by_fold[k] for by_fold, _ in fits],
            intercept,
            weights,
            {each: by_fold[k] for each, (by_fold, _) in groups.items()},
            n_groups,
            members=len(models) > 1,
            sees_group=sees_group,
        )

    *fold_scores, scores = map(scores_of, range(folds + 1))
    by_group = {each: chances for each, (_, chances) in groups.items()}
    columns = score_columns(members, intercept, weights, by_group)
    rule_columns = None
    if deciding:
        each_rule = (each.for_rule() for each in (*fold_scores, scores))
        rule_columns = np.stack([rule.columns(inputs) for rule in each_rule])
    return Outcome(
        scores,
        scores.for_rule(),
        tuple(fold_scores),
        np.column_stack([columns, members]) if scores.members else columns,
        rule_columns,
        columns[:, 0],
        expit(members[:, 0]),
        fold,
        (f"model of the label: {note}", *_warned(caught)),
    )


def _stratified(folds: int, group: Codes, label: Codes, people: Hashes | None = None) -> Codes:
    """Return a fold for each row, at random, with as much of each group and label in each fold.

    Rows of the same one of `people` are in one fold: a model remembers the copies of a row.
    """
    if people is not None:
        _, first, person = np.unique(people, return_index=True, return_inverse=True)
        if len(first) >= folds:
            return _stratified(folds, group[first], label[first])[person]
    shuffled = np.random.default_rng(0).permutation(len(group))
    order = shuffled[np.lexsort((label[shuffled], group[shuffled]))]
    fold = np.empty(len(group), dtype=np.intp)
    fold[order] = np.arange(len(group)) % folds
    return fold


def _warned(caught: list[warnings.WarningMessage]) -> tuple[str, ...]:
    """Return each warning once, as a note of one line."""
    texts = dict.fromkeys(str(each.message).split("\n")[0] for each in caught)
    return tuple(f"scikit-learn warned while models were fitted: {text}" for text in texts)


@dataclass(frozen=True, slots=True)
class _Task:
    """A model to be fitted to some rows of a log."""

    name: str
    model: Model
    inputs: Floats
    targets: NDArray[Any]
    rows: Rows
    weights: Floats | None = None

    def fitted(self, among: Rows) -> Any:
        rows = np.flatnonzero(self.rows & among)
        return self.model.fitted(self.inputs, self.targets, self.weights, rows)


def _cross_fitted(task: _Task, predict: Callable[[Any, Floats], Floats], fold: Codes) -> _CrossFits:
    """Return models, and for each row what the one predicts that was fitted without it.

    Each model is fitted without a fold, the last one to all rows.
    """
    models = [task.fitted(fold != k) for k in shown(range(int(fold.max()) + 2), task.name)]
    found = np.empty((len(fold), *predict(models[-1], task.inputs[:1]).shape[1:]))
    for k, model in enumerate(models[:-1]):
        found[fold == k] = predict(model, task.inputs[fold == k])
    return models, found


def counted_by(fairness: Fairness | None) -> tuple[str, ...]:
    """Return among whom a notion compares groups: people, positives, negatives or several."""
    if fairness is None:
        return ()
    if not isinstance(fairness, ShapedFairness):
        return ("people", "positives", "negatives")
    used = [mix for shape in fairness.shapes() for mix in (shape.values, shape.denominator or NONE)]
    names = ("people", "positives", "negatives")
    return tuple(name for k, name in enumerate(names) if any(mix[k] for mix in used))


def _counted(whom: str, log: DecisionLog) -> tuple[Rows, Floats | None]:
    """The rows among which groups are modelled, and their weights where they stand for others."""
    if whom == "people":
        return np.ones(len(log), dtype=np.bool_), None
    label = 1.0 if whom == "positives" else 0.0
    return counted_rows(log) & (log.outcome == label), inverse_propensity(log)


def _grouped(
    log: DecisionLog, inputs: Floats, whom: tuple[str, ...], fold: Codes
) -> dict[str, _CrossFits]:
    """Return models of the groups among some people, each the simplest that predicts as well.

    A plain regression stands unless curves are better. Among people of one label the groups are
    modelled as among everybody, from more rows and without weights, unless a model of their own is
    better: then the label depends on the group beyond what the features say.
    """
    n_groups = len(log.groups)

    def fitted(model: Model, each: str) -> _CrossFits:
        task = _Task(f"groups of {each}", model, inputs, log.group, *_counted(each, log))
        return _cross_fitted(task, partial(group_chances, n_groups=n_groups), fold)

    def better(larger: _CrossFits, each: str) -> bool:
        """Whether a model's log loss among some people is surely smaller than the first one's."""
        rows, weights = _counted(each, log)
        losses = [
            -np.log(np.maximum(chances[np.arange(len(log)), log.group], _IMPOSSIBLE))
            for _, chances in (found, larger)
        ]
        gain = np.where(rows, 1.0 if weights is None else weights, 0.0) * (losses[0] - losses[1])
        return bool(gain.mean() > _SURELY_BETTER * gain.std() / len(gain) ** 0.5)

    model, curves = regression(inputs, n_classes=n_groups), curved(inputs, n_classes=n_groups)
    found = fitted(model, "people")
    if better(by_curves := fitted(curves, "people"), "people"):
        model, found = curves, by_curves
    groups = dict.fromkeys(whom, found)
    for each in whom:
        if each != "people" and better(own := fitted(model, each), each):
            groups[each] = own
    return groups


def _stacked(members: Floats, labels: Floats, names: tuple[str, ...]) -> tuple[float, Floats, str]:
    """Return an intercept and weights of the models' log-odds, and what was taken.

    The weights are not negative and minimise the cross-fitted log loss. The first model, the
    simplest, stands alone unless the others make the loss smaller by two standard errors.
    """
    from scipy.optimize import minimize

    n, n_models = members.shape
    alone = np.eye(n_models)[0]
    if n_models == 1 or n == 0:
        return 0.0, alone, names[0]

    def losses(eta: Floats) -> Floats:
        each: Floats = np.logaddexp(0.0, eta) - labels * eta
        return each

    def loss(parameters: Floats) -> tuple[float, Floats]:
        eta = parameters[0] + members @ parameters[1:]
        residual = (expit(eta) - labels) / n
        slope = np.concatenate([[residual.sum()], residual @ members])
        return float(losses(eta).mean()), slope

    start = np.concatenate([[0.0], np.full(n_models, 1.0 / n_models)])
    bounds = [(None, None), *[(0.0, None)] * n_models]
    tol = None if are_whole(labels) else 1e-14  # values far apart leave little to explain of most
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, tol=tol).x
    gain = losses(members[:, 0]) - losses(found[0] + members @ found[1:])
    if gain.mean() <= _SURELY_BETTER * gain.std() / n**0.5:
        return 0.0, alone, f"{names[0]} (the others predict no better)"
    shares = ", ".join(f"{w:.2f} {name}" for w, name in zip(found[1:], names, strict=True))
    return float(found[0]), found[1:], f"log-odds {shares}"
