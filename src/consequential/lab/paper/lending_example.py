"""The lending example: what a bank learns from the people above its first threshold.

[K20: limitation] For each threshold xi, 10 000 applicants come, those with a score above xi get a
loan, L2 logistic regression with 5-fold cross-validation learns from them, and its threshold rule
is measured exactly. The paper says neither by which score the ridge is chosen nor whether credit
scores are standardised before, which makes the same ridge some thousand times as strong: both
scores are tried on standardised credit scores, and accuracy on raw ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consequential.files import joined_columns, load_columns, save_columns
from consequential.lab.kernels.matrices import fit_logistic
from consequential.lab.worlds.lending import Lending
from consequential.policy import ThresholdPolicy, logistic_model

Floats = NDArray[np.float64]
Scoring = Literal["accuracy", "likelihood", "accuracy, raw scores"]

SCORINGS: tuple[Scoring, ...] = ("accuracy", "likelihood", "accuracy, raw scores")
THRESHOLDS = tuple(range(500, 801, 10))
_FORMAT, _SCHEMA = "consequential lending example", 1
_APPLICANTS, _FOLDS = 10_000, 5
_RIDGES = 1.0 / np.logspace(-4, 4, 10)  # the strongest first: it wins where all score alike


@dataclass(frozen=True, slots=True, eq=False)
class LendingTable:
    """The model and its rule for each score to choose the ridge by, threshold and seed.

    `intercept` and `slope` are of the model, in points of the score.
    """

    scoring: NDArray[np.object_]
    threshold: Floats
    seed: NDArray[np.int64]
    intercept: Floats
    slope: Floats
    utility: Floats
    benefit_gap: Floats

    @property
    def gap_size(self) -> Floats:
        """The size of the gap, whichever group is ahead."""
        return np.abs(self.benefit_gap)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one Parquet file."""
        save_columns(path, asdict(self), {"format": _FORMAT, "schema": _SCHEMA})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LendingTable:
        """Read what `save` wrote."""
        return cls(**load_columns(path, _FORMAT, _SCHEMA)[0])

    @classmethod
    def joined(cls, pieces: Sequence[LendingTable]) -> LendingTable:
        """Return the rows of several tables by score, threshold and seed."""
        table = cls(**joined_columns([asdict(piece) for piece in pieces]))
        return table.at(np.lexsort((table.seed, table.threshold, table.scoring.astype(str))))

    def at(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> LendingTable:
        """Return some rows, given by index or as a mask."""
        return LendingTable(**{name: values[rows] for name, values in asdict(self).items()})

    def scored_by(self, scoring: Scoring) -> LendingTable:
        """Return the rows whose ridge was chosen by one score."""
        return self.at(self.scoring == scoring)


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
    scoring, threshold, seed, *numbers = (np.array(column) for column in zip(*rows, strict=True))
    return LendingTable(scoring.astype(object), threshold, seed, *numbers)


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
    models: dict[Scoring, Floats] = {}
    for scoring in SCORINGS:
        # a penalty on the slope per point of the score, or per standard deviation
        ridges = _RIDGES / spread**2 if scoring.endswith("raw scores") else _RIDGES
        found = np.zeros(len(ridges))
        for left_out in counts:
            theta, weight = np.zeros(2), left_out.ravel() / left_out.sum()
            for r, ridge in enumerate(ridges):
                theta = fitted(everybody - left_out, ridge, theta)
                sign = (2.0 * label - 1.0) * (theta @ phi)
                likelihood = scoring == "likelihood"
                found[r] += weight @ (-np.logaddexp(0.0, -sign) if likelihood else sign > 0.0)
        intercept, slope = fitted(everybody, ridges[np.argmax(found.round(12))], np.zeros(2))
        models[scoring] = np.array([intercept - slope * centre / spread, slope / spread])
    return models
