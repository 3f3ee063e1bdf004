"""What the gate and the guardrails keep of their promises, over many simulated loops.

    python benchmarks/loop.py [null unfair power estimates guardrails] [--loops 200] [--seed 0]

Monthly cohorts are simulated as the service freezes them, without HTTP and without a database.
docs/what-the-gate-proves.md quotes the tables.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import date, timedelta

import numpy as np
from scipy.optimize import brentq

import consequential as cq
from consequential.service.gate import Gain, look
from consequential.service.guardrails import DayCounts, acceptance, chance, drift, utility
from consequential.service.settings import GateSettings, LoopSettings, Number

FLOOR, MONTH, MONTHS, HORIZON = 0.1, 2000, 24, 3
FIRST = cq.worlds.first_setting()


def settings_of(cost: float, **members) -> LoopSettings:
    return LoopSettings(cost, {"x0": Number(-9.0, 9.0, "Score")}, FLOOR, **members)


def cut_at(x: float, slope: float = 20.0) -> cq.Policy:
    """Accept above x for certain; below it the probability falls quickly to the floor."""
    return cq.Policy([-slope * x, slope], "semi_logistic", floor=FLOOR)


def log_of(x, decision, propensity, label, group=None) -> cq.DecisionLog:
    known = np.where(decision, label, np.nan)
    return cq.DecisionLog.from_arrays(
        x[:, None], decision, propensity, known, group, missing="against", feature_names=["x0"]
    )


# --- no false promotion: every label is worth exactly the cost


def null_logs(world: str, cost: float, n: int, rng) -> dict[str, cq.DecisionLog]:
    """Return what one loop decided, as it is frozen and as one might be tempted to keep it."""
    x, label = rng.normal(size=n), (rng.random(n) < cost).astype(float)
    p = cut_at(0.8, 2.0).propensity(x[:, None])
    decision = rng.random(n) < p
    if world == "all labels":
        return {"frozen": log_of(x, decision, p, label)}
    # 5 % of accepted people, all of them failures
    lost = decision & (label == 0.0) & (rng.random(n) < 0.05 / (1.0 - cost))
    frozen = log_of(x, decision, p, np.where(lost, np.nan, label))
    if world == "missing":
        kept = ~lost
        return {"frozen": frozen, "tempting": log_of(x[kept], decision[kept], p[kept], label[kept])}
    granted = ~decision & (label == 1.0) & (rng.random(n) < 0.05 / cost)
    done = log_of(x, decision | granted, p, np.where(lost, np.nan, label))
    return {"frozen": frozen, "tempting": done}


def best_cut(log: cq.DecisionLog, cost: float) -> cq.Policy:
    """Return the cut with the highest estimated utility: a candidate that chance has flattered."""
    cuts = np.linspace(-2.0, 2.0, 41)
    worth = log.decision / log.propensity * (log.outcome - cost)
    order = np.argsort(-log.features[:, 0])
    total = np.append(0.0, np.cumsum(worth[order]))
    above = np.searchsorted(-log.features[order, 0], -cuts, "right")
    return cut_at(float(cuts[total[above].argmax()]))


def false_promotions(log: cq.DecisionLog, cost: float, months: int) -> tuple[bool, bool]:
    """Return whether the gate, and whether 95 % normal intervals, ever promote a candidate.

    Candidates are learned from the first 1, 2, 4, ... cohorts and looked at each month.
    """
    settings, live = settings_of(cost), cut_at(0.8, 2.0)
    alpha = 1.0 - settings.gate.confidence
    month = len(log) // months
    gate = normal = False
    number = 0
    while 2**number < months:
        learned, number = 2**number * month, number + 1
        candidate = best_cut(log.take(slice(0, learned)), cost)
        gain = Gain.of(candidate, live, log.take(slice(learned, None)), settings)
        # a bound that holds at all times is kept, so the last look tells of all before
        gate |= bool(gain.lower(alpha / (number * (number + 1)))[-1] > settings.gate.margin)
        count = np.arange(month, len(gain.least) + 1, month)
        sums, squares = (np.cumsum(gain.least**k)[count - 1] for k in (1, 2))
        mean = sums / count
        normal |= bool((mean > 1.96 * np.sqrt((squares / count - mean**2) / count)).any())
    return gate, normal


def null(seeds: range) -> Iterator[str]:
    yield f"loops of {MONTHS} months of {MONTH} decisions in which no policy is better than another"
    yield "that ever promote one: the gate, 95 % normal intervals looked at monthly, and the gate"
    yield "with rows that lack a label left out, or with overrides counted as what was done"
    cases = (0.6, "all labels"), (0.85, "all labels"), (0.6, "missing"), (0.6, "overrides")
    for case, (cost, world) in enumerate(cases):
        found: dict[str, list[tuple[bool, bool]]] = {}
        for seed in seeds:
            rng = np.random.default_rng([seed, 0, case])
            for name, log in null_logs(world, cost, MONTHS * MONTH, rng).items():
                found.setdefault(name, []).append(false_promotions(log, cost, MONTHS))
        shares = {name: np.mean(each, axis=0) for name, each in found.items()}
        gate, normal = shares["frozen"]
        tempted = f"{shares['tempting'][0]:7.1%}" if "tempting" in shares else "      -"
        yield f"  cost {cost:.2f}  {world:12} {gate:7.1%} {normal:7.1%} {tempted}"


def unfair(seeds: range) -> Iterator[str]:
    seeds = seeds[:50]
    yield f"{len(seeds)} loops of {MONTHS} months whose candidate has exactly the largest gap"
    yield "allowed, that pass the line on fairness at some look"
    live, better = harsh_and_better()
    for notion in ("demographic_parity", "equal_opportunity"):
        gap = abs(FIRST.exact(better, notion).benefit_gap)
        settings = settings_of(FIRST.cost, sensitive="group", fairness=notion, max_gap=gap)
        logs = (FIRST.collect(live, MONTHS * MONTH, np.random.default_rng([s, 4])) for s in seeds)
        passed = [look(better, live, log, settings, 1)["fairness"].passed for log in logs]
        yield f"  {notion:20} {np.mean(passed):7.1%}"
    sizes = [people_until_fair(np.random.default_rng([seed, 5])) for seed in seeds[:20]]
    yield "people of the smaller of two groups, one in ten, until a gap of .10 is bounded by .15:"
    yield f"  median {np.median(sizes):.0f}"


def people_until_fair(rng) -> int:
    """Return how many people of the smaller group it takes to bound a gap of .10 by .15."""
    n, candidate = 60_000, cut_at(0.0, 200.0)
    small = rng.random(n) < 0.1
    # the cut accepts 60 % and 50 % for certain, and the others with the floor's probability
    x = rng.random(n) - np.where(small, 1.0 - 0.4444, 1.0 - 0.5556)
    decision = rng.random(n) < FLOOR
    log = log_of(x, decision, np.full(n, FLOOR), rng.random(n) < 0.5, small)
    settings = settings_of(0.5, sensitive="small", max_gap=0.15)
    for k in range(2000, n + 1, 2000):
        if look(candidate, candidate, log.take(slice(0, k)), settings, 1)["fairness"].passed:
            return int(small[:k].sum())
    return n


# --- power: a gain of .017 in the first setting


def cut_with(utility: float, low: float, high: float) -> cq.Policy:
    """Return the cut between two others that has this utility."""
    return cut_at(brentq(lambda x: FIRST.exact(cut_at(x)).utility - utility, low, high))


def harsh_and_better() -> tuple[cq.Policy, cq.Policy]:
    """Return a cut that is too high, and one that brings .017 more."""
    return cut_with(0.158, 0.0, 0.6), cut_with(0.175, -0.2, 0.0)


def decisions_to_promotion(live, better, seed: int, most: int = 50_000) -> tuple[int, int]:
    """Return after how many decisions the bound passes, and all lines at a monthly look."""
    settings = settings_of(FIRST.cost, sensitive="group", max_gap=0.25, gate=GateSettings())
    log = FIRST.collect(live, most, np.random.default_rng([seed, 1]))
    above = Gain.of(better, live, log, settings).lower(0.025) > 0.0
    proven = int(above.argmax()) + 1 if above.any() else 10**9
    for n in range(MONTH, most + 1, MONTH):
        if n >= proven and look(better, live, log.take(slice(0, n)), settings, 1).passed:
            return proven, n
    return proven, 10**9


def planned(live, better, power: float, seed: int = 0) -> int:
    """Return what `plan` says from 20 000 earlier decisions of the live policy."""
    log = FIRST.collect(live, 20_000, np.random.default_rng(seed))
    options = {"method": "any_time", "tuned_for": GateSettings().tuned_for, "power": power}
    rules = {"incumbent": cq.Policy(live.theta, live.link), "candidate": better}
    found = cq.plan(log, cost=FIRST.cost, improvement=0.017, floors=[FLOOR], **rules, **options)
    return found.options[0].decisions


def power(seeds: range) -> Iterator[str]:
    live, better = harsh_and_better()
    seeds = seeds[:100]
    found = np.array([decisions_to_promotion(live, better, seed) for seed in seeds])
    what = f"a first candidate that brings .017 more; {len(seeds)} loops"
    yield f"first setting, floor {FLOOR}, {what}"
    yield f"  promoted within 50 000 proving decisions: {(found[:, 1] <= 50_000).mean():.0%}"
    low, middle, high = np.quantile(found[:, 0], [0.1, 0.5, 0.9])
    yield f"  proven after {middle:.0f} decisions (median; 10 % {low:.0f}, 90 % {high:.0f})"
    middle, high = (planned(live, better, share, seeds[0]) for share in (0.5, 0.9))
    yield f"  plan had said {middle} (median), {high} (90 %)"


# --- estimates on frozen cohorts


def estimates_of(live, better, seed: int) -> dict[str, float]:
    """Return a policy's utility as one loop estimates it, by the way its log is kept."""
    rng = np.random.default_rng([seed, 2])
    months, n = 9, 9 * 2000
    people = FIRST.collect(cq.AcceptAll(), n, rng)
    x, label, month = people.features[:, 0], people.label, np.arange(n) // 2000
    p, worth = live.propensity(x[:, None]), label - FIRST.cost
    decision = rng.random(n) < p
    mature = month + HORIZON <= months
    # a failure shows before the horizon, a success at it
    age = np.where(label == 1.0, HORIZON, rng.uniform(0.0, HORIZON, n))
    arrived = month + age <= months
    # somebody who knows the label grants 3 % of what was refused
    wanted = ~decision & (label == 1.0)
    granted = wanted & (rng.random(n) < 0.03 * (~decision).sum() / wanted.sum())
    again = ~decision & (rng.random(n) < 0.3)  # in the same epoch, so with the same draw

    def estimate(rows, done=decision) -> float:
        log = log_of(x[rows], done[rows], p[rows], label[rows])
        return cq.evaluate(better, log, cost=FIRST.cost).utility.value

    frozen = np.flatnonzero(mature)
    accepts = better.propensity(x[:, None])
    return {
        "as frozen": estimate(frozen),
        "overridden refusals left out": estimate(frozen[~granted[frozen]]),
        "overridden refusals as accepted": estimate(frozen, decision | granted),
        "repeated applications kept": estimate(np.append(frozen, frozen[again[frozen]])),
        "labels to come as nothing": float((decision * arrived / p * worth * accepts).mean()),
        "people accepted, without weights": float(worth[frozen][decision[frozen]].mean()),
    }


