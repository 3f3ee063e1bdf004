"""A loop with weeks behind it, for pages: decisions, outcomes, overrides, groups, closed books."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lending_loop
import numpy as np
from trial import Trial

from consequential.service import database, keys, outcomes, policies
from consequential.service.applications import Application
from consequential.service.bodies import Override
from consequential.service.deciding import live_loops
from consequential.service.loops import put_loop
from consequential.service.records import now
from consequential.service.settings import ServiceSettings
from consequential.service.worker import work

START = datetime(2026, 1, 1, 9, tzinfo=UTC)
PEOPLE = {
    "risk": ("read", "approve"),
    "reader": ("read",),
    "admin": ("read", "approve", "admin"),
    "shop": ("decide",),
    "author": ("read", "learn"),
}
WIDER = (-2.4, 0.5, 0.4, 0.0)  # than the policy of lending_loop


def make_loop(directory: Path, days: int = 70, a_day: int = 10, **changes: Any) -> Trial:
    """Make a rehearsal loop in SQLite whose books are closed to the end of its days."""
    (directory / "service.json").write_text('{"database": ""}')
    (directory / "secret").write_text((b"s" * 32).hex())
    (directory / "secret").chmod(0o600)
    settings = ServiceSettings.load(directory)
    database.migrate(settings)
    store = database.open_store(settings)
    with store.write() as connection:
        made = {n: keys.create_key(connection, n, s, now()) for n, s in PEOPLE.items()}
        put_loop(connection, "cards", lending_loop.SETTINGS, settings.secret, "anna", now())
    changes = {"period": "week", "horizon": 3} | changes
    digest = lending_loop.start(store, settings, START, **changes)
    rng = np.random.default_rng(0)
    for first in range(0, days, 10):
        if first == days // 20 * 10:
            _deploy_wider(store, START + timedelta(days=first))
        _live_ten_days(store, settings, rng, first, a_day)
    work(store, settings, now())
    store.close()
    return Trial(settings, made | {"all": made["admin"]}, digest)


def _deploy_wider(store: database.Store, time: datetime) -> None:
    with store.write() as connection:
        live = live_loops(connection, {})[lending_loop.LOOP]
        digest = policies.propose(
            connection, live, lending_loop.policy(WIDER), "anna", time, parent=live.shares[0].digest
        )
        policies.deploy(connection, live, {digest: 1.0}, "ben", time, evidence="agreed on paper")


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
