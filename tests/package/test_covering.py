"""Pairwise coverings: what parametrised tests rely on."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from covering import covering


@pytest.mark.parametrize("sizes", [(3, 5), (2, 2, 2, 2), (3, 5, 5, 2, 2), (6, 2, 2)], ids=str)
def test_every_pair_of_values_occurs_in_few_rows(sizes):
    rows = covering(*map(range, sizes))
    for i, j in combinations(range(len(sizes)), 2):
        pairs = set(product(range(sizes[i]), range(sizes[j])))
        assert {(row[i], row[j]) for row in rows} == pairs
    *_, second, first = sorted(sizes)
    assert len(rows) <= first * second + 2
