"""Predictors cut at the cost: accepted people only, reject inference, inverse propensity.

Each is a logistic regression that differs from the others in whom it is fitted to and with what
weight. The recipes of reject inference are those of credit scoring; none uses propensities, and
none can know more about rejected people than accepted ones tell.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.log import DecisionLog, DecisionLogError
from consequential.policies import ThresholdPolicy

Floats = NDArray[np.float64]

_BANDS = 10


def accepted_only(log: DecisionLog, cost: float, *, feature_map: Any = None) -> ThresholdPolicy:
    """Fit the accepted people as if they were everybody, and accept where the cost is reached.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> from consequential.baseline import accepted_only
    >>> world = cq.worlds.first_setting()
    >>> log = world.collect(world.initial_policy(), 5_000, np.random.default_rng(0))
    >>> rule = accepted_only(log, world.cost)
    >>> rule.propensity([[-0.7], [0.7]])
    array([0., 1.])
    """
    crowd = Crowd(log, feature_map)
    accepted = crowd.log.decision
    return crowd.rule(crowd.inputs[accepted], crowd.log.label[accepted], None, cost)


def inverse_propensity(
    log: DecisionLog, cost: float, *, feature_map: Any = None
) -> ThresholdPolicy:
    """Fit accepted people, each standing for `1 / propensity` applicants.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> from consequential.baseline import inverse_propensity
    >>> world = cq.worlds.first_setting()
    >>> log = world.collect(world.initial_policy(), 5_000, np.random.default_rng(0))
    >>> bool(world.exact(inverse_propensity(log, world.cost)).utility > 0.16)
    True
    """
    crowd = Crowd(log, feature_map)
    accepted = crowd.log.decision
    weights = 1.0 / crowd.log.propensity[accepted]
    return crowd.rule(crowd.inputs[accepted], crowd.log.label[accepted], weights, cost)


def augmentation(log: DecisionLog, cost: float, *, feature_map: Any = None) -> ThresholdPolicy:
    """Reject inference by augmentation, also called re-weighting.

    A first regression tells accepted from rejected applicants. Its score is cut into ten bands of
    equally many applicants, and the second regression, of labels, gives each accepted person the
    weight applicants / accepted of their band. Bands without anybody accepted are not spoken for.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> from consequential.baseline import augmentation
    >>> world = cq.worlds.first_setting()
    >>> log = world.collect(world.initial_policy(), 5_000, np.random.default_rng(0))
    >>> bool(world.exact(augmentation(log, world.cost)).utility > 0.16)
    True
    """
    crowd = Crowd(log, feature_map)
    accepted = crowd.log.decision
    band = np.zeros(len(crowd.log), dtype=np.intp)
    if not accepted.all():
        chance = _logistic(crowd.inputs, accepted.astype(np.float64), None)
        band = _bands(chance.predict_proba(crowd.inputs)[:, 1])
    applicants = np.bincount(band, minlength=_BANDS)
    taken = np.bincount(band[accepted], minlength=_BANDS)
    weights = (applicants / np.maximum(taken, 1))[band[accepted]]
    return crowd.rule(crowd.inputs[accepted], crowd.log.label[accepted], weights, cost)


def parcelling(
    log: DecisionLog,
    cost: float,
    *,
    feature_map: Any = None,
    prudence: float = 1.25,
    seed: int = 0,
) -> ThresholdPolicy:
    """Reject inference by parcelling.

    The regression on accepted people scores all applicants; the score is cut into ten bands of
    equally many. In each, rejected people get label 0 at random, `prudence` times as often as
    accepted people of the band have it (as the model predicts, where nobody there was accepted),
    else label 1. The second regression takes everybody.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> from consequential.baseline import parcelling
    >>> world = cq.worlds.first_setting()
    >>> log = world.collect(world.initial_policy(), 5_000, np.random.default_rng(0))
    >>> bool(world.exact(parcelling(log, world.cost)).utility > 0.12)
    True
    """
    if not 0.0 < prudence < np.inf:
        raise ValueError(f"prudence multiplies the rate of label 0; it cannot be {prudence!r}")
    crowd = Crowd(log, feature_map)
    accepted = crowd.log.decision
    success = crowd.scored()
    band = _bands(success)
    failed = np.bincount(band[accepted], 1.0 - crowd.log.label[accepted], _BANDS)
    taken = np.bincount(band[accepted], minlength=_BANDS)
    predicted = np.bincount(band, 1.0 - success, _BANDS) / np.maximum(
        np.bincount(band, minlength=_BANDS), 1
    )
    rate = np.where(taken > 0, failed / np.maximum(taken, 1), predicted)
    rejected_rate = np.minimum(prudence * rate, 1.0)[band]
    assigned = (np.random.default_rng(seed).random(len(band)) >= rejected_rate).astype(np.float64)
    labels = np.where(accepted, crowd.log.outcome, assigned)
    return crowd.rule(crowd.inputs, labels, None, cost)


def fuzzy_augmentation(
    log: DecisionLog, cost: float, *, feature_map: Any = None
) -> ThresholdPolicy:
    """Reject inference by fuzzy augmentation.

    The regression on accepted people scores the rejected. Each of them enters the second
    regression twice: with label 1 and the predicted probability of it as weight, and with label 0
    and the rest. For an unpenalised regression that changes nothing at all: its predictions are
    already the likeliest labels of those it never saw.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> from consequential.baseline import fuzzy_augmentation
    >>> world = cq.worlds.first_setting()
    >>> log = world.collect(world.initial_policy(), 5_000, np.random.default_rng(0))
    >>> bool(world.exact(fuzzy_augmentation(log, world.cost)).utility > 0.12)
    True
    """
    crowd = Crowd(log, feature_map)
    accepted = crowd.log.decision
    rejected = ~accepted
    success = crowd.scored()[rejected]
    inputs = np.concatenate([crowd.inputs[accepted], *[crowd.inputs[rejected]] * 2])
    n = int(rejected.sum())
    labels = np.concatenate([crowd.log.label[accepted], np.ones(n), np.zeros(n)])
    weights = np.concatenate([np.ones(int(accepted.sum())), success, 1.0 - success])
    return crowd.rule(inputs, labels, weights, cost)


class Crowd:
    """The settled people of a log, their features mapped."""

    def __init__(self, log: DecisionLog, feature_map: Any) -> None:
        from sklearn.base import clone

        self.log = log.settled()
        self.map = None
        self.inputs: Floats = np.asarray(self.log.features)
        known = self.log.label[self.log.decision]
        if len(known) == 0:
            raise DecisionLogError("nobody was accepted: there is no label to fit a predictor to")
        if known.min() == known.max():
            raise DecisionLogError(
                "all accepted people have the same label: there is nothing to tell apart"
            )
        if feature_map is not None:
            self.map = clone(feature_map).fit(self.inputs)
            mapped = self.map.transform(self.inputs)
            self.inputs = mapped.toarray() if hasattr(mapped, "toarray") else np.asarray(mapped)

    def scored(self) -> Floats:
        """Everybody's probability of label 1 by the regression on accepted people."""
        accepted = self.log.decision
        model = _logistic(self.inputs[accepted], self.log.label[accepted], None)
        success: Floats = model.predict_proba(self.inputs)[:, 1]
        return success

    def rule(
        self, inputs: Floats, labels: Floats, weights: Floats | None, cost: float
    ) -> ThresholdPolicy:
        """Fit, and accept where the prediction reaches the cost."""
        return ThresholdPolicy(self.predictor(_logistic(inputs, labels, weights)), cost)

    def predictor(self, model: Any) -> Any:
        """Return a model of mapped features as one of features."""
        from sklearn.pipeline import Pipeline

        return model if self.map is None else Pipeline([("map", self.map), ("model", model)])


def _logistic(inputs: Floats, labels: Floats, weights: Floats | None) -> Any:
    from sklearn.linear_model import LogisticRegression

    # next to no penalty, but enough for features that are collinear
    model = LogisticRegression(C=1e4, solver="newton-cholesky", max_iter=1000)
    return model.fit(inputs, labels.astype(np.int64), weights)


def _bands(score: Floats) -> NDArray[np.intp]:
    """Ten bands of equally many people, from the lowest score to the highest."""
    cuts = np.quantile(score, np.arange(1, _BANDS) / _BANDS)
    return np.searchsorted(cuts, score, side="right").astype(np.intp)
