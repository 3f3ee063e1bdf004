"""Figures of propensities over the features of a log."""

from __future__ import annotations

import numpy as np
import pytest

import consequential as cq
from consequential.report import propensity_figures

NAMES = ("student", "children", "age")


@pytest.fixture
def panels(monkeypatch):
    """The panels of the figure by feature: a binary one, one of three values and a number."""
    rng = np.random.default_rng(0)
    features = np.column_stack(
        [rng.integers(2, size=200), rng.integers(3, size=200), rng.random(200)]
    )
    log = cq.DecisionLog.from_arrays(
        features, np.ones(200), np.ones(200), np.ones(200), feature_names=NAMES
    )
    drawn = []
    monkeypatch.setattr(
        "consequential.report.figures.svg_of", lambda figure, _: drawn.append(figure)
    )
    propensity_figures(log, {"rule": log.features[:, 0] * 0.5 + 0.2}, "rule")
    return {ax.get_xlabel(): ax for ax in drawn[1].axes}


def test_a_binary_feature_has_a_bar_for_each_of_its_values(panels):
    bars = panels["student"].patches
    assert [bar.get_height() for bar in bars] == pytest.approx([0.2, 0.7])
    assert [tick.get_text() for tick in panels["student"].get_xticklabels()] == ["0", "1"]
    assert not panels["student"].lines


@pytest.mark.parametrize("feature", ["children", "age"])
def test_other_features_have_a_line(panels, feature):
    assert len(panels[feature].lines) == 1
    assert not panels[feature].patches


def test_of_many_groups_the_largest_are_shown():
    group = np.repeat(np.arange(40), np.where(np.arange(40) % 3 == 0, 5, 4))
    n = len(group)
    log = cq.DecisionLog.from_arrays(
        np.zeros(n), np.zeros(n), np.full(n, 0.5), np.full(n, np.nan), sensitive=group
    )
    figures = propensity_figures(log, {"logged": log.propensity}, "logged")
    assert next(iter(figures)) == "Propensities within each group, the 12 largest of 40."