def estimates(seeds: range) -> Iterator[str]:
    live, better = harsh_and_better()
    truth = FIRST.exact(better).utility
    found = [estimates_of(live, better, seed) for seed in seeds]
    what = f"mean of {len(seeds)} loops, error, in std. errors"
    yield f"utility of a policy, {truth:.4f} in truth: {what}"
    for way in found[0]:
        values = np.array([each[way] for each in found])
        error, spread = values.mean() - truth, values.std() / len(seeds) ** 0.5
        yield f"  {way:32} {values.mean():.4f} {error:+.4f} {error / spread:+8.1f}"


# --- guardrails


def days_of(propensity, logged, per_day: int, broken_from: int, days: int, rng) -> list[DayCounts]:
    """Return days on which people are drawn with a propensity and logged, later, with another."""
    found = []
    for k in range(days):
        people = rng.integers(len(propensity), size=rng.poisson(per_day))
        p = (logged if k >= broken_from else propensity)[people]
        accepted = int((rng.random(len(people)) < propensity[people]).sum())
        variance = p * (1.0 - p)
        day, sums = date(2027, 1, 1) + timedelta(k), (p, variance, variance * (1.0 - 2.0 * p))
        found.append(
            DayCounts(str(day), len(people), accepted, *(float(each.sum()) for each in sums))
        )
    return found


