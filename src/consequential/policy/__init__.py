"""Policies: who is accepted, with what probability."""

from typing import TYPE_CHECKING, Any

from consequential.policy.features import (
    FeaturesError,
    NamedFeatures,
    PolicyError,
    as_features,
    framed,
    numbered_names,
    table_columns,
    unmasked,
)
from consequential.policy.group_codes import group_codes, plain_groups, sensitive_codes
from consequential.policy.policy import (
    FeatureMap,
    Policy,
    groups_of,
    link_numbers,
    policies_in,
    policy_from_model,
)
from consequential.policy.posterior import PosteriorPolicy
from consequential.policy.preparation import Preparation, seen_columns
from consequential.policy.raw_column import Seen
from consequential.policy.reasons import Reason, ScoreRises, reasons_for, score_rises
from consequential.policy.rules import (
    AcceptAll,
    DecisionRule,
    Logged,
    Mixture,
    RejectAll,
    ThresholdPolicy,
    checked_floor,
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

if TYPE_CHECKING:
    from consequential.policy.curves import Curves

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
        from consequential.policy.curves import Curves

        return Curves
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
