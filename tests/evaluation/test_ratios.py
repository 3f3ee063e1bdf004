"""Influence values, against perturbed rows, left-out rows and rows drawn again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

import consequential as cq
from consequential.evaluation.ratios import Ratios
from consequential.evaluation.weighted_log import WeightedLog
from consequential.objective.fairness import Benefit
from covering import covering
from exploring_logs import exploring_log

POLICY = cq.Policy([0.2, 0.7, -0.4])
PI = "pi"


class Spared(cq.fairness.Fairness):
    """A notion of one's own, people and labels mixed: `f = d + 2 (1 - d) y`."""

    name = "spared"

    def benefits(self, tally):
        return (tally.mean(at_reject=(0.0, 2.0), at_accept=(1.0, 1.0)),)


class SharedOut(cq.fairness.Fairness):
    name = "shared_out"

    def benefits(self, tally):
        return (tally.share(tally.people + tally.positives),)


NOTIONS = {
    "demographic parity": cq.fairness.DemographicParity(),
    "equal opportunity": cq.fairness.EqualOpportunity(),
    "equalised odds": cq.fairness.EqualisedOdds(),
    "predictive parity": cq.fairness.PredictiveParity(),
    "judged rightly": cq.fairness.BenefitParity(lambda d, y: float(d == y)),
    "mixed": cq.fairness.BenefitParity(lambda d, y: d + 0.5 * y),
    "of one's own": Spared(),
    "a share": SharedOut(),
}
WEIGHTINGS = {
    "plain": cq.weightings.InversePropensity(),
    "clipped": cq.weightings.Clipped(3.0),
    "self-normalised": cq.weightings.SelfNormalised(),
}


class Plainly:
    """A weighted that shows estimates themselves, not what unknown labels could make of them."""

    def __init__(self, log, notion="demographic parity", weighting="plain", **options):
        chosen = WEIGHTINGS[weighting]
        self.objective = cq.Objective(0.4, NOTIONS[notion], weighting=chosen, **options)
        self.weighted = WeightedLog.of(self.objective, log)

    def utility(self, propensity):
        found = self.weighted.utility(propensity)
        return found.plain or found.low

    def benefits(self, propensity):
        return tuple(each.plain or each.low for each in self.weighted.benefits(propensity))


weighted = Plainly


def repeated(log: cq.DecisionLog, row: int, times: int) -> cq.DecisionLog:
    """The log many times over, one row of it once more: that row's mass moves a little."""
    order = np.concatenate([np.tile(np.arange(len(log)), times), [row]])
    return log.take(order)


def by_perturbation(log, measure, rows) -> np.ndarray:
    """Influence of some rows on something measured: what a little more mass of each changes."""
    times = 4000 // len(log) + 20
    base = measure(log)
    more = np.array([measure(repeated(log, row, times)) for row in rows])
    share = 1.0 / (times * len(log) + 1.0)
    return (more - base) / share


@pytest.mark.parametrize(("notion", "weighting"), covering(list(NOTIONS), list(WEIGHTINGS)))
def test_influence_is_what_a_little_more_of_a_row_changes(notion, weighting):
    """A derivative by a finite step: 3 percent of the largest influence."""
    log = exploring_log(60, 2, seed=5)
    rows = np.arange(0, 60, 7)

    def benefits(some):
        found = weighted(some, notion, weighting).benefits(some.propensity_of(POLICY))
        return np.stack([each.values for each in found])

    numeric = by_perturbation(log, benefits, rows)  # (rows, benefits, groups)
    for k, ratios in enumerate(
        weighted(log, notion, weighting).benefits(log.propensity_of(POLICY))
    ):
        at_rows = np.zeros((len(rows), 2))
        at_rows[np.arange(len(rows)), log.group[rows]] = ratios.influence[rows]
        scale = np.abs(ratios.influence).max()
        assert_allclose(at_rows, numeric[:, k], atol=0.03 * scale)


@pytest.mark.parametrize("weighting", list(WEIGHTINGS))
def test_influence_of_the_utility_is_what_a_little_more_of_a_row_changes(weighting):
    n = 60
    rng = np.random.default_rng(3)
    log = exploring_log(n, 2, seed=6, amount=rng.uniform(1, 3, n), cost=rng.uniform(0.2, 0.7, n))
    rows = np.arange(0, n, 5)

    def utility(some):
        return weighted(some, weighting=weighting).utility(some.propensity_of(POLICY)).values[0]

    found = weighted(log, weighting=weighting).utility(log.propensity_of(POLICY))
    numeric = by_perturbation(log, utility, rows)
    assert_allclose(found.influence[rows], numeric, atol=0.03 * np.abs(found.influence).max())


