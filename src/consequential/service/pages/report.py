"""Report: all about a loop in one HTML file, for an auditor, from what the pages show."""

from __future__ import annotations

from datetime import datetime
from importlib.resources import files

from consequential.service.cohorts import Cohorts
from consequential.service.pages.parts import parts
from consequential.service.pages.rendering import render
from consequential.service.problems import Problem
from consequential.service.records import stamp
from consequential.service.state import Service
from consequential.service.verify import Finding, verify

_SHOWN = 200  # findings


def report(service: Service, loop: str, time: datetime) -> str:
    """Return the report about a loop: HTML that needs no other file.

    Everything is verified anew, which takes as long as `verify`.
    """
    live = service.live(loop)
    cohorts = Cohorts(service.store, service.settings.directory, loop, live.settings)
    if cohorts.first_period() is None:
        raise Problem("no_decisions", 409, "the loop has decided on nobody: there is no report")
    found = verify(service.store, service.settings.secret)
    findings = [
        Finding("cohort", file, "not the file that was frozen") for file in cohorts.damaged()
    ]
    findings += found
    style = (files(__package__) / "static" / "style.css").read_text(encoding="utf-8")
    return render(
        "report.html",
        style=style,
        live=live,
        time=stamp(time),
        findings=[str(each) for each in findings[:_SHOWN]],
        n_findings=len(findings),
        parts=list(parts(service, live, cohorts)),
    )
