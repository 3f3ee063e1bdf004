"""Learning: a candidate from frozen cohorts, the same again whenever it is learned again.

Policies are found by a direct search. Its sums over rows do not depend on how many threads there
are, so equal files give equal policies; models of the label would not promise that.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, select

from consequential.log import DecisionLog
from consequential.policy import Policy, policy_to_json
from consequential.service import schema
from consequential.service.candidates import deployed
from consequential.service.cohorts import Cohorts, Row, name_of, rows_of
from consequential.service.deciding import live_loops
from consequential.service.exports import as_log
from consequential.service.policies import propose
from consequential.service.problems import Problem
from consequential.service.records import canonical
from consequential.service.settings import LoopSettings, Number
from consequential.workers import begun

AUTHOR = "worker"  # of policies that were learned here
_SEED = 0  # of the points that a search begins at
_AIM = 2.0 / 3.0  # of the largest gap: an upper bound of it must lie below the limit
_KNOTS = 5
_ROUNDING = 1e-12
_LEARNED = "learned"
_ASKED, _ANSWERED = "learning asked for", "learning answered"
_log = logging.getLogger(__name__)


# --- when


def due(cohorts: Cohorts, frozen: Sequence[Row]) -> list[int]:
    """Return from how many of the frozen cohorts candidates are to be learned, one after another.

    From all when the live policy has changed since the last time; else from 1, 2, 4, ... of them,
    as soon as there are so many.
    """
    event = schema.event.c
    told = select(event.about).where(event.loop == cohorts.loop, event.what == _LEARNED)
    with cohorts.store.read() as connection:
        now = deployed(connection, cohorts.loop)
        before = [json.loads(about) for about in connection.execute(told).scalars()]
    if now.live is None or not frozen:
        return []
    last = max((each["live_since"], each["cohorts"]) for each in before) if before else None
    if last is not None and last[0] < now.since:
        return [len(frozen)]
    return _doubled(1 if last is None else 2 * last[1], len(frozen))


def _doubled(size: int, most: int) -> list[int]:
    return [size, *_doubled(2 * size, most)] if size <= most else []


# --- how


def learn(
    cohorts: Cohorts,
    frozen: Sequence[Row],
    time: datetime,
    client: Any = None,
    request: str | None = None,
) -> Callable[[], str]:
    """Begin to learn from cohorts, those of the window; return what ends it and files a candidate.

    That returns the policy's digest. Nothing is filed if anything is wrong with the cohorts. A
    request is answered by the same transaction, so it is learned for once.
    """
    used = cohorts.kept(frozen, time)[-cohorts.settings.gate.window :]
    if not used:
        raise _no_cohort()
    found = begun(partial(_learned, cohorts.directory, used, cohorts.settings), client)
    names = [name_of(row) for row in used]

    def file() -> str:
        text = found()
        with cohorts.store.write() as connection:
            live = live_loops(connection, {})[cohorts.loop]
            now = deployed(connection, cohorts.loop)
            told: dict[str, Any] = {"parent": now.live, "cohorts": names, "seed": _SEED}
            digest = propose(connection, live, text, AUTHOR, time, **told)
            about = {"policy": digest, "cohorts": len(frozen), "live_since": now.since}
            schema.add_event(connection, cohorts.loop, time, AUTHOR, _LEARNED, canonical(about))
            if request is not None:
                _tell(connection, cohorts.loop, time, request, policy=digest)
        _log.info("candidate learned", extra={"about": about | {"loop": cohorts.loop}})
        return digest

    return file


def _learned(directory: Path, used: Sequence[Row], settings: LoopSettings) -> str:
    return policy_to_json(learned_policy(rows_of(directory, used, settings), settings))


def _no_cohort() -> Problem:
    return Problem("no_cohort", 409, "no cohort is frozen yet: outcomes have not had their time")


# --- by hand


def ask(connection: Connection, loop: str, by: str, time: datetime) -> str:
    """Ask the worker to learn from all frozen cohorts; return the request's id."""
    table = schema.cohort
    if connection.execute(select(table.c.id).where(table.c.loop == loop)).first() is None:
        raise _no_cohort()
    values = {"by": by, "what": _ASKED, "about": ""}
    return str(schema.add(connection, schema.event, loop, time, values)["id"])


def requests(cohorts: Cohorts) -> list[str]:
    """Return the requests that have no answer."""
    with cohorts.store.read() as connection:
        return [row["id"] for row in asked(connection, cohorts.loop) if row["answer"] is None]


