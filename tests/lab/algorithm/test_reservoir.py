"""Reservoirs: uniform samples of all rows seen so far, in random order."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.stats import chisquare

import consequential as cq
from consequential.lab.algorithm.sequences import Aggregated, reservoir_moves
from consequential.lab.kernels.step import keep


def reservoir(n_steps, n, max_rows, rng):
    """Follow the moves of some steps; return the numbers of the rows kept, in their order."""
    kept = []
    for step in range(n_steps):
        for entry, end, slot in reservoir_moves(rng.random(n), step * n, max_rows).tolist():
            if end >= 0:
                assert end == len(kept)
                kept.append(None)
                kept[end] = kept[slot]
            kept[slot] = step * n + entry
    return kept


def test_every_row_ever_seen_is_kept_equally_often():
    rng = np.random.default_rng(0)
    counts = np.zeros(24)
    for _ in range(3000):
        counts[reservoir(4, 6, 9, rng)] += 1
    assert counts.sum() == 9 * 3000
    # kept without replacement, counts vary less than a chi-square allows for: 1 - 9/24 as much
    statistic = chisquare(counts).statistic / (1 - 9 / 24)
    assert 5.0 < statistic < 53.0  # a chi-square of 23 degrees: one in ten thousand each side


def test_every_row_is_equally_often_in_every_place():
    rng = np.random.default_rng(1)
    counts = np.zeros((12, 5))
    for _ in range(6000):
        counts[reservoir(3, 4, 5, rng), np.arange(5)] += 1
    for place in range(5):
        assert chisquare(counts[:, place]).pvalue > 1e-3


def test_all_orders_of_the_rows_are_equally_likely():
    rng = np.random.default_rng(2)
    orders = dict.fromkeys(permutations(range(4)), 0)
    for _ in range(6000):
        orders[tuple(reservoir(2, 2, 10, rng))] += 1
    assert chisquare(list(orders.values())).pvalue > 1e-3


def test_pairs_of_rows_are_kept_equally_often():
    rng = np.random.default_rng(3)
    pairs = dict.fromkeys(permutations(range(6), 2), 0)
    for _ in range(6000):
        pairs[tuple(reservoir(3, 2, 2, rng))] += 1
    assert chisquare(list(pairs.values())).pvalue > 1e-3


def test_below_its_room_the_reservoir_keeps_every_row_once():
    assert sorted(reservoir(5, 7, 35, np.random.default_rng(4))) == list(range(35))


def test_more_new_rows_than_room_fill_the_room_with_different_rows():
    kept = reservoir(1, 100, 8, np.random.default_rng(5))
    assert len(set(kept)) == 8
    kept = reservoir(2, 100, 8, np.random.default_rng(5))
    assert len(set(kept)) == 8


def collected(n, time_step, seed=0):
    world = cq.worlds.second_setting()
    rng = np.random.default_rng([seed, time_step])
    return world.collect(world.initial_policy(), n, rng, time_step=time_step)


def row_numbers(log, n):
    """Number rows by step and place, which their scores tell."""
    scores = {
        (step, float(x)): step * n + place
        for step in range(20)
        for place, x in enumerate(collected(n, step).features[:, 0])
    }
    found = zip(log.time_step.tolist(), log.features[:, 0].tolist(), strict=True)
    return [scores[step, x] for step, x in found]


def test_a_reservoir_follows_the_moves():
    n, room = 10, 24
    held = None
    rng, again = np.random.default_rng(6), np.random.default_rng(6)
    for step in range(6):
        held = Aggregated(room).extend(held, collected(n, step), rng)
        assert len(held) == min(n * (step + 1), room)
    assert row_numbers(held, n) == reservoir(6, n, room, again)


def test_a_reservoir_keeps_rows_whole():
    held = None
    for step in range(6):
        held = Aggregated(24).extend(held, collected(10, step), np.random.default_rng(step))
    for place, number in enumerate(row_numbers(held, 10)):
        source = collected(10, number // 10)
        row = number % 10
        assert held.propensity[place] == source.propensity[row]
        assert held.decision[place] == source.decision[row]
        assert held.group[place] == source.group[row]
        assert_array_equal(held.label[place], source.label[row])


def test_a_reservoir_takes_more_new_rows_than_it_has_room_for():
    held = None
    for step in range(4):
        held = Aggregated(7).extend(held, collected(30, step), np.random.default_rng(step))
        assert len(held) == 7
        assert len(set(row_numbers(held, 30))) == 7


def test_a_reservoir_has_room_for_a_row():
    with pytest.raises(ValueError, match="max_rows is at least 1, not 0"):
        Aggregated(0)


def test_compiled_reservoirs_keep_the_rows_that_logs_keep():
    world = cq.worlds.second_setting()
    n, room, held = 40, 100, None
    rng, again = np.random.default_rng(0), np.random.default_rng(0)
    scores = np.full(room, np.nan)
    for step in range(6):
        log = world.collect(world.initial_policy(), n, np.random.default_rng(step), time_step=step)
        held = Aggregated(room).extend(held, log, rng)
        moves, fresh = reservoir_moves(again.random(n), n * step, room), log.features[:, 0].copy()
        keep(moves, fresh, scores)
        assert_array_equal(scores[: len(held)], held.features[:, 0])
