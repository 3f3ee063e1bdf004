"""What is possible on COMPAS at all: the paper says that it cannot be known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consequential.paper import truths
from consequential.paper.claims.claim import Claim, Finding, Measured
from consequential.paper.limits import SMALL_GAP

if TYPE_CHECKING:
    from consequential.paper.results import Results


def _measure(name: str) -> Finding:
    limits, finding = truths.limits(name), Finding()
    world = truths.table(name)
    best, fair = limits.best, limits.fair
    finding.numbers += [
        Measured.of("reject all: utility", limits.reject_all.utility),
        Measured.of("accept all: utility", limits.accept_all.utility),
        Measured.of(f"best function of x: utility (gap {best[1]:.3f})", best[0]),
        Measured.of(f"the same with a gap of at most {SMALL_GAP}", fair[0]),
    ]
    for text, policy, truth in (
        ("best linear logistic policy", limits.logistic, limits.logistic_truth),
        (f"the same, gap at most {SMALL_GAP}", limits.fair_logistic, limits.fair_logistic_truth),
    ):
        held_out = world.measure(policy)
        finding.numbers += [
            Measured.of(f"{text}: utility (gap {truth.benefit_gap:.3f})", truth.utility),
            Measured.of(f"{text}, on held-out people", held_out.utility),
        ]
    outside = best[0] - limits.logistic_truth.utility
    finding.numbers.append(Measured.of("what linear policies miss", outside))
    finding.add(("", "without a bound on the gap"), outside > 1e-4)
    finding.add(
        ("", f"a gap of at most {SMALL_GAP}"), fair[0] - limits.fair_logistic_truth.utility > 1e-4
    )
    return finding


def compas_claim(name: str) -> Claim:
    """Return the claim that the best policy is not linear, in one orientation of the label."""

    def measure(results: Results, column: str) -> Finding:
        return _measure(name)

    return Claim(
        f"{name}-best-not-linear",
        "5.2, real data",
        f"COMPAS, {truths.ORIENTATIONS[name]}: the optimal policy is not expected in the class of "
        "logistic policies.",
        "Enumerated over the training people, of whom few have features of their own: the best "
        "function of the features gains more than the best linear logistic policy found, by at "
        "least .0001 (that search is numerical).",
        (),
        measure,
        ("exact",),
    )
