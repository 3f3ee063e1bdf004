"""Inputs: what a learner is given, its options checked and its tables turned into logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import check_X_y
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from consequential.evaluation import overlap
from consequential.learning.bounds import check_bounds, notion_of
from consequential.log import DecisionLog, DecisionLogError, LogScan
from consequential.log.columns import PositiveLabel, as_positive, yes_or_no
from consequential.log.frames import with_clear_names
from consequential.objective.objective import Objective
from consequential.policy import NamedFeatures, Policy, Preparation, Unsupported
from consequential.policy.features import framed, unmasked

Floats = NDArray[np.float64]

_WAYS = ("auto", "model", "scores", "direct")
_MAPPED = 200_000  # people of a scan that a feature map is fitted on


def check_options(learner: Any, log: DecisionLog | LogScan) -> None:
    """Raise an error for options that make no sense, alone or with this log."""
    if not (np.isfinite(learner.l2) and learner.l2 >= 0.0):
        raise ValueError(f"l2 is finite and not negative, not {learner.l2!r}")
    for name in ("n_starts", "max_passes"):
        value = getattr(learner, name)
        if value != int(value) or value < 1:
            raise ValueError(f"{name} is a whole number of at least 1, not {value!r}")
    if learner.unsupported not in get_args(Unsupported):
        raise ValueError(
            f"unsupported is one of {', '.join(get_args(Unsupported))}, not {learner.unsupported!r}"
        )
    if learner.method not in _WAYS:
        raise ValueError(f"method is one of {', '.join(_WAYS)}, not {learner.method!r}")
    if learner.outcome_model is not None and not hasattr(learner.outcome_model, "predict_proba"):
        raise ValueError(
            f"outcome_model is a classifier with predict_proba, not {learner.outcome_model!r}"
        )
    check_bounds(learner, log)
    Objective(learner.cost, notion_of(learner)).check_countable(log)
    signs_of(learner, log)
    if learner.uses_sensitive and len(log.groups) < 2:
        raise DecisionLogError(
            "uses_sensitive=True needs a sensitive attribute with at least two groups; the log "
            f"has {len(log.groups)}"
        )
    if learner.confidence is None:
        return
    if not 0.5 < learner.confidence < 1.0:
        raise ValueError(
            f"confidence lies between 0.5 and 1, 0.95 say, not {learner.confidence!r}: how often "
            "the bound is to hold"
        )
    if learner.max_gap is None:
        raise ValueError("confidence is that of a bound on the gap: give max_gap= too")
    if isinstance(log, LogScan):
        raise ValueError(
            "confidence= needs a log in memory: learn from scan.sample(n, rng), which holds out "
            "half of its rows"
        )


def unexplored(log: DecisionLog | LogScan, error: DecisionLogError) -> str:
    """Return why nothing can be learned from a log that left nothing to chance, and what to do."""
    reasons = "; ".join(overlap(log).reasons)
    return (
        f"{error}: {reasons}. Let the rule explore first, for example rule.with_floor(0.05), and "
        "see plan() for how many decisions that takes. A policy that extrapolates all the same "
        'comes of unsupported="trust_model"'
    )


def column_of(values: Any) -> Any:
    """Return a series of any library, or a frame of one column, as an array; None as it is."""
    if values is None:
        return None
    array = np.asarray(unmasked(values.to_numpy() if hasattr(values, "to_numpy") else values))
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def sensitive_of(values: Any) -> Any:
    """Return sensitive features as an array; those of a frame of several columns by name."""
    if not _is_frame(values) or np.ndim(values) != 2 or np.shape(values)[1] < 2:
        return column_of(values)
    return {name: column_of(values[name]) for name in values.columns}


def features_of(learner: Any, X: Any, *, reset: bool) -> Floats:
    """Return features as a matrix; those of a data frame are prepared, as they were in `fit`.

    With `reset` the learner remembers the raw columns it sees.
    """
    known: Preparation | None = None if reset else learner.policy_.preparation
    if _is_frame(X) and (reset or known is not None):
        validate_data(learner, X, reset=reset, skip_check_array=True)
        return (known or with_clear_names(Preparation.of(X))).transform(X)
    matrix: Floats = validate_data(learner, unmasked(X), reset=reset, dtype=np.float64)
    if known is None:
        return matrix
    return known.prepared(dict(zip(known.names, matrix.T, strict=True)))


def _prepared_notes(features: Floats) -> tuple[str, ...]:
    made = features.preparation if isinstance(features, NamedFeatures) else None
    return () if made is None else made.notes


def _is_frame(X: Any) -> bool:
    """Whether something is a data frame whose columns have names."""
    import narwhals as nw

    frame = nw.from_native(X, eager_only=True, pass_through=True)
    return isinstance(frame, nw.DataFrame) and all(isinstance(name, str) for name in frame.columns)


@dataclass(frozen=True, slots=True)
class Table:
    """What scikit-learn hands over, with the names it has there."""

    X: ArrayLike
    y: ArrayLike
    sensitive_features: ArrayLike | None = None
    decisions: ArrayLike | None = None
    propensities: ArrayLike | None = None
    amounts: ArrayLike | None = None
    costs: ArrayLike | None = None
    positive_label: Any = None

    def log(self, learner: Any, *, reset: bool) -> DecisionLog:
        """Return the table as a log; labels of rejected people are not looked at.

        With `reset` the learner remembers the features and classes it sees. Features are not
        copied, since nobody else keeps the log.
        """
        if self.y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        people = features_of(learner, self.X, reset=reset)
        labels = column_of(self.y)
        if self.decisions is None:
            _, labels = check_X_y(
                np.asarray(people), unmasked(self.y), dtype=np.float64, estimator=learner
            )
        decided, notes = self._decided(len(people))
        accepted = decided == 1.0
        if not accepted.any():
            raise DecisionLogError("nobody was accepted: there is nothing to learn from")
        _check_shape("y", labels, len(people))
        seen = labels[accepted]
        if seen.dtype == object:  # as whole numbers come beside missing values
            seen = np.array(seen.tolist())
        if reset:
            name, positive = getattr(self.y, "name", None), as_positive(self.positive_label)
            learner.classes_, said = _classes(seen, name, positive)
            learner.coding_ = (*notes, *said, *_prepared_notes(people))
        return DecisionLog.from_arrays(
            people,
            decided,
            decided if self.decisions is None else column_of(self.propensities),
            _coded_labels(seen, accepted, learner.classes_),
            sensitive_of(self.sensitive_features),
            amount=column_of(self.amounts),
            cost=column_of(self.costs),
            copy=False,
        )

    def _decided(self, n: int) -> tuple[Floats, tuple[str, ...]]:
        """Return decisions as numbers, 1 where none are given, and what words were taken for."""
        if self.decisions is None:
            if self.propensities is not None:
                raise DecisionLogError(
                    "propensities are given but no decisions: say who was accepted"
                )
            return np.ones(n), ()
        values = column_of(self.decisions)
        _check_shape("decisions", values, n)
        try:
            return values.astype(np.float64), ()
        except (TypeError, ValueError):
            numbers, said = yes_or_no("decision", "", values)
            return numbers, (said,)


def _classes(
    seen: NDArray[Any], name: Any, positive: PositiveLabel | None
) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Return both labels, the outcome hoped for second, and what words were taken for.

    Of numbers that is the larger one, of words one that a log knows: of paid and unpaid it is paid.
    Other words are refused, as in a log, unless it is said which is positive.
    """
    check_classification_targets(seen)
    found = np.unique(seen)
    if len(found) > 2:
        raise ValueError(
            "Only binary classification is supported. The type of the target is multiclass: "
            f"y has {len(found)} classes; 1 is the outcome hoped for, 0 the other"
        )
    if len(found) < 2:
        raise ValueError(
            f"y has one class, {found.tolist()[0]!r}: labels of both kinds are needed to tell "
            "whom to accept"
        )
    if found.dtype.kind not in "OU" and positive is None:
        return found, ()
    numbers, said = yes_or_no("label", str(name or ""), found, positive)
    if numbers[0] == numbers[1]:
        raise ValueError(f"y has one class in two words ({said}): labels of both kinds are needed")
    return found[np.argsort(numbers)], (said,)


