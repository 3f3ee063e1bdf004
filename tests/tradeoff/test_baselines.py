"""One table on one log: the usual ways beside ours, each with its interval."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import SplineTransformer

import consequential as cq
from consequential.tradeoff.baseline import Reduction

NAMES = [
    "what the log did",
    "accept all",
    "accepted only",
    "boosted trees",
    "augmentation",
    "inverse propensity",
    "fairlearn reduction",
    "FairPolicyLearner",
]


@cache
def first():
    return cq.worlds.first_setting()


def logged(world, n=6000, floor=0.1, seed=0):
    rule = world.initial_policy().with_floor(floor)
    return world.collect(rule, n, np.random.default_rng(seed))


@pytest.fixture(scope="module")
def found():
    return cq.baselines(logged(first()), cost=first().cost, max_gap=0.05)


def test_there_is_a_row_for_each_way(found):
    assert [entry.name for entry in found.entries] == NAMES
    lines = str(found).splitlines()
    assert lines[0] == "learned from 3000 decisions, evaluated on 3000 others"
    for name, line in zip(NAMES, lines[2:], strict=True):
        assert line.startswith(name)


def test_intervals_cover_the_truth(found):
    for entry in found.entries:
        if entry.name == "what the log did":
            continue
        truth = first().exact(entry.rule)
        # three standard errors: seven estimates of one log miss together if they miss
        for estimate, value in (
            (entry.evaluation.utility, truth.utility),
            (entry.evaluation.benefit_gap, truth.benefit_gap),
        ):
            assert abs(estimate.value - value) <= 3 * estimate.standard_error + 1e-12


def test_judgement_is_on_decisions_nobody_learned_from(found):
    log = logged(first())
    ours = found["FairPolicyLearner"].rule
    known, unseen = log.split(0.5, by="random", rng=np.random.default_rng(0))
    assert ours.learned_from == known.fingerprint
    assert found["accept all"].evaluation.n == len(unseen)


@pytest.mark.parametrize(
    ("world", "feature_map"),
    # a line can hold the best first rule but not the labels; the second is nothing like a line
    [("first_setting", None), ("second_setting", SplineTransformer(n_knots=8))],
    ids=["first", "second"],
)
def test_ours_is_truly_better_than_the_predictor_on_accepted_people(world, feature_map):
    world = getattr(cq.worlds, world)()
    log = logged(world, n=20_000, floor=0.05)
    table = cq.baselines(log, cost=world.cost, feature_map=feature_map)
    ours, usual = (
        world.exact(table[name].rule).utility for name in ("FairPolicyLearner", "accepted only")
    )
    assert ours > usual + 0.002
    assert ours > 0.95 * world.optimal().utility


def test_boosted_trees_find_what_a_line_cannot():
    world = cq.worlds.second_setting()  # the best people are in the middle
    table = cq.baselines(logged(world, n=8_000, floor=0.3), cost=world.cost)
    trees, line = (world.exact(table[name].rule) for name in ("boosted trees", "accepted only"))
    assert trees.utility > line.utility + 0.01
    assert trees.utility < world.optimal().utility


def test_rules_and_learners_of_ones_own_stand_beside_the_others():
    log = logged(first(), n=1000)
    bounded = cq.FairPolicyLearner(method="direct", cost=first().cost, max_gap=0.05)
    cut = cq.ThresholdPolicy(cq.logistic_model([0.0, 1.0]), 0.5)
    own = {"cut at 0": cut, "ours, bounded": bounded}
    table = cq.baselines(log, cost=first().cost, rules=own)
    assert [entry.name for entry in table.entries] == [*NAMES, *own]
    known, unseen = log.split(0.5, by="random", rng=np.random.default_rng(0))
    alone = cq.evaluate(own["cut at 0"], unseen, cost=first().cost)
    assert table["cut at 0"].evaluation.utility == alone.utility
    assert table["ours, bounded"].rule.learned_from == known.fingerprint
    assert not hasattr(own["ours, bounded"], "policy_")


def test_a_rule_may_take_the_place_of_an_entry():
    own = {"FairPolicyLearner": cq.RejectAll(), "augmentation": cq.AcceptAll()}
    table = cq.baselines(logged(first(), n=1000), cost=first().cost, rules=own)
    assert [entry.name for entry in table.entries] == NAMES
    assert {name: table[name].rule for name in own} == own


def test_a_classifier_of_ones_own_is_fitted_to_accepted_people_and_cut_at_the_cost():
    log, model = logged(first(), n=1000), KNeighborsClassifier(20)
    entry = cq.baselines(log, cost=first().cost, rules={"neighbours": model})["neighbours"]
    known, _ = log.split(0.5, by="random", rng=np.random.default_rng(0))
    expected = clone(model).fit(known.features[known.decision], known.label[known.decision])
    scores = np.linspace(-0.8, 0.8, 50)[:, None]
    accepts = expected.predict_proba(scores)[:, 1] >= first().cost
    assert_array_equal(entry.rule.propensity(scores), accepts.astype(float))


def test_a_predictor_that_cannot_be_fitted_is_no_rule_until_it_is_cut():
    class Oracle:
        def predict_proba(self, features): ...

    with pytest.raises(TypeError, match=r"predicts and does not decide: ThresholdPolicy\(model"):
        cq.baselines(logged(first(), n=200), cost=0.2, rules={"own": Oracle()})


def test_without_fairlearn_its_row_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "fairlearn.reductions", None)
    entry = cq.baselines(logged(first(), n=1000), cost=first().cost)["fairlearn reduction"]
    assert entry.evaluation is None
    assert "left out: it is fairlearn's: pip install 'consequential[fairness]'" in entry.note


@pytest.mark.parametrize(("cost", "most"), [(0.2, 1.0), (0.9, 0.5)])
def test_fairlearn_minimises_the_costs_of_the_rows(cost, most):
    log = first().collect(cq.AcceptAll(), 2000, np.random.default_rng(0))
    log = replace(log, cost=np.full(len(log), cost))
    policy = Reduction(0.5, fairness="demographic_parity", max_gap=1.0).fit_log(log).policy_
    accepted = policy.propensity(log.features).mean()
    assert (accepted > 0.5) == (cost < 0.5)
    assert accepted <= most


def test_a_log_without_groups_has_no_gap_to_bound():
    log = logged(first(), n=1000)
    alone = cq.DecisionLog.from_arrays(log.features, log.decision, log.propensity, log.label)
    table = cq.baselines(alone, cost=first().cost)
    assert "accepted people are of one group" in table["fairlearn reduction"].note
    assert table["accepted only"].evaluation.utility.known


def test_the_last_decisions_can_be_held_out():
    log = logged(first(), n=1000)
    timed = cq.DecisionLog.from_arrays(
        log.features, log.decision, log.propensity, log.label, log.sensitive,
        time_step=np.arange(1000) // 100, horizon=2,
    )  # fmt: skip
    table = cq.baselines(timed, cost=first().cost, held_out=0.25, by="time_step")
    # two of ten periods are too young; two of the remaining eight are held out
    assert (table.n_learned, table.n_judged) == (600, 200)


def test_an_unknown_entry_lists_those_there_are(found):
    with pytest.raises(KeyError, match="no entry 'ours'; there are what the log did, accept all"):
        found["ours"]


WRONG = {
    "cost": ({"cost": 0.0}, "the cost lies strictly between 0 and 1, not 0.0"),
    "nothing held out": ({"held_out": 0.0}, "held_out lies strictly between 0 and 1, not 0.0"),
    "cost in percent": ({"cost": 60}, "the cost lies strictly .* not 60"),
    "another split": ({"by": "month"}, "split by time_step or random, not by 'month'"),
    "notion": ({"fairness": "parity"}, "unknown fairness notion 'parity'; choose one of"),
    "confidence": ({"confidence": 95}, "confidence"),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_argument_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        cq.baselines(logged(first(), n=200), **{"cost": 0.2} | arguments)
