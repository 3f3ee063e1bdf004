"""Option: one exploration floor of a plan, in numbers and in a sentence."""

from __future__ import annotations

from dataclasses import dataclass, replace
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

    def scaled(self, factor: float) -> Option:
        """Return the option with losses that are `factor` times as large."""
        names = ("loss", "loss_low", "loss_high", "worst_loss", "total_loss")
        known = {name: each for name in names if (each := getattr(self, name)) is not None}
        losses: dict[str, Any] = {name: factor * each for name, each in known.items()}
        return replace(self, **losses)

    @property
    def loss_text(self) -> str:
        """The loss with its interval, as tables show it."""
        if self.loss is None:
            return "unknown"
        low, high = self.loss_low, self.loss_high
        return f"{self.loss:.2f}" + ("" if low is None else f" [{low:.2f}, {high:.2f}]")

    @property
    def _interval(self) -> str:
        if self.loss_low is None or self.loss_high is None:
            return ""
        low, high = self.loss_low, self.loss_high
        near, far = sorted((abs(low), abs(high)))
        return f" ({near:.2f} to {far:.2f})"

    def sentence(self, improvement: float, power: float, unit: str) -> str:
        """Say what the floor means in a plan for this improvement and power."""
        unit = f" {unit}" if unit else ""
        verb = "costs" if self.total_loss >= 0.0 else "brings"
        total = f"{verb} {abs(self.total_loss):.1f}{unit}"
        worst = f"{self.worst_loss:.2f}{unit} if all of them fail"
        if self.loss is None:
            price = f"What that costs the log cannot say: per 1000 at most {worst}."
        elif (low := self.loss_low or 0.0) < 0.0 < (high := self.loss_high or 0.0):
            price = (
                "Whether that costs or brings anything cannot be told: between "
                f"{high:.2f}{unit} lost and {-low:.2f} gained per 1000, and {worst}."
            )
            gained, lost = (abs(end) * self.decisions / 1000.0 for end in (low, high))
            total = f"may cost {lost:.1f}{unit} or bring {gained:.1f}"
        elif self.loss >= 0.0:
            price = f"That costs {self.loss:.2f}{unit}{self._interval} per 1000, and {worst}."
        else:
            price = (
                f"That brings {-self.loss:.2f}{unit}{self._interval} per 1000, and costs {worst}."
            )
        months = "" if self.months is None else f" ({self.months:.1f} months)"
        return (
            f"With a floor of {self.floor:g}, {self.extra_acceptances:.0f} of 1000 applicants "
            f"are accepted who would not have been. {price} A rule that is better by "
            f"{improvement:g}{unit} per applicant is then proven better, with a chance of "
            f"{power:.0%}, after {self.decisions} decisions{months}; exploring {total} until "
            "then."
        )
