"""Frontiers: utility against gap, with bands that hold at once."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.stats import norm
from sklearn.base import BaseEstimator

import consequential as cq
from consequential.evaluation.out_of_core import measured
from consequential.evaluation.weighted_log import WeightedLog
from consequential.tradeoff.frontier import band


@cache
def world():
    return cq.worlds.first_setting()


def banded(measures, n):
    assert all(measure.n == n for measure in measures)
    return band(measures, 0.95, 0)


CUTS = np.linspace(-0.8, 0.7, 31)


def cut_at(x):
    return cq.ThresholdPolicy(cq.logistic_model([-x, 1.0]), 0.5)


def explored(n, seed=0, floor=0.2):
    rule = world().initial_policy().with_floor(floor)
    return world().collect(rule, n, np.random.default_rng(seed))


class BestCut(BaseEstimator):
    """The best of a few cuts whose gap on the log is at most `max_gap`; remembers its choices."""

    chosen: list[int] = []  # noqa: RUF012  # shared by copies on purpose

    def __init__(self, max_gap=None):
        self.max_gap = max_gap

    def fit_log(self, log):
        accepts = log.features[:, 0] >= CUTS[:, None]
        gain = cq.weightings.InversePropensity().weights(log) * (log.outcome - world().cost)
        utility = accepts @ gain / len(log)
        rates = [accepts[:, log.group == z].mean(axis=1) for z in (0, 1)]
        allowed = np.abs(rates[0] - rates[1]) <= (1.0 if self.max_gap is None else self.max_gap)
        best = int(np.where(allowed, utility, -np.inf).argmax())
        BestCut.chosen.append(best)
        self.policy_ = cut_at(CUTS[best])
        return self


@pytest.fixture(autouse=True)
def _forget():
    BestCut.chosen.clear()


@pytest.fixture(scope="module")
def found():
    return cq.frontier(
        explored(4000), cost=world().cost, learner=BestCut(), max_gaps=[0.02, 0.1, None], folds=4
    )


# --- the figures


def test_there_is_a_point_a_bound_and_the_usual_rules_beside(found):
    assert [point.name for point in found.points] == ["gap at most 0.02", "gap at most 0.1",
                                                      "no bound"]  # fmt: skip
    assert [point.name for point in found.references] == [
        "what the log did",
        "accept all",
        "reject all",
        "accepted only",
        "inverse propensity",
    ]


def test_a_tighter_bound_costs_utility(found):
    utilities = [point.utility.value for point in found.points]
    gaps = [point.benefit_gap.value for point in found.points]
    assert utilities == sorted(utilities)
    assert gaps == sorted(gaps)
    assert gaps[0] == pytest.approx(0.02, abs=0.02)


def test_a_point_is_the_cross_fitted_evaluation_with_a_wider_interval(found):
    log = explored(4000)
    for point in found.points:
        alone = cq.evaluate(BestCut(max_gap=point.max_gap), log, cost=world().cost, folds=4)
        assert point.utility.value == pytest.approx(alone.utility.value, abs=1e-12)
        assert point.benefit_gap.value == pytest.approx(alone.benefit_gap.value, abs=1e-12)
        assert point.acceptance == pytest.approx(alone.acceptance.value, abs=1e-12)
        assert point.utility.standard_error == pytest.approx(alone.utility.standard_error, rel=1e-3)
        wider = (point.utility.high - point.utility.low) / (alone.utility.high - alone.utility.low)
        # between one interval and six by Bonferroni
        assert 1.0 < wider < norm.ppf(1 - 0.025 / 6) / norm.ppf(0.975)


def test_the_default_learner_traces_the_true_frontier():
    log = explored(16_000, floor=0.1)
    traced = cq.frontier(log, cost=world().cost, max_gaps=[0.0, 0.1], folds=2)
    # of thresholds: accept all .1596, gap .1 .1744
    for point, truth in zip(traced.points, [0.1596, 0.1744], strict=True):
        assert point.utility.low < truth < point.utility.high
        assert point.benefit_gap.value == pytest.approx(point.max_gap, abs=0.03)


def test_several_groups_and_benefits_show_the_largest_gap():
    rng = np.random.default_rng(0)
    n = 3000
    x = rng.normal(size=n)
    z = rng.integers(3, size=n)
    x += 0.3 * z
    decision = rng.random(n) < 0.5
    label = np.where(decision, rng.random(n) < 1 / (1 + np.exp(-x)), np.nan)
    log = cq.DecisionLog.from_arrays(x, decision, np.full(n, 0.5), label, z)
    rule = cut_at(0.0)
    weighted = WeightedLog.of(cq.Objective(0.5, "equalised_odds"), log)
    ((_, gap),) = banded([weighted.measure(log.propensity_of(rule))], len(log))
    alone = cq.evaluate(rule, log, cost=0.5, fairness="equalised_odds").benefit_gap
    assert gap.value == pytest.approx(alone.value, abs=1e-12)
    assert gap.low <= gap.value <= gap.high
    assert gap.low >= 0.0


def test_a_gap_that_cannot_be_measured_is_said_to_be_so():
    log = explored(500)
    weighted = WeightedLog.of(cq.Objective(0.5, "predictive_parity"), log)
    ((utility, gap),) = banded([weighted.measure(np.zeros(500))], 500)
    assert utility.value == 0.0
    assert repr(gap) == "not measurable"


@pytest.mark.parametrize("notion", ["demographic_parity", "equalised_odds"])
def test_a_band_from_sums_of_a_scan_is_that_from_rows_in_memory(tmp_path, notion):
    log, rules = explored(1500), [cut_at(x) for x in (-0.4, 0.0, 0.3)]
    pq.write_table(log.to_frame(), tmp_path / "log.parquet", row_group_size=200)
    names = {name: name for name in ("decision", "propensity", "label", "sensitive")}
    scan = cq.DecisionLog.scan(tmp_path / "log.parquet", features=["x0"], **names)
    objective = cq.Objective(world().cost, notion)
    weighted = WeightedLog.of(objective, log)
    in_memory = banded([weighted.measure(log.propensity_of(rule)) for rule in rules], 1500)
    from_sums = banded(measured(scan, objective, tuple(rules)), 1500)
    for one, other in zip(in_memory, from_sums, strict=True):
        for estimate, same in zip(one, other, strict=True):
            ends = (same.value, same.low, same.high, same.standard_error)
            assert ends == pytest.approx(
                (estimate.value, estimate.low, estimate.high, estimate.standard_error), abs=1e-9
            )


# --- coverage


def covers(estimate, truth):
    # accept-all's gap has no error at all, and quadrature's truth a little
    return estimate.low - 1e-9 <= truth <= estimate.high + 1e-9


def coverage(repeats, n, folds, seed):
    truth = [world().exact(cut_at(x)) for x in CUTS]
    utilities = np.array([each.utility for each in truth])
    gaps = np.array([each.benefit_gap for each in truth])
    bounds = [0.02, 0.05, 0.1, None]
    held = 0
    for k in range(repeats):
        log = explored(n, seed=seed + k)
        weighted = WeightedLog.of(cq.Objective(world().cost, "demographic_parity"), log)
        measures, true = [], []
        for bound in bounds:
            BestCut.chosen.clear()
            pi = cq.statistics.cross_fitted_propensities(BestCut(max_gap=bound), log, folds)
            measures.append(weighted.measure(pi))
            # folds are of equal size, so a point is about the mean of its policies
            true.append((utilities[BestCut.chosen].mean(), gaps[BestCut.chosen].mean()))
        held += all(
            covers(utility, u) and covers(gap, g)
            for (utility, gap), (u, g) in zip(banded(measures, len(log)), true, strict=True)
        )
    return held / repeats


def test_the_whole_band_holds_as_often_as_promised():
    # four binomial standard errors
    assert coverage(40, 2000, 2, seed=1000) == pytest.approx(0.95, abs=0.14)


@pytest.mark.slow
def test_the_whole_band_holds_as_often_as_promised_over_many_logs():
    assert coverage(2000, 5000, 5, seed=10_000) == pytest.approx(0.95, abs=0.02)


# --- shown and stored


def test_it_prints_a_table(found):
    lines = str(found).splitlines()
    assert len(lines) == 1 + 3 + 5 + 1
    assert lines[1].startswith("gap at most 0.02")
    assert lines[-1] == "the first 3 rows hold at once (95% band)"


@pytest.mark.parametrize("backend", ["pyarrow", "pandas", "polars"])
def test_it_becomes_a_frame(found, backend):
    frame = found.to_frame(backend)
    assert len(frame) == 8
    assert len(found.table) == 8
    assert found.table[0]["utility_low"] == found.points[0].utility.low


def test_it_goes_into_json(found):
    back = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert [point["max_gap"] for point in back["points"]] == [0.02, 0.1, None]
    assert back["points"][0]["utility"]["method"] == "simultaneous"


def test_it_is_drawn_with_a_shape_of_its_own_for_each_reference(found, tmp_path):
    ax = found.plot()
    ax.figure.savefig(tmp_path / "frontier.png")
    markers = [container.lines[0].get_marker() for container in ax.containers]
    assert len(markers) == len(set(markers)) == 6
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels[0] == "learned, 95% band"
    assert found.plot(ax) is ax


def test_negative_gaps_are_drawn_by_their_size(tmp_path):
    log = explored(2000)
    turned = cq.DecisionLog.from_arrays(
        log.features, log.decision, log.propensity, log.label, 1 - log.group
    )
    found = cq.frontier(
        turned, cost=world().cost, learner=BestCut(), max_gaps=[0.1, None], folds=2, progress=False
    )
    assert found.points[1].benefit_gap.value < 0
    x = found.plot().containers[0].lines[0].get_xdata()
    assert (np.asarray(x) > 0).all()


# --- interrupted


class Interrupting(BestCut):
    """Somebody presses Ctrl-C at one of the bounds."""

    at = None

    def fit_log(self, log):
        if self.max_gap == self.at:
            raise KeyboardInterrupt
        return super().fit_log(log)


def test_an_interruption_keeps_the_points_that_are_done():
    found = cq.frontier(
        explored(1000),
        cost=world().cost,
        learner=Interrupting(),
        max_gaps=[0.05, 0.1, None],
        folds=2,
    )
    assert [point.max_gap for point in found.points] == [0.05, 0.1]
    assert found.notes == ("interrupted: no bound not traced",)


def test_an_interruption_before_the_first_point_is_one():
    with pytest.raises(KeyboardInterrupt):
        cq.frontier(
            explored(500), cost=world().cost, learner=Interrupting(), max_gaps=[None], folds=2
        )


# --- wrong arguments

WRONG = {
    "cost": ({"cost": 2.0}, ValueError, "the cost lies strictly between 0 and 1, not 2.0"),
    "no bounds": ({"max_gaps": []}, ValueError, "max_gaps is empty: give at least one bound"),
    "a bound above": ({"max_gaps": [1.5]}, ValueError, "lies between 0 and 1, not 1.5"),
    "a bound twice": ({"max_gaps": [0.1, None, 0.1]}, ValueError, "max_gaps has 0.1 twice"),
    "confidence": ({"confidence": 1.0}, ValueError, "confidence lies strictly between 0 and 1"),
    "folds": ({"folds": 1}, ValueError, "folds is a whole number of at least 2, not 1"),
    "notion": ({"fairness": "parity"}, ValueError, "unknown fairness notion 'parity'"),
    "a rule": ({"learner": cq.AcceptAll()}, TypeError, "is not a learner: a frontier needs one"),
    "a class": ({"learner": cq.FairPolicyLearner}, TypeError, "is not a learner"),
    "another cost": (
        {"learner": cq.FairPolicyLearner(method="direct", cost=0.5)},
        ValueError,
        "the learner has cost 0.5 and the frontier 0.3: give both the same",
    ),
    "another notion": (
        {"learner": cq.FairPolicyLearner(method="direct", cost=0.3, fairness="equal_opportunity")},
        ValueError,
        "the learner bounds equal_opportunity and the frontier shows demographic_parity",
    ),
    "a ratio": (
        {"learner": cq.FairPolicyLearner(method="direct", cost=0.3, min_ratio=0.8)},
        ValueError,
        "the learner has a min_ratio already",
    ),
}


@pytest.mark.parametrize(("arguments", "error", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_argument_is_named(arguments, error, message):
    with pytest.raises(error, match=message):
        cq.frontier(explored(200), **{"cost": 0.3} | arguments)


def test_a_learner_without_a_bound_is_refused():
    class Boundless(BaseEstimator):
        def fit_log(self, log): ...

    with pytest.raises(TypeError, match="Boundless has no parameter max_gap to be bounded by"):
        cq.frontier(explored(200), cost=0.3, learner=Boundless())


def test_a_log_of_one_group_has_no_gap():
    log = explored(200)
    alone = cq.DecisionLog.from_arrays(log.features, log.decision, log.propensity, log.label)
    with pytest.raises(cq.DecisionLogError, match="the log has one group"):
        cq.frontier(alone, cost=0.3)


def test_only_a_log_will_do():
    with pytest.raises(TypeError, match="traced on a DecisionLog, not on list"):
        cq.frontier([], cost=0.3)


def test_a_predictor_that_cannot_be_fitted_is_left_out_with_its_reason():
    log = explored(400)
    alike = cq.DecisionLog.from_arrays(
        log.features, log.decision, log.propensity, np.where(log.decision, 1.0, np.nan), log.group
    )
    found = cq.frontier(alike, cost=world().cost, learner=BestCut(), max_gaps=[None], folds=2)
    assert [point.name for point in found.references] == [
        "what the log did", "accept all", "reject all",
    ]  # fmt: skip
    assert "accepted only is left out: fold 1 of 2 cannot be fitted" in found.notes[0]
