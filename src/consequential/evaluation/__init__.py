"""Evaluation: what a policy does to whom."""

from consequential.evaluation.metrics import Metrics, Population

__all__ = ["Metrics", "Population"]
