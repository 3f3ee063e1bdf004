"""Soundness: whether the indices in a fitted object lie within its arrays.

Compiled code follows the numbers of a tree, a spline or an encoder without checking them. In an
object from a file that somebody forged they may point anywhere, and Python would crash.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.policy.features import PolicyError

_CATEGORIES = 256  # of a categorical feature in boosted trees, at most
_BITSET = 8  # numbers that say which of them go left
# what splines, products and boosted trees take memory by, and the most they may make of a person
_WIDTHS = ("n_features_out_", "_n_out_full", "n_trees_per_iteration_")
_WIDEST = 100_000
_MACHINES = ("NuSVC", "NuSVR", "OneClassSVM", "SVC", "SVR")  # of libsvm


def check_sound(fitted: Any) -> None:
    """Refuse an object with a tree, a spline or an encoder that points outside its arrays."""
    for part in _parts(fitted):
        if type(part).__module__ == "sklearn.svm._classes" and type(part).__name__ in _MACHINES:
            raise PolicyError(
                f"a sklearn.svm._classes.{type(part).__name__} cannot be stored in a policy file "
                "or read from one: libsvm does not look at the sizes of its arrays"
            )
        try:
            sound = _is_sound(part)
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            raise PolicyError(f"a stored {type(part).__name__} is damaged: {error}") from None
        if not sound:
            raise PolicyError(
                f"a stored {type(part).__name__} is damaged: it points outside its arrays"
            )


def _parts(fitted: Any) -> Iterator[Any]:
    """Yield an object and everything it consists of."""
    pending, seen = [fitted], {id(fitted)}
    while pending:
        part = pending.pop()
        yield part
        inner = list(_items(part)) + list(getattr(part, "__dict__", {}).values())
        pending += [each for each in inner if id(each) not in seen]
        seen.update(map(id, inner))


def _items(part: Any) -> Any:
    if isinstance(part, dict):
        return part.values()
    if isinstance(part, np.ndarray):
        return part.ravel() if part.dtype == object else ()
    return part if isinstance(part, list | tuple) else ()


def _is_sound(part: Any) -> bool:
    if any(getattr(part, name, 0) > _WIDEST for name in _WIDTHS):
        return False
    if type(part).__name__ == "BSpline":
        type(part)(part.t, part.c, part.k, part.extrapolate)  # checks what it is given
    if hasattr(part, "_n_features_outs"):
        return _is_sound_encoder(part)
    return _is_sound_boosting(part) if hasattr(part, "_predictors") else True


def _is_sound_encoder(encoder: Any) -> bool:
    """Check that a one-hot encoder writes no indicator beside its columns."""
    widths = encoder._compute_n_features_outs()
    n = len(widths)
    dropped = encoder._drop_idx_after_grouping
    dropped = [None] * n if dropped is None else list(dropped)
    mappings = getattr(encoder, "_default_to_infrequent_mappings", [None] * n)
    if list(encoder._n_features_outs) != widths or not len(dropped) == len(mappings) == n:
        return False
    whole = [width + (drop is not None) for width, drop in zip(widths, dropped, strict=True)]
    return all(
        (drop is None or 0 <= drop < size)
        and (mapping is None or bool(((mapping >= 0) & (mapping < size)).all()))
        for size, drop, mapping in zip(whole, dropped, mappings, strict=True)
    )


def _is_sound_boosting(model: Any) -> bool:
    """Check the trees of histogram-based gradient boosting, and its categories."""
    categorical = np.asarray(model._bin_mapper.is_categorical_, dtype=np.bool_)
    values = [model._bin_mapper.bin_thresholds_[k] for k in np.flatnonzero(categorical)]
    predictors = [each for iteration in model._predictors for each in iteration]
    return (
        categorical.shape == (model.n_features_in_,)
        and all(((each >= 0) & (each < _CATEGORIES)).all() for each in values)
        and all(_is_sound_predictor(each, categorical) for each in predictors)
    )


def _is_sound_predictor(predictor: Any, categorical: NDArray[np.bool_]) -> bool:
    nodes, bitsets = predictor.nodes, predictor.raw_left_cat_bitsets
    inner = nodes["is_leaf"] == 0
    by_category = nodes[inner & (nodes["is_categorical"] != 0)]
    feature = nodes["feature_idx"][inner]
    # children come after their parents, so that every path ends within the tree
    children = np.stack([nodes["left"][inner], nodes["right"][inner]]).astype(np.int64)
    return len(nodes) > 0 and bool(
        ((feature >= 0) & (feature < len(categorical))).all()
        and ((children > np.flatnonzero(inner)) & (children < len(nodes))).all()
        and categorical[by_category["feature_idx"]].all()
        and (by_category["bitset_idx"] < len(bitsets)).all()
        and bitsets.shape[1:] == (_BITSET,)
    )
