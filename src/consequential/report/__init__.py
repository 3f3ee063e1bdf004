"""Reports: what a decision log says as HTML pages that need no other file."""

from consequential.report.figures import propensity_figures
from consequential.report.page import compile_templates, render

__all__ = ["compile_templates", "propensity_figures", "render"]
