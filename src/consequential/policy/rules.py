"""Decision rules: everything that can decide, with or without a gradient."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.policy.features import (
    FeaturesError,
    Floats,
    PolicyError,
    check_columns,
    columns_for,
    count_people,
    counted_columns,
    matched_features,
    matched_frame,
)


def checked_floor(floor: float) -> float:
    """Return an exploration floor, a probability below 1."""
    if not 0.0 <= floor < 1.0:
        raise PolicyError(f"an exploration floor lies in [0, 1), not {floor!r}")
    return float(floor)


class DecisionRule(ABC):
    """A map from people to the probability of a positive decision.

    People are the rows of an array or of a data frame (pandas, polars, pyarrow), or records: a
    dict with one value per column is one person, a list of dicts several.

    Examples
    --------
    A rule of your own needs one method:

    >>> import numpy as np, consequential as cq
    >>> class Lottery(cq.DecisionRule):
    ...     def propensity(self, features, sensitive=None):
    ...         return np.full(len(features), 0.1)
    >>> Lottery().with_floor(0.5).propensity([[1.0]])
    array([0.55])
    """

    @property
    def inner_rules(self) -> tuple[DecisionRule, ...]:
        """The rules that it combines; empty where it decides alone."""
        return ()

    @property
    def uses_sensitive(self) -> bool:
        """Whether the sensitive attribute is an input of the decision."""
        return any(rule.uses_sensitive for rule in self.inner_rules)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features it looks at; empty where it looks at none or knows no names."""
        return tuple(
            dict.fromkeys(name for rule in self.inner_rules for name in rule.feature_names)
        )

    @property
    def raw_columns(self) -> tuple[str, ...]:
        """Names of the raw columns it looks at; those of its features where none are raw."""
        inner = (name for rule in self.inner_rules for name in rule.raw_columns)
        return tuple(dict.fromkeys(inner)) or self.feature_names

    def unfamiliar(self, features: Any) -> tuple[str, ...]:
        """Return a sentence for each value in raw columns that the rule has never seen."""
        inner = (
            note
            for rule in self.inner_rules
            for note in rule.unfamiliar(columns_for(features, rule.raw_columns))
        )
        return tuple(dict.fromkeys(inner))

    @abstractmethod
    def propensity(self, features: ArrayLike, sensitive: ArrayLike | None = None) -> Floats:
        """Return the probability of a positive decision for each row."""

    def decide(
        self,
        features: ArrayLike,
        sensitive: ArrayLike | None = None,
        *,
        rng: np.random.Generator,
    ) -> NDArray[np.bool_]:
        """Draw one decision per row; the propensity it was drawn with goes into the log."""
        propensity = self.propensity(features, sensitive)
        return rng.random(propensity.shape) < propensity

    def with_floor(self, floor: float) -> DecisionRule:
        """Accept everybody with probability at least `floor`: `floor + (1 - floor) pi`."""
        return Mixture((self, AcceptAll()), (1.0 - checked_floor(floor), floor))


@dataclass(frozen=True, slots=True)
class AcceptAll(DecisionRule):
    """Accept everybody.

    Examples
    --------
    >>> import consequential as cq
    >>> cq.AcceptAll().propensity([[0.2], [0.7]])
    array([1., 1.])
    """

    def propensity(self, features: ArrayLike, sensitive: ArrayLike | None = None) -> Floats:
        """One for each row."""
        return np.ones(count_people(features))


@dataclass(frozen=True, slots=True)
class RejectAll(DecisionRule):
    """Reject everybody.

    Examples
    --------
    >>> import consequential as cq
    >>> cq.RejectAll().propensity([[0.2], [0.7]])
    array([0., 0.])
    """

    def propensity(self, features: ArrayLike, sensitive: ArrayLike | None = None) -> Floats:
        """Zero for each row."""
        return np.zeros(count_people(features))


@dataclass(frozen=True, slots=True)
class Logged(DecisionRule):
    """The past rule of a log, with its logged propensities.

    It can be evaluated and compared on a log, but has no propensities for new people.

    Examples
    --------
    >>> import consequential as cq
    >>> log = cq.DecisionLog.from_arrays([[0.0], [1.0]], [1, 0], [0.25, 0.5], [1, None])
    >>> log.propensity_of(cq.Logged())
    array([0.25, 0.5 ])
    """

    def propensity(self, features: ArrayLike, sensitive: ArrayLike | None = None) -> Floats:
        """Say that only a log can answer."""
        raise PolicyError(
            "Logged() is what a log's rule did with the people in it; it has no propensity for "
            "other people. Evaluate it on a log: log.propensity_of(Logged())"
        )


