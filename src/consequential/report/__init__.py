"""Reports: what a decision log says as HTML pages that need no other file."""

from consequential.report.figures import propensity_figures
from consequential.report.page import render

__all__ = ["propensity_figures", "render"]
