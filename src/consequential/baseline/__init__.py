"""Baselines: the usual ways to learn whom to accept."""

from consequential.baseline.baselines import Baselines, Entry, baselines
from consequential.baseline.predictors import (
    accepted_only,
    augmentation,
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
    "fuzzy_augmentation",
    "inverse_propensity",
    "parcelling",
    "reduction",
]
