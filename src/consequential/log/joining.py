"""Joining logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from consequential.log.decision_log import ROW_COLUMNS, DecisionLog
from consequential.log.errors import DecisionLogError
from consequential.policies import DecisionRule


def joined(logs: Sequence[DecisionLog]) -> DecisionLog:
    """Put logs of the same columns and groups under one another."""
    if not logs:
        raise DecisionLogError("nothing to concatenate: give at least one log")
    first = logs[0]
    for log in logs[1:]:
        for name in ("groups", "feature_names", "horizon", "missing"):
            if getattr(log, name) != getattr(first, name):
                raise DecisionLogError(
                    f"logs with different {name} cannot be concatenated: "
                    f"{getattr(first, name)} and {getattr(log, name)}"
                )
    policies: dict[int, DecisionRule] = {}
    for log in logs:
        for step, rule in log.policies.items():
            known = policies.setdefault(step, rule)
            if known is not rule and known != rule:
                raise DecisionLogError(f"two different policies at time step {step}")
    columns: dict[str, Any] = {}
    for name in ROW_COLUMNS:
        parts = [getattr(log, name) for log in logs]
        absent = [part is None for part in parts]
        if any(absent) and not all(absent):
            raise DecisionLogError(f"some of the logs have {name} and some do not")
        columns[name] = None if all(absent) else np.concatenate(parts)
    as_of = max((log.as_of for log in logs if log.as_of is not None), default=None)
    estimated = any(log.estimated_propensity for log in logs)
    return replace(
        first,
        **columns,
        policies=policies,
        as_of=as_of,
        estimated_propensity=estimated,
        notes=tuple(dict.fromkeys(note for log in logs for note in log.notes)),
    )