def asked(connection: Connection, loop: str) -> list[dict[str, Any]]:
    """Return all requests in order, each with its `answer`: a policy, or what is wrong."""
    event = schema.event
    both = select(event).where(event.c.loop == loop, event.c.what.in_((_ASKED, _ANSWERED)))
    rows = schema.rows(connection, both.order_by(event.c.id))
    answers = {
        told["request"]: told
        for row in rows
        if row["what"] == _ANSWERED
        for told in (json.loads(row["about"]),)
    }
    return [
        {"id": row["id"], "by": row["by"], "time": row["time"], "answer": answers.get(row["id"])}
        for row in rows
        if row["what"] == _ASKED
    ]


def answer(cohorts: Cohorts, request: str, time: datetime, client: Any = None) -> None:
    """Learn as somebody asked, once: what is wrong with the cohorts is the answer."""
    try:
        learn(cohorts, cohorts.frozen(), time, client, request)()
    except Problem as problem:
        wrong = {"code": problem.code, "error": problem.detail}
        with cohorts.store.write() as connection:
            _tell(connection, cohorts.loop, time, request, **wrong)


def _tell(connection: Connection, loop: str, time: datetime, request: str, **told: str) -> None:
    about = canonical({"request": request, **told})
    schema.add_event(connection, loop, time, AUTHOR, _ANSWERED, about)


# --- from rows to a policy


def learned_policy(rows: pa.Table, settings: LoopSettings) -> Policy:
    """Return the policy that is learned from rows of cohorts.

    People whose labels have come stand for those whose labels have not.
    """
    from consequential.learning import FairPolicyLearner  # `serve` never learns

    accepted = rows.filter(pc.equal(rows["=decision"], 1))
    n_labels = len(accepted) - accepted["=label"].null_count
    _check(rows, accepted, n_labels, settings)
    share = np.full(len(rows), n_labels / len(accepted))
    log = as_log(
        rows.append_column("=observed", pa.array(share)),
        settings,
        missing="at_random",
        observed="=observed",
    )
    least, most = settings.acceptance
    learner = FairPolicyLearner(
        cost=settings.cost,
        fairness=settings.fairness,
        max_gap=None if settings.max_gap is None else _AIM * settings.max_gap,
        min_acceptance=least if least > 0.0 else None,
        max_acceptance=most if most < 1.0 else None,
        link="smooth_semi_logistic",
        feature_map=_shapes(log, settings),
        method="direct",
        floor=settings.floor,
        unsupported="trust_model",
        random_state=_SEED,
    )
    try:
        return learner.fit_log(log).policy_
    except ValueError as error:
        raise Problem("not_learned", 409, str(error)) from None


def _check(rows: pa.Table, accepted: pa.Table, n_labels: int, settings: LoopSettings) -> None:
    """Refuse cohorts that nothing can be learned from, and say why."""

    def refuse(code: str, why: str) -> None:
        raise Problem(code, 409, why)

    if len(rows) == 0:
        refuse("no_rows", "the cohorts have no decisions with all features of the loop")
    if len(accepted) == 0:
        refuse("nobody_accepted", "nobody was accepted in these cohorts, so there are no labels")
    if len(pc.unique(accepted["=label"].drop_null())) < 2:
        kind = "all labels are the same" if n_labels else "no label has come"
        refuse("one_label", f"{kind}: both kinds are needed to tell whom to accept")
    if settings.max_gap is not None and len(pc.unique(rows[settings.sensitive])) < 2:
        refuse(
            "one_group",
            f"everybody has the same {settings.sensitive}, so no gap between groups can be "
            "bounded: report the attribute, or set max_gap to null",
        )
    lowest = pc.min(rows["=propensity"]).as_py()
    if lowest < settings.floor - _ROUNDING:
        refuse(
            "past_floor",
            f"these cohorts were decided with a floor of {lowest:.3g}, below that of the settings, "
            f"{settings.floor:g}: lower it, or wait for cohorts that were decided with it",
        )


def _shapes(log: DecisionLog, settings: LoopSettings) -> Any:
    """Return the feature map: splines in features whose shape is one, the others as they are."""
    curved = [
        name
        for name, kind in settings.features.items()
        if isinstance(kind, Number) and kind.shape == "spline" and name in log.feature_names
    ]
    if not curved:
        return None
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import SplineTransformer

    splines = SplineTransformer(n_knots=_KNOTS, knots="quantile", include_bias=False)
    if curved == list(log.feature_names):
        return splines
    return ColumnTransformer([("splines", splines, curved)], remainder="passthrough")
