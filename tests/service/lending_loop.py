"""A loop to test with: its settings, a policy, applicants, and decisions about them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import consequential as cq
from consequential.policy import policy_to_json
from consequential.service.applications import Application
from consequential.service.bodies import Attribute, OutcomeBody
from consequential.service.database import Store
from consequential.service.deciding import live_loops
from consequential.service.loops import put_loop
from consequential.service.policies import deploy, propose
from consequential.service.records import stamp
from consequential.service.settings import ServiceSettings
from consequential.service.writer import Writer

LOOP = "lending"
START = datetime(2026, 1, 10, 12, tzinfo=UTC)
SETTINGS: dict[str, Any] = {
    "cost": 0.6,
    "floor": 0.1,
    "horizon": 1,
    "sensitive": "sex",
    "rehearsal": True,  # so that tests say what time it is
    "features": {
        "income": {"low": 0, "high": 10, "phrase": "Income"},
        "purpose": {"words": ["car", "tv"], "phrase": "Purpose"},
    },
}


def settings_in(folder: Path, url: str = "") -> ServiceSettings:
    """Settings of a service that keeps things in SQLite, or in one PostgreSQL."""
    files = [url or f"sqlite:///{folder / name}.db" for name in ("service", "sensitive")]
    return ServiceSettings(folder, files[0], files[1], b"s" * 32)


def policy(theta: tuple[float, ...] = (-3.0, 0.5, 0.4, 0.0)) -> str:
    """A policy that looks at both features, as JSON."""
    names = ["income", "purpose=car", "purpose=tv"]
    summary = cq.FeatureSummary.of([[2.0, 1, 0], [5.0, 1, 0], [9.0, 0, 1]], names)
    rule = cq.Policy(theta, "semi_logistic", floor=0.1, feature_names=names, summary=summary)
    return policy_to_json(rule)


def start(store: Store, service: ServiceSettings, time: datetime = START, **changes: Any) -> str:
    """Make the loop, and deploy a policy; return its digest."""
    with store.write() as connection:
        put_loop(connection, LOOP, SETTINGS | changes, service.secret, "anna", time)
    with store.write() as connection:
        live = live_loops(connection, {})[LOOP]
        digest = propose(connection, live, policy(), "anna", time)
        deploy(connection, live, {digest: 1.0}, "ben", time)
    return digest


def applicants(n: int, time: datetime = START, seed: int = 0, name: str = "A") -> list[Application]:
    """Applicants at one moment, each with a subject of their own."""
    rng = np.random.default_rng(seed)
    return [
        Application(
            f"{name}-{k}",
            f"{name}-subject-{k}",
            1.0,
            {"income": float(rng.uniform(0.0, 10.0)), "purpose": str(rng.choice(["car", "tv"]))},
            time,
        )
        for k in range(n)
    ]


def decide(
    store: Store, service: ServiceSettings, applications: list[Application]
) -> list[dict[str, Any]]:
    """Decide on applicants as the service does, and return its answers."""

    async def decided() -> list[dict[str, Any]]:
        with store.read() as connection:
            live = live_loops(connection, {})[LOOP]
        writer = Writer(store, service.secret)
        pieces = [applications[k : k + 1000] for k in range(0, len(applications), 1000)]
        answers = [await writer.decide(live, piece) for piece in pieces]
        await writer.close()
        return [body for answer in answers for body in answer.decisions]

    return asyncio.run(decided())


def outcome(
    event: str, decision: str, label: int | None, time: datetime, corrects: str | None = None
) -> OutcomeBody:
    """An outcome, as it is reported."""
    told = {"event_id": event, "decision_id": decision, "label": label, "corrects": corrects}
    return OutcomeBody.model_validate(told | {"happened": stamp(time)})


def attribute(subject: str, value: str) -> Attribute:
    """The sensitive attribute of somebody."""
    return Attribute(subject_id=subject, attribute="sex", value=value)
