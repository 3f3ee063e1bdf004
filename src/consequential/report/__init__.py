"""Reports: results of simulations and of decision logs as HTML pages that need no other file."""

from consequential.report.figures import propensity_figures
from consequential.report.page import Section, render, write_report

__all__ = ["Section", "propensity_figures", "render", "write_report"]
