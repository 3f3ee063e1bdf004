"""Verdicts: results where the paper's claims must hold, and results where they must fail."""

from __future__ import annotations

import json

import numpy as np
import pytest
from handmade_results import (
    EXPLORING,
    GOOD,
    PREDICTING,
    STRATEGIES,
    all_good,
    lending_table,
    penalty_runs,
    results_in,
    time_runs,
)

from consequential.paper.claims import CLAIMS
from consequential.paper.claims.claim import (
    FAILS,
    HOLDS,
    NOT_RUN,
    Case,
    Claim,
    Measured,
    above,
    verdict_of,
)

BY_ID = {claim.id: claim for claim in CLAIMS}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return results_in(tmp_path_factory.mktemp("good"), all_good())


def check(claim_id, folder, studies, columns=("paper", "corrected")):
    return BY_ID[claim_id].check(results_in(folder, studies, columns))


def ends(place, **changes):
    """A place's ends with some strategies' changed; names are kinds, `_` for a hyphen."""
    kinds = {kind.replace("_", "-"): end for kind, end in changes.items()}
    return {
        strategy: kinds.get(strategy.rpartition(", ")[0], end)
        for strategy, end in GOOD[place].items()
    }


# --- as the paper tells it

OUTSIDE = {"proposition-2", "reweighting", "lending-more-data"}  # exact, and not as printed


def test_every_claim_holds_on_results_as_the_paper_tells_them(good):
    checked = {name: BY_ID[name].check(good) for name in sorted(set(BY_ID) - OUTSIDE)}
    assert not {
        name: [str(n) for f in found.findings.values() for n in f.numbers]
        for name, found in checked.items()
        if found.overall != HOLDS
    }


@pytest.mark.parametrize(
    ("claim_id", "verdict"),
    [
        ("proposition-2", 'holds only with "at least" in the bound'),
        ("reweighting", "holds only with division by all applicants"),
        ("lending-more-data", "holds only with ξ = 750; ξ = 780"),
    ],
)
def test_what_the_paper_prints_too_strongly_holds_with_a_condition(claim_id, verdict, good):
    assert BY_ID[claim_id].check(good).overall == verdict


# --- otherwise

BAD_TIME = [
    ("synthetic-outperform", "first", ends("first", deterministic=(0.178, 0.15, (6.0, 20.0)))),
    ("first-boundary-found", "first", ends("first", logistic=(0.177, 0.15, (2.0, 20.0)))),
    ("first-boundary-found", "first", ends("first", logistic=(0.160, 0.15, (6.0, 20.0)))),
    ("first-deterministic-stuck", "first", ends("first", deterministic=(0.17, 0.15, (-1.5, 5.0)))),
    ("first-models-fit-right", "first", ends("first", deterministic=(0.16, 0.17, (-8.0, 5.0)))),
    ("second-threshold-found", "second", ends("second", logistic=(0.064, 0.29, (0.0, 2.0)))),
    (
        "second-deterministic-at-five",
        "second",
        ends("second", deterministic=(0.02, 0.12, (-3.0, 1.0))),
    ),
    ("second-blind-below-four", "second", ends("second", deterministic=(0.02, 0.1, (-2.0, 1.0)))),
    ("first-unfairness-amplified", "first", ends("first", deterministic=(0.16, 0.15, (-3, 5.4)))),
    ("first-unfairness-comparable", "first", ends("first", logistic=(0.177, 0.19, (6.0, 20.0)))),
    ("second-utility-costs-parity", "second", ends("second", logistic=(0.06, 0.1, (3.4, 2.0)))),
]
COMPAS = (
    ("overtaken", {"logistic": (0.03, -0.15, (0.0,) * 6)}),
    ("effective-utility-dominates", {"logistic": (0.02, -0.15, (0.0,) * 6)}),
    ("exploring-pays", {"logistic": (0.03, -0.15, (0.0,) * 6)}),
    ("exploring-fairer", {"logistic": (0.05, -0.30, (0.0,) * 6)}),
    ("better-and-fairer", {"logistic": (0.05, -0.30, (0.0,) * 6)}),
)
BAD_TIME += [
    (f"{name}-{claim}", name, ends("compas", **bad))
    for name in ("compas", "compas-rearrest")
    for claim, bad in COMPAS
]


