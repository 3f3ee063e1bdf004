"""A world that drifts: the first setting while its label curve moves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consequential.worlds.synthetic import FirstSetting
from consequential.worlds.world import World

Floats = NDArray[np.float64]


class ShiftedSetting(FirstSetting):
    """The first setting with its label curve moved to the right by `shift`."""

    def __init__(self, shift: float) -> None:
        self.shift = 0.0
        super().__init__()  # the cost is that of the curve in its place
        self.shift = float(shift)

    def score_probability(self, score: Floats) -> Floats:
        """Return the moved curve; beyond its ends it stays what it is there."""
        return super().score_probability(np.clip(score - self.shift, *self.bounds))


class Drift(ShiftedSetting):
    """The first setting while its label curve moves from one place to another, at an even pace.

    As it stands the world is that of step 0.
    """

    name = "first setting, drifting"

    def __init__(self, start: float, end: float, steps: int) -> None:
        if steps < 1:
            raise ValueError(f"a drift takes at least one step, not {steps!r}")
        super().__init__(start)
        self.start, self.end, self.steps = float(start), float(end), int(steps)

    def at(self, time_step: int) -> World:
        """Return the setting, standing still, with the curve where it is at a time step."""
        done = min(time_step / self.steps, 1.0)
        return ShiftedSetting(self.start + done * (self.end - self.start))


def drift(start: float = 0.4, end: float = 0.0, steps: int = 200) -> Drift:
    """Return the first setting with a label curve that moves.

    By default people get better: the curve begins too far to the right by 0.4 and ends where the
    paper has it, so that the best cut falls from 0.1 to -0.3. Only who still accepts some of those
    rejected so far can notice. With `start=0.0, end=0.4` people get worse instead.

    Parameters
    ----------
    start, end
        How far to the right of its place the curve is at step 0, and from step `steps` on.
    steps
        How many steps the move takes.

    Examples
    --------
    >>> import consequential as cq
    >>> world = cq.worlds.drift()
    >>> [round(world.at(step).optimal().utility, 4) for step in (0, 100, 200)]
    [0.0322, 0.0842, 0.178]
    """
    return Drift(start, end, steps)
