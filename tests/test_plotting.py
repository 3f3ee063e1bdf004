"""Plot style: what figures share stays legible, without colours and without overlaps."""

from __future__ import annotations

import numpy as np
import pytest

from consequential.plotting import (
    draw_band,
    label_ends,
    new_axes,
    panels,
    short_name,
    strategy_style,
    svg_of,
)

STRATEGIES = [
    f"{kind}, {sequence}"
    for kind in ("deterministic", "logistic", "semi-logistic")
    for sequence in ("iterative", "aggregated")
]


@pytest.mark.parametrize(
    "ends", [[0.5, 0.5, 0.51, 0.9], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.2, 0.8]]
)
def test_labels_at_line_ends_do_not_overlap_and_keep_the_order_of_the_lines(ends):
    _, axes = panels(1, 1, 3.0, 2.0)
    ax = axes[0, 0]
    ax.set_ylim(0.0, 1.0)
    names = [f"line {k}" for k in range(len(ends))]
    lines = [ax.plot([0, 1], [0.5, end], label=n)[0] for end, n in zip(ends, names, strict=True)]
    label_ends(ax, lines)
    places = [text.get_position()[1] for text in ax.texts]
    assert [text.get_text() for text in ax.texts] == names
    assert (np.diff(np.sort(places)) >= 0.07).all()
    assert np.argsort(places).tolist() == np.argsort(ends, kind="stable").tolist()
    assert min(places) >= 0.0


def test_strategies_can_be_told_apart_without_colours():
    ax = new_axes()
    x = np.arange(3.0)
    lines = [draw_band(ax, x, np.zeros((3, 3)), name, STRATEGIES) for name in STRATEGIES]
    styles = {(line.get_linestyle(), line.get_marker()) for line in lines}
    assert len(styles) == len(STRATEGIES)


def test_strategies_of_other_kinds_have_styles_of_their_own():
    names = [f"mine {k}" for k in range(8)]
    assert len({strategy_style(name, names) for name in names}) == 8


@pytest.mark.parametrize(
    ("name", "short"), [("semi-logistic, aggregated", "semi agg."), ("my own rule", "my own rule")]
)
def test_short_names_fit_at_the_end_of_a_line(name, short):
    assert short_name(name) == short


def test_the_same_figure_makes_the_same_svg():
    def drawn(salt):
        ax = new_axes()
        ax.plot([0.0, 1.0], [0.0, 1.0])
        return svg_of(ax, salt)

    assert drawn("a") == drawn("a") != drawn("b")
    assert drawn("a").startswith("<svg")
    assert "<dc:date>" not in drawn("a")


def test_axes_that_are_given_are_used():
    ax = new_axes()
    assert new_axes(ax) is ax
