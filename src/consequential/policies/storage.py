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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from consequential.files import write_atomically
from consequential.policies.features import PolicyError
from consequential.policies.links import LINKS
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
SCHEMA = 1

_RULES = (AcceptAll, EveryNth, Mixture, Policy, RejectAll, ThresholdPolicy)

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


def save_policy(policy: DecisionRule, path: str | os.PathLike[str]) -> None:
    """Write a policy to a JSON file; the file is either written whole or left as it was.

    Examples
    --------
    >>> import tempfile, pathlib, consequential as cq
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "policy.json"
    >>> cq.save_policy(cq.Policy([0.1, 2.0]), file)
    >>> cq.load_policy(file)
    Policy(theta=[0.1 2. ], link='logistic')
    """
    document = {"format": FORMAT, "schema": SCHEMA, "policy": encode_rule(policy)}
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
    if document.get("schema") != SCHEMA:
        raise PolicyError(
            f"{os.fspath(path)} has schema {document.get('schema')!r}; this version of "
            f"consequential reads schema {SCHEMA}"
        )
    try:
        return decode_rule(document["policy"])
    except PolicyError as error:
        raise PolicyError(f"{os.fspath(path)} is damaged: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise PolicyError(
            f"{os.fspath(path)} is damaged: {type(error).__name__}: {error}"
        ) from None


def encode_rule(rule: DecisionRule) -> dict[str, Any]:
    """Return a rule as plain JSON values."""
    if type(rule) not in _RULES:
        raise PolicyError(f"a {type(rule).__name__} cannot be stored as JSON")
    match rule:
        case Policy():
            if rule.link is not LINKS.get(rule.link.name):
                raise PolicyError(f"the link {rule.link.name!r} cannot be stored as JSON")
            support = {} if rule.support is None else {"support": rule.support.to_dict()}
            return {
                "type": "Policy",
                "theta": rule.theta.tolist(),
                "link": rule.link.name,
                "feature_map": _encode(rule.feature_map),
                "floor": rule.floor,
                "groups": [_encode(group) for group in rule.groups],
                "learned_from": rule.learned_from,
                "feature_names": list(rule.feature_names),
                **support,
            }
        case ThresholdPolicy():
            predictor = _encode(rule.predictor)
            return {"type": "ThresholdPolicy", "predictor": predictor, "threshold": rule.threshold}
        case EveryNth():
            return {"type": "EveryNth", "n": rule.n, "otherwise": encode_rule(rule.otherwise)}
        case Mixture():
            rules = [encode_rule(part) for part in rule.rules]
            return {"type": "Mixture", "rules": rules, "probabilities": list(rule.probabilities)}
    return {"type": type(rule).__name__}  # accept-all and reject-all have no more to say


def decode_rule(data: dict[str, Any]) -> DecisionRule:
    """Return the rule that `encode_rule` made these values of."""
    match data["type"]:
        case "Policy":
            return Policy(
                data["theta"],
                data["link"],
                _decode(data["feature_map"]),
                floor=data["floor"],
                groups=[_decode(group) for group in data["groups"]],
                learned_from=data.get("learned_from", ""),
                feature_names=data.get("feature_names", ()),
                support=Support.from_dict(data["support"]) if "support" in data else None,
            )
        case "ThresholdPolicy":
            return ThresholdPolicy(_decode(data["predictor"]), data["threshold"])
        case "EveryNth":
            return EveryNth(data["n"], decode_rule(data["otherwise"]))
        case "Mixture":
            return Mixture([decode_rule(part) for part in data["rules"]], data["probabilities"])
        case "AcceptAll":
            return AcceptAll()
        case "RejectAll":
            return RejectAll()
    raise PolicyError(f"unknown type of policy {data['type']!r}")


def _encode(value: Any) -> Any:
    """JSON for the plain values, arrays, splines and estimators a fitted state consists of."""
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
        parts = {"t": value.t, "c": value.c, "k": value.k, "extrapolate": value.extrapolate}
        return {"spline": {key: _encode(part) for key, part in parts.items()}}
    if STORABLE.get(kind) and type(value).__module__.startswith("sklearn."):
        state = {key: _encode(part) for key, part in vars(value).items()}
        return {"estimator": kind, "state": state}
    raise PolicyError(
        f"a {type(value).__module__}.{kind} cannot be stored as JSON; "
        f"these can: {', '.join(STORABLE)}"
    )


def _decode(data: Any) -> Any:
    if isinstance(data, list):
        return [_decode(item) for item in data]
    if not isinstance(data, dict):
        return data
    decoders: dict[str, Callable[[dict[str, Any]], Any]] = {
        "float": lambda d: float(d["float"]),
        "scalar": lambda d: np.dtype(d["dtype"]).type(_decode(d["scalar"])),
        "array": _decode_array,
        "tuple": lambda d: tuple(_decode(item) for item in d["tuple"]),
        "dict": lambda d: {key: _decode(item) for key, item in d["dict"].items()},
        "numpy_type": lambda d: np.dtype(d["numpy_type"]).type,
        "numpy_dtype": lambda d: np.dtype(d["numpy_dtype"]),
        "spline": _decode_spline,
        "estimator": _decode_estimator,
    }
    for key, decoder in decoders.items():
        if key in data:
            return decoder(data)
    raise PolicyError(f"unreadable value with keys {sorted(data)}")


def _decode_array(data: dict[str, Any]) -> Any:
    items = [_decode(item) for item in data["array"]]
    if data["dtype"] == "object":
        array = np.empty(len(items), dtype=object)
        for k, item in enumerate(items):  # an object may itself be an array
            array[k] = item
        return array.reshape(data["shape"])
    return np.array(items, dtype=data["dtype"]).reshape(data["shape"])


def _decode_spline(data: dict[str, Any]) -> Any:
    from scipy.interpolate import BSpline

    parts = {key: _decode(part) for key, part in data["spline"].items()}
    return BSpline.construct_fast(parts["t"], parts["c"], parts["k"], parts["extrapolate"])


def _decode_estimator(data: dict[str, Any]) -> Any:
    kind = data["estimator"]
    if kind not in STORABLE:
        raise PolicyError(f"a {kind!r} is not among the types that can be read")
    cls = getattr(importlib.import_module(STORABLE[kind]), kind)
    estimator = cls.__new__(cls)  # parameters and fitted state alike are in its `vars`
    vars(estimator).update({key: _decode(part) for key, part in data["state"].items()})
    return estimator
