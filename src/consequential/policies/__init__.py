"""Policies: who is accepted, with what probability."""

from consequential.policies.checks import (
    FeaturesError,
    PolicyError,
    checked_floor,
    group_codes,
    plain_groups,
)
from consequential.policies.features import (
    NamedFeatures,
    as_features,
    feature_matrix,
    is_words,
    numbered_names,
)
from consequential.policies.policy import FeatureMap, Policy, policy_from_model
from consequential.policies.rules import (
    AcceptAll,
    DecisionRule,
    EveryNth,
    Logged,
    Mixture,
    RejectAll,
    ThresholdPolicy,
    logistic_model,
)
from consequential.policies.storage import load_policy, save_policy
from consequential.policies.support import Support, Unsupported, smallest_supported

__all__ = [
    "AcceptAll",
    "DecisionRule",
    "EveryNth",
    "FeatureMap",
    "FeaturesError",
    "Logged",
    "Mixture",
    "NamedFeatures",
    "Policy",
    "PolicyError",
    "RejectAll",
    "Support",
    "ThresholdPolicy",
    "Unsupported",
    "as_features",
    "checked_floor",
    "feature_matrix",
    "group_codes",
    "is_words",
    "load_policy",
    "logistic_model",
    "numbered_names",
    "plain_groups",
    "policy_from_model",
    "save_policy",
    "smallest_supported",
]
