"""Between scikit-learn's arrays, data frames, and logs."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from consequential.log import DecisionLog, DecisionLogError, LogScan
from consequential.policies import Policy, PolicyError, group_codes

Floats = NDArray[np.float64]

_MAPPED = 200_000  # people of a scan that a feature map is fitted on


def column_of(values: Any) -> NDArray[Any]:
    """Return a series of any library, or a frame of one column, as a one-dimensional array."""
    array = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def accepted_rows(
    decisions: ArrayLike | None, propensities: ArrayLike | None, n: int
) -> NDArray[np.bool_]:
    """Return who was accepted: everybody where no decisions are given."""
    if decisions is None:
        if propensities is not None:
            raise DecisionLogError("propensities are given but no decisions: say who was accepted")
        return np.ones(n, dtype=np.bool_)
    try:
        decided = column_of(decisions).astype(np.float64)
    except (TypeError, ValueError):
        raise DecisionLogError("decisions must be numbers: 1 is accepted, 0 rejected") from None
    if decided.shape != (n,):
        raise DecisionLogError(
            f"decisions has shape {decided.shape} but X has {n} rows: one value a row is needed"
        )
    accepted: NDArray[np.bool_] = decided == 1.0
    if not accepted.any():
        raise DecisionLogError("nobody was accepted: there is nothing to learn from")
    return accepted


def seen_labels(labels: NDArray[Any], accepted: NDArray[np.bool_]) -> NDArray[Any]:
    """Return the labels of accepted people; the others have none, whatever stands there."""
    if labels.shape != accepted.shape:
        raise DecisionLogError(
            f"y has shape {labels.shape} but X has {len(accepted)} rows: one value a row is needed"
        )
    seen = labels[accepted]
    # beside missing values whole numbers come as objects, or as floats
    return np.array(seen.tolist()) if seen.dtype == object else seen


def both_classes(seen: NDArray[Any], classes: ArrayLike | None) -> NDArray[Any]:
    """Return both labels, sorted: the second is the outcome hoped for."""
    check_classification_targets(seen)
    found = np.unique(seen if classes is None else np.asarray(classes))
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
    return found


def coded_labels(seen: NDArray[Any], accepted: NDArray[np.bool_], classes: NDArray[Any]) -> Floats:
    """Return labels as 0 and 1 for accepted people, missing for the others."""
    unknown = np.setdiff1d(seen, classes)
    if len(unknown):
        raise ValueError(
            f"y has a label {unknown.tolist()[0]!r} that is not one of the classes "
            f"{classes.tolist()}"
        )
    coded = np.full(len(accepted), np.nan)
    coded[accepted] = seen == classes[1]
    return coded


def log_from(
    learner: Any,
    X: ArrayLike,
    y: ArrayLike,
    sensitive: ArrayLike | None,
    decisions: ArrayLike | None,
    propensities: ArrayLike | None,
    amounts: ArrayLike | None = None,
    costs: ArrayLike | None = None,
    *,
    reset: bool,
    classes: ArrayLike | None = None,
) -> DecisionLog:
    """Return as a log what scikit-learn hands over; labels of rejected people are not looked at.

    With `reset` the learner remembers the features and classes it sees; features are not copied,
    since nobody else keeps the log.
    """
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    matrix: Floats
    if decisions is None:
        matrix, labels = validate_data(learner, X, y, reset=reset, dtype=np.float64)
    else:
        matrix = validate_data(learner, X, reset=reset, dtype=np.float64)
        labels = column_of(y)
    accepted = accepted_rows(decisions, propensities, len(matrix))
    seen = seen_labels(labels, accepted)
    if reset:
        learner.classes_ = both_classes(seen, classes)
    names = getattr(learner, "feature_names_in_", None)
    everybody = np.ones(len(matrix))
    return DecisionLog.from_arrays(
        matrix,
        everybody if decisions is None else column_of(decisions),
        everybody if decisions is None else _optional(propensities),
        coded_labels(seen, accepted, learner.classes_),
        _optional(sensitive),
        amount=_optional(amounts),
        cost=_optional(costs),
        feature_names=None if names is None else list(names),
        copy=False,
    )


def template_for(learner: Any, log: DecisionLog | LogScan) -> Policy:
    """Return a policy of the form asked for, its feature map fitted on everybody in the log."""
    feature_map, width = None, len(log.feature_names)
    if learner.feature_map is not None:
        features = people_of(log, learner.random_state)
        feature_map = clone(learner.feature_map).fit(features)
        width = feature_map.transform(features[:1]).shape[1]
    groups = log.groups if learner.uses_sensitive else ()
    size = (width + 1) * max(len(groups), 1)
    return Policy(np.zeros(size), learner.link, feature_map, floor=learner.floor, groups=groups)


def people_of(log: DecisionLog | LogScan, seed: int) -> Floats:
    """Return the features of everybody in a log, of a sample of those in a scan."""
    if isinstance(log, LogScan):
        log = log.sample(_MAPPED, np.random.default_rng(seed))
    return np.asarray(log.features)


def _optional(values: ArrayLike | None) -> NDArray[Any] | None:
    return None if values is None else column_of(values)


def at_step(log: DecisionLog, step: int, groups: tuple[Hashable, ...] | None) -> DecisionLog:
    """Return the log as that of one time step, its groups numbered as they were before."""
    stamped = replace(log, time_step=np.full(len(log), step), as_of=step)
    if groups is None or groups == log.groups:
        return stamped
    try:
        codes = group_codes(log.sensitive, groups)
    except PolicyError as error:
        raise DecisionLogError(
            f"a later batch has a group that the first had not: {error}"
        ) from None
    return replace(stamped, group=codes, groups=groups)


def frame_like(frame: Any, columns: dict[str, NDArray[Any]], otherwise: NDArray[Any]) -> Any:
    """Return columns as a frame of the same library and index; for an array, `otherwise`."""
    import narwhals as nw

    known = nw.from_native(frame, eager_only=True, pass_through=True)
    if not isinstance(known, nw.DataFrame):
        return otherwise
    made = nw.from_dict(columns, backend=known.implementation).to_native()
    index = nw.maybe_get_index(known)
    return made if index is None else made.set_axis(index, axis=0)
