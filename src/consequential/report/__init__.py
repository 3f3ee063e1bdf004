"""Reports: results of simulations and of decision logs as HTML pages that need no other file."""

from consequential.report.figures import propensity_figures
from consequential.report.page import Section, compile_templates, render, write_report

__all__ = ["Section", "compile_templates", "propensity_figures", "render", "write_report"]
