"""Claims that are theorems, on small worlds that can be enumerated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consequential.paper import propositions, truths
from consequential.paper.claims.claim import Claim, Finding, Measured

if TYPE_CHECKING:
    from consequential.paper.results import Results

_EXACT = ("exact",)
_PENALTIES = (0.0, 1.0, 10.0)
_PLACES = (("first", 0.24), ("lending", 700.0))


def _limitation(results: Results, column: str) -> Finding:
    finding = Finding()
    for name, start in _PLACES:
        world = truths.score_world(name)
        for penalty in _PENALTIES:
            found = propositions.limitation(world, start, penalty)
            where = f"{truths.where(name)}, λ = {penalty:g}"
            finding.add(
                (truths.where(name), f"λ = {penalty:g}"),
                found.holds,
                Measured.of(f"{where}: seen, of a ceiling of {found.ceiling:.4f}", found.seen),
                Measured.of(f"{where}: true, of a best of {found.best:.4f}", found.true),
            )
    return finding


def _impossibility(results: Results, column: str) -> Finding:
    finding, strictly = Finding(), []
    for text, found in (
        ("accidents that lead to the optimum", propositions.lucky((0.12, 0.02, 0.02, 0.08))),
        ("a learner that goes down a ladder", propositions.ladder(40, 6)),
        ("no accident at all", propositions.lucky((0.0,) * 6)),
    ):
        finding.add(
            ('"at least" in the bound', text),
            found.holds,
            Measured.of(f"{text}: chance to reach the optimum", found.reached),
            Measured.of(f"{text}: bound", found.bound),
        )
        strictly.append(found.holds_as_printed)
    finding.add(('the strict "more than" as printed', ""), all(strictly))
    return finding


def _error_based(results: Results, column: str) -> Finding:
    finding, found = Finding(), propositions.error_based()
    finding.add(
        ("", "no error among the accepted"),
        found.holds,
        Measured.of("data that move the faultless rule", found.moved),
        Measured.of("data that move a rule which errs", found.moved_with_errors),
        Measured.of(f"its utility, of a best of {found.best:.3f}", found.utility),
        Measured.of(
            "rules right about everybody, as the text asks, and not optimal",
            found.faultless_yet_suboptimal,
        ),
    )
    return finding


def _supremum(results: Results, column: str) -> Finding:
    finding = Finding()
    for name, where in truths.SETTINGS.items():
        for penalty in _PENALTIES[:2]:
            found = truths.supremum(name, penalty)
            finding.add(
                (where, f"λ = {penalty:g}"),
                found.holds,
                *(
                    Measured.of(f"{where}, λ = {penalty:g}: distance at n = {n}", distance)
                    for n, distance in zip(found.n, found.distances, strict=True)
                ),
            )
    return finding


def _identity(results: Results, column: str) -> Finding:
    finding = Finding()
    for name, where in truths.SETTINGS.items():
        found = truths.supremum(name, 0.0)
        finding.add(
            ("division by all applicants", where),
            found.identity < 1e-9,
            Measured.of(f"{where}: largest error, divided by applicants", found.identity),
        )
        finding.add(
            ("division by the accepted, as printed", where),
            found.as_printed < 1e-9,
            Measured.of(f"{where}: largest error, as printed", found.as_printed),
        )
    return finding


def _unlimited(results: Results, column: str) -> Finding:
    world, best = truths.score_world("lending"), truths.optimum("lending").utility
    finding = Finding()
    for start in (650.0, 700.0, 750.0, 780.0):
        utility = propositions.unlimited_data(world, start)
        finding.add(
            ("", f"ξ = {start:g}"),
            utility <= 0.5 * best,
            Measured.of(f"ξ = {start:g}: utility, of a best of {best:.4f}", utility),
        )
    return finding


CLAIMS = (
    Claim(
        "proposition-1",
        "3.1, Proposition 1",
        "A rule fitted to labels of accepted people can do best on them and yet not be optimal.",
        "Enumerated: the start reaches the ceiling of what its own labels can show (to 1e-9) while "
        "its true value is more than .001 below the best.",
        (),
        _limitation,
        _EXACT,
    ),
    Claim(
        "proposition-2",
        "3.1, Proposition 2",
        "If updates explore by accident only, the optimum is missed with probability (more than) "
        "one minus the sum of the chances of accidents.",
        "Enumerated: the chance to reach the optimum is at most that sum; as printed, less.",
        (),
        _impossibility,
        _EXACT,
    ),
    Claim(
        "corollary",
        "3.1, Corollary",
        "An error-based learner never leaves a suboptimal rule that makes no error.",
        "Enumerated: no datum that can come moves the rule, and it is not optimal.",
        (),
        _error_based,
        _EXACT,
    ),
    Claim(
        "proposition-3",
        "3.2, Proposition 3",
        "Exploring policies come as close to the optimal value as one likes.",
        "Enumerated: distances of the proof's policies fall, and n times them does not grow "
        "(5 % slack for the penalty's term in 1/n²).",
        (),
        _supremum,
        _EXACT,
    ),
    Claim(
        "reweighting",
        "3.2, inverse propensities",
        "Reweighted labels of accepted people tell the utility of any other policy.",
        "Enumerated: the expectation equals the true utility to 1e-9.",
        (),
        _identity,
        _EXACT,
    ),
    Claim(
        "lending-more-data",
        "3.1, lending example",
        "From ξ = 650 on no amount of data makes the learned rule useful.",
        "Logistic regression on unlimited data (exact): utility at most half of the best, since "
        "half is where one could still call the rule useful.",
        (),
        _unlimited,
        _EXACT,
    ),
)