@pytest.mark.parametrize(("claim_id", "place", "bad"), BAD_TIME)
def test_a_claim_over_time_fails_where_the_numbers_do_not_bear_it_out(
    claim_id, place, bad, tmp_path
):
    changed = [s for s in STRATEGIES if bad[s] != GOOD[place.removesuffix("-rearrest")][s]]
    studies = all_good() | {f"{place}-time": time_runs(place, bad)}
    checked = check(claim_id, tmp_path, {s: studies[s] for s in BY_ID[claim_id].studies})
    for finding in checked.findings.values():
        assert finding.verdict != HOLDS
        # the cases that fail are those that were changed, or that have a changed rival
        failed = {case for case, holds in finding.cases.items() if not holds}
        assert failed
        if not set(changed) & set(PREDICTING):
            assert {strategy for _, strategy in failed} == set(changed)


def test_the_head_start_is_counted_pair_by_pair(tmp_path):
    runs = time_runs("compas")
    for run in runs.runs:
        run.metrics["utility"][0] = 0.01
    checked = check("compas-deterministic-head-start", tmp_path, {"compas-time": runs})
    assert checked.overall == FAILS


PENALTY = [
    ("parity-reached", {"gaps": (0.15, 0.1, 0.1)}),
    ("parity-costs", {"utilities": (0.05, 0.05, 0.05)}),
    ("cost-no-more-than-needed", {"utilities": (0.05, -0.1, -0.1)}),
    ("trade-off", {"gaps": (0.02, 0.15, 0.0)}),
    ("trade-off", {"utilities": (0.02, 0.05, 0.0)}),
]


@pytest.mark.parametrize("place", ["compas", "compas-rearrest"])
@pytest.mark.parametrize(("claim", "bad"), PENALTY)
def test_a_claim_about_penalties_on_compas_fails_where_it_should(claim, bad, place, tmp_path):
    studies = {f"{place}-penalty": penalty_runs(place, **bad)}
    assert check(f"{place}-{claim}", tmp_path, studies).overall == FAILS


@pytest.mark.parametrize(("claim", "bad"), PENALTY)
def test_a_claim_about_penalties_names_the_setting_it_still_holds_in(claim, bad, tmp_path):
    studies = all_good()
    studies = {"first-penalty": studies["first-penalty"]} | {
        "second-penalty": penalty_runs("second", **bad)
    }
    checked = check(f"synthetic-{claim}", tmp_path, studies)
    assert checked.overall == "holds only with first setting"


def test_a_gap_among_held_out_people_within_chance_is_no_gap(tmp_path):
    for size, verdict in ((0.02, HOLDS), (0.2, FAILS)):
        runs = penalty_runs("compas", (0.05, 0.02, 0.01), (-0.2, 0.0, 0.0))
        for run in runs.runs:
            run.metrics["benefit_gap"][:] = size
        checked = check("compas-parity-reached", tmp_path / str(size), {"compas-penalty": runs})
        assert checked.overall == verdict


LENDING = [
    ("lending-harsh-useless", {"utility_of": lambda xi: 0.1}, FAILS),
    ("lending-harsh-parity", {"gap_of": lambda xi: -0.3}, FAILS),
    ("lending-lenient-near-optimal", {"utility_of": lambda xi: 0.1}, FAILS),
    ("lending-lenient-fairer", {"gap_of": lambda xi: -0.436}, FAILS),
    ("lending-lenient-fairer", {"utility_of": lambda xi: 0.0}, FAILS),
    (
        "lending-harsh-useless",
        {"utility_of": lambda xi: 0.1 if xi < 740 else 0.0},
        "holds only with ridge by accuracy (ξ 750 to 800) and ridge by likelihood (ξ 750 to 800)",
    ),
]


