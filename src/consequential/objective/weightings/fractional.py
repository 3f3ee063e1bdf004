"""Fractional labels: classifiers fitted to labels between 0 and 1, such as values in a range."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.log import DecisionLogError

Floats = NDArray[np.float64]

_HELD_OUT = 7  # one person in so many tells boosted trees when to stop


def are_whole(labels: NDArray[Any]) -> bool:
    """Whether labels are classes, none of them between 0 and 1."""
    return labels.dtype.kind != "f" or bool((labels == np.floor(labels)).all())


def fit_classifier(
    model: Any, inputs: Floats, labels: NDArray[Any], weights: Floats | None = None
) -> Any:
    """Fit a classifier or a pipeline that ends in one to weighted rows.

    A row with a label y between 0 and 1 counts as two: y of a person with label 1, and 1 - y of
    one with label 0. The most likely probabilities are then those of the mean of y.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    if are_whole(labels):
        weighted = {} if weights is None else {_weight_name(model): weights}
        return model.fit(inputs, labels.astype(np.intp), **weighted)
    _check_takes_weights(model)
    weights = np.ones(len(labels)) if weights is None else weights
    if isinstance(model, HistGradientBoostingClassifier) and model.early_stopping:
        # people are held out whole: both rows of a person are on the same side
        seen = np.arange(len(labels)) % _HELD_OUT < _HELD_OUT - 1
        held_out = _doubled(inputs[~seen], labels[~seen], weights[~seen])
        names = ("X_val", "y_val", "sample_weight_val")
        doubled = _doubled(inputs[seen], labels[seen], weights[seen])
        return model.fit(*doubled, **dict(zip(names, held_out, strict=True)))
    rows, classes, shares = _doubled(inputs, labels, weights)
    return model.fit(rows, classes, **{_weight_name(model): shares})


def _doubled(
    inputs: Floats, labels: Floats, weights: Floats
) -> tuple[Floats, NDArray[np.intp], Floats]:
    """Return each row with label 1 and with label 0, less rows without weight."""
    rows = np.tile(np.arange(len(labels)), 2)
    classes = np.repeat([1, 0], len(labels)).astype(np.intp)
    shares = np.concatenate([weights * labels, weights * (1.0 - labels)])
    kept = shares > 0.0
    return inputs[rows[kept]], classes[kept], shares[kept]


def _weight_name(model: Any) -> str:
    """Return what a model's `fit` calls the weights of rows; a pipeline names its last step."""
    if not hasattr(model, "steps"):
        return "sample_weight"
    name, last = model.steps[-1]
    return f"{name}__{_weight_name(last)}"


def _check_takes_weights(model: Any) -> None:
    last = model
    while hasattr(last, "steps"):
        last = last.steps[-1][1]
    parameters = signature(last.fit).parameters
    any_name = any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values())
    if "sample_weight" not in parameters and not any_name:
        raise DecisionLogError(
            f"{type(last).__name__} takes no sample_weight, which a log of values needs: each "
            "person counts as label 1 and as label 0, with weights. Use a classifier whose fit has "
            "sample_weight, such as LogisticRegression or HistGradientBoostingClassifier"
        )
