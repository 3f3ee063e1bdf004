"""Guardrails: whether what decides still does what was agreed; looked at at every closing.

*Evidence.* For a sum S of terms within -1 and 1 that have mean 0 given all earlier ones, with
second and third moments that sum to V and K,

    exp(l S - (cosh l - 1) V - (sinh l - l) K)

is a supermartingale for any `l > 0`: with `f(x) = (e^(l x) - 1 - l x) / x^2`, which is convex, a
term x has `e^(l x) <= 1 + l x + x^2 ((1 - x) f(-1) + (1 + x) f(1)) / 2`. (With V in the place of K
it is Bennett's, which takes longer to notice that too few people are accepted.) So is its mean over
several l and over the days from which on terms are summed, with three quarters of the weight on all
days of a year and one on the first days of its months: what broke lately shows as well as what was
never right. Its value is the evidence. By Ville's inequality it ever reaches 20 in at most 5 of 100
sound years, however often one looks. If people are accepted with a lower probability than the terms
assume, the mean of `e^(l x)` is smaller still.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.evaluation.estimate import Result
from consequential.log import DecisionLog
from consequential.policy import DecisionRule, FeatureSummary
from consequential.policy.summary import SHARES
from consequential.service.exports import UNKNOWN
from consequential.service.gate import FEWEST, Gain, Limits
from consequential.service.settings import LoopSettings

Floats = NDArray[np.float64]

ENOUGH = 20.0  # evidence, for an alarm
UNSTABLE = 0.25  # population stability index, for an alarm
# most weight on what finds shares that are off by a fifth
_LAMBDAS = np.array([0.05, 0.1, 0.2, 0.4, 0.8])
_WEIGHTS = np.array([0.1, 0.2, 0.4, 0.2, 0.1])
_FACTORS = np.array([_LAMBDAS, 1.0 - np.cosh(_LAMBDAS), _LAMBDAS - np.sinh(_LAMBDAS)])
_DAYS, _MONTHS = 366, 12
_LARGEST = 600.0  # exponent
_RAREST = 0.001  # share that a bin is taken to have had at least
# people needed to judge a feature; with so many, chance reaches the limit once in a million days
_PEOPLE, _PEOPLE_PER_BIN = 200, 20


@dataclass(frozen=True, slots=True)
class GuardrailFinding(Result):
    """What one guardrail says: a figure, its limit, whether it is broken, and that in words."""

    name: str
    value: float
    limit: float
    broken: bool
    sentence: str


@dataclass(frozen=True, slots=True)
class DayCounts:
    """A closed day: its people, how many were accepted, and how many chance should have accepted.

    `variance` is the sum of `p (1 - p)`, `skew` that of `p (1 - p) (1 - 2 p)`. Repeated
    applications of a subject share their chance, so only the first of an epoch counts.
    """

    date: str
    people: int
    accepted: int
    expected: float = 0.0
    variance: float = 0.0
    skew: float = 0.0


def chance(days: Sequence[DayCounts]) -> GuardrailFinding:
    """Say whether people were accepted as often as the logged propensities say, this year.

    Examples
    --------
    >>> from consequential.service.guardrails import DayCounts, chance
    >>> sound = [DayCounts(f"2027-01-{k:02}", 100, 50, 50.0, 25.0) for k in range(1, 29)]
    >>> print(chance(sound).sentence)
    Since 2027-01-01 1400 people were accepted, where the logged probabilities sum to 1400.0.
    >>> chance([*sound, DayCounts("2027-01-29", 300, 120, 180.0, 60.0)]).broken
    True
    """
    days = _this_year(days)
    sums = [(day.accepted - day.expected, day.variance, day.skew) for day in days]
    excess, variance, skew = np.array(sums).T
    value, _, start = _evidence(
        [(days, sign * excess, variance, sign * skew) for sign in (1.0, -1.0)]
    )
    broken = value >= ENOUGH
    since = days[start if broken else 0 :]
    sentence = (
        f"Since {since[0].date} {sum(day.accepted for day in since)} people were accepted, where "
        f"the logged probabilities sum to {sum(day.expected for day in since):.1f}."
    )
    return GuardrailFinding("chance", value, ENOUGH, broken, sentence)


def acceptance(
    days: Sequence[DayCounts], by_group: Mapping[str, Sequence[DayCounts]], settings: LoopSettings
) -> GuardrailFinding:
    """Say whether the share of accepted people, overall and in each group, is within its range.

    The days are those of this year since the last deployment or change of the settings: when it
    began does not depend on its days, so the evidence is as good as that of a year.
    """
    low, high = settings.acceptance
    groups = {"": _this_year(days)}
    for name, found in by_group.items():
        of_year = _this_year(found)
        if name != UNKNOWN and sum(day.people for day in of_year) >= FEWEST:
            groups[name] = of_year
    tests, whose = [], []
    for name, found in groups.items():
        people, accepted = (
            np.array([getattr(day, column) for day in found], dtype=np.float64)
            for column in ("people", "accepted")
        )
        for sign, share in ((1.0, high), (-1.0, low)):
            variance = share * (1.0 - share) * people
            skew = sign * (1.0 - 2.0 * share) * variance
            tests.append((found, sign * (accepted - share * people), variance, skew))
            whose.append(name)
    value, which, start = _evidence(tests)
    broken = value >= ENOUGH
    name = whose[which] if broken else ""
    since = groups[name][start if broken else 0 :]
    if sum(day.people for day in since) < FEWEST:
        since = groups[name]
    people, accepted = (sum(getattr(day, each) for day in since) for each in ("people", "accepted"))
    sentence = (
        f"Since {since[0].date} {accepted / max(people, 1):.1%} of people"
        f"{f' in group {name}' if name else ''} were accepted; agreed are {low:.0%} to {high:.0%}."
    )
    return GuardrailFinding("acceptance", value, ENOUGH, broken, sentence)


def drift(reference: FeatureSummary, people: ArrayLike) -> list[GuardrailFinding]:
    """Compare people's features with those of the people whom the policy was learned from.

    The population stability index is `sum (o - e) log(o / e)` over bins with observed shares o and
    expected shares e. Bins are the words of a feature, or lie between the quantiles of the
    reference; people who are tied with a quantile count on the side that fits better.

    Parameters
    ----------
    reference
        The policy's summary.
    people
        Features in the order of the summary, of the people of the closed day; where these are too
        few (`people_needed`), of the last days together.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> from consequential.service.guardrails import drift
    >>> rng = np.random.default_rng(0)
    >>> reference = cq.FeatureSummary.of(rng.normal(size=(1000, 1)), ["income"])
    >>> print(drift(reference, rng.normal(1.0, 1.0, size=(300, 1)))[0].sentence)
    The people's income is not what it was when the policy was learned: stability index 1.075,
    alarm above 0.25.
    """
    matrix = np.atleast_2d(np.asarray(people, dtype=np.float64))
    findings = []
    for name, (observed, expected) in _shares(reference, matrix).items():
        n, bins = len(matrix), len(expected)
        enough = n >= _needed(bins)
        smoothed = (n * observed + 0.5) / (n + 0.5 * bins)
        expected = np.maximum(expected, _RAREST)
        value = float(((smoothed - expected) * np.log(smoothed / expected)).sum())
        broken = enough and value > UNSTABLE
        sentence = (
            f"The people's {name} is {'not ' if broken else ''}what it was when the policy was "
            f"learned: stability index {value:.3f}, alarm above {UNSTABLE:g}."
            if enough
            else f"Too few people to judge {name}: {n} of {_needed(bins)}."
        )
        findings.append(GuardrailFinding(f"drift:{name}", value, UNSTABLE, broken, sentence))
    return findings


def people_needed(reference: FeatureSummary) -> int:
    """Return how many people it takes to judge every feature."""
    widths = [len(places) for places in reference.columns.values()]
    return _needed(max([len(reference.quantiles), *widths]) + 1)


def utility(
    live: DecisionRule,
    before: DecisionRule,
    log: DecisionLog,
    settings: LoopSettings,
    limits: Limits | None = None,
) -> GuardrailFinding:
    """Say whether the live policy is proven to bring less than the one before it.

    The log has the frozen cohorts since it was deployed. A false alarm comes with probability
    `1 - confidence` at most however often one looks: labels that are missing speak for the live
    policy here.
    """
    gain = Gain.of(live, before, log, settings, limits)
    mean = float(gain.most.mean())
    value = max(float(gain.upper(1.0 - settings.gate.confidence)[-1]), mean)
    sentence = (
        f"On {len(log)} decisions the live policy brings {mean:.4f} more per "
        f"decision than the one before it, and at most {value:.4f} with a confidence of "
        f"{settings.gate.confidence:.4g}; an alarm below 0."
    )
    return GuardrailFinding("utility", value, 0.0, value < 0.0, sentence)


def _this_year(days: Sequence[DayCounts]) -> list[DayCounts]:
    if not days:
        raise ValueError("there is no closed day to look at")
    return [day for day in days if day.date[:4] == days[-1].date[:4]]


def _evidence(
    tests: Sequence[tuple[Sequence[DayCounts], Floats, Floats, Floats]],
) -> tuple[float, int, int]:
    """Return the mean evidence of tests, the strongest test and the day since when it is so.

    A test has days, and sums of each day: of terms, and of their second and third moments.
    """
    total, strongest = 0.0, (-1.0, 0, 0)
    for which, (days, *sums) in enumerate(tests):
        months = [day.date[:7] for day in days]
        first = np.array([k == 0 or month != months[k - 1] for k, month in enumerate(months)])
        weight = 0.75 / _DAYS + first * (0.25 / _MONTHS)
        power = np.cumsum(np.column_stack(sums)[::-1], axis=0)[::-1] @ _FACTORS
        by_start = weight * (np.exp(np.minimum(power, _LARGEST)) @ _WEIGHTS)
        total += float(by_start.sum() + 1.0 - weight.sum())  # days to come have no evidence yet
        start = int(by_start.argmax())
        strongest = max(strongest, (float(by_start[start]), which, start))
    return total / len(tests), strongest[1], strongest[2]


def _needed(bins: int) -> int:
    return max(_PEOPLE, _PEOPLE_PER_BIN * bins)


def _shares(reference: FeatureSummary, people: Floats) -> dict[str, tuple[Floats, Floats]]:
    """Return the observed and expected shares of each feature's bins."""
    found = {}
    for name, places in reference.columns.items():
        if "=" not in reference.names[places[0]]:
            values, cuts = np.sort(people[:, places[0]]), reference.quantiles[:, places[0]]
            ends = [np.searchsorted(values, cuts, side) / len(values) for side in ("left", "right")]
            levels = np.array(SHARES)
            observed, expected = (
                np.diff(below, prepend=0.0, append=1.0)
                for below in (np.clip(levels, *ends), levels)
            )
        else:
            observed, expected = (
                np.append(words, max(0.0, 1.0 - words.sum()))
                for words in (people[:, places].mean(axis=0), reference.means[places])
            )
        found[name] = observed, expected
    return found
