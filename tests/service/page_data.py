"""A loop with weeks behind it, for pages: decisions, outcomes, overrides, groups, closed books."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lending_loop
import numpy as np
from trial import Trial

from consequential.service import database, keys, looks, outcomes, policies
from consequential.service.alarms import Watch
from consequential.service.applications import Application
from consequential.service.bodies import Override
from consequential.service.chance import open_epochs, reveal_keys
from consequential.service.closing import close_day, days_due
from consequential.service.cohorts import all_cohorts
from consequential.service.deciding import live_loops
from consequential.service.loops import put_loop
from consequential.service.records import now
from consequential.service.settings import ServiceSettings

START = datetime(2026, 1, 1, 9, tzinfo=UTC)
PEOPLE = {
    "risk": ("read", "approve"),
    "reader": ("read",),
    "admin": ("read", "learn", "approve", "admin"),
    "shop": ("decide",),
    "author": ("read", "learn", "approve"),
}
HARSH, MILD, BETTER = (-4.0, 0.5, 0.0, 0.0), (-3.5, 0.5, 0.0, 0.0), (-7.0, 1.4, 0.0, 0.0)
CHANGES: dict[str, Any] = {
    "period": "week",
    "horizon": 3,
    "max_gap": 0.5,
    "acceptance": [0.2, 0.9],
    "gate": {"confidence": 0.5, "effective": 30, "tuned_for": 400},
}


def make_loop(directory: Path, days: int = 70, a_day: int = 12, **changes: Any) -> Trial:
    """Make a rehearsal loop in SQLite whose books are closed to the end of its days.

    A harsh policy decides, a milder one with a tenth of the decisions in the second half; a better
    one, proposed by the author on the first day, has passed the gate.
    """
    (directory / "service.json").write_text('{"database": ""}')
    (directory / "secret").write_text((b"s" * 32).hex())
    (directory / "secret").chmod(0o600)
    settings = ServiceSettings.load(directory)
    database.migrate(settings)
    store = database.open_store(settings)
    told = lending_loop.SETTINGS | CHANGES | changes
    with store.write() as connection:
        made = {n: keys.create_key(connection, n, s, now()) for n, s in PEOPLE.items()}
        put_loop(connection, "cards", told, settings.secret, "anna", now())
        put_loop(connection, lending_loop.LOOP, told, settings.secret, "anna", START)
    harsh = _propose(store, HARSH, "anna", START)
    _deploy(store, {harsh: 1.0}, START)
    _propose(store, BETTER, "author", START)
    rng = np.random.default_rng(0)
    for first in range(0, days, 10):
        if first == days // 20 * 10:
            middle = START + timedelta(days=first)
            mild = _propose(store, MILD, "anna", middle)
            _deploy(store, {harsh: 0.9, mild: 0.1}, middle)
        _live_ten_days(store, settings, rng, first, a_day)
    _work(store, settings)
    store.close()
    return Trial(settings, made | {"all": made["admin"]}, harsh)


def _propose(store: database.Store, theta: Any, by: str, time: datetime) -> str:
    with store.write() as connection:
        live = live_loops(connection, {})[lending_loop.LOOP]
        text = lending_loop.policy(theta)
        return policies.propose(connection, live, text, by, time, cohorts=["none"])


def _deploy(store: database.Store, shares: dict[str, float], time: datetime) -> None:
    with store.write() as connection:
        live = live_loops(connection, {})[lending_loop.LOOP]
        policies.deploy(connection, live, shares, "ben", time, evidence="without evidence: a start")


def _work(store: database.Store, settings: ServiceSettings) -> None:
    """Do what the worker does, but learn nothing."""
    cohorts = all_cohorts(store, settings.directory)[lending_loop.LOOP]
    time = cohorts.clock(now())
    with store.write() as connection:
        open_epochs(connection, cohorts.loop, cohorts.settings, settings.secret, time)
        reveal_keys(connection, cohorts.loop, settings.secret, time)
    for day in days_due(store, cohorts.loop, time):
        close_day(store, cohorts.loop, day)
    for period in cohorts.due(time):
        cohorts.freeze(period, time)
        for candidate in looks.waiting(cohorts):
            if (store_it := looks.look(cohorts, candidate, cohorts.frozen(), time)) is not None:
                store_it()
    watch = Watch(cohorts)
    watch.look(watch.due()[-1], time)


def _live_ten_days(
    store: database.Store, settings: ServiceSettings, rng: Any, first: int, a_day: int
) -> None:
    people = []
    for day in range(first, first + 10):
        for k in range(rng.poisson(a_day)):
            time = START + timedelta(days=day, minutes=k)
            subject = f"P-{day}-{k}"
            group = str(rng.choice(["female", "male", "other"], p=[0.48, 0.515, 0.005]))
            income = float(np.clip(rng.normal(5.4 if group == "male" else 4.9, 2.2), 0.0, 10.0))
            features = {"income": round(income, 2), "purpose": str(rng.choice(["car", "tv"]))}
            application = Application(f"A-{day}-{k}", subject, 1.0, features, time)
            people.append((application, group))
    with store.write_sensitive() as connection:
        told = [lending_loop.attribute(a.subject_id or "", group) for a, group in people]
        outcomes.add_attributes(connection, told, "anna", now())
    answers = lending_loop.decide(store, settings, [application for application, _ in people])
    reported, overridden = [], []
    for (application, _), answer in zip(people, answers, strict=True):
        chance = 1.0 / (1.0 + np.exp(3.2 - 0.75 * float(application.features["income"])))
        label, lucky = int(rng.random() < chance), rng.random()
        if answer["accepted"] and lucky > 0.03:
            late = application.time + timedelta(days=float(rng.gamma(4.0, 7.0)))
            reported.append(lending_loop.outcome(f"E-{answer['id']}", answer["id"], label, late))
        elif not answer["accepted"] and lucky < 0.02:
            why = "the branch knows more"
            overridden.append(Override(decision_id=answer["id"], accepted=True, why=why))
    reported.sort(key=lambda each: each.happened)
    with store.write() as connection:
        outcomes.add_outcomes(connection, reported, "anna", now())
        outcomes.add_overrides(connection, overridden, "ben", now())
