"""What a learner can be asked for, and which logs it can learn from."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np

from consequential.evaluation import overlap
from consequential.log import DecisionLog, DecisionLogError, LogScan
from consequential.policies import Unsupported


def check_options(learner: Any, log: DecisionLog | LogScan) -> None:
    """Raise an error for options that make no sense, alone or with this log."""
    for name in ("l2", "variance_penalty"):
        value = getattr(learner, name)
        if not (np.isfinite(value) and value >= 0.0):
            raise ValueError(f"{name} is finite and not negative, not {value!r}")
    for name in ("n_starts", "max_passes", "max_rows"):
        value = getattr(learner, name)
        if value != int(value) or value < 1:
            raise ValueError(f"{name} is a whole number of at least 1, not {value!r}")
    if learner.unsupported not in get_args(Unsupported):
        raise ValueError(
            f"unsupported is one of {', '.join(get_args(Unsupported))}, not {learner.unsupported!r}"
        )
    if learner.uses_sensitive and len(log.groups) < 2:
        raise DecisionLogError(
            "uses_sensitive=True needs a sensitive attribute with at least two groups; the log "
            f"has {len(log.groups)}"
        )
    if learner.confidence is not None:
        _check_confidence(learner, log)


def _check_confidence(learner: Any, log: DecisionLog | LogScan) -> None:
    if not 0.5 < learner.confidence < 1.0:
        raise ValueError(
            f"confidence lies between 0.5 and 1, 0.95 say, not {learner.confidence!r}: how often "
            "the bound is to hold"
        )
    if learner.max_gap is None:
        raise ValueError("confidence is that of a bound on the gap: give max_gap= too")
    if isinstance(log, LogScan):
        raise ValueError(
            "confidence= needs a log in memory: learn from scan.sample(n, rng), which holds out "
            "half of its rows"
        )


def unexplored(log: DecisionLog | LogScan, error: DecisionLogError) -> str:
    """Return why nothing can be learned from a log that left nothing to chance, and what to do."""
    reasons = "; ".join(overlap(log).reasons)
    return (
        f"{error}: {reasons}. Let the rule explore first, for example rule.with_floor(0.05), and "
        "see plan() for how many decisions that takes. A policy that extrapolates all the same "
        'comes of unsupported="trust_model"'
    )
