"""Reports: what runs and logs say, as pages that need nothing beside themselves."""

from consequential.report.page import page_of, paragraphs, svg_of
from consequential.report.runs import Section, write_report

__all__ = ["Section", "page_of", "paragraphs", "svg_of", "write_report"]
