"""Claims tested by exact sums, without a run: the theorems, and what is possible on COMPAS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from consequential.paper import propositions, truths
from consequential.paper.claims.claim import Case, Claim, Measure
from consequential.paper.limits import SMALL_GAP
from consequential.policies import AcceptAll, RejectAll

if TYPE_CHECKING:
    from consequential.paper.results import Results

_PENALTIES = (0.0, 1.0, 10.0)
_STARTS = {"first": 0.24, "lending": 700.0}


def _limitation(results: Results, column: str) -> Iterator[Case]:
    for name, start in _STARTS.items():
        world, where = truths.score_world(name), truths.where(name)
        for penalty in _PENALTIES:
            found = propositions.limitation(world, start, penalty)
            case = f"λ = {penalty:g}"
            numbers = {
                f"{where}, {case}: seen, of a ceiling of {found.ceiling:.4f}": found.seen,
                f"{where}, {case}: true, of a best of {found.best:.4f}": found.true,
            }
            yield Case(case, found.holds, numbers, where)


def _impossibility(results: Results, column: str) -> Iterator[Case]:
    strictly = []
    for text, found in (
        ("accidents that lead to the optimum", propositions.lucky((0.12, 0.02, 0.02, 0.08))),
        ("a learner that goes down a ladder", propositions.ladder(40, 6)),
        ("no accident at all", propositions.lucky((0.0,) * 6)),
    ):
        numbers = {
            f"{text}: chance to reach the optimum": found.reached,
            f"{text}: bound": found.bound,
        }
        yield Case(text, found.holds, numbers, '"at least" in the bound')
        strictly.append(found.holds_as_printed)
    yield Case("", all(strictly), group='the strict "more than" as printed')


def _error_based(results: Results, column: str) -> Iterator[Case]:
    found = propositions.error_based()
    numbers: dict[str, float] = {
        "data that move the faultless rule": found.moved,
        "data that move a rule which errs": found.moved_with_errors,
        f"its utility, of a best of {found.best:.3f}": found.utility,
        "rules right about everybody, as the text asks, and not optimal": (
            found.faultless_yet_suboptimal
        ),
    }
    yield Case("no error among the accepted", found.holds, numbers)


def _supremum(results: Results, column: str) -> Iterator[Case]:
    for name, where in truths.SETTINGS.items():
        for penalty in _PENALTIES[:2]:
            found, case = truths.supremum(name, penalty), f"λ = {penalty:g}"
            numbers = {
                f"{where}, {case}: distance at n = {n}": distance
                for n, distance in zip(found.n, found.distances, strict=True)
            }
            yield Case(case, found.holds, numbers, where)


def _identity(results: Results, column: str) -> Iterator[Case]:
    for name, where in truths.SETTINGS.items():
        found = truths.supremum(name, 0.0)
        for group, words, error in (
            ("division by all applicants", "divided by applicants", found.identity),
            ("division by the accepted, as printed", "as printed", found.as_printed),
        ):
            yield Case(where, error < 1e-9, {f"{where}: largest error, {words}": error}, group)


def _unlimited_data(results: Results, column: str) -> Iterator[Case]:
    world, best = truths.score_world("lending"), truths.optimum("lending").utility
    for start in (650.0, 700.0, 750.0, 780.0):
        utility, case = propositions.unlimited_data(world, start), f"ξ = {start:g}"
        numbers = {f"{case}: utility, of a best of {best:.4f}": utility}
        yield Case(case, utility <= 0.5 * best, numbers)


def _claim(id_: str, section: str, text: str, criterion: str, measure: Measure) -> Claim:
    return Claim(id_, section, text, criterion, (), measure, ("exact",))


THEOREMS = (
    _claim(
        "proposition-1",
        "3.1, Proposition 1",
        "A rule fitted to labels of accepted people can do best on them and yet not be optimal.",
        "Enumerated: the start reaches the ceiling of what its own labels can show (to 1e-9) while "
        "its true value is more than .001 below the best.",
        _limitation,
    ),
    _claim(
        "proposition-2",
        "3.1, Proposition 2",
        "If updates explore by accident only, the optimum is missed with probability (more than) "
        "one minus the sum of the chances of accidents.",
        "Enumerated: the chance to reach the optimum is at most that sum; as printed, less.",
        _impossibility,
    ),
    _claim(
        "corollary",
        "3.1, Corollary",
        "An error-based learner never leaves a suboptimal rule that makes no error.",
        "Enumerated: no datum that can come moves the rule, and it is not optimal.",
        _error_based,
    ),
    _claim(
        "proposition-3",
        "3.2, Proposition 3",
        "Exploring policies come as close to the optimal value as one likes.",
        "Enumerated: distances of the proof's policies fall, and n times them does not grow "
        "(5 % slack for the penalty's term in 1/n²).",
        _supremum,
    ),
    _claim(
        "reweighting",
        "3.2, inverse propensities",
        "Reweighted labels of accepted people tell the utility of any other policy.",
        "Enumerated: the expectation equals the true utility to 1e-9.",
        _identity,
    ),
    _claim(
        "lending-more-data",
        "3.1, lending example",
        "From ξ = 650 on no amount of data makes the learned rule useful.",
        "Logistic regression on unlimited data (exact): utility at most half of the best, since "
        "half is where one could still call the rule useful.",
        _unlimited_data,
    ),
)


def compas_claim(name: str) -> Claim:
    """Return the claim that the best policy is not linear, in one orientation of the label."""
    return _claim(
        f"{name}-best-not-linear",
        "5.2, real data",
        f"COMPAS, {truths.ORIENTATIONS[name]}: the optimal policy is not expected in the class of "
        "logistic policies.",
        "Enumerated over the training people, of whom few have features of their own: the best "
        "function of the features gains more than the best linear logistic policy found, by at "
        "least .0001 (that search is numerical).",
        lambda results, column: _best_not_linear(name),
    )


def _best_not_linear(name: str) -> Iterator[Case]:
    limits, world = truths.limits(name), truths.table(name)
    (best, gap), (fair, _) = limits.best, limits.fair
    numbers = {
        "reject all: utility": limits.metrics(RejectAll()).utility,
        "accept all: utility": limits.metrics(AcceptAll()).utility,
        f"best function of x: utility (gap {gap:.3f})": best,
        f"the same with a gap of at most {SMALL_GAP}": fair,
    }
    missed = []
    for text, policy, possible in (
        ("best linear logistic policy", limits.logistic, best),
        (f"the same, gap at most {SMALL_GAP}", limits.fair_logistic, fair),
    ):
        truth = limits.metrics(policy)
        numbers[f"{text}: utility (gap {truth.benefit_gap:.3f})"] = truth.utility
        numbers[f"{text}, on held-out people"] = world.measure(policy).utility
        missed.append(possible - truth.utility)
    numbers["what linear policies miss"] = missed[0]
    yield Case("without a bound on the gap", missed[0] > 1e-4, numbers)
    yield Case(f"a gap of at most {SMALL_GAP}", missed[1] > 1e-4)
