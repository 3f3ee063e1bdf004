"""Baselines: the usual ways to learn whom to accept."""

from consequential.baseline.baselines import Baselines, Entry, baselines
from consequential.baseline.predictors import (
    accepted_only,
    augmentation,
    boosted_trees,
    fuzzy_augmentation,
    inverse_propensity,
    parcelling,
    reduction,
)

__all__ = [
    "Baselines",
    "Entry",
    "accepted_only",
    "augmentation",
    "baselines",
    "boosted_trees",
    "fuzzy_augmentation",
    "inverse_propensity",
    "parcelling",
    "reduction",
]
