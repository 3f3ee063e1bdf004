"""The lending example: what a bank learns from the people above its first threshold.

[K20: limitation] For each threshold xi, 10 000 applicants come, those with a score above xi get a
loan, L2 logistic regression with 5-fold cross-validation learns from them, and its threshold rule
is measured exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from consequential.kernels.logistic import fit_logistic
from consequential.paper.results import SCORINGS, LendingTable, Scoring
from consequential.policies import ThresholdPolicy, logistic_model
from consequential.worlds.lending import Lending

Floats = NDArray[np.float64]

THRESHOLDS = tuple(range(500, 801, 10))
_APPLICANTS, _FOLDS = 10_000, 5
_RIDGES = 1.0 / np.logspace(-4, 4, 10)  # the strongest first: it wins where all score alike


def lending_example(
    world: Lending, seeds: Iterable[int], thresholds: Sequence[float] = THRESHOLDS
) -> LendingTable:
    """Learn from every threshold, for every seed."""
    rows = [
        (scoring, float(threshold), seed, *model, truth.utility, truth.benefit_gap)
        for seed in seeds
        for threshold in thresholds
        for scoring, model in _models(world, threshold, seed).items()
        for truth in [world.exact(ThresholdPolicy(logistic_model(model), world.cost))]
    ]
    kinds = (object, np.float64, np.int64, *4 * (np.float64,))
    return LendingTable(
        *(
            np.array(column, dtype=k)
            for column, k in zip(zip(*rows, strict=True), kinds, strict=True)
        )
    )


def _models(world: Lending, threshold: float, seed: int) -> dict[Scoring, Floats]:
    """Return the model that each score chooses."""
    people = world.people(_APPLICANTS, np.random.default_rng([seed, round(threshold)]))
    score = people.features[:, 0]
    lent = score > threshold
    seen, repaid = score[lent], people.label[lent] == 1.0
    if repaid.all() or not repaid.any():  # one label only: the share, smoothed by half a person
        share = (repaid.sum() + 0.5) / (len(repaid) + 1.0)
        constant = np.array([np.log(share / (1.0 - share)), 0.0])
        return dict.fromkeys(SCORINGS, constant)
    # scores are few: count people by score, label and fold instead of keeping them one by one
    points, at = np.unique(seen, return_inverse=True)
    counts = np.zeros((_FOLDS, 2, len(points)))
    for outcome, people_there in enumerate((at[~repaid], at[repaid])):
        for fold in range(_FOLDS):
            counts[fold, outcome] = np.bincount(people_there[fold::_FOLDS], minlength=len(points))
    centre, spread = seen.mean(), seen.std()
    phi = np.ones((2, 2 * len(points)))
    phi[1] = np.tile((points - centre) / spread, 2)
    label = np.repeat([0.0, 1.0], len(points))

    def fitted(kept: Floats, ridge: float, start: Floats) -> Floats:
        theta, _ = fit_logistic(phi, label, kept.ravel(), start, ridge, 100)
        return theta

    everybody = counts.sum(axis=0)
    found = np.zeros((len(SCORINGS), len(_RIDGES)))
    for left_out in counts:
        theta = np.zeros(2)
        for r, ridge in enumerate(_RIDGES):
            theta = fitted(everybody - left_out, ridge, theta)
            sign = (2.0 * label - 1.0) * (theta @ phi)
            weight = left_out.ravel() / left_out.sum()
            found[0, r] += weight @ (sign > 0.0)
            found[1, r] -= weight @ np.logaddexp(0.0, -sign)
    models: dict[Scoring, Floats] = {}
    for scoring, by_ridge in zip(SCORINGS, found.round(12), strict=True):
        intercept, slope = fitted(everybody, _RIDGES[np.argmax(by_ridge)], np.zeros(2))
        models[scoring] = np.array([intercept - slope * centre / spread, slope / spread])
    return models
