"""Reports: what runs and logs say, as pages that need nothing beside themselves."""

from consequential.report.page import page_of, paragraphs
from consequential.report.runs import Section, write_report

__all__ = ["Section", "page_of", "paragraphs", "write_report"]
