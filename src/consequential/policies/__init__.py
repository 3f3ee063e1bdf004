"""Policies: who is accepted, with what probability."""

from typing import TYPE_CHECKING, Any

from consequential.policies.features import (
    FeaturesError,
    NamedFeatures,
    PolicyError,
    as_features,
    framed,
    numbered_names,
    table_columns,
    unmasked,
)
from consequential.policies.groups import group_codes, plain_groups, sensitive_codes
from consequential.policies.policy import (
    FeatureMap,
    Policy,
    groups_of,
    link_numbers,
    policies_in,
    policy_from_model,
)
from consequential.policies.posterior import PosteriorPolicy
from consequential.policies.preparation import Preparation, seen_columns
from consequential.policies.raw_column import Seen
from consequential.policies.reasons import Reason, ScoreRises, reasons_for, score_rises
from consequential.policies.rules import (
    AcceptAll,
    DecisionRule,
    Logged,
    Mixture,
    RejectAll,
    ThresholdPolicy,
    checked_floor,
    logistic_model,
)
from consequential.policies.storage import (
    load_policy,
    policy_digest,
    policy_from_json,
    policy_to_json,
    save_policy,
)
from consequential.policies.summary import FeatureSummary
from consequential.policies.support import Support, Unsupported

if TYPE_CHECKING:
    from consequential.policies.curves import Curves

__all__ = [
    "AcceptAll",
    "Curves",
    "DecisionRule",
    "FeatureMap",
    "FeatureSummary",
    "FeaturesError",
    "Logged",
    "Mixture",
    "NamedFeatures",
    "Policy",
    "PolicyError",
    "PosteriorPolicy",
    "Preparation",
    "Reason",
    "RejectAll",
    "ScoreRises",
    "Seen",
    "Support",
    "ThresholdPolicy",
    "Unsupported",
    "as_features",
    "checked_floor",
    "framed",
    "group_codes",
    "groups_of",
    "link_numbers",
    "load_policy",
    "logistic_model",
    "numbered_names",
    "plain_groups",
    "policies_in",
    "policy_digest",
    "policy_from_json",
    "policy_from_model",
    "policy_to_json",
    "reasons_for",
    "save_policy",
    "score_rises",
    "seen_columns",
    "sensitive_codes",
    "table_columns",
    "unmasked",
]


def __getattr__(name: str) -> Any:
    if name == "Curves":  # a policy needs no scikit-learn
        from consequential.policies.curves import Curves

        return Curves
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
