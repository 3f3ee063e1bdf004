"""The lending world: FICO scores of four groups, as the data have them."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from itertools import pairwise

import numpy as np
import pytest
from finite_scores import Programme
from scipy.stats import chisquare

import consequential as cq
from covering import covering

FOUR = {"white": 0.4, "black": 0.3, "hispanic": 0.2, "asian": 0.1}
THREE = {"white": 0.5, "black": 0.3, "hispanic": 0.2}
TWO = {"white": 0.8, "black": 0.2}
SHARES = {2: TWO, 3: THREE, 4: FOUR}
REPAID = {"white": 0.7587, "black": 0.3366, "hispanic": 0.5681, "asian": 0.8068}
# a benefit that decisions do not change: the share of label 1
LABEL = cq.fairness.BenefitParity(lambda d, y: float(y))


@cache
def table() -> dict[str, list[float]]:
    text = (files("consequential.lab.worlds") / "data" / "fico.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    return {name: [float(row[name]) for row in rows] for name in rows[0]}


@cache
def world() -> cq.worlds.ScoreWorld:
    return cq.worlds.lending()


def fico_score(percentile: float) -> float:
    """The conversion table of docs/data.md, straight between its columns."""
    known = [0, 2.1, 6.3, 11.7, 18.2, 26.1, 35.7, 47.7, 61.5, 78.5, 94.3, 100]
    for k, (low, high) in enumerate(pairwise(known)):
        if low <= percentile <= high:
            return 300 + 50 * (k + (percentile - low) / (high - low))
    raise AssertionError(percentile)


@pytest.mark.parametrize(("group", "rate"), REPAID.items())
def test_groups_repay_at_the_rates_of_the_report(group, rate):
    truth = cq.worlds.lending(FOUR).exact(cq.AcceptAll(), LABEL)
    assert truth.benefits[group] == pytest.approx(rate, abs=6e-5)


def test_accepting_everybody_is_worth_the_repayment_rate_less_the_cost():
    rate = 0.8 * REPAID["white"] + 0.2 * REPAID["black"]
    assert world().exact(cq.AcceptAll()).utility == pytest.approx(rate - 0.7, abs=6e-5)


def test_there_are_198_scores_from_300_to_850_and_three_percentiles_are_missing():
    scores = world().scores
    assert len(scores) == 198
    assert (scores[0], scores[-1]) == (300.0, 850.0)
    assert scores == pytest.approx([fico_score(p) for p in table()["percentile"]])
    missing = {k / 2 for k in range(201)} - set(table()["percentile"])
    assert missing == {72.5, 77.5, 92.5}


def test_the_default_is_the_papers_example():
    assert world().groups == ("black", "white")
    assert world().cost == 0.7
    mass = world().cells(198).mass.sum(axis=0)
    assert mass == pytest.approx([0.2, 0.8], abs=1e-12)


@pytest.mark.parametrize("shares", [TWO, THREE, FOUR], ids=len)
def test_the_mass_at_a_score_is_the_step_of_the_groups_distribution(shares):
    people = cq.worlds.lending(shares).cells(198)
    assert people.groups == tuple(sorted(shares))
    for column, group in enumerate(people.groups):
        steps = np.diff(table()[f"cdf_{group}"], prepend=0.0)
        assert people.mass[:, column] == pytest.approx(shares[group] * steps, abs=1e-12)
    assert people.mass.sum() == pytest.approx(1.0, abs=1e-12)
    assert people.mass.min() >= 0


def test_label_probabilities_are_those_of_score_and_group():
    scores = world().scores[:, None]
    for group in ("white", "black"):
        found = world().label_probability(scores, np.full(len(scores), group))
        assert found.tolist() == table()[f"repaid_{group}"]


def test_scores_beyond_the_last_repay_like_the_last():
    assert world().label_probability(np.array([[1000.0]]), np.array(["black"])).tolist() == [
        table()["repaid_black"][-1]
    ]


@pytest.mark.parametrize("threshold", [500.0, 650.0, 800.0])
def test_the_start_cuts_at_the_initial_threshold(threshold, rng):
    lender = cq.worlds.lending(initial_threshold=threshold)
    semi = lender.initial_policy("semi_logistic")
    assert semi.propensity([[threshold - 1e-6], [threshold]]) == pytest.approx([0.5, 1.0])
    assert lender.initial_policy().propensity([[threshold + 100]]) == pytest.approx(
        1 / (1 + np.exp(-1))
    )
    model = cq.logistic_model(lender.initial_theta(rng))
    assert model.predict_proba([[threshold]])[0, 1] == pytest.approx(lender.cost)
    rule = cq.ThresholdPolicy(model, lender.cost)
    assert rule.propensity([[threshold - 1], [threshold + 1]]).tolist() == [0.0, 1.0]


def test_the_start_can_be_stored_and_read_back(tmp_path):
    start = world().initial_policy("semi_logistic")
    cq.save_policy(start, tmp_path / "start.json")
    scores = world().scores[:, None]
    back = cq.load_policy(tmp_path / "start.json")
    assert back.propensity(scores).tolist() == start.propensity(scores).tolist()


def test_exact_is_the_sum_over_scores_and_groups():
    policy = cq.Policy([-6.0, 0.01, -4.0, 0.008], groups=("black", "white"))
    utility = accepted = 0.0
    for group, share in TWO.items():
        below = 0.0
        for score, up_to, repaid in zip(
            world().scores, table()[f"cdf_{group}"], table()[f"repaid_{group}"], strict=True
        ):
            propensity = policy.propensity([[score]], [group])[0]
            utility += share * (up_to - below) * propensity * (repaid - 0.7)
            accepted += share * (up_to - below) * propensity
            below = up_to
    truth = world().exact(policy)
    assert truth.utility == pytest.approx(utility, abs=1e-12)
    assert truth.acceptance == pytest.approx(accepted, abs=1e-12)
    assert world().measure(policy) == truth


@cache
def every_cut(n_groups: int, notion: str) -> dict[float, tuple[float, float, float]]:
    """Utility, widest gap and squared deviations of all 199 thresholds.

    They come from `exact`, which has tests of its own.
    """
    lender = cq.worlds.lending(SHARES[n_groups])
    found = {}
    for cut in [*lender.scores, lender.scores[-1] + 1.0]:
        rule = cq.ThresholdPolicy(cq.logistic_model([0.5 - cut, 1.0]), 0.5)
        truth = lender.exact(rule, notion)
        benefits = np.array(list(truth.benefits.values()))
        spread = np.nan_to_num(benefits - benefits.mean())
        found[float(cut)] = (truth.utility, abs(truth.benefit_gap), float((spread**2).sum()))
    return found


@pytest.mark.parametrize(
    ("notion", "n_groups", "asked"),
    covering(
        ["demographic_parity", "equal_opportunity", "predictive_parity"],
        [2, 4],
        [(None, 0.0), (0.1, 0.0), (None, 1.0)],
    ),
)
def test_no_other_score_is_a_better_threshold(notion, n_groups, asked):
    max_gap, penalty = asked
    lender = cq.worlds.lending(SHARES[n_groups])
    value = {
        cut: utility - penalty * squares
        for cut, (utility, gap, squares) in every_cut(n_groups, notion).items()
        if max_gap is None or gap <= max_gap
    }
    best = lender.optimal(max_gap, penalty, notion, among="thresholds")
    winner = max(value, key=value.get)
    accepted = lender.scores >= best.threshold
    assert accepted.tolist() == (lender.scores >= winner).tolist()
    truth = lender.exact(best.policy, notion)
    assert truth.utility == pytest.approx(best.utility, abs=1e-12)
    assert truth.benefit_gap == pytest.approx(best.benefit_gap, abs=1e-12)
    assert truth.benefits == pytest.approx(best.benefits, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize(
    ("shares", "notion", "uses_sensitive", "max_gap"),
    [
        (TWO, "demographic_parity", False, 0.0),
        (TWO, "demographic_parity", True, 0.02),
        (TWO, "equalised_odds", True, 0.0),
        (THREE, "equal_opportunity", False, 0.05),
        (THREE, "equalised_odds", True, 0.05),
        (FOUR, "demographic_parity", False, 0.1),
        (FOUR, "demographic_parity", True, 0.0),
        (FOUR, "equal_opportunity", True, 0.0),
    ],
    ids=str,
)
def test_no_other_policy_does_better(shares, notion, uses_sensitive, max_gap):
    lender = cq.worlds.lending(shares)
    people = lender.cells(198)
    programme = Programme.of(people, lender.cost, notion, uses_sensitive)
    best = lender.optimal(max_gap, fairness=notion, uses_sensitive=uses_sensitive)
    assert best.utility == pytest.approx(programme.best(max_gap), abs=1e-6)
    table = people.propensity(best.policy)
    propensity = table.ravel() if uses_sensitive else table[:, 0]
    assert programme.gaps(propensity).max() <= max_gap + 1e-7
    truth = lender.exact(best.policy, notion)
    assert truth.utility == pytest.approx(best.utility, abs=1e-12)
    assert truth.benefits == pytest.approx(best.benefits, abs=1e-12)


def test_people_have_the_scores_and_groups_of_the_data(rng):
    lender = cq.worlds.lending(THREE)
    n = 60_000
    features, sensitive = lender.propose(n, rng)
    people = lender.cells(198)
    for column, group in enumerate(people.groups):
        scores = features[sensitive == group, 0]
        share = THREE[group]
        assert len(scores) / n == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / n))
        expected = people.mass[:, column] / people.mass[:, column].sum()
        seen = np.array([(scores == score).sum() for score in lender.scores])
        assert seen.sum() == len(scores)
        # some forty bins: a chi-squared test needs more than a few people in each
        bins = np.minimum(np.cumsum(expected) * 40, 39).astype(int)
        observed = np.bincount(bins, seen)
        mass = np.bincount(bins, expected)
        keep = mass > 0
        assert chisquare(observed[keep], mass[keep] * len(scores)).pvalue > 1e-3


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"green": 1.0}, "groups asian, black, hispanic, white"),
        ({"white": 0.5}, "sum to one"),
        ({"white": 1.5, "black": -0.5}, "positive"),
        ({"white": 1.0, "black": 0.0}, "positive"),
    ],
    ids=str,
)
def test_shares_that_are_none_are_errors_that_say_what_is_needed(shares, message):
    with pytest.raises(ValueError, match=message):
        cq.worlds.lending(shares)


@pytest.mark.parametrize(
    "arguments",
    [{"shares": {"white": float("nan"), "black": 0.5}}, {"cost": 1.5}, {"cost": -0.1}],
    ids=str,
)
def test_numbers_that_make_no_sense_are_errors_at_once(arguments):
    with pytest.raises(ValueError, match=r"shares|cost"):
        cq.worlds.lending(**arguments)


def test_no_shares_at_all_are_an_error():
    with pytest.raises(ValueError, match="shares"):
        cq.worlds.lending({})