def alarmed(days: list[DayCounts], since: int, guardrail) -> bool:
    """Whether any daily look from one day on alarms."""
    return any(guardrail(days[:k]).broken for k in range(since + 1, len(days) + 1))


def chances(loops: int, rng) -> Iterator[str]:
    live, _ = harsh_and_better()
    harsh = live.propensity(FIRST.collect(live, 10_000, rng).features)
    yield f"chance: false alarms in {loops} sound years of daily looks; propensities logged 20 %"
    yield "too high since a day, found within 10 000 decisions"
    for name, p, per_day in (
        ("harsh rule, 167 a day", harsh, 167),
        ("harsh rule, 2000 a day", harsh, 2000),
        ("floor alone, 167 a day", np.full(100, FLOOR), 167),
    ):
        sound = [alarmed(days_of(p, p, per_day, 0, 365, rng), 0, chance) for _ in range(loops)]
        logged, length, shares = np.minimum(1.2 * p, 1.0), 10_000 // per_day, []
        for start in (0, 200):
            days = (days_of(p, logged, per_day, start, start + length, rng) for _ in range(loops))
            shares.append(np.mean([alarmed(each, start, chance) for each in days]))
        since = "  ".join(f"day {k} {share:.0%}" for k, share in zip((0, 200), shares, strict=True))
        yield f"  {name:24} false {np.mean(sound):.0%}   found: {since}"


