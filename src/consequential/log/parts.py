"""Parts of a log: split, settled, concatenated, described or decided by another rule.

The functions are methods of a log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from consequential.log.columns import DecisionLogError
from consequential.policy import DecisionRule, Logged
from consequential.policy.features import FeaturesError

if TYPE_CHECKING:
    from consequential.log.decision_log import DecisionLog

# the fields of a log with one value per row
ROW_COLUMNS = (
    "features",
    "decision",
    "propensity",
    "label",
    "group",
    "time_step",
    "amount",
    "cost",
    "observed",
)


def split(
    log: DecisionLog,
    fraction: float,
    *,
    by: Literal["time_step", "random"] = "time_step",
    rng: np.random.Generator | None = None,
) -> tuple[DecisionLog, DecisionLog]:
    """Split in two, `fraction` of the rows first.

    By time step, no step is divided and the earlier ones come first; at random needs `rng`.
    """
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


def settled(log: DecisionLog) -> DecisionLog:
    """Return the decisions whose outcomes are known by now, accepted and rejected alike.

    With a horizon these are the decisions at least that old. An accepted person among them
    whose label is missing is an error: a pending label is neither a failure nor a zero.
    """
    old_enough, horizon = log, log.horizon
    if horizon and len(log):
        now = log.time_step.max() if log.as_of is None else log.as_of
        old = log.time_step <= now - horizon
        if not old.any():
            raise DecisionLogError(
                f"no decision is as old as the horizon of {horizon} time steps yet: leave the "
                "horizon out if all outcomes are known"
            )
        old_enough = replace(log.take(old), horizon=None)
    if old_enough.n_pending and old_enough.missing == "refuse":
        n = old_enough.n_pending
        rows = "1 accepted row has" if n == 1 else f"{n} accepted rows have"
        age = "" if not horizon else f" although {horizon} time steps old or more"
        raise DecisionLogError(
            f"{rows} no label{age}. If outcomes take time, set "
            "horizon= to the number of time steps they may take; estimates then use only "
            "decisions at least that old. If these labels will never come, say what to make "
            'of them: missing="against" or missing="at_random"'
        )
    return old_enough


def concatenate(logs: Sequence[DecisionLog]) -> DecisionLog:
    """Concatenate logs with the same columns and groups."""
    if not logs:
        raise DecisionLogError("nothing to concatenate: give at least one log")
    first = logs[0]
    for log in logs[1:]:
        for name in ("groups", "attributes", "feature_names", "horizon", "missing", "value_range"):
            if getattr(log, name) != getattr(first, name):
                raise DecisionLogError(
                    f"logs with different {name} cannot be concatenated: "
                    f"{getattr(first, name)} and {getattr(log, name)}"
                )
    made = [log.preparation for log in logs]
    if any(each != made[0] for each in made) and any(log.raw for log in logs):
        raise DecisionLogError(
            "logs whose raw columns were prepared differently cannot be concatenated: make the "
            "later ones with like=, the first log"
        )
    policies: dict[int, DecisionRule] = {}
    for log in logs:
        for step, rule in log.policies.items():
            known = policies.setdefault(step, rule)
            if known is not rule and known != rule:
                raise DecisionLogError(f"two different policies at time step {step}")
    columns: dict[str, Any] = {}
    for name in ROW_COLUMNS:
        parts = [part for log in logs if (part := getattr(log, name)) is not None]
        if 0 < len(parts) < len(logs):
            raise DecisionLogError(f"some of the logs have {name} and some do not")
        columns[name] = np.concatenate(parts) if parts else None
    return replace(
        first,
        **columns,
        raw={name: np.concatenate([_raw(log, name) for log in logs]) for name in _raw_names(logs)},
        policies=policies,
        as_of=max((log.as_of for log in logs if log.as_of is not None), default=None),
        estimated_propensity=any(log.estimated_propensity for log in logs),
        notes=tuple(dict.fromkeys(note for log in logs for note in log.notes)),
    )


def propensity_of(log: DecisionLog, rule: DecisionRule) -> NDArray[np.float64]:
    """Return the probability with which a rule would accept each person of the log.

    A rule that knows the names of its features finds them by name, in whatever order the log
    has them and whatever else it has.
    """
    if isinstance(rule, Logged):
        return log.propensity
    sensitive = log.sensitive if rule.uses_sensitive else None
    try:
        return np.asarray(rule.propensity(log.named_features, sensitive))
    except FeaturesError as error:
        raise DecisionLogError(f"the rule does not fit the log: {error}") from None


def _raw_names(logs: Sequence[DecisionLog]) -> list[str]:
    return list(dict.fromkeys(name for log in logs for name in log.raw))


def _raw(log: DecisionLog, name: str) -> NDArray[Any]:
    """Return a raw column; one without blanks is among the features."""
    return log.raw[name] if name in log.raw else log.features[:, log.feature_names.index(name)]


def fingerprint(log: DecisionLog) -> str:
    """Return a digest of all rows, which is equal for equal logs."""
    about = (log.groups, log.feature_names, log.horizon, log.missing)
    digest = hashlib.sha256(repr(about).encode())
    for name, column in log._row_columns.items():
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()


def summary(log: DecisionLog) -> str:
    """Return how large a log is, in one line."""
    n_features = log.features.shape[1]
    said = (
        f"{len(log)} decisions, {log.n_accepted} accepted, {log.n_pending} pending, "
        f"{n_features} feature{'s' if n_features != 1 else ''}"
    )
    if log.value_range is not None:
        said += ", values from {:g} to {:g}".format(*log.value_range)
    if len(log.groups) > 1:
        sizes = zip(log.groups, log.group_counts, strict=True)
        said += ", groups " + ", ".join(f"{name}: {count}" for name, count in sizes)
    if log.estimated_propensity:
        said += ", propensities estimated"
    return f"DecisionLog({said})"


def mean_cost(log: DecisionLog, otherwise: float) -> float:
    """Return what accepting costs on average, or a number where rows have no costs."""
    return otherwise if log.cost is None else float(log.cost.mean())