def _coded_labels(seen: NDArray[Any], accepted: NDArray[np.bool_], classes: NDArray[Any]) -> Floats:
    """Return labels as 0 and 1 for accepted people, missing for the others."""
    unknown = np.setdiff1d(seen, classes)
    if len(unknown):
        raise ValueError(
            f"y has a label {unknown.tolist()[0]!r} that is not one of the classes "
            f"{classes.tolist()}"
        )
    numbers = np.full(len(accepted), np.nan)
    numbers[accepted] = seen == classes[1]
    return numbers


def _check_shape(name: str, values: NDArray[Any], n: int) -> None:
    if values.shape != (n,):
        raise DecisionLogError(
            f"{name} has shape {values.shape} but X has {n} rows: one value per row is needed"
        )


def template_for(learner: Any, log: DecisionLog | LogScan) -> Policy:
    """Return a policy of the form asked for, its feature map fitted on everybody in the log."""
    feature_map, width = None, len(log.feature_names)
    if learner.feature_map is not None:
        people = log
        if isinstance(people, LogScan):
            people = people.sample(_MAPPED, np.random.default_rng(learner.random_state))
        features = people.features
        if selects_columns(learner.feature_map):
            features = framed(features, people.feature_names)
        feature_map = clone(learner.feature_map).fit(features)
        width = feature_map.transform(features[:1]).shape[1]
    groups = log.groups if learner.uses_sensitive else ()
    size = (width + 1) * max(len(groups), 1)
    return Policy(np.zeros(size), learner.link, feature_map, floor=learner.floor, groups=groups)


