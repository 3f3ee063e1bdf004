"""Problem: passes that are remembered."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_array_equal

from consequential.learning.rows import Remembered
from consequential.policy.links import LinkNumbers

LINK = LinkNumbers(1.0, 0.0, 0.0)


class Counting:
    """Passes that count how often they are made."""

    n_parameters = 2

    def __init__(self) -> None:
        self.n_made = 0

    def sums(self, theta, link):
        self.n_made += 1
        return theta[None] * link.below


def test_a_pass_just_made_is_not_made_again():
    counting = Counting()
    passes = Remembered(counting)
    one, other = np.array([1.0, 2.0]), np.array([1.0, 3.0])
    for theta in (one, other, one.copy(), other):
        assert_array_equal(passes.sums(theta, LINK)[0], theta)
    assert counting.n_made == 2
    assert passes.n_parameters == 2


def test_another_link_is_another_pass():
    passes = Remembered(Counting())
    theta = np.ones(2)
    passes.sums(theta, LINK)
    assert_array_equal(passes.sums(theta, LINK._replace(below=2.0))[0], 2.0 * theta)


def test_few_passes_are_remembered():
    counting = Counting()
    passes = Remembered(counting)
    for k in (0, 1, 2, 3, 4, 0):
        passes.sums(np.full(2, float(k)), LINK)
    assert counting.n_made == 6