@pytest.mark.parametrize(
    ("notion", "weighting", "n_groups"), covering(list(NOTIONS), list(WEIGHTINGS), [1, 3])
)
def test_values_are_those_of_the_objective(notion, weighting, n_groups):
    log = exploring_log(200, n_groups, seed=1)
    there = weighted(log, notion, weighting)
    pi = log.propensity_of(POLICY)
    sums = there.objective.coefficients(log).sums(pi)
    assert there.utility(pi).values[0] == pytest.approx(sums.utility, abs=1e-12)
    found = np.stack([each.values for each in there.benefits(pi)])
    assert_allclose(found, sums.benefits, atol=1e-12)


@pytest.mark.parametrize("notion", list(NOTIONS))
def test_influence_sums_to_nothing_in_every_group(notion):
    log = exploring_log(300, 3, seed=2)
    for ratios in weighted(log, notion).benefits(log.propensity_of(POLICY)):
        assert_allclose(ratios.by_group(ratios.influence), 0.0, atol=1e-9)


@pytest.mark.parametrize("notion", list(NOTIONS))
def test_standard_errors_are_those_of_the_jackknife(notion):
    """Leaving out one row at a time knows nothing of influence; apart by terms of order 1/n."""
    log = exploring_log(600, 2, seed=7)
    pi = log.propensity_of(POLICY)

    def values(rows):
        some = log.take(rows)
        return weighted(some, notion).benefits(pi[rows])[-1].values

    everyone = np.arange(len(log))
    left = np.array([values(np.delete(everyone, row)) for row in everyone])
    jackknife = np.sqrt((len(log) - 1) * left.var(axis=0))
    errors = weighted(log, notion).benefits(pi)[-1].standard_errors
    assert_allclose(errors, jackknife, rtol=0.05)


@pytest.mark.parametrize("weighting", ["plain", "self-normalised"])
def test_standard_errors_are_those_of_rows_drawn_again(weighting):
    """600 logs drawn again know a deviation to 3 percent; four times that is allowed."""
    log, rng = exploring_log(800, 2, seed=8), np.random.default_rng(1)
    pi = log.propensity_of(POLICY)

    def ratios(rows):
        there = weighted(log.take(rows), "judged rightly", weighting)
        return there.utility(pi[rows]), *there.benefits(pi[rows])

    drawn = [[each.values for each in ratios(rng.integers(800, size=800))] for _ in range(600)]
    for each, values in zip(ratios(np.arange(800)), zip(*drawn, strict=True), strict=True):
        assert_allclose(np.std(values, axis=0), each.standard_errors, rtol=0.12)
        assert_allclose(np.mean(values, axis=0), each.values, atol=0.2 * each.standard_errors.max())


def test_a_ratio_that_rests_on_one_row_has_no_end_of_error():
    ratios = Ratios(np.array([0.5, 0.2, 0.4]), np.ones(3), np.array([0, 1, 1]), 2)
    assert ratios.standard_errors[0] == np.inf
    assert np.isfinite(ratios.standard_errors[1])


def test_a_group_without_anybody_has_no_value():
    ratios = Ratios(np.array([0.5, 0.2]), np.ones(2), np.array([0, 0]), 2)
    assert np.isnan(ratios.values[1])
    assert ratios.known == [0]
    assert np.isfinite(ratios.influence).all()


def test_a_benefit_made_by_hand_is_refused_with_advice():
    class ByHand(cq.fairness.Fairness):
        name = "by_hand"

        def benefits(self, tally):
            n = len(tally.sizes)
            return (Benefit(tally.people / 10, np.zeros(n), np.ones(n, dtype=bool)),)

    with pytest.raises(ValueError, match=r"build it with tally\.mean"):
        cq.evaluate(POLICY, exploring_log(40), cost=0.4, fairness=ByHand())


def test_parts_of_coefficients_keep_what_rows_add():
    log = exploring_log(40, 2)
    coefficients = cq.Objective(0.4, cq.fairness.BenefitParity(lambda d, y: d + y)).coefficients(
        log
    )
    half = coefficients.take(slice(0, 20)).benefits[0]
    whole = coefficients.benefits[0]
    assert_allclose(half.constants, 2 * whole.constants[:20])
    assert_allclose(half.counted, 2 * whole.counted[:20])
    assert replace(whole, counted=None).counted is None