def selects_columns(transformer: Any) -> bool:
    """Whether a transformer selects columns, which may be by name: it then gets a data frame."""
    match transformer:
        case Pipeline():
            return selects_columns(transformer.steps[0][1])
        case FeatureUnion():
            return any(selects_columns(each) for _, each in transformer.transformer_list)
    return isinstance(transformer, ColumnTransformer)


def frame_like(frame: Any, columns: dict[str, NDArray[Any]], otherwise: NDArray[Any]) -> Any:
    """Return columns as a frame of the same library and index; for an array, `otherwise`."""
    import narwhals as nw

    known = nw.from_native(frame, eager_only=True, pass_through=True)
    if not isinstance(known, nw.DataFrame):
        return otherwise
    made = nw.from_dict(columns, backend=known.implementation).to_native()
    index = nw.maybe_get_index(known)
    return made if index is None else made.set_axis(index, axis=0)


def signs_of(learner: Any, log: DecisionLog | LogScan) -> Floats | None:
    """Return for each feature of a log 1, -1, or 0 for any direction; None if none is asked for.

    A raw column is asked for by its own name; of its features, the one with its number counts.
    """
    if not learner.monotone:
        return None
    for name in ("feature_map", "outcome_model"):
        if getattr(learner, name) is not None:
            raise ValueError(
                f"monotone= cannot be promised with a {name} of your own, which may turn any way "
                f"with a feature: leave out {name}="
            )
    names = log.feature_names if log.preparation is None else log.preparation.names
    signs = dict.fromkeys(log.feature_names, 0.0)
    for column, direction in learner.monotone.items():
        by_place = isinstance(column, int | np.integer) and 0 <= column < len(names)
        name = names[column] if by_place else column
        if name not in names:
            raise ValueError(
                f"monotone= names a column {column!r}, but the columns are {', '.join(names)}"
            )
        if name not in signs:
            raise ValueError(
                f"monotone= names {column!r}, a column of words, which has no direction: name "
                "columns of numbers, dates or booleans"
            )
        if direction not in (1, -1):
            raise ValueError(
                "monotone= says for each column 1 (more of it never lowers the chance) or -1 "
                f"(never raises it); for {column!r} it says {direction!r}"
            )
        signs[name] = float(direction)
    return np.array(list(signs.values()))
