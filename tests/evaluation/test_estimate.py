"""Estimates: a number with its interval, to read, to ask and to store."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError

import pytest

import consequential as cq

NAN, INF = float("nan"), float("inf")


def estimate(value: float, low: float, high: float) -> cq.Estimate:
    return cq.Estimate(value, low, high, 0.1, 10, 5.0, 0.95, "normal")


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ((0.06123, 0.0571, 0.0653), "0.0612 [0.0571, 0.0653]"),
        ((-0.0, -0.5, 0.5), "0.0000 [-0.5000, 0.5000]"),
        ((-1e-18, -1e-6, 1e-6), "0.0000 [0.0000, 0.0000]"),
        ((12345.678, 12000.0, 13000.0), "12345.7 [12000, 13000]"),
        ((0.5, -INF, INF), "0.5000 [-inf, inf]"),
        ((NAN, NAN, NAN), "not measurable"),
    ],
)
def test_an_estimate_shows_its_value_and_its_interval(numbers, shown):
    assert repr(estimate(*numbers)) == shown


def test_an_interval_contains_its_ends_and_nothing_beyond():
    one = estimate(0.2, 0.1, 0.3)
    assert 0.1 in one
    assert 0.3 in one
    assert 0.0999 not in one
    assert NAN not in one


def test_what_is_not_a_finite_number_is_stored_as_nothing():
    stored = json.loads(json.dumps(estimate(NAN, -INF, INF).to_dict(), allow_nan=False))
    assert stored["value"] is stored["low"] is stored["high"] is None
    assert stored["n"] == 10
    assert stored["method"] == "normal"
    assert not estimate(NAN, NAN, NAN).known


def test_an_estimate_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        estimate(0.2, 0.1, 0.3).value = 1.0  # type: ignore[misc]
