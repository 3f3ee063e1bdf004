"""Parts of a log, its digest, and what it is in a line."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from consequential.log.errors import DecisionLogError

if TYPE_CHECKING:
    from consequential.log.decision_log import DecisionLog


def split_in_two(
    log: DecisionLog, fraction: float, by: Any, rng: np.random.Generator | None
) -> tuple[DecisionLog, DecisionLog]:
    """Split in two, `fraction` of the rows first; by time step, no step is divided."""
    if not 0.0 < fraction < 1.0:
        raise DecisionLogError(f"fraction lies strictly between 0 and 1, not {fraction!r}")
    if by == "random":
        if rng is None:
            raise DecisionLogError("a random split needs rng=numpy.random.default_rng(seed)")
        order = rng.permutation(len(log))
        cut = round(fraction * len(log))
        return log.take(np.sort(order[:cut])), log.take(np.sort(order[cut:]))
    if by != "time_step":
        raise DecisionLogError(f"a log is split by time_step or random, not by {by!r}")
    steps, counts = np.unique(log.time_step, return_counts=True)
    if len(steps) < 2:
        raise DecisionLogError(
            "all decisions have one time step, so the log cannot be split by it: "
            'give the time steps, or split by="random"'
        )
    share = np.cumsum(counts) / len(log)
    last = steps[min(int(np.argmin(np.abs(share - fraction))), len(steps) - 2)]
    early = log.time_step <= last
    return log.take(early), log.take(~early)


def settled_part(log: DecisionLog) -> DecisionLog:
    """Return the decisions whose outcomes are known by now, accepted and rejected alike."""
    settled = log
    if log.horizon and len(log):
        now = log.time_step.max() if log.as_of is None else log.as_of
        old = log.time_step <= now - log.horizon
        if not old.any():
            raise DecisionLogError(
                f"no decision is as old as the horizon of {log.horizon} time steps yet"
            )
        settled = replace(log.take(old), horizon=None)
    if settled.n_pending and settled.missing == "refuse":
        rows = (
            "1 accepted row has"
            if settled.n_pending == 1
            else f"{settled.n_pending} accepted rows have"
        )
        age = "" if not log.horizon else f" although {log.horizon} time steps old or more"
        raise DecisionLogError(
            f"{rows} no label{age}. If outcomes take time, set "
            "horizon= to the number of time steps they may take; estimates then use only "
            "decisions at least that old. If these labels will never come, say what to make "
            'of them: missing="against" or missing="at_random"'
        )
    return settled


def digest_of(log: DecisionLog, columns: Sequence[str]) -> str:
    """Return a digest of these columns and of what they mean."""
    about = (log.groups, log.feature_names, log.horizon, log.missing)
    digest = hashlib.sha256(repr(about).encode())
    for name in columns:
        column = getattr(log, name)
        if column is not None:
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()


def described(log: DecisionLog) -> str:
    """Return how many rows of what kind a log has."""
    n_features = log.features.shape[1]
    parts = [
        f"{len(log)} decisions",
        f"{log.n_accepted} accepted",
        f"{log.n_pending} pending",
        f"{n_features} feature{'s' if n_features != 1 else ''}",
    ]
    if len(log.groups) > 1:
        sizes = zip(log.groups, log.group_counts, strict=True)
        parts.append("groups " + ", ".join(f"{name}: {count}" for name, count in sizes))
    if log.estimated_propensity:
        parts.append("propensities estimated")
    return f"DecisionLog({', '.join(parts)})"
