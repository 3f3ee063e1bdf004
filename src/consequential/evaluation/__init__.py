"""Evaluation: what a policy does to whom."""

from consequential.evaluation.metrics import Metrics, Population
from consequential.evaluation.overlap import Overlap, overlap

__all__ = ["Metrics", "Overlap", "Population", "overlap"]
