"""The two synthetic settings once more, from the paper's formulas alone, by adaptive quadrature.

Nothing here uses the package: a rule is a plain function of the score, with its kinks listed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import exp, inf, pi, sqrt, tan

from scipy.integrate import quad
from scipy.stats import norm

Curve = Callable[[float], float]


def sigma(eta: float) -> float:
    """The logistic function, without overflow."""
    return 1 / (1 + exp(-eta)) if eta >= 0 else exp(eta) / (1 + exp(eta))


def normal(mean: float, deviation: float, low: float = -inf, high: float = inf) -> Curve:
    """The density of a truncated normal distribution."""
    mass = norm.cdf(high, mean, deviation) - norm.cdf(low, mean, deviation)
    scale = 1 / (mass * deviation * sqrt(2 * pi))
    return lambda x: scale * exp(-0.5 * ((x - mean) / deviation) ** 2)


@dataclass(frozen=True)
class Setting:
    """Two equally frequent groups with a density each, and one label curve."""

    cost: float
    support: tuple[float, float]
    densities: tuple[Curve, Curve]
    label: Curve

    def moments(self, rules: Sequence[Curve], kinks: Sequence[float]) -> Moments:
        """Acceptance and accepted label 1 of each group under a rule of its own."""
        pairs = list(zip(self.densities, rules, strict=True))
        return Moments(
            self.cost,
            [self.integral(lambda x, f=f, g=g: f(x) * g(x), kinks) for f, g in pairs],
            [
                self.integral(lambda x, f=f, g=g: f(x) * g(x) * self.label(x), kinks)
                for f, g in pairs
            ],
            self.base_rates(),
        )

    @cache  # noqa: B019 - two settings, for the length of a test run
    def base_rates(self) -> list[float]:
        """The probability of label 1 in each group."""
        return [self.integral(lambda x, f=f: f(x) * self.label(x)) for f in self.densities]

    def integral(self, curve: Curve, kinks: Sequence[float] = ()) -> float:
        """The integral of a curve that is smooth between the kinks."""
        low, high = self.support
        inner = sorted(x for x in kinks if low < x < high)
        # a few cuts more, so that no bump of the second setting's long support is overlooked
        cuts = sorted({low, *inner, *(low + (high - low) * k / 8 for k in range(1, 8)), high})
        return sum(
            quad(curve, a, b, epsabs=1e-13, epsrel=1e-12, limit=200)[0] for a, b in pairwise(cuts)
        )


@dataclass(frozen=True)
class Moments:
    """What every metric is made of, by group: E[d], E[d y], E[y]."""

    cost: float
    accepted: list[float]
    accepted_positive: list[float]
    positive: list[float]

    @property
    def acceptance(self) -> float:
        return sum(self.accepted) / 2

    @property
    def utility(self) -> float:
        pairs = zip(self.accepted, self.accepted_positive, strict=True)
        return sum(both - self.cost * one for one, both in pairs) / 2

    def benefits(self, notion: str) -> list[list[float]]:
        """The notion's benefits by definition: one list a benefit, one number a group."""
        groups = list(zip(self.accepted, self.accepted_positive, self.positive, strict=True))
        positive_rate = [both / y for _, both, y in groups]
        return {
            "demographic_parity": [[d for d, _, _ in groups]],
            "equal_opportunity": [positive_rate],
            "equalised_odds": [positive_rate, [(d - both) / (1 - y) for d, both, y in groups]],
            "predictive_parity": [[both / d for d, both, _ in groups]],
            "correctness": [[both + 1 - d - y + both for d, both, y in groups]],
        }[notion]


def _first_curve(x: float) -> float:
    b, w, h, s = 0.8, 30, 3, 0.1
    return (tan(x) + tan(b) + h * exp(-w * (x - b - s) ** 4)) / (2 * tan(b) + h)


def _second_curve(x: float) -> float:
    return 0.8 * sigma(0.6 * (x + 3)) * sigma(-5 * (x - 3)) + sigma(x - 5)


FIRST = Setting(
    cost=_first_curve(-0.3),
    support=(-0.8, 0.8),
    densities=(normal(0.5, 1, -0.8, 0.8), normal(-0.5, 1, -0.8, 0.8)),
    label=_first_curve,
)
SECOND = Setting(
    cost=0.55,
    support=(-45.0, 45.0),  # twelve deviations: what lies outside is below 1e-33
    densities=(normal(1.5, 3.5), normal(-1.5, 3.5)),
    label=_second_curve,
)