def acceptances(loops: int, rng) -> Iterator[str]:
    loops = min(loops, 40)
    agreed = settings_of(0.5, acceptance=(0.3, 0.5))

    def guardrail(days: list[DayCounts]):
        return acceptance(days, {}, agreed)

    yield f"acceptance, agreed .30 to .50, 167 a day: years of {loops} with an alarm"
    for rate in (0.4, 0.5, 0.53):
        p = np.full(10, rate)
        years = (days_of(p, p, 167, 0, 365, rng) for _ in range(loops))
        yield f"  true share {rate:.2f}   {np.mean([alarmed(y, 0, guardrail) for y in years]):.0%}"


def drifts(loops: int, rng) -> Iterator[str]:
    reference = cq.FeatureSummary.of(rng.normal(size=(20_000, 1)), ["x0"])
    yield f"drift, days of 200 and of 1000 people: {loops} times 365 of them with an alarm"
    for shift in (0.0, 0.3, 0.6, 1.0):
        shares = [
            np.mean(
                [
                    drift(reference, rng.normal(shift, 1.0, (n, 1)))[0].broken
                    for _ in range(loops * (365 if shift == 0.0 else 1))
                ]
            )
            for n in (200, 1000)
        ]
        yield f"  shifted by {shift:.1f} standard deviations   {shares[0]:.4f}   {shares[1]:.4f}"


def utilities(seeds: range) -> Iterator[str]:
    live, better = harsh_and_better()
    settings = settings_of(FIRST.cost)
    what = f"alarms in {len(seeds)} loops"
    yield f"live policy against the one before, on 50 000 decisions: {what}"
    for name, now, before in (
        ("better by .017", better, live),
        ("equally good", better, cut_with(0.175, -0.6, -0.25)),
        ("worse by .017", live, better),
    ):
        logs = (FIRST.collect(now, 50_000, np.random.default_rng([s, 3])) for s in seeds)
        broken = [utility(now, before, log, settings).broken for log in logs]
        yield f"  {name:16} {np.mean(broken):.0%}"


def guardrails(seeds: range) -> Iterator[str]:
    seeds = seeds[:100]
    rng, loops = np.random.default_rng(seeds[0]), len(seeds)
    yield from chances(loops, rng)
    yield from acceptances(loops, rng)
    yield from drifts(loops, rng)
    yield from utilities(seeds)


SECTIONS = {
    "null": null,
    "unfair": unfair,
    "power": power,
    "estimates": estimates,
    "guardrails": guardrails,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", default=[], choices=[*SECTIONS, []])
    parser.add_argument("--loops", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the first loop")
    options = parser.parse_args()
    for section in options.sections or SECTIONS:
        for line in SECTIONS[section](range(options.seed, options.seed + options.loops)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
