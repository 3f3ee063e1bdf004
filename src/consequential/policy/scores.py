"""Scores: predictions of fitted models as the few inputs of a policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.policy.features import Floats, row_products
from consequential.workers import threads_for

Codes = NDArray[np.intp]

_CHUNK = 16_384  # rows at a time: feature maps with many columns would need much memory
_MOST_LOG_ODDS = 12.0  # predictions are clipped there

# Whom a benefit counts: everybody, people with label 1, people with label 0. The chance of being
# one of them, as a linear function `a + b q` of the predicted probability q of label 1.
COUNTED = {"people": (1.0, 0.0), "positives": (0.0, 1.0), "negatives": (1.0, -1.0)}


class Scores:
    """A feature map made of fitted models: a policy over it has a handful of parameters.

    The columns are the predicted probability of label 1; then, for each kind of people that a
    fairness notion counts and each group but the first, the predicted probability of being one of
    them and in the group; then, with `members`, the log-odds of each model of the label.

    Parameters
    ----------
    models
        Fitted classifiers of the label, 0 or 1.
    intercept, weights
        The predicted log-odds are `intercept + sum weights * log-odds of each model`.
    group_models
        Fitted classifiers of the group's code, by whom they were fitted on: `"people"`,
        `"positives"`, `"negatives"`.
    n_groups
        How many groups there are.
    members
        Whether the log-odds of each model are columns too.
    sees_group
        Whether the group is an input of the models.

    Examples
    --------
    >>> import consequential as cq
    >>> from consequential.policy.scores import Scores
    >>> model = cq.logistic_model([0.0, 1.0])
    >>> scores = Scores([model], 0.0, [1.0])
    >>> cq.Policy([-2.0, 4.0], feature_map=scores).propensity([[0.0], [8.0]]).round(3)
    array([0.5 , 0.881])
    """

    def __init__(
        self,
        models: Sequence[Any],
        intercept: float,
        weights: Sequence[float] | Floats,
        group_models: Mapping[str, Any] | None = None,
        n_groups: int = 0,
        *,
        members: bool = False,
        sees_group: bool = False,
    ) -> None:
        self.models = list(models)
        self.intercept = float(intercept)
        self.weights = np.asarray(weights, dtype=np.float64)
        self.group_models = dict(group_models or {})
        self.n_groups = n_groups
        self.members = members
        self.sees_group = sees_group

    def transform(self, features: Floats, group: Codes | None = None) -> Floats:
        """Return the columns, one row per person; `group` for models that see it."""
        return self.columns(
            with_groups(features, group if self.sees_group else None, self.n_groups)
        )

    def columns(self, inputs: Floats) -> Floats:
        """Return the columns from the models' inputs: features, and groups where they see them."""
        members = np.column_stack([log_odds(model, inputs) for model in self.models])
        by_group = {
            whom: group_chances(model, inputs, self.n_groups)
            for whom, model in self.group_models.items()
        }
        columns = score_columns(members, self.intercept, self.weights, by_group)
        return np.column_stack([columns, members]) if self.members else columns

    def for_rule(self) -> Scores:
        """Return the columns that a rule for the model needs, without models of no weight."""
        used = [k for k, weight in enumerate(self.weights) if weight > 0.0] or [0]
        return Scores(
            [self.models[k] for k in used],
            self.intercept,
            self.weights[used],
            self.group_models,
            self.n_groups,
            sees_group=self.sees_group,
        )

    def __repr__(self) -> str:
        kinds = ", ".join(type(getattr(m, "_final_estimator", m)).__name__ for m in self.models)
        return f"Scores({kinds})"


def score_columns(
    members: Floats, intercept: float, weights: Floats, by_group: Mapping[str, Floats]
) -> Floats:
    """Return the prediction's and the groups' columns, from log-odds and the groups' chances."""
    from scipy.special import expit

    probability = expit(intercept + np.einsum("ij,j->i", members, weights))
    columns = [probability[:, None]]
    for whom, chances in by_group.items():
        constant, slope = COUNTED[whom]
        columns.append((constant + slope * probability)[:, None] * chances[:, 1:])
    return np.column_stack(columns)


def with_groups(features: Floats, group: Codes | None, n_groups: int) -> Floats:
    """Return features, with indicators of all groups but the first where groups are given."""
    if group is None:
        return features
    return np.column_stack([features, np.eye(n_groups)[:, 1:][group]])


def log_odds(model: Any, inputs: Floats) -> Floats:
    """Return the log-odds of label 1 that a fitted classifier predicts."""
    if len(model.classes_) == 1:
        return np.full(len(inputs), _MOST_LOG_ODDS if model.classes_[0] == 1 else -_MOST_LOG_ODDS)
    return _in_chunks(_log_odds, model, inputs)


def _log_odds(model: Any, inputs: Floats) -> Floats:
    from scipy.special import expit, logit

    linear = _linear_scores(model, inputs)
    if linear is not None:
        return np.clip(linear[:, 0], -_MOST_LOG_ODDS, _MOST_LOG_ODDS)
    edge = float(expit(-_MOST_LOG_ODDS))
    chances: Floats = np.asarray(model.predict_proba(inputs), dtype=np.float64)[:, 1]
    odds: Floats = logit(np.clip(chances, edge, 1.0 - edge))
    return odds


def _linear_scores(model: Any, inputs: Floats) -> Floats | None:
    """Return the scores of a logistic regression, also at the end of a pipeline; None of others.

    Unlike a product by BLAS, the sum of one row is the same alone and in a batch.
    """
    steps = getattr(model, "steps", None)
    last = model if steps is None else steps[-1][1]
    if type(last).__name__ != "LogisticRegression":
        return None
    mapped = inputs if steps is None else model[:-1].transform(inputs)
    if not isinstance(mapped, np.ndarray):
        return None
    by_class = [row_products(mapped, coefficients) for coefficients in last.coef_]
    scores: Floats = np.column_stack(by_class) + last.intercept_
    return scores


def _chances(model: Any, inputs: Floats) -> Floats:
    from scipy.special import softmax

    linear = _linear_scores(model, inputs)
    if linear is None:
        return np.asarray(model.predict_proba(inputs), dtype=np.float64)
    if linear.shape[1] == 1:  # of two classes, the score of the second
        linear = np.column_stack([np.zeros(len(linear)), linear])
    chances: Floats = softmax(linear, axis=1)
    return chances


def group_chances(model: Any, inputs: Floats, n_groups: int) -> Floats:
    """Return each person's probability of each group; 0 for a group the model never saw."""
    found = np.zeros((len(inputs), n_groups))
    classes = np.asarray(model.classes_, dtype=np.intp)
    found[:, classes] = _in_chunks(_chances, model, inputs)
    return found


def _in_chunks(predict: Callable[[Any, Floats], Floats], model: Any, inputs: Floats) -> Floats:
    """Return predictions; a pipeline, which may make many columns, gets few rows at a time."""
    if len(inputs) == 0:  # which scikit-learn refuses
        return predict(model, np.zeros((1, inputs.shape[1])))[:0]
    size = _CHUNK if hasattr(model, "steps") else len(inputs)
    starts = range(0, len(inputs), size)
    with threads_for(len(inputs)):
        return np.concatenate([predict(model, inputs[start : start + size]) for start in starts])
