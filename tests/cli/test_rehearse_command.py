"""A small rehearsal: a real service, people over HTTP, and what is left when it has ended."""

from __future__ import annotations

import json
import re
import runpy
import socket
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import httpx
import numpy as np
import pytest

from consequential.cli import main, rehearsal
from consequential.cli.applicants import Applicants, Downturn
from consequential.cli.rehearsal import LOOP, Rehearsal
from consequential.lab.worlds import first_setting
from consequential.service.client import Decision

AUDIT = Path(__file__).parents[2] / "examples" / "audit.py"


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    """The folder of a rehearsal of 500 decisions."""
    folder = tmp_path_factory.mktemp("rehearsal") / "service"
    sizes = ["--months", "3", "--decisions", "100", "--seed", "3"]
    with redirect_stdout(StringIO()) as said:
        assert main(["rehearse", str(folder), *sizes, "--port", free_port(), "--no-wait"]) == 0
    (folder.parent / "said").write_text(said.getvalue())
    return folder


def test_a_rehearsal_has_a_line_per_month_and_then_a_downturn(rehearsed):
    months = json.loads((rehearsed / "rehearsal.json").read_text())
    assert [month["decided"] for month in months] == [100] * 5
    assert all(25 < month["accepted"] < 60 for month in months[:3])
    assert months[0]["utility"] == pytest.approx(0.1582, abs=1e-4)  # of the harsh rule
    assert months[3]["happened"][0] == "times get worse"
    assert "candidate 1 is filed" in months[4]["happened"]  # three months after the first
    assert months[4]["utility"] < 0.01
    said = (rehearsed.parent / "said").read_text()
    assert "no candidate was proven in 3 months" in said
    assert "drift is not watched until then" in said
    page = (rehearsed / "audit.html").read_text()
    assert "drift (this policy was learned from no cohort)" in page
    assert f"cost: {first_setting().cost:.6g};" in page
    last_days = re.findall(r">\d{4}-\d\d-31</th><td>(\d+)</td>", page)
    assert any(int(people) > 0 for people in last_days)


def test_everything_is_as_it_was_written(rehearsed, capsys):
    assert main(["verify", str(rehearsed)]) == 0
    assert "all as it was written" in capsys.readouterr().out


def test_the_auditors_program_checks_a_rehearsal_and_finds_a_planted_change(
    rehearsed, tmp_path, monkeypatch, capsys
):
    asked = ["export", str(rehearsed), "--loop", LOOP, "--overwrite"]
    for table in ("decision", "epoch", "day"):
        out = str(tmp_path / f"{table}.parquet")
        assert main([*asked, "--table", table, "--out", out]) == 0
    monkeypatch.setattr("sys.argv", ["audit.py", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(AUDIT))
    assert ended.value.code == 0
    assert re.search(r"^\d{4} checks, 0 failed", capsys.readouterr().out, re.MULTILINE)
    decisions = tmp_path / "decision.parquet"
    content = decisions.read_bytes()
    pq = sys.modules["pyarrow.parquet"]
    table = pq.read_table(decisions)
    refused = table["accepted"].to_pylist().index(False)
    rows = table.to_pylist()
    rows[refused]["accepted"] = True
    pq.write_table(type(table).from_pylist(rows, table.schema), decisions)
    assert decisions.read_bytes() != content
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(AUDIT))
    assert ended.value.code == 1
    assert f"decision {rows[refused]['id']}, action" in capsys.readouterr().out


def test_a_folder_that_is_there_is_not_used_again(rehearsed, capsys):
    assert main(["rehearse", str(rehearsed), "--no-wait"]) == 2
    assert "is there already" in capsys.readouterr().err


def test_a_port_where_something_is_served_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(rehearsal, "_answers", lambda http: True)
    assert main(["rehearse", str(tmp_path / "service"), "--no-wait"]) == 2
    assert "choose another --port" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())  # so that the next command can use the folder


# --- people


def decided(applications, accepted) -> list[Decision]:
    return [
        Decision(f"D-{each.name}", bool(yes), 0.5, "", ())
        for each, yes in zip(applications, accepted, strict=True)
    ]


def test_what_a_rehearsal_serves_ends_with_it(tmp_path):
    port, folder = free_port(), str(tmp_path / "service")
    sizes = ["--months", "1", "--decisions", "20", "--port", port]
    command = [sys.executable, "-u", "-m", "consequential", "rehearse", folder, *sizes]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert any("until Ctrl-C" in line for line in process.stdout)
        httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=30.0)
        process.terminate()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/healthz")


