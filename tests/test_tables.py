"""Text tables: columns line up, whatever their cells."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from consequential.tables import text_table

CELL = st.text("abc", max_size=8)


@given(st.lists(st.tuples(CELL, CELL, CELL), min_size=1), st.sampled_from(["<", ">", "<>", "><>"]))
def test_every_cell_is_found_in_its_column(rows, align):
    widths = [max(len(row[k]) for row in rows) for k in range(3)]
    starts = [0, widths[0] + 2, widths[0] + widths[1] + 4]
    for row, line in zip(rows, text_table(rows, align=align), strict=True):
        for start, width, cell in zip(starts, widths, row, strict=True):
            assert line[start : start + width].strip() == cell


def test_columns_are_aligned_as_asked_and_the_last_choice_repeats():
    lines = text_table([["a", "b", "c"], ["long", "longer", "longest"]], align="<>")
    assert lines[0] == "a          b        c"


def test_columns_can_be_wider_than_their_cells():
    assert text_table([["a", "b"]], align=">", min_widths=(3, 4)) == ["  a     b"]


def test_the_last_cell_of_a_short_row_takes_the_space_it_needs():
    lines = text_table([["name", "x", "y"], ["one", "why there is no number"]])
    assert lines == ["name  x  y", "one   why there is no number"]


def test_a_rule_is_as_long_as_the_longest_line():
    assert text_table([["a", "b"], ["aaa", "bbb"]], ruled=True)[1] == "-" * 8
