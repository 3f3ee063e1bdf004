"""Policies: who is accepted, with what probability."""

from consequential.policies.features import (
    FeaturesError,
    NamedFeatures,
    PolicyError,
    as_features,
    feature_matrix,
    group_codes,
    is_words,
    numbered_names,
    plain_groups,
    sensitive_codes,
)
from consequential.policies.policy import FeatureMap, Policy, link_numbers, policy_from_model
from consequential.policies.rules import (
    AcceptAll,
    DecisionRule,
    EveryNth,
    Logged,
    Mixture,
    RejectAll,
    ThresholdPolicy,
    checked_floor,
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
    "link_numbers",
    "load_policy",
    "logistic_model",
    "numbered_names",
    "plain_groups",
    "policy_from_model",
    "save_policy",
    "sensitive_codes",
    "smallest_supported",
]