def test_people_apply_again_some_are_overridden_and_some_labels_never_come():
    people = Applicants(np.random.default_rng(0))
    world, days = first_setting(), [1 + k * 28 // 4000 for k in range(4000)]
    n_overridden = 0
    for month in ("2030-01", "2030-02"):
        applications = people.apply(world, month, days[:2000])
        overrides = people.hear(applications, decided(applications, [False] * 2000))
        labels = {f"D-{each.name}": each.label for each in applications}
        assert 30 < len(overrides) < 95  # 3 % of 2000
        n_overridden += len(overrides)
        assert all(labels[each["decision_id"]] == 1 for each in overrides)
        later = people.apply(world, month, days[2000:])
        refused = {each.person.subject for each in applications}
        again = sum(each.person.subject in refused for each in later)
        assert 60 < again < 160  # 5 % of 2000
        assert people.hear(later, decided(later, [True] * 2000)) == []
    first_month = {each["subject_id"] for each in people.groups()[:3000]}
    assert first_month & {each.person.subject for each in later}
    came = [each for month in range(1, 6) for each in people.outcomes(f"2030-{month:02}")]
    n_accepted = 4000 + n_overridden
    assert 0.97 * n_accepted < len(came) < 0.99 * n_accepted  # 2 % of labels are missing


def test_a_downturn_lowers_scores_and_labels():
    good, bad = first_setting(), Downturn()
    scores = np.linspace(-0.8, 0.8, 9)
    assert (bad.score_probability(scores) <= good.score_probability(scores)).all()
    rng = np.random.default_rng(0)
    assert bad.people(1000, rng).features.mean() < good.people(1000, rng).features.mean() - 0.2
    assert bad.cost == good.cost


# --- the head of risk


class Risk:
    """A service that has whatever a test says, and remembers what it was asked to deploy."""

    def __init__(self, **rows):
        self.rows = {"candidates": [], "evaluations": [], "guardrails": [], **rows}
        self.deployed = []

    def listed(self, loop, what):
        return self.rows[what]

    def deploy(self, loop, shares, *, evidence=None, why=""):
        self.deployed.append((shares, evidence, why))


def act(risk: Risk) -> list[str]:
    played = SimpleNamespace(_clients={"head of risk": risk}, _seen="")
    for name in ("_alarms", "_approve"):
        setattr(played, name, getattr(Rehearsal, name).__get__(played))
    return Rehearsal._act(played)


def look(number: int, candidate: int, *, passed: bool):
    known = {"number": number, "candidate_number": candidate, "candidate": f"new-{candidate}"}
    return known | {"passed": passed}


WAITING = [{"number": number, "state": "waiting", "time": f"2030-0{number}"} for number in (2, 1)]


def test_a_candidate_gets_a_tenth_and_then_everything():
    looks = [look(3, 1, passed=True), look(2, 2, passed=False), look(1, 1, passed=False)]
    risk = Risk(candidates=WAITING, evaluations=looks, deployments=[{"shares": {"old": 1.0}}])
    assert "candidate 1 has passed: it gets 10% of decisions" in act(risk)
    assert risk.deployed == [({"new-1": 0.1, "old": 0.9}, 3, "")]
    risk.rows["deployments"].insert(0, {"shares": {"new-1": 0.1, "old": 0.9}})
    assert act(risk)[-1] == "candidate 1 decides"
    assert risk.deployed[-1] == ({"new-1": 1.0}, 3, "")


def test_nothing_is_approved_that_did_not_pass_its_last_look():
    looks = [look(2, 1, passed=False), look(1, 1, passed=True)]
    risk = Risk(candidates=WAITING, evaluations=looks, deployments=[{"shares": {"old": 1.0}}])
    assert act(risk) == ["candidate 1 is filed", "candidate 2 is filed"]
    assert risk.deployed == []


def test_an_alarm_is_answered_by_the_first_rule():
    shares = [{"newest": 1.0}, {"new": 1.0}, {"new": 0.1, "old": 0.9}, {"old": 1.0}]
    alarm = {"name": "drift:score", "broken": True, "date": "2030-02-02"}
    earlier = {"name": "chance", "broken": True, "date": "2030-02-01"}
    risk = Risk(guardrails=[alarm, earlier], deployments=[{"shares": each} for each in shares])
    assert act(risk) == ["alarm: drift:score", "rolled back to the first rule"]
    assert risk.deployed == [({"old": 1.0}, None, "drift:score")]


def test_an_alarm_about_the_first_rule_changes_nothing():
    alarm = {"name": "acceptance", "broken": True, "date": "2030-02-02"}
    risk = Risk(guardrails=[alarm], deployments=[{"shares": {"old": 1.0}}])
    assert act(risk) == ["alarm: acceptance"]
    assert risk.deployed == []


@pytest.mark.slow
def test_a_rehearsal_promotes_a_better_policy_and_rolls_it_back_when_times_get_worse(tmp_path):
    folder = tmp_path / "service"
    assert main(["rehearse", str(folder), "--port", free_port(), "--no-wait"]) == 0
    months = json.loads((folder / "rehearsal.json").read_text())
    happened = [what for month in months for what in month["happened"]]
    decides = next(what for what in happened if what.endswith("decides"))
    assert happened.index(decides) > 0
    assert months[23]["utility"] >= 0.170
    assert months[23]["gap"] <= 0.15
    assert any(what.startswith("alarm: drift") for what in months[24]["happened"])
    assert "rolled back to the first rule" in months[24]["happened"]
    assert months[25]["utility"] > months[24]["utility"]
    assert (folder / "audit.html").stat().st_size < 2e6
    assert main(["verify", str(folder)]) == 0
