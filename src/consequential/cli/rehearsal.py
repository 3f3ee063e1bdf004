"""Rehearsal: a service of its own decides on people of a world, years of them in minutes."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from calendar import monthrange
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from consequential.cli.parser import needing_service
from consequential.files import write_atomically

with needing_service():
    import httpx
    import sqlalchemy  # noqa: F401

from consequential.cli.applicants import ATTRIBUTE, FEATURE, Applicants, Downturn
from consequential.cli.service import make_service
from consequential.lab.worlds import World, first_setting
from consequential.policy import FeatureSummary, Mixture, Policy, policy_to_json
from consequential.service import worker
from consequential.service.client import Client
from consequential.service.database import Store, open_store
from consequential.service.deciding import live_loops
from consequential.service.keys import create_key
from consequential.service.pages.report import report
from consequential.service.records import now
from consequential.service.settings import ServiceSettings, period_after, period_of
from consequential.service.state import Service

LOOP = "lending"
_BAD_MONTHS = 2  # after the others: an alarm, and a month after the roll back
_LIST = 1000  # the most that a request may have
_CANARY = 0.1
_STEEP = 80.0  # makes the paper's first model nearly a threshold
_SCOPES = {
    "branch": ("decide", "report", "sensitive"),
    "analyst": ("learn", "read"),
    "head of risk": ("approve", "read"),
    "administrator": ("admin", "approve"),
}
_HEADER = f"{'month':<9}{'decided':>8}{'accepted':>10}{'utility':>9}{'gap':>7}  what happened"
_NEEDED = (
    "one decides after some 40 000 to 85 000 decisions, counted from the first (--months, "
    "--decisions); drift is not watched until then, since the first rule was learned from no cohort"
)

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Month:
    """What a month of a rehearsal was like; utility and gap are true, of what decided."""

    month: str
    decided: int
    accepted: int
    utility: float
    gap: float
    happened: tuple[str, ...]

    def __str__(self) -> str:
        """Return the line that is printed."""
        share = f"{self.accepted / self.decided:.1%}"
        figures = f"{self.decided:>8}{share:>10}{self.utility:>9.4f}{self.gap:>7.3f}"
        return f"{self.month:<9}{figures}  {'; '.join(self.happened)}".rstrip()


def rehearse(options: argparse.Namespace) -> int:
    """Let a service decide for months, learn, promote and roll back; then leave it running."""
    directory: Path = options.directory
    url = f"http://127.0.0.1:{options.port}"
    with httpx.Client(base_url=url) as http:
        if _answers(http):  # before anything is made
            raise ValueError(f"something is served at {url} already: choose another --port")
    make_service(directory)
    settings = ServiceSettings.load(directory)
    with ExitStack() as stack:
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends what serves, too
        stack.callback(signal.signal, signal.SIGTERM, before)
        store = open_store(settings)
        stack.callback(store.close)
        with store.write() as connection:
            keys = {
                name: create_key(connection, name, scopes, now(), by="rehearsal")
                for name, scopes in _SCOPES.items()
            }
        stack.enter_context(_served(directory, url))
        clients = {
            name: stack.enter_context(Client(url, key, timeout=120.0)) for name, key in keys.items()
        }
        rehearsal = Rehearsal(settings, store, clients, options.seed)
        months = []
        print(_HEADER)
        for month in rehearsal.months(options.months, options.decisions):
            print(month, flush=True)
            months.append(asdict(month))
        if not any("has passed" in each for month in months for each in month["happened"]):
            print(f"no candidate was proven in {options.months} months: {_NEEDED}")
        write_atomically(directory / "rehearsal.json", json.dumps(months, indent=1) + "\n")
        page = report(Service(settings, store), LOOP, now())
        write_atomically(directory / "audit.html", page)
        print(f"the report is {directory / 'audit.html'}")
        if not options.no_wait:
            _wait(url, keys["head of risk"])
    return 0


def _wait(url: str, key: str) -> None:
    print(f"The service runs at {url} until Ctrl-C; the key of the head of risk is\n  {key}")
    try:
        while True:
            time.sleep(3600.0)
    except KeyboardInterrupt:
        pass


@contextmanager
def _served(directory: Path, url: str) -> Iterator[None]:
    """Serve a directory by a process of its own."""
    # the rehearsal calls the worker itself, when a month is over
    command = [sys.executable, "-m", "consequential", "serve", str(directory), "--no-worker"]
    log = directory / "service.log"
    with log.open("wb") as lines, httpx.Client(base_url=url) as http:
        command += ["--port", url.rpartition(":")[2]]
        with subprocess.Popen(command, stdout=lines, stderr=lines) as process:
            try:
                while not _answers(http):
                    if process.poll() is not None:
                        raise ValueError(f"the service did not start at {url}: see {log}")
                    time.sleep(0.05)
                yield
            finally:
                process.terminate()


def _answers(http: httpx.Client) -> bool:
    try:
        return http.get("/readyz").is_success
    except httpx.TransportError:
        return False


class Rehearsal:
    """A loop, the people who apply to it, and those who run it."""

    def __init__(
        self,
        settings: ServiceSettings,
        store: Store,
        clients: Mapping[str, Client],
        seed: int,
    ) -> None:
        self._settings, self._store, self._clients = settings, store, clients
        self._rng = np.random.default_rng(seed)
        self._people = Applicants(self._rng)
        self._world: World = first_setting()
        self._seen = ""  # the time of the last candidate
        self._start()

    def _start(self) -> None:
        """Make the loop, and let it decide by a harsh rule that explores."""
        world, floor = self._world, 0.1
        bounds = {"low": -0.8, "high": 0.8, "phrase": "Credit score"}
        self._clients["administrator"].put_loop(
            LOOP,
            {
                "cost": world.cost,
                "floor": floor,
                "horizon": 3,
                "features": {FEATURE: bounds},
                "sensitive": ATTRIBUTE,
                "max_gap": 0.15,
                "rehearsal": True,
            },
        )
        people = world.people(1000, self._rng).features
        harsh = Policy(
            _STEEP * world.initial_policy("semi_logistic").theta,
            "semi_logistic",
            floor=floor,
            feature_names=[FEATURE],
            summary=FeatureSummary.of(people, [FEATURE]),
        )
        digest = self._clients["analyst"].propose(LOOP, policy_to_json(harsh))
        self._clients["administrator"].deploy(LOOP, {digest: 1.0}, why="the rule until now")

    def months(self, n: int, decisions: int) -> Iterator[Month]:
        """Live through good months, and then through bad ones."""
        # the loop was made today, and its time does not run backwards
        month = period_after(period_of("month", now()))
        for k in range(n + _BAD_MONTHS):
            if k == n:
                self._world = Downturn()
            truth = self._world.measure(self._rule())
            accepted = self._decide(month, decisions)
            worker.work(self._store, self._settings, now())
            happened = self._act()
            if k == n:
                happened = ["times get worse", *happened]
            yield Month(
                month, decisions, accepted, truth.utility, truth.benefit_gap, tuple(happened)
            )
            month = period_after(month)

    def _rule(self) -> Mixture:
        """Return what decides now."""
        with self._store.read() as connection:
            shares = live_loops(connection, {})[LOOP].shares
        return Mixture([each.policy for each in shares], [each.share for each in shares])

    def _decide(self, month: str, n: int) -> int:
        """Let people apply, and report what became of others; return how many were accepted."""
        branch, people, accepted = self._clients["branch"], self._people, 0
        days = [1 + k * monthrange(*map(int, month.split("-")))[1] // n for k in range(n)]
        for some in _pieces(days, min(_LIST, -(-n // 4))):
            applications = people.apply(self._world, month, some)
            decisions = branch.decide_batch(LOOP, [each.document() for each in applications])
            accepted += sum(decision.accepted for decision in decisions)
            if overrides := people.hear(applications, decisions):
                branch.report_overrides(overrides)
        for groups in _pieces(people.groups(), _LIST):
            branch.report_sensitive(groups)
        for outcomes in _pieces(people.outcomes(month), _LIST):
            branch.report_outcomes(outcomes)
        return accepted

    def _act(self) -> list[str]:
        """Do what the head of risk does at the end of a month; return what happened."""
        risk = self._clients["head of risk"]
        candidates = risk.listed(LOOP, "candidates")
        new = [each["number"] for each in candidates if each["time"] > self._seen]
        happened = [f"candidate {number} is filed" for number in sorted(new)]
        self._seen = max([self._seen, *(each["time"] for each in candidates)])
        live, *before = risk.listed(LOOP, "deployments")
        if alarms := self._alarms():
            happened += [f"alarm: {name}" for name in alarms]
            # all others were learned from people as they used to be
            first = before[-1]["shares"] if before else live["shares"]
            if first != live["shares"]:
                risk.deploy(LOOP, first, why=", ".join(alarms))
                happened.append("rolled back to the first rule")
            return happened
        waiting = {each["number"] for each in candidates if each["state"] == "waiting"}
        looks = {}  # the last at each candidate
        for look in reversed(risk.listed(LOOP, "evaluations")):
            looks[look["candidate_number"]] = look
        passed = [looks[k] for k in sorted(waiting & looks.keys()) if looks[k]["passed"]]
        if passed:
            happened.append(self._approve(passed[0], live["shares"]))
        return happened

    def _alarms(self) -> list[str]:
        """Return the guardrails that are broken on the last day."""
        rows = self._clients["head of risk"].listed(LOOP, "guardrails")
        last = max((row["date"] for row in rows), default="")
        return sorted(row["name"] for row in rows if row["broken"] and row["date"] == last)

    def _approve(self, look: Mapping[str, Any], shares: Mapping[str, float]) -> str:
        """Give a candidate that has passed a tenth of decisions, and a month later all."""
        new, number = look["candidate"], look["candidate_number"]
        old = max(shares, key=shares.__getitem__)
        whole = new in shares
        shares = {new: 1.0} if whole else {new: _CANARY, old: 1.0 - _CANARY}
        self._clients["head of risk"].deploy(LOOP, shares, evidence=look["number"])
        what = "decides" if whole else f"has passed: it gets {_CANARY:.0%} of decisions"
        return f"candidate {number} {what}"


def _pieces(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
