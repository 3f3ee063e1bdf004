"""Blocks of seeds: every thread has as many, and none waits long at the end."""

from __future__ import annotations

import pytest

from consequential.simulation.sweep import _even_rounds


@pytest.mark.parametrize("n_threads", [2, 3, 16])
@pytest.mark.parametrize("most", [1, 3, 10])
@pytest.mark.parametrize("n_rounds", [0, 1, 2, 15])
def test_rounds_are_even_hold_all_seeds_and_end_with_one_each(n_threads, most, n_rounds):
    sizes = _even_rounds(n_rounds * n_threads, most, n_threads)
    rounds = [sizes[k : k + n_threads] for k in range(0, len(sizes), n_threads)]
    assert sum(sizes) == n_rounds * n_threads
    assert all(len(each) == n_threads and len(set(each)) == 1 for each in rounds)
    assert sizes == sorted(sizes, reverse=True)
    assert not sizes or (sizes[0] <= most and sizes[-1] == 1)


def test_blocks_are_as_large_as_they_may_be_while_many_seeds_are_left():
    assert _even_rounds(30, 3, 2) == [3] * 8 + [1] * 6
