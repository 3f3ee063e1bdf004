"""Compiled reservoirs against those of logs."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_array_equal

import consequential as cq
from consequential.kernels.reservoir import changed_slots, keep
from consequential.log.reservoir import extended, reservoir_moves


def test_compiled_reservoirs_keep_the_rows_that_logs_keep():
    world = cq.worlds.second_setting()
    n, room, held = 40, 100, None
    rng, again = np.random.default_rng(0), np.random.default_rng(0)
    scores, moved = np.full(room, np.nan), np.full(room, np.nan)
    for step in range(6):
        log = world.collect(world.initial_policy(), n, np.random.default_rng(step), time_step=step)
        held = extended(held, log, room, rng)
        moves, fresh = reservoir_moves(again.random(n), n * step, room), log.features[:, 0].copy()
        slots, sources = changed_slots(moves, room)
        moved[slots] = np.concatenate([moved, fresh])[sources]
        keep(moves, fresh, scores)
        assert_array_equal(scores[: len(held)], held.features[:, 0])
        assert_array_equal(moved, scores)