@pytest.mark.parametrize(("claim_id", "bad", "verdict"), LENDING)
def test_a_claim_about_lending_fails_where_it_should(claim_id, bad, verdict, tmp_path):
    assert check(claim_id, tmp_path, {"lending": lending_table(**bad)}).overall == verdict


# --- what was not run, and one column against the other


def test_a_study_that_is_missing_is_not_run(tmp_path):
    checked = check("synthetic-outperform", tmp_path, {"first-time": time_runs("first")})
    assert checked.overall == NOT_RUN
    assert checked.as_dict()["columns"] == {}


def test_one_column_alone_is_judged_alone(tmp_path):
    studies = {"first-time": time_runs("first")}
    checked = check("first-boundary-found", tmp_path, studies, ("corrected",))
    assert (checked.verdict("paper"), checked.verdict("corrected")) == (NOT_RUN, HOLDS)


def test_a_claim_that_holds_in_one_column_only_says_in_which(tmp_path):
    bad = {"first-time": time_runs("first", ends("first", logistic=(0.1, 0.15, (0.0, 1.0))))}
    results_in(tmp_path, bad, ("paper",))
    results = results_in(tmp_path, {"first-time": time_runs("first")}, ("corrected",))
    checked = BY_ID["first-boundary-found"].check(results)
    assert checked.overall == "holds only with the corrected estimators"
    assert checked.verdict("paper").startswith("holds only with semi-logistic")


def test_two_columns_that_hold_in_part_are_both_named(tmp_path):
    for kind, column in (("logistic", "paper"), ("semi_logistic", "corrected")):
        bad = ends("first", **{kind: (0.1, 0.15, (0.0, 1.0))})
        results = results_in(tmp_path, {"first-time": time_runs("first", bad)}, (column,))
    verdict = BY_ID["first-boundary-found"].check(results).overall
    assert verdict == (
        "holds only with the estimators as printed: semi-logistic, iterative; semi-logistic, "
        "aggregated / the corrected estimators: logistic, iterative; logistic, aggregated"
    )


# --- the parts of a verdict


@pytest.mark.parametrize(
    ("cases", "verdict"),
    [
        ({}, NOT_RUN),
        ({("", "a"): True, ("", "b"): True}, HOLDS),
        ({("", "a"): False, ("w", "b"): False}, FAILS),
        ({("", "a"): True, ("", "b"): False}, "holds only with a"),
        ({("v", "a"): True, ("w", "a"): False}, "holds only with v"),
        ({("v", "a"): True, ("v", "b"): False, ("w", "a"): True}, "holds only with v (a) and w"),
    ],
)
def test_a_verdict_names_the_cases_that_hold(cases, verdict):
    assert verdict_of(cases) == verdict


def test_above_asks_for_quartiles_apart():
    low, high = np.array([1.0, 2.0, 3.0, 4.0]), np.array([3.0, 4.0, 5.0, 6.0])
    assert not above(high, low + 1)
    assert above(high + 1, low)
    assert not above(low, high)


def test_numbers_come_with_quartiles():
    number = Measured.of("gap", np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert str(number) == "gap: 3 [2, 4]"
    assert str(Measured.of("gap", 0.5)) == "gap: 0.5"


def test_a_claim_as_data_is_json_even_where_a_number_is_not_finite(good):
    def measure(results, column, names):
        yield Case("a", False, {"nothing": np.nan})

    claim = Claim("id", "1", "text", "why", (), measure)
    data = json.loads(json.dumps(claim.check(good).as_dict(), allow_nan=False))
    assert data["verdict"] == FAILS
    assert data["columns"]["exact"]["numbers"][0]["median"] is None


def test_claims_have_names_of_their_own_and_commands_that_name_their_studies():
    assert len(BY_ID) == len(CLAIMS)
    for claim in CLAIMS:
        assert claim.command.startswith("consequential reproduce ")
        for study in claim.studies:
            assert study in claim.command.split()
        assert claim.text.endswith(".")
        assert claim.criterion.endswith(".")
    assert set(EXPLORING) < set(STRATEGIES)