@dataclass(frozen=True, slots=True)
class ThresholdPolicy(DecisionRule):
    """Accept where a fitted predictor puts the label's probability at `threshold` or above.

    This is the deterministic rule [K20: threshold-rule] of *learning to predict*. It explores
    nothing: people it rejects never get a label.

    Parameters
    ----------
    predictor
        Anything fitted with `predict_proba` over the two classes 0 and 1. One that was fitted to
        a data frame finds its columns by name (scikit-learn's `feature_names_in_`).
    threshold
        The smallest predicted probability that is accepted; the paper uses the cost.

    Examples
    --------
    >>> import consequential as cq
    >>> model = cq.logistic_model([-1.0, 2.0])
    >>> cq.ThresholdPolicy(model, threshold=0.5).propensity([[0.0], [1.0]])
    array([0., 1.])
    """

    predictor: Any
    threshold: float

    def __post_init__(self) -> None:
        if not hasattr(self.predictor, "predict_proba"):
            raise PolicyError(
                f"a ThresholdPolicy needs a fitted predictor with predict_proba; "
                f"{type(self.predictor).__name__} has none"
            )
        classes = getattr(self.predictor, "classes_", None)
        if classes is not None and len(classes) == 2 and list(classes) != [0, 1]:
            raise PolicyError(
                f"the predictor tells {list(classes)} apart; fit it on labels 0 and 1"
            )
        if not 0.0 <= self.threshold <= 1.0:
            raise PolicyError(f"the threshold is a probability, not {self.threshold!r}")
        object.__setattr__(self, "threshold", float(self.threshold))

    def propensity(self, features: ArrayLike, sensitive: ArrayLike | None = None) -> Floats:
        """One where the prediction reaches the threshold, zero elsewhere."""
        predicted = np.asarray(self.predictor.predict_proba(self._inputs(features)))
        if predicted.ndim != 2 or predicted.shape[1] != 2:
            raise PolicyError(
                f"the predictor must give two columns of probabilities, not shape "
                f"{predicted.shape}: was it fitted on labels of both kinds?"
            )
        return (predicted[:, 1] >= self.threshold).astype(np.float64)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns the predictor was fitted to; empty where it knows none."""
        return tuple(str(name) for name in getattr(self.predictor, "feature_names_in_", ()))

    def _inputs(self, features: ArrayLike) -> Any:
        if self.feature_names:
            return matched_frame(features, self.feature_names)
        matrix = matched_features(features, ())
        fitted = getattr(self.predictor, "n_features_in_", matrix.shape[1])
        if matrix.shape[1] != fitted:
            raise FeaturesError(
                f"the predictor was fitted to {fitted} features, but {counted_columns(matrix)}"
            )
        return matrix


@dataclass(frozen=True, slots=True)
class Mixture(DecisionRule):
    """Draw for each person which of several rules decides.

    A rule that must accept every n-th person whatever their features, and let `rule` decide on the
    rest, has the propensities of `Mixture([AcceptAll(), rule], [1/n, 1 - 1/n])`.

    Examples
    --------
    >>> import consequential as cq
    >>> cq.Mixture([cq.AcceptAll(), cq.RejectAll()], [0.25, 0.75]).propensity([[0.0]])
    array([0.25])
    """

    rules: Sequence[DecisionRule]
    probabilities: Sequence[float]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", tuple(self.rules))
        object.__setattr__(self, "probabilities", tuple(float(p) for p in self.probabilities))
        if len(self.rules) != len(self.probabilities) or not self.rules:
            raise PolicyError(
                f"a mixture needs one probability per rule: {len(self.rules)} rules, "
                f"{len(self.probabilities)} probabilities"
            )
        if min(self.probabilities) < 0 or not abs(sum(self.probabilities) - 1.0) <= 1e-9:
            raise PolicyError(f"a mixture's probabilities sum to one, not {self.probabilities}")

    @property
    def inner_rules(self) -> tuple[DecisionRule, ...]:
        """The rules that it mixes."""
        return tuple(self.rules)

    def propensity(self, features: ArrayLike, sensitive: ArrayLike | None = None) -> Floats:
        """Average of the rules' propensities."""
        pairs = zip(self.probabilities, self.rules, strict=True)
        check_columns(features, self.raw_columns)
        mixed = [
            p * rule.propensity(columns_for(features, rule.raw_columns), sensitive)
            for p, rule in pairs
        ]
        total: Floats = np.sum(mixed, axis=0)
        return np.minimum(total, 1.0)


def logistic_model(theta: ArrayLike) -> Any:
    """A fitted scikit-learn `LogisticRegression` with given parameters, intercept first.

    Examples
    --------
    >>> import consequential as cq
    >>> cq.logistic_model([0.0, 1.0]).predict_proba([[0.0]])
    array([[0.5, 0.5]])
    """
    from sklearn.linear_model import LogisticRegression

    theta = np.asarray(theta, dtype=np.float64)
    if theta.ndim != 1 or theta.size < 2:
        raise PolicyError(f"theta is (intercept, one number per feature), not shape {theta.shape}")
    # next to no penalty, but enough for features that are collinear
    model = LogisticRegression(C=1e4, solver="newton-cholesky", warm_start=True)
    model.classes_ = np.array([0, 1])
    model.intercept_ = theta[:1].copy()
    model.coef_ = theta[None, 1:].copy()
    model.n_features_in_ = theta.size - 1
    model.n_iter_ = np.array([0], dtype=np.int32)
    return model
