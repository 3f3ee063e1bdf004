"""Between scikit-learn's arrays, data frames, and logs."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.log import DecisionLog, DecisionLogError, LogScan
from consequential.policies import PolicyError, group_codes

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


def log_of(
    matrix: Floats,
    labels: Floats,
    sensitive: ArrayLike | None,
    decisions: ArrayLike | None,
    propensities: ArrayLike | None,
    amounts: ArrayLike | None,
    costs: ArrayLike | None,
    names: list[str] | None,
) -> DecisionLog:
    """Return a log of arrays; features are not copied, since nobody else keeps the log."""
    everybody = np.ones(len(matrix))
    return DecisionLog.from_arrays(
        matrix,
        everybody if decisions is None else column_of(decisions),
        everybody if decisions is None else _optional(propensities),
        labels,
        _optional(sensitive),
        amount=_optional(amounts),
        cost=_optional(costs),
        feature_names=names,
        copy=False,
    )


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
