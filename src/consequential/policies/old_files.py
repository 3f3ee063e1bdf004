"""Old files: values and fitted scikit-learn objects as policy files of schemas 1 and 2 hold them.

They are read and no longer written. No class is loaded by a name that is not in the list.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.policies.features import PolicyError
from consequential.policies.soundness import check_sound

_ESTIMATORS = {
    "KBinsDiscretizer": "sklearn.preprocessing",
    "LogisticRegression": "sklearn.linear_model",
    "MinMaxScaler": "sklearn.preprocessing",
    "OneHotEncoder": "sklearn.preprocessing",
    "Pipeline": "sklearn.pipeline",
    "PolynomialFeatures": "sklearn.preprocessing",
    "RBFSampler": "sklearn.kernel_approximation",
    "RobustScaler": "sklearn.preprocessing",
    "SplineTransformer": "sklearn.preprocessing",
    "StandardScaler": "sklearn.preprocessing",
}


def decoded(data: Any) -> Any:
    """Return the values, arrays, splines and estimators that JSON stands for."""
    match data:
        case list():
            return [decoded(item) for item in data]
        case {"float": text}:
            return float(text)
        case {"scalar": item, "dtype": dtype}:
            return _array([decoded(item)], dtype)[0]
        case {"array": items, "dtype": dtype, "shape": shape}:
            return _array([decoded(item) for item in items], dtype).reshape(shape)
        case {"tuple": items}:
            return tuple(decoded(item) for item in items)
        case {"dict": items}:
            return {key: decoded(item) for key, item in items.items()}
        case {"numpy_type": name}:
            return np.dtype(name).type
        case {"numpy_dtype": name}:
            return np.dtype(name)
        case {"spline": parts}:
            from scipy.interpolate import BSpline

            return BSpline(*(decoded(parts[key]) for key in ("t", "c", "k", "extrapolate")))
        case {"estimator": kind, "state": state}:
            return _estimator(kind, state)
        case dict():
            raise PolicyError(f"unreadable value with keys {sorted(data)}")
    return data


def _array(items: list[Any], dtype: str) -> NDArray[Any]:
    if dtype != "object":
        kind = np.dtype(dtype).kind
        if kind == "V":
            raise PolicyError(f"an array of {dtype!r} is none that was written")
        # words are as long as they are, and not as long as the file says
        return np.array(items, dtype=kind if kind in "SU" else dtype)
    array = np.empty(len(items), dtype=object)
    for k, item in enumerate(items):  # an object may itself be an array
        array[k] = item
    return array


def _estimator(kind: str, state: dict[str, Any]) -> Any:
    if kind not in _ESTIMATORS:
        raise PolicyError(f"a {kind!r} is not among the types that can be read")
    cls = getattr(importlib.import_module(_ESTIMATORS[kind]), kind)
    estimator = cls.__new__(cls)  # parameters and fitted state alike are in its `vars`
    vars(estimator).update({key: decoded(part) for key, part in state.items()})
    check_sound(estimator)
    return estimator
