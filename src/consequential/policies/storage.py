"""Policies as JSON files: readable, exact, and free of code.

The fitted state of a transformer or classifier is stored as numbers. Only the types in
`STORABLE` are, because for those the numbers are known to be all there is; any other raises an
error that names the type. Nothing is ever unpickled, and no class is loaded by a name that is
not in that list.
"""

from __future__ import annotations

import importlib
import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from consequential.files import write_atomically
from consequential.links import LINKS, Link
from consequential.policies.features import PolicyError
from consequential.policies.policy import Policy
from consequential.policies.rules import (
    AcceptAll,
    DecisionRule,
    EveryNth,
    Mixture,
    RejectAll,
    ThresholdPolicy,
)
from consequential.policies.support import Support

FORMAT = "consequential policy"
_SCHEMA = 1
_SCHEMA_WITH_SUPPORT = 2  # a reader that knows no supports would decide on unsupported people

_RULES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (AcceptAll, EveryNth, Mixture, Policy, RejectAll, ThresholdPolicy)
}
_ADDED_LATER = ("learned_from", "feature_names", "support")  # fields that old files do not have

STORABLE = {
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
_SPLINE = ("t", "c", "k", "extrapolate")


def save_policy(policy: DecisionRule, path: str | os.PathLike[str]) -> None:
    """Write a policy to a JSON file, completely or not at all.

    Examples
    --------
    >>> import tempfile, pathlib, consequential as cq
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "policy.json"
    >>> cq.save_policy(cq.Policy([0.1, 2.0]), file)
    >>> cq.load_policy(file)
    Policy(theta=[0.1 2. ], link='logistic')
    """
    encoded = encode_rule(policy)
    schema = _SCHEMA_WITH_SUPPORT if _has_support(policy) else _SCHEMA
    document = {"format": FORMAT, "schema": schema, "policy": encoded}
    write_atomically(path, json.dumps(document, indent=2, allow_nan=False) + "\n")


def load_policy(path: str | os.PathLike[str]) -> DecisionRule:
    """Read a policy that `save_policy` wrote; see there for an example.

    Examples
    --------
    >>> import consequential as cq
    >>> cq.load_policy("no-such-file.json")
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: 'no-such-file.json'
    """
    content = Path(path).read_bytes()
    try:
        document = json.loads(content.decode("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise PolicyError(f"{os.fspath(path)} is not a policy file: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise PolicyError(f"{os.fspath(path)} is JSON but not a {FORMAT}")
    if document.get("schema") not in (_SCHEMA, _SCHEMA_WITH_SUPPORT):
        raise PolicyError(
            f"{os.fspath(path)} has schema {document.get('schema')!r}; this version of "
            f"consequential reads schemas {_SCHEMA} and {_SCHEMA_WITH_SUPPORT}"
        )
    try:
        return decode_rule(document["policy"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        kind = "" if isinstance(error, PolicyError) else f"{type(error).__name__}: "
        raise PolicyError(f"{os.fspath(path)} is damaged: {kind}{error}") from None


def _has_support(rule: DecisionRule) -> bool:
    own = isinstance(rule, Policy) and rule.support is not None
    return own or any(_has_support(inner) for inner in rule.inner_rules)


def encode_rule(rule: DecisionRule) -> dict[str, Any]:
    """Return a rule as plain JSON values: its type and its fields."""
    kind = type(rule)
    if _RULES.get(kind.__name__) is not kind:
        raise PolicyError(f"a {kind.__name__} cannot be stored as JSON")
    values = {each.name: getattr(rule, each.name) for each in fields(cast("Any", rule))}
    if values.get("support", ...) is None:
        del values["support"]
    return {"type": kind.__name__} | {name: _encode_field(v) for name, v in values.items()}


def _encode_field(value: Any) -> Any:
    match value:
        case DecisionRule():
            return encode_rule(value)
        case Support():
            return value.to_dict()
        case Link():
            if value is not LINKS.get(value.name):
                raise PolicyError(f"the link {value.name!r} cannot be stored as JSON")
            return value.name
        case np.ndarray():
            return value.tolist()
        case tuple():
            return [encode_rule(v) if isinstance(v, DecisionRule) else _encode(v) for v in value]
    return _encode(value)


def decode_rule(data: dict[str, Any]) -> DecisionRule:
    """Return the rule that `encode_rule` made these values of."""
    if data["type"] not in _RULES:
        raise PolicyError(f"unknown type of policy {data['type']!r}")
    kind = _RULES[data["type"]]
    names = [each.name for each in fields(kind)]
    values = {name: data[name] for name in names if name in data or name not in _ADDED_LATER}
    support = {"support": Support(**values.pop("support"))} if "support" in values else {}
    rule: DecisionRule = kind(**{name: _decode(value) for name, value in values.items()}, **support)
    return rule


def _encode(value: Any) -> Any:
    """Return JSON for the values, arrays, splines and estimators of a fitted state."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if np.isfinite(value) else {"float": repr(value)}
        case np.generic():
            return {"scalar": _encode(value.item()), "dtype": value.dtype.str}
        case np.ndarray():
            dtype = "object" if value.dtype == object else value.dtype.str
            return {
                "array": [_encode(item) for item in value.ravel().tolist()],
                "dtype": dtype,
                "shape": list(value.shape),
            }
        case tuple():
            return {"tuple": [_encode(item) for item in value]}
        case list():
            return [_encode(item) for item in value]
        case dict() if all(isinstance(key, str) for key in value):
            return {"dict": {key: _encode(item) for key, item in value.items()}}
        case type() if value.__module__ == "numpy":
            return {"numpy_type": value.__name__}
        case np.dtype():
            return {"numpy_dtype": value.str}
    kind = type(value).__name__
    if kind == "BSpline":
        return {"spline": {key: _encode(getattr(value, key)) for key in _SPLINE}}
    if STORABLE.get(kind) and type(value).__module__.startswith("sklearn."):
        state = {key: _encode(part) for key, part in vars(value).items()}
        return {"estimator": kind, "state": state}
    raise PolicyError(
        f"a {type(value).__module__}.{kind} cannot be stored as JSON; "
        f"these can: {', '.join(STORABLE)}"
    )


def _decode(data: Any) -> Any:
    match data:
        case list():
            return [_decode(item) for item in data]
        case {"float": text}:
            return float(text)
        case {"scalar": item, "dtype": dtype}:
            return np.dtype(dtype).type(_decode(item))
        case {"array": items, "dtype": dtype, "shape": shape}:
            return _decode_array([_decode(item) for item in items], dtype).reshape(shape)
        case {"tuple": items}:
            return tuple(_decode(item) for item in items)
        case {"dict": items}:
            return {key: _decode(item) for key, item in items.items()}
        case {"numpy_type": name}:
            return np.dtype(name).type
        case {"numpy_dtype": name}:
            return np.dtype(name)
        case {"spline": parts}:
            from scipy.interpolate import BSpline

            t, c, k, extrapolate = (_decode(parts[key]) for key in _SPLINE)
            return BSpline.construct_fast(t, c, k, extrapolate)
        case {"type": _}:
            return decode_rule(data)
        case {"estimator": kind, "state": state}:
            return _decode_estimator(kind, state)
        case dict():
            raise PolicyError(f"unreadable value with keys {sorted(data)}")
    return data


def _decode_array(items: list[Any], dtype: str) -> NDArray[Any]:
    if dtype != "object":
        return np.array(items, dtype=dtype)
    array = np.empty(len(items), dtype=object)
    for k, item in enumerate(items):  # an object may itself be an array
        array[k] = item
    return array


def _decode_estimator(kind: str, state: dict[str, Any]) -> Any:
    if kind not in STORABLE:
        raise PolicyError(f"a {kind!r} is not among the types that can be read")
    cls = getattr(importlib.import_module(STORABLE[kind]), kind)
    estimator = cls.__new__(cls)  # parameters and fitted state alike are in its `vars`
    vars(estimator).update({key: _decode(part) for key, part in state.items()})
    return estimator
