"""Policies as JSON: readable, exact, checked when they are read, and free of code.

A file says the format, the schema, the versions of the libraries that wrote it, the policy, and
the propensities of a few made-up people, its probes. A digest covers all of that. A reader refuses
a file with another digest, and one whose probes it would decide on differently.
"""

from __future__ import annotations

import hashlib
import json
import os
import textwrap
import warnings
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np

from consequential.files import write_atomically
from consequential.policy.archive import archived, unarchived
from consequential.policy.features import Floats, NamedFeatures, PolicyError, numbered_names
from consequential.policy.links import LINKS, Link
from consequential.policy.policy import Policy, groups_of, policies_in
from consequential.policy.posterior import PosteriorPolicy
from consequential.policy.preparation import Preparation
from consequential.policy.rules import AcceptAll, DecisionRule, Mixture, RejectAll, ThresholdPolicy
from consequential.policy.summary import FeatureSummary
from consequential.policy.support import Support
from consequential.provenance import versions

FORMAT = "consequential policy"
_SCHEMA = 3
_LONGEST_REASON = 400  # characters of what is wrong with a file, which may have anything in it

_RULES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (AcceptAll, Mixture, Policy, PosteriorPolicy, RejectAll, ThresholdPolicy)
}
# the type of each field in JSON; rules check the values themselves
_KINDS: dict[str, Any] = {
    "theta": list,
    "link": str,
    "feature_map": dict | None,
    "floor": float | int,
    "groups": list,
    "learned_from": str,
    "feature_names": list,
    "support": dict | None,
    "summary": dict | None,
    "preparation": dict | None,
    "predictor": dict,
    "threshold": float | int,
    "rules": list,
    "probabilities": list,
    "model": dict,
    "covariance": list,
    "cost": float | int,
    "optimistic": bool,
    "prices": list,
    "chances": list,
    "counted": list,
    "patterns": list,
}
_PEOPLE = 12
_TOLERANCE = 1e-9


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
    write_atomically(path, policy_to_json(policy))


