"""The report: one file that opens offline, prints, and says what an auditor asks."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from lending_loop import LOOP
from tampering import unguarded
from trial import Trial

from consequential.cli import main
from consequential.service import policies, schema
from consequential.service.candidates import candidates, newest_evaluation
from consequential.service.database import open_store
from consequential.service.deciding import live_loops
from consequential.service.keys import Account
from consequential.service.loops import clock
from consequential.service.records import now
from consequential.service.settings import ServiceSettings


@pytest.fixture(scope="module")
def trial(page_trial: Trial, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """A loop whose candidate has passed the gate, and was approved."""
    directory = tmp_path_factory.mktemp("reported") / "service"
    shutil.copytree(page_trial.settings.directory, directory)
    settings = ServiceSettings.load(directory)
    store = open_store(settings)
    with store.write() as connection:
        live = live_loops(connection, {})[LOOP]
        waiting = [each for each in candidates(connection, LOOP) if each["by"] == "author"]
        look = newest_evaluation(connection, LOOP, waiting[0]["number"])
        risk = Account("risk", frozenset({"approve"}))
        at = clock(connection, LOOP, live.settings, now())
        shares = {look["candidate"]: 1.0}
        policies.approve(connection, live, shares, risk, at, evidence=look["number"])
    store.close()
    return Trial(settings, page_trial.keys, page_trial.policy)


@pytest.fixture(scope="module")
def page(trial: Trial) -> Path:
    out = trial.settings.directory / "audit.html"
    assert main(["report", str(trial.settings.directory), "--loop", LOOP, "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def text(page: Path) -> str:
    """What the report says, without what it draws."""
    found = re.sub(r"<(style|svg).*?</\1>", " ", page.read_text(), flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", found)).split())


def test_the_report_does_not_count_unknown_groups_which_would_tell_small_ones(text):
    assert "applied again forgotten" in text
    assert "group unknown" not in text


def test_the_report_says_what_an_auditor_asks(text):
    for words in (
        "what changed 1 1 January 2026 anna",
        "every decision replays",
        "without evidence: a start",
        "got 100 % of decisions",
        "decisions after those it was learned from",
        "refusal ben",
        "It proved that candidate",
        "Does the log explore?",
        "labels missing",
        "as promised",
        "What decides now, against what it replaced",
        "What this cannot tell",
        "Not watched now: drift (this policy was learned from no cohort)",
    ):
        assert words in text, words


def test_no_group_of_fewer_than_ten_is_in_the_report(page, text):
    assert "female" in text
    assert ">other<" not in page.read_text()


def test_the_report_needs_no_other_file(page):
    source = page.read_text()
    assert len(source.encode()) < 2e6
    assert "<script" not in source
    assert not re.search(r"""(src|href)=["'](?!#)""", source)
    assert "url(http" not in source
    assert source.startswith("<!doctype html>")


def test_a_changed_row_is_in_the_report(trial, tmp_path):
    directory = tmp_path / "service"
    shutil.copytree(trial.settings.directory, directory)
    store = open_store(ServiceSettings.load(directory))
    with unguarded(store, schema.decision) as connection:
        change = "update decision set amount = 2.0 where application_id = 'A-1-1'"
        connection.exec_driver_sql(change)
    store.close()
    out = tmp_path / "audit.html"
    assert main(["report", str(directory), "--loop", LOOP, "--out", str(out)]) == 0
    assert "something is not as it was written" in out.read_text()
    assert "its digest is not that of its content" in out.read_text()


def test_a_loop_without_decisions_has_no_report(trial, tmp_path, capsys):
    out = str(tmp_path / "audit.html")
    directory = str(trial.settings.directory)
    assert main(["report", directory, "--loop", "cards", "--out", out]) == 2
    assert "decided on nobody" in capsys.readouterr().err
    assert main(["report", directory, "--loop", "nothing", "--out", out]) == 2
    assert "no such loop" in capsys.readouterr().err


def test_the_report_prints(page, tmp_path):
    chromium = shutil.which("chromium")
    assert chromium, "make system installs chromium"
    out = tmp_path / "audit.pdf"
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'user'}",
    ]
    command = [chromium, *options, f"--print-to-pdf={out}", page.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    printed = out.read_bytes()
    assert printed.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) >= 4
