"""Shares: numbers strictly between 0 and 1."""

from __future__ import annotations

import re

import pytest

from consequential.shares import checked_share


@pytest.mark.parametrize("value", [0.6, 1e-9])
def test_a_share_is_returned_as_a_number(value):
    assert checked_share("the cost", value) == value


@pytest.mark.parametrize("value", [60, "0.6", 0.0, 1, -0.5, float("nan"), None, "half"])
def test_what_is_no_share_is_refused(value):
    message = re.escape(f"the cost lies strictly between 0 and 1, not {value!r}")
    with pytest.raises(ValueError, match=f"^{message}$"):
        checked_share("the cost", value)