def load_policy(path: str | os.PathLike[str]) -> DecisionRule:
    """Read a policy that `save_policy` wrote.

    Examples
    --------
    >>> import consequential as cq
    >>> cq.load_policy("no-such-file.json")
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: 'no-such-file.json'
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise PolicyError(f"{os.fspath(path)} is not a policy file: {error}") from None
    return _read(text, os.fspath(path))


def policy_to_json(policy: DecisionRule) -> str:
    """Return a policy as JSON, with everything needed to decide in another process.

    The text is read again before it is returned, so that what could not be read later is refused
    now. Fitted scikit-learn parts are stored by skops; types that cannot be checked are refused.

    Examples
    --------
    >>> import json, consequential as cq
    >>> text = cq.policy_to_json(cq.Policy([0.1, 2.0], feature_names=["income"]))
    >>> list(json.loads(text))
    ['format', 'schema', 'digest', 'versions', 'policy', 'probes']
    >>> cq.policy_from_json(text).propensity({"income": 1.0}).round(3)
    array([0.891])
    """
    content = {
        "format": FORMAT,
        "schema": _SCHEMA,
        "digest": "",
        "versions": versions(),
        "policy": encode_rule(policy),
        "probes": probes_of(policy),
    }
    content["digest"] = _digest(content)
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    _read(text, "what was written")
    return text


def policy_from_json(text: str) -> DecisionRule:
    """Return the policy that `policy_to_json` wrote.

    Examples
    --------
    >>> import consequential as cq
    >>> cq.policy_from_json(cq.policy_to_json(cq.AcceptAll()))
    AcceptAll()
    """
    return _read(text, "the text")


def policy_digest(policy: DecisionRule) -> str:
    """Return a sha256 digest of everything that a policy is.

    It is the same before and after saving, and in other processes; versions of libraries are no
    part of it.

    Examples
    --------
    >>> import consequential as cq
    >>> policy = cq.Policy([0.1, 2.0])
    >>> again = cq.policy_from_json(cq.policy_to_json(policy))
    >>> cq.policy_digest(again) == cq.policy_digest(policy)
    True
    >>> cq.policy_digest(policy.with_floor(0.1)) == cq.policy_digest(policy)
    False
    """
    return _digest(encode_rule(policy))


def _read(text: str, where: str) -> DecisionRule:
    try:
        document = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise PolicyError(f"{where} is not a policy file: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise PolicyError(f"{where} is JSON but not a {FORMAT}")
    schema = document.get("schema")
    if schema != _SCHEMA:
        shown = schema if isinstance(schema, int | None) else f"of a {type(schema).__name__}"
        raise PolicyError(
            f"{where} has schema {shown}; this version of consequential reads schema {_SCHEMA}"
        )
    try:
        if document["digest"] != _digest(document):
            raise PolicyError(
                "its content is not what was written (the digest differs). Take a copy that "
                "nobody edited, or save the policy again"
            )
        policy = decode_rule(document["policy"])
        check_probes(policy, document["probes"])
    except Exception as error:  # whatever values of the wrong kind lead to
        kind = "" if isinstance(error, PolicyError) else f"{type(error).__name__}: "
        reason = textwrap.shorten(f"{kind}{error}", _LONGEST_REASON, placeholder=" ...")
        raise PolicyError(f"{where} is damaged: {reason}{_other_versions(document)}") from None
    return policy


def _other_versions(document: dict[str, Any]) -> str:
    """Return advice where other versions of libraries wrote a file; else the empty text."""
    wrote, read = document.get("versions"), versions()
    if not isinstance(wrote, dict) or not all(isinstance(each, str) for each in wrote.values()):
        return ""
    differing = [name for name in read if name in wrote and wrote[name] != read[name]]
    if not differing:
        return ""
    was, now = (", ".join(f"{name} {each[name]}" for name in differing) for each in (wrote, read))
    return (
        f". It was written with {was}, and is read with {now}: read it with the versions that "
        "wrote it, or learn it again"
    )


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number that a policy file may have")


def _digest(content: Mapping[str, Any]) -> str:
    """Return a digest of everything but the digest itself, and archives, which have their own."""
    kept = _without_archives({name: part for name, part in content.items() if name != "digest"})
    canonical = json.dumps(kept, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _without_archives(data: Any) -> Any:
    """Return JSON without archives: equal objects may be compressed to different bytes."""
    if isinstance(data, dict):
        return {key: _without_archives(part) for key, part in data.items() if key != "skops"}
    return [_without_archives(part) for part in data] if isinstance(data, list) else data


def encode_rule(rule: DecisionRule) -> dict[str, Any]:
    """Return a rule as plain JSON values: its type and its fields."""
    kind = type(rule)
    if _RULES.get(kind.__name__) is not kind:
        raise PolicyError(
            f"a {kind.__name__} cannot be stored as JSON; these rules can: {', '.join(_RULES)}"
        )
    values = {each.name: getattr(rule, each.name) for each in fields(cast("Any", rule))}
    return {"type": kind.__name__} | {name: _encode(value) for name, value in values.items()}


def decode_rule(data: dict[str, Any]) -> DecisionRule:
    """Return the rule that `encode_rule` made these values of."""
    if data["type"] not in _RULES:
        raise PolicyError(f"unknown type of policy {data['type']!r}")
    kind = _RULES[data["type"]]
    rule: DecisionRule = kind(
        **{each.name: _decode(each.name, data[each.name]) for each in fields(kind)}
    )
    return rule


def _encode(value: Any) -> Any:
    match value:
        case Support() | FeatureSummary() | Preparation():
            return value.to_dict()
        case Link():
            if value is not LINKS.get(value.name):
                raise PolicyError(
                    f"the link {value.name!r} cannot be stored as JSON; these can: "
                    f"{', '.join(LINKS)}"
                )
            return value.name
        case np.ndarray():
            return value.tolist()
        case tuple():
            return [_encode_item(item) for item in value]
        case DecisionRule() | None | bool() | int() | float() | str():
            return _encode_item(value)
    return archived(value)


def _encode_item(value: Any) -> Any:
    """Return a rule, a number, a name or a group."""
    if isinstance(value, DecisionRule):
        return encode_rule(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise PolicyError(
        f"a group of type {type(value).__name__} cannot be stored as JSON: make it text or a number"
    )


def _decode(name: str, data: Any) -> Any:
    if not isinstance(data, _KINDS.get(name, object)):
        raise PolicyError(f"{name} cannot be {json.dumps(data)[:40]}")
    match name, data:
        case "support", dict():
            return Support(**data)
        case "summary", dict():
            return FeatureSummary(**data)
        case "preparation", dict():
            return Preparation.from_dict(data)
        case "rules", list():
            return [decode_rule(each) for each in data]
        case _, {"type": _}:
            return decode_rule(data)
        case _, {"skops": _}:
            return unarchived(data)
        case _, dict():
            raise PolicyError(f"unreadable {name} with keys {sorted(data)}")
    return data


def probes_of(rule: DecisionRule) -> dict[str, Any] | None:
    """Return made-up people and a rule's propensities for them, as plain values.

    The people of a policy with a summary have quantiles of its features, put together at random;
    those of another rule have numbers of ordinary size. None where it is not known how many
    features a rule looks at, or where it has no answer for such people, as a predictor of words.
    """
    summary = _summary(rule)
    if summary is None:
        return None
    people = summary.made_up_people(_PEOPLE)
    group = [k % len(groups_of(rule)) for k in range(_PEOPLE)] if rule.uses_sensitive else []
    probes = {"features": list(summary.names), "people": people.tolist(), "group": group}
    try:
        return probes | {"propensity": _propensities(rule, probes).tolist()}
    except (ValueError, TypeError):
        return None


def check_probes(rule: DecisionRule, probes: Mapping[str, Any] | None) -> None:
    """Refuse a rule that decides on its probes differently from when it was saved."""
    if probes is None:
        return
    then, now = np.array(probes["propensity"], dtype=np.float64), _propensities(rule, probes)
    if then.shape != now.shape or not (np.abs(then - now) <= _TOLERANCE).all():
        raise PolicyError(
            "it does not decide as it did when it was saved: its propensities for made-up people "
            "differ"
        )


def _propensities(rule: DecisionRule, probes: Mapping[str, Any]) -> Floats:
    people = NamedFeatures(probes["people"], probes["features"])
    groups = groups_of(rule)
    sensitive = np.array([groups[code] for code in probes["group"]], dtype=object)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # made-up people may have values that nobody has
        found = np.asarray(rule.propensity(people, sensitive if groups else None), np.float64)
    if not ((found >= 0.0) & (found <= 1.0)).all():
        raise PolicyError("its propensities are not probabilities")
    return found


def _summary(rule: DecisionRule) -> FeatureSummary | None:
    """Return a summary of all features that a rule looks at."""
    names = rule.feature_names or numbered_names(_n_features(rule) or 0)
    for policy in policies_in(rule):
        if policy.summary is not None and policy.summary.names == names:
            return policy.summary
    return FeatureSummary.ordinary(names) if names else None


def _n_features(rule: DecisionRule) -> int | None:
    """Return how many features a rule without names looks at; None where that is not known."""
    match rule:
        case Policy(feature_map=None):
            return rule.theta.size // max(len(rule.groups), 1) - 1
        case Policy():
            return getattr(rule.feature_map, "n_features_in_", None)
        case ThresholdPolicy():
            return getattr(rule.predictor, "n_features_in_", None)
    known = (_n_features(inner) for inner in rule.inner_rules)
    return next((n for n in known if n is not None), None)
