"""Policies: who is accepted, with what probability."""

from consequential.policies.features import (
    FeaturesError,
    NamedFeatures,
    PolicyError,
    as_features,
    numbered_names,
)
from consequential.policies.frames import (
    MOST_CATEGORIES,
    expanded_names,
    feature_matrix,
    is_words,
)
from consequential.policies.links import (
    LINKS,
    LOGISTIC,
    SEMI_LOGISTIC,
    SMOOTH_SEMI_LOGISTIC,
    Link,
    link_named,
)
from consequential.policies.policy import (
    FeatureMap,
    Policy,
    group_codes,
    plain_groups,
    policy_from_model,
)
from consequential.policies.rules import (
    AcceptAll,
    DecisionRule,
    EveryNth,
    Logged,
    Mixture,
    Predictor,
    RejectAll,
    ThresholdPolicy,
    logistic_model,
)
from consequential.policies.storage import load_policy, save_policy
from consequential.policies.support import Support, Unsupported, smallest_supported

__all__ = [
    "LINKS",
    "LOGISTIC",
    "MOST_CATEGORIES",
    "SEMI_LOGISTIC",
    "SMOOTH_SEMI_LOGISTIC",
    "AcceptAll",
    "DecisionRule",
    "EveryNth",
    "FeatureMap",
    "FeaturesError",
    "Link",
    "Logged",
    "Mixture",
    "NamedFeatures",
    "Policy",
    "PolicyError",
    "Predictor",
    "RejectAll",
    "Support",
    "ThresholdPolicy",
    "Unsupported",
    "as_features",
    "expanded_names",
    "feature_matrix",
    "group_codes",
    "is_words",
    "link_named",
    "load_policy",
    "logistic_model",
    "numbered_names",
    "plain_groups",
    "policy_from_model",
    "save_policy",
    "smallest_supported",
]
