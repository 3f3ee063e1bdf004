"""Policies: who is accepted, with what probability."""

from consequential.policy.features import NamedFeatures, PolicyError, as_features
from consequential.policy.group_codes import group_codes
from consequential.policy.policy import Policy, link_numbers, policy_from_model
from consequential.policy.posterior import PosteriorPolicy
from consequential.policy.preparation import Preparation
from consequential.policy.reasons import Reason
from consequential.policy.rules import (
    AcceptAll,
    DecisionRule,
    Logged,
    Mixture,
    RejectAll,
    ThresholdPolicy,
    logistic_model,
)
from consequential.policy.storage import (
    load_policy,
    policy_digest,
    policy_from_json,
    policy_to_json,
    save_policy,
)
from consequential.policy.summary import FeatureSummary
from consequential.policy.support import Support, Unsupported

__all__ = [
    "AcceptAll",
    "DecisionRule",
    "FeatureSummary",
    "Logged",
    "Mixture",
    "NamedFeatures",
    "Policy",
    "PolicyError",
    "PosteriorPolicy",
    "Preparation",
    "Reason",
    "RejectAll",
    "Support",
    "ThresholdPolicy",
    "Unsupported",
    "as_features",
    "group_codes",
    "link_numbers",
    "load_policy",
    "logistic_model",
    "policy_digest",
    "policy_from_json",
    "policy_from_model",
    "policy_to_json",
    "save_policy",
]
