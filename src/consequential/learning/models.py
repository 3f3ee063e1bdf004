"""Models of the label that are fitted by default, and how large a table they are fitted to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.objective.weightings.fractional import are_whole, fit_classifier
from consequential.workers import MANY_ROWS

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

_CELLS = 12_000_000  # numbers in the matrix that one regression is fitted to, at most
_BOOSTED_ON = 200_000  # rows that boosted trees are fitted to, at most
_FEW_VALUES = 8  # a column with fewer gets no splines
_MANY_COLUMNS = 40  # with more there are no products of columns
_FEW_LABELS = 400  # with fewer, the plain regression is the only model
_RARE = 0.05  # an indicator of fewer people gets no products
_CURVES_SHRUNK = 0.003  # inverse penalty of a regression on curves
_INDICATED = 5.0  # what an indicator is multiplied by where the penalty is strong


@dataclass(frozen=True, slots=True)
class Model:
    """A classifier to be made, and how many numbers one row becomes in it.

    Of a classifier that held out some rows, `settle` makes the one that is fitted to all of them.
    """

    make: Callable[[], Any]
    columns: int
    max_rows: int = _CELLS
    settle: Callable[[Any], Any] | None = None

    def fitted(
        self,
        inputs: Floats,
        labels: NDArray[Any],
        weights: Floats | None = None,
        rows: Codes | None = None,
    ) -> Any:
        """Return the classifier fitted to rows, evenly spaced ones where there are too many.

        Labels are classes, or numbers between 0 and 1. With `rows` it is fitted to these of them.
        """
        rows = np.arange(len(labels)) if rows is None else rows
        most = min(self.max_rows, max(_CELLS // self.columns, 1))
        if len(rows) > most:
            rows = rows[np.linspace(0, len(rows) - 1, most).astype(np.intp)]
        inputs, labels = inputs[rows], labels[rows]
        weights = None if weights is None else weights[rows]
        if len(labels) == 0 or (labels.min() == labels.max() and are_whole(labels)):
            return _constant(inputs, labels.astype(np.intp))
        found = fit_classifier(self.make(), inputs, labels, weights)
        if self.settle is None:
            return found
        return fit_classifier(self.settle(found), inputs, labels, weights)


def _constant(inputs: Floats, labels: Codes) -> Any:
    """A classifier that has seen one class only, or nobody."""
    from sklearn.dummy import DummyClassifier

    if len(labels) == 0:
        inputs, labels = np.zeros((1, inputs.shape[1])), np.zeros(1, dtype=np.intp)
    return DummyClassifier(strategy="prior").fit(inputs, labels)


def default_models(
    inputs: Floats, n_labels: int, mapped: Any = None, signs: Floats | None = None
) -> dict[str, Model]:
    """Return regressions on the features and on curves of them, and boosted trees.

    `mapped` is an unfitted transformer of the plain regression's inputs. With `signs` of the first
    inputs, predictions never fall as an input of sign 1 grows, and never rise as one of sign -1
    does; curves, which cannot promise that, are left out.
    """
    from sklearn.base import clone
    from sklearn.ensemble import HistGradientBoostingClassifier

    if signs is not None:
        signs = np.pad(signs, (0, inputs.shape[1] - len(signs)))  # groups come after features

    few = n_labels < MANY_ROWS

    def boosted() -> Any:
        # Where nothing but a combination of several features tells, the first trees predict no
        # better than none, hence the patience.
        return HistGradientBoostingClassifier(
            learning_rate=0.06 if few else 0.1,
            max_iter=400 if few else 200,
            max_leaf_nodes=15,
            min_samples_leaf=30,
            l2_regularization=1.0,
            early_stopping=True,
            validation_fraction=0.15,
            n_iter_no_change=50 if few else 15,
            monotonic_cst=None if signs is None else signs.astype(np.int8),
            random_state=0,
        )

    def as_many(stopped: Any) -> Any:
        """Return trees to be fitted to everybody, as many as predicted held-out people best."""
        best = max(int(np.argmax(stopped.validation_score_)), 1)
        return clone(stopped).set_params(early_stopping=False, max_iter=best)

    models = {"regression": regression(inputs, mapped, signs)}
    if n_labels >= _FEW_LABELS:
        if signs is None:
            models["curves"] = curved(inputs)
        models["boosted trees"] = Model(boosted, 1, _BOOSTED_ON, as_many if few else None)
    return models


def regression(
    inputs: Floats, mapped: Any = None, signs: Floats | None = None, n_classes: int = 2
) -> Model:
    """Return a plain regression on the features, or on a map of them; `signs` of coefficients."""
    from sklearn.base import clone
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    indicators = _indicators(inputs)
    numbers = np.flatnonzero(~indicators)

    def make() -> Any:
        # Indicators stay 0 and 1: scaled by their deviation, those of a few people would all but
        # escape the penalty, and a handful of labels would decide for everybody like them.
        scaled = make_column_transformer((StandardScaler(), numbers), remainder="passthrough")
        first = [scaled] if mapped is None else [clone(mapped), StandardScaler()]
        model = make_pipeline(*first, _regression(1.0, inputs.shape[1] * (n_classes - 1)))
        if signs is None:
            return model
        return _SignedRegression(model, np.concatenate([signs[numbers], signs[indicators]]))

    return Model(make, inputs.shape[1])


def curved(inputs: Floats, n_classes: int = 2) -> Model:
    """Return a regression on splines and products of the features, strongly penalised."""
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import (
        MinMaxScaler,
        PolynomialFeatures,
        SplineTransformer,
        StandardScaler,
    )

    indicators = _indicators(inputs)
    numbers, words = np.flatnonzero(~indicators), np.flatnonzero(indicators)
    varied = [k for k in numbers if len(np.unique(inputs[:2_000, k])) > _FEW_VALUES]
    shares = inputs.mean(axis=0) if len(inputs) else np.zeros(inputs.shape[1])
    rare = indicators & (np.minimum(shares, 1.0 - shares) < _RARE)
    paired = np.flatnonzero(~rare) if inputs.shape[1] <= _MANY_COLUMNS else np.zeros(0, np.intp)
    width = inputs.shape[1] + 6 * len(varied) + len(paired) * (len(paired) + 1) // 2

    def make() -> Any:
        splines = SplineTransformer(5, extrapolation="linear", knots="quantile")
        pairs = PolynomialFeatures(2, interaction_only=True, include_bias=False)
        parts: list[tuple[Any, Any]] = [
            (StandardScaler(), numbers),
            (MinMaxScaler((0.0, _INDICATED)), words),
            (make_pipeline(splines, StandardScaler(copy=False)), varied),
            # not scaled again: a product may be all but constant, as of two words of one column
            (make_pipeline(StandardScaler(), pairs), paired),
        ]
        return make_pipeline(
            make_column_transformer(*(part for part in parts if len(part[1]))),
            _regression(_CURVES_SHRUNK, width * (n_classes - 1)),
        )

    return Model(make, width)


@dataclass(frozen=True, slots=True)
class _SignedRegression:
    """A pipeline that ends in a logistic regression, whose coefficients must have given signs."""

    model: Any
    signs: Floats  # of the regression's inputs; 0 where any is allowed

    def fit(self, inputs: Floats, labels: Codes, sample_weight: Floats | None = None) -> Any:
        """Return the fitted pipeline, with the best coefficients of those signs."""
        from scipy.optimize import Bounds, minimize
        from scipy.special import expit

        model = fit_classifier(self.model, inputs, labels, sample_weight)
        weights = np.ones(len(labels)) if sample_weight is None else sample_weight
        columns, last = model[:-1].transform(inputs), model[-1]
        if (last.coef_[0] * self.signs >= 0.0).all():
            return model

        def loss(beta: Floats) -> tuple[float, Floats]:
            eta, slopes = beta[0] + columns @ beta[1:], beta[1:] / last.C
            residual = weights * (expit(eta) - labels)
            losses = weights * (np.logaddexp(0.0, eta) - labels * eta)
            value = losses.sum() + slopes @ beta[1:] / 2.0
            gradient = np.concatenate([[residual.sum()], residual @ columns + slopes])
            return value / len(labels), gradient / len(labels)

        signs = np.concatenate([[0.0], self.signs])
        lower, upper = np.where(signs > 0.0, 0.0, -np.inf), np.where(signs < 0.0, 0.0, np.inf)
        start = np.clip(np.concatenate([last.intercept_, last.coef_[0]]), lower, upper)
        options = {"maxiter": 1_000, "ftol": 1e-12, "gtol": 1e-8}
        bounds = Bounds(lower, upper)
        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
        last.intercept_, last.coef_ = found[:1].copy(), found[None, 1:].copy()
        return model


def _indicators(inputs: Floats) -> NDArray[np.bool_]:
    """Which columns have no other values than 0 and 1."""
    found: NDArray[np.bool_] = ((inputs == 0.0) | (inputs == 1.0)).all(axis=0)
    return found


def _regression(inverse_penalty: float, n_columns: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    solver = "newton-cholesky" if n_columns <= 1_000 else "lbfgs"
    return LogisticRegression(C=inverse_penalty, solver=solver, max_iter=300)
