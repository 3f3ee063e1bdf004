"""Money: what accepted people bring and take, as the options of a command say."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from consequential.log import DecisionLog

# how many time steps of a period a month has
_PER_MONTH = {
    "day": 365.25 / 12,
    "week": 365.25 / 84,
    "month": 1.0,
    "quarter": 1 / 3,
    "year": 1 / 12,
}


@dataclass(frozen=True, slots=True)
class Money:
    """What label 1 brings and label 0 takes, in a unit, and how many applications a month has.

    Without `gain` and `loss` the log's amounts are money already, and the cost says the rest.
    """

    gain: float | None
    loss: float | None
    unit: str
    monthly: float | None

    @classmethod
    def asked(cls, options: argparse.Namespace, log: DecisionLog) -> Money | None:
        """Return what the options say about money; None where they say nothing."""
        gain, loss, unit = (vars(options).get(name) for name in ("gain", "loss", "unit"))
        if gain is None and loss is None and unit is None:
            return None
        if (gain is None) != (loss is None) or gain == 0.0 or loss == 0.0:
            raise ValueError(
                "give --gain, what label 1 brings, and --loss, what label 0 takes, both above 0"
            )
        by_row = options.cost is not None or log.cost is not None
        if gain is not None and by_row:
            raise ValueError(
                "--gain and --loss say what accepting costs, loss / (gain + loss): leave --cost, "
                "--cost-column and --value out"
            )
        if gain is None and log.amount is None:
            raise ValueError(
                "--unit is about money: say with --gain and --loss what an accepted person brings "
                "and takes, with --value, or with --amount which column has the amounts"
            )
        return cls(gain, loss, unit or "", options.rate or per_month(options, log))

    @property
    def worth(self) -> float:
        """What a unit of utility is in money: what label 1 brings and label 0 takes, together."""
        return 1.0 if self.gain is None or self.loss is None else self.gain + self.loss

    @property
    def cost(self) -> float | None:
        """What accepting costs, between 0 and 1; None where gain and loss do not say it."""
        if self.gain is None or self.loss is None:
            return None
        return self.loss / (self.gain + self.loss)


def per_month(options: argparse.Namespace, log: DecisionLog) -> float | None:
    """Return how many applications a month of the log has, where its time steps have a length."""
    if options.period is None:
        return None
    steps = int(log.time_step.max() - log.time_step.min()) + 1
    return len(log) / steps * _PER_MONTH[options.period]


def outcome_months(options: argparse.Namespace, log: DecisionLog) -> float:
    """Return how many months an outcome takes by the log's horizon; 0 where nothing says it."""
    return 0.0 if options.period is None else (log.horizon or 0) / _PER_MONTH[options.period]
