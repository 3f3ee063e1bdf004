"""Probes: made-up people whose stored propensities show whether a policy decides as before."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from consequential.policy.features import Floats, NamedFeatures, PolicyError, numbered_names
from consequential.policy.policy import Policy, groups_of, policies_in
from consequential.policy.rules import DecisionRule, ThresholdPolicy
from consequential.policy.summary import FeatureSummary

_PEOPLE = 12
_TOLERANCE = 1e-9


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
