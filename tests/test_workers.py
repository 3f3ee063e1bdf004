"""Workers: work on this machine's files, shared with other processes."""

from __future__ import annotations

import os
import time

import pytest

from consequential.workers import side_by_side, spread


def who_squares(number):
    time.sleep(0.2)
    return os.getpid(), number**2


def reciprocal(number):
    return 1 / number


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_results_come_in_the_order_of_items_whoever_worked(n_jobs):
    found = side_by_side(who_squares, range(8), n_jobs)
    assert [square for _, square in found] == [0, 1, 4, 9, 16, 25, 36, 49]
    processes = {process for process, _ in found}
    assert os.getpid() in processes
    assert (len(processes) > 1) == (n_jobs > 1)


@pytest.mark.parametrize("place", [0, 3])
def test_what_fails_elsewhere_fails_here(place):
    numbers = [1.0, 2.0, 4.0, 5.0]
    numbers[place] = 0.0
    with pytest.raises(ZeroDivisionError):
        side_by_side(reciprocal, numbers, 2)


def test_no_work_has_no_results():
    assert side_by_side(reciprocal, [], 2) == []


def test_both_ways_of_sharing_work_can_follow_each_other_in_one_process():
    assert side_by_side(reciprocal, [1.0, 2.0, 4.0], 2) == [1.0, 0.5, 0.25]
    assert sorted(spread(reciprocal, [1.0, 2.0, 4.0], 2)) == [0.25, 0.5, 1.0]
    assert side_by_side(reciprocal, [1.0, 2.0, 4.0], 2) == [1.0, 0.5, 0.25]
