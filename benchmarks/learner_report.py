"""Report of `learners.py`: a table per log and bound, and how ours stands among the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
from learner_contestants import BOUNDS, TRIVIAL, contestants
from learner_worlds import WORLDS

TOLERANCE = 0.005  # a bound counts as kept up to here: rules meet it on the log, not among people
CLOSE = 0.001


@dataclass(frozen=True)
class Result:
    """What one contestant reached on one log; the first five fields are its key."""

    world: str
    rows: int
    bound: str
    contestant: str
    seed: int
    utility: float
    parity: float
    opportunity: float
    acceptance: float
    seconds: float

    @property
    def key(self) -> tuple[str, int, str, str, int]:
        return self.world, self.rows, self.bound, self.contestant, self.seed


@dataclass(frozen=True)
class Entry:
    """A contestant on one kind of log under one bound: medians over seeds."""

    name: str
    utilities: list[float]
    gaps: list[float]
    seconds: float
    max_gap: float  # infinite without a bound

    @property
    def utility(self) -> float:
        return float(np.median(self.utilities))

    @property
    def gap(self) -> float:
        return float(np.median(self.gaps))

    @property
    def keeps_bound(self) -> bool:
        return self.gap <= self.max_gap + TOLERANCE

    @property
    def share_over(self) -> float:
        """The share of logs whose bound is exceeded by more than the tolerance."""
        return float(np.mean(np.array(self.gaps) > self.max_gap + TOLERANCE))

    @property
    def standard_error(self) -> float:
        n = len(self.utilities)
        return float(np.std(self.utilities, ddof=1) / np.sqrt(n)) if n > 1 else 0.0


@dataclass(frozen=True)
class Comparison:
    """Everybody on one kind of log under one bound."""

    world: str
    rows: int
    bound: str
    entries: dict[str, Entry]

    @property
    def title(self) -> str:
        bound = BOUNDS[self.bound]
        asked = "no bound" if bound is None else f"{self.bound} gap at most {bound.max_gap:g}"
        return f"{self.world}, {self.rows} rows, {asked}"

    @property
    def ours(self) -> Entry:
        return self.entries["ours"]

    def rivals(self, *, sees_group: bool) -> list[Entry]:
        """Return who keeps the bound, or has no wider a gap than ours: it must not win by a gap."""
        widest = max(self.ours.gap, self.ours.max_gap + TOLERANCE)
        return [
            entry
            for name, entry in self.entries.items()
            if entry.gap <= widest and (sees_group or not contestants()[name].sees_group)
        ]

    def show(self) -> None:
        best = f"best possible without a bound {best_possible(self.world):.4f}"
        print(
            f"\n## {self.title}\n\n{WORLDS[self.world].about}; {best}; medians; * sees the group\n"
        )
        print("| | utility | gap | logs over | seconds | logs |")
        print("| --- | --- | --- | --- | --- | --- |")
        for name, entry in self.entries.items():
            mark = "*" if contestants()[name].sees_group else ""
            over = "" if self.bound == "none" else f"{entry.share_over:.0%}"
            gap = "" if self.bound == "none" else f"{entry.gap:.3f}"
            print(
                f"| {name}{mark} | {entry.utility:.4f} | {gap} | {over} | {entry.seconds:.1f} "
                f"| {len(entry.utilities)} |"
            )


@cache
def best_possible(world: str) -> float:
    return float(np.maximum(WORLDS[world].evaluated().chance - WORLDS[world].cost, 0.0).mean())


def comparisons(results: Iterable[Result], bounds: Iterable[str]) -> list[Comparison]:
    """Group results; who knows no fairness enters under every bound with the result of none."""
    found: dict[tuple[str, int, str, str], list[Result]] = defaultdict(list)
    for result in results:
        found[result.world, result.rows, result.bound, result.contestant].append(result)
    logs = sorted({key[:2] for key in found}, key=lambda log: (list(WORLDS).index(log[0]), log[1]))
    compared = []
    for world, rows in logs:
        for bound in bounds:
            entries = {}
            for name, contestant in contestants().items():
                unaware = contestant.bounds == ("none",)
                if some := found.get((world, rows, "none" if unaware else bound, name)):
                    entries[name] = entry_of(name, some, bound)
            if entries:
                compared.append(Comparison(world, rows, bound, entries))
    return compared


def entry_of(name: str, results: list[Result], bound: str) -> Entry:
    asked = BOUNDS[bound]
    return Entry(
        name,
        [result.utility for result in results],
        [result.opportunity if bound == "opportunity" else result.parity for result in results],
        float(np.median([result.seconds for result in results])),
        np.inf if asked is None else asked.max_gap,
    )


def report(results: Iterable[Result], bounds: Iterable[str]) -> None:
    """Print a table per log and bound, then the statements with and without group-seeing rules.

    Under a bound the best is the best of those that keep it, or have no wider a gap than ours.
    """
    compared = comparisons(results, bounds)
    for comparison in compared:
        comparison.show()
    judged = [comparison for comparison in compared if "ours" in comparison.entries]
    if not judged:
        return
    for sees_group in (False, True):
        print(f"\n# Ours and the best {'of all' if sees_group else 'that do not see the group'}\n")
        print("| log and bound | best | utility | ours | difference | bound |")
        print("| --- | --- | --- | --- | --- | --- |")
        for comparison in judged:
            best = max(comparison.rivals(sees_group=sees_group), key=lambda entry: entry.utility)
            ours = comparison.ours
            print(
                f"| {comparison.title} | {best.name} | {best.utility:.4f} | {ours.utility:.4f} "
                f"| {ours.utility - best.utility:+.4f} | {'' if ours.keeps_bound else 'exceeded'} |"
            )
        state(judged, sees_group=sees_group)
    state_bounds(judged)
    state_regret(judged)


def counted(statement: str, kept: list[bool]) -> None:
    print(f"- {statement}: {sum(kept)} of {len(kept)}")


def state(judged: list[Comparison], *, sees_group: bool) -> None:
    """Print how often ours is close to the best, the best, and not below a trivial rule."""
    close, first, safe = [], [], []
    for comparison in judged:
        ours, rivals = comparison.ours, comparison.rivals(sees_group=sees_group)
        others = [entry.utility for entry in rivals if not entry.name.startswith("ours")]
        trivial = [entry.utility for entry in rivals if entry.name in TRIVIAL]
        close.append(ours.utility >= max(entry.utility for entry in rivals) - CLOSE)
        first.append(round(ours.utility, 4) >= round(max(others, default=-1.0), 4))
        safe.append(ours.utility >= max(trivial, default=-np.inf) - ours.standard_error)
    print()
    counted(f"within {CLOSE:g} of the best, our other methods included", close)
    counted("as good as every contestant other than ours, to four decimals", first)
    counted("not below past rule, accept-all or reject-all by more than a standard error", safe)


def state_bounds(judged: list[Comparison]) -> None:
    """Print how often bounds are exceeded, by ours and by others that were given them."""
    bounded = [comparison for comparison in judged if comparison.bound != "none"]
    if not bounded:
        return
    shares: dict[str, list[float]] = defaultdict(list)
    as_well = []
    for comparison in bounded:
        asked = {
            name: entry.share_over
            for name, entry in comparison.entries.items()
            if comparison.bound in contestants()[name].bounds
        }
        for name, share in asked.items():
            shares[name].append(share)
        others = [share for name, share in asked.items() if not name.startswith("ours")]
        as_well.append(asked["ours"] <= min(others, default=1.0))
    print(f"\n# Bounds exceeded by more than {TOLERANCE:g}\n\n| | share of logs |\n| --- | --- |")
    for name, found in shares.items():
        print(f"| {name} | {np.mean(found):.0%} |")
    print()
    counted("ours keeps its bound on as many logs as any contestant that was given it", as_well)


def state_regret(judged: list[Comparison]) -> None:
    """Print ours against logistic regression where that is the right model."""
    for comparison in judged:
        plain = comparison.entries.get("logistic-accepted")
        if comparison.world == "well-specified" and comparison.bound == "none" and plain:
            best = best_possible(comparison.world)
            ours = best - comparison.ours.utility
            ratio = ours / (best - plain.utility)
            print(f"- regret at {comparison.rows} rows: {ours:.4f}, {ratio:.2f} times logistic's")
