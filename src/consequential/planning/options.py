"""What exploring costs and how long it takes, floor by floor."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Option:
    """One exploration floor: what it costs per thousand decisions, and how long it takes.

    Attributes
    ----------
    floor
        Everybody is accepted with at least this probability.
    extra_acceptances
        Per thousand decisions, people accepted who would not have been.
    loss
        Per thousand decisions, the utility lost by accepting them; negative where they bring a
        gain, None where neither the log nor an assumption says.
    loss_low, loss_high
        An interval for the loss where it is estimated from the log.
    worst_loss
        The same if all of them fail.
    decisions
        How many decisions until the improvement is proven, to about one in a hundred.
    months
        How long they and their outcomes take; None without a rate.
    total_loss
        Over all those decisions: from `loss`, or from `worst_loss` where that is None.
    """

    floor: float
    extra_acceptances: float
    loss: float | None
    loss_low: float | None
    loss_high: float | None
    worst_loss: float
    decisions: int
    months: float | None
    total_loss: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What `plan` worked out, an option a floor; print it for a table.

    `break_even` is the share of label 1 at which extra acceptances cost nothing.

    Examples
    --------
    >>> import consequential as cq
    >>> log = cq.DecisionLog.from_arrays([[0.0], [1.0]], [0, 1], [0.0, 1.0], [None, 1])
    >>> found = cq.plan(log, cost=0.5, improvement=0.05, changed=0.5, floors=[0.1])
    >>> found.options[0].decisions, found.options[0].worst_loss
    (3880, 25.0)
    """

    options: tuple[Option, ...]
    improvement: float
    break_even: float
    power: float
    confidence: float
    method: str
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, ready for JSON."""
        found = asdict(self)
        return found | {"options": list(found["options"]), "notes": list(self.notes)}

    def __str__(self) -> str:
        head = (
            "floor",
            "more accepted",
            "loss",
            "if all fail",
            "decisions",
            "months",
            "total loss",
        )
        rows = [head, *(_cells(option) for option in self.options)]
        widths = [max(len(row[k]) for row in rows) for k in range(len(head))]
        # two headings, each over the columns it heads
        thousand = sum(widths[1:4]) + 4
        heading = f"{'':{widths[0]}}  {'per thousand decisions':<{thousand}}"
        table = [
            "  ".join(f"{cell:>{k}}" for cell, k in zip(row, widths, strict=True)) for row in rows
        ]
        notes = [f"- {note}" for note in self.notes]
        return "\n".join([f"{heading}  until +{self.improvement:g} is proven", *table, *notes])


def _cells(option: Option) -> tuple[str, ...]:
    loss = "unknown" if option.loss is None else f"{option.loss:.2f}"
    if option.loss_low is not None and option.loss_high is not None:
        loss += f" [{option.loss_low:.2f}, {option.loss_high:.2f}]"
    return (
        f"{option.floor:g}",
        f"{option.extra_acceptances:.1f}",
        loss,
        f"{option.worst_loss:.2f}",
        f"{option.decisions}",
        "" if option.months is None else f"{option.months:.1f}",
        f"{option.total_loss:.1f}",
    )
