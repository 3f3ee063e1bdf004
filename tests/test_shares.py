"""Shares: numbers strictly between 0 and 1, and what to write in place of a percentage."""

from __future__ import annotations

import re

import pytest

from consequential.shares import checked_share


@pytest.mark.parametrize("value", [0.6, 1e-9])
def test_a_share_is_returned_as_a_number(value):
    assert checked_share("the cost", value) == value


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (60, "60: write 0.6"),
        (2.5, "2.5: write 0.025"),
        ("60%", "'60%': write 0.6"),
        ("0,6", "'0,6': write 0.6"),
        ("0.6", "'0.6': write 0.6"),
        (0.0, "0.0"),
        (1, "1"),
        (250, "250"),
        (-0.5, "-0.5"),
        (float("nan"), "nan"),
        (None, "None"),
        ("half", "'half'"),
    ],
)
def test_what_is_no_share_is_answered_with_what_to_write_where_that_is_clear(value, advice):
    message = re.escape(f"the cost lies strictly between 0 and 1, not {advice}")
    with pytest.raises(ValueError, match=f"^{message}$"):
        checked_share("the cost", value)
