"""Earnings: what a rule brings in money, by group and against another rule."""

from __future__ import annotations

import json

import numpy as np
import pytest

import consequential as cq
from exploring_logs import exploring_log

POLICY = cq.Policy([0.2, 0.7, -0.4])
earnings = cq.statistics.earnings


def labelled_log(amount=None, cost=None) -> cq.DecisionLog:
    """Everybody accepted for sure, so every label is known."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(300, 2))
    label, group = rng.random(300) < 0.6, rng.integers(2, size=300)
    amounts = None if amount is None else rng.uniform(*amount, size=300)
    costs = None if cost is None else rng.uniform(*cost, size=300)
    return cq.DecisionLog.from_arrays(
        features, np.ones(300), np.ones(300), label, group, amount=amounts, cost=costs
    )


@pytest.mark.parametrize("amount", [None, (100.0, 900.0)], ids=["per case", "per unit of amount"])
def test_where_every_label_is_known_money_is_counted(amount):
    log = labelled_log(amount)
    pi, size = log.propensity_of(POLICY), 1.0 if amount is None else log.amount
    brought = size * np.where(log.label == 1.0, 10.0, -60.0)
    found = earnings(POLICY, log, gain=10.0, loss=60.0)
    assert found.overall.new.value == pytest.approx((brought * pi).mean())
    assert found.overall.old.value == pytest.approx(brought.mean())
    for z in (0, 1):
        inside = log.group == z
        part = found.by_group[z]
        assert part.people == inside.sum()
        assert part.difference.value == pytest.approx((brought * (pi - 1.0) * inside).mean())


def test_beside_a_model_the_past_rule_earned_what_was_booked():
    log = exploring_log(600, 3)
    booked = log.decision * np.where(log.outcome == 1.0, 4.0, -6.0)
    found = earnings(POLICY, log, gain=4.0, loss=6.0, weighting=cq.weightings.DoublyRobust())
    assert found.overall.old.value == pytest.approx(booked.mean())
    assert any("not quite one value less the other" in note for note in found.notes)
    for z, part in found.by_group.items():
        assert part.old.value == pytest.approx((booked * (log.sensitive == z)).mean())


def test_groups_add_up_to_everyone():
    found = earnings(POLICY, exploring_log(600, 3), gain=4.0, loss=6.0, old=cq.AcceptAll())
    for name in ("new", "old", "difference"):
        parts = sum(getattr(each, name).value for each in found.by_group.values())
        assert parts == pytest.approx(getattr(found.overall, name).value)


def test_money_is_utility_times_what_label_1_and_label_0_differ_by():
    log = exploring_log(600)
    found = earnings(POLICY, log, gain=4.0, loss=6.0).overall
    compared = cq.compare(POLICY, cq.Logged(), log, cost=0.6)
    assert found.difference == compared.utility.scaled(10.0)
    assert found.new == compared.new.utility.scaled(10.0)


def test_intervals_cover_the_truth():
    world = cq.worlds.first_setting()
    policy = cq.Policy([1.5, 5.0])
    truth = world.exact(policy).utility / world.cost * 30.0  # a loss of 30 for label 0
    gain = 30.0 / world.cost - 30.0
    start, rng = world.initial_policy().with_floor(0.1), np.random.default_rng(0)
    covered = [
        truth in earnings(policy, world.collect(start, 800, rng), gain=gain, loss=30.0).overall.new
        for _ in range(60)
    ]
    assert np.mean(covered) >= 0.85


def test_costs_of_each_row_say_what_an_amount_is_worth():
    log = labelled_log((100.0, 900.0), cost=(0.3, 0.7))
    found = earnings(POLICY, log, unit="EUR").overall
    brought = log.amount * (log.label - log.cost)
    assert found.new.value == pytest.approx((brought * log.propensity_of(POLICY)).mean())
    with pytest.raises(ValueError, match="leave cost out"):
        earnings(POLICY, log, gain=1.0, loss=2.0)


def test_months_and_thousands_are_as_many_applications():
    found = earnings(POLICY, exploring_log(400), gain=4.0, loss=6.0, unit="EUR", monthly=250.0)
    lines = dict(found.lines)
    assert lines["per month: 1"][2].value == pytest.approx(lines["per 1000: 1"][2].value / 4.0)
    assert repr(found).splitlines()[0].split() == ["EUR", "new", "old", "difference"]
    assert "per month" not in repr(earnings(POLICY, exploring_log(400), gain=4.0, loss=6.0))
    assert json.loads(json.dumps(found.to_dict()))["unit"] == "EUR"


@pytest.mark.parametrize(("gain", "loss"), [(1.0, None), (None, 1.0), (0.0, 1.0), (1.0, -2.0)])
def test_gain_and_loss_go_together_and_are_positive(gain, loss):
    with pytest.raises(ValueError, match="both above 0"):
        earnings(POLICY, exploring_log(100), gain=gain, loss=loss)


def test_what_no_label_tells_is_not_measurable_and_no_zero():
    """Of a small group accepted with a chance of .05, next to nobody tells two rules apart."""
    rng = np.random.default_rng(0)
    small = np.arange(2000) < 60
    p = np.where(small, 0.05, 0.5)
    decision = rng.random(2000) < p
    label = np.where(decision, rng.random(2000) < 0.6, np.nan)
    log = cq.DecisionLog.from_arrays(small[:, None], decision, p, label, small.astype(int))
    found = earnings(cq.AcceptAll(), log, gain=4.0, loss=6.0, old=cq.RejectAll())
    assert found.by_group[0].difference.known
    (note,) = found.notes
    assert note.startswith("what 1 would bring is not measurable")
    part = found.by_group[1].difference
    assert not part.known
    assert part.low < 0.0 < part.high
    (line,) = [line for line in repr(found).splitlines() if line.startswith("per 1000: 1")]
    assert line.split()[-2:] == ["not", "measurable"]
