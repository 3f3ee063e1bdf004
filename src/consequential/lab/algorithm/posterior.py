"""Posterior: what labels say of a logistic model's coefficients, by Laplace's approximation.

The coefficients are normal with mean 0 and a precision that is found from the data, one number per
block of columns (MacKay's evidence, as an update of Fellner and Schall). Rows enter through their
information, the curvature of the log likelihood at its maximum, and their score, so that later rows
can be added without the earlier ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

Floats = NDArray[np.float64]

_INTERCEPT = 0.01  # precision of the intercept
_VARIANCES = (4.0, 10.0, 0.5)  # expected of the coefficients in each block
_EXPECTED = 2.0  # how many coefficients the expectation counts for
_NEWTON = 30  # steps at most
_REACHED = 1e-2  # squared distance from the mode, in posterior deviations, before the last step
_NONE = 1e-300  # a variance that is none, to divide by
_NEAR = 1.0  # where Newton's steps need no halving


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """Normal coefficients: those of a prior, and what rows have said of them so far.

    Attributes
    ----------
    mean
        Where the posterior is highest.
    information, score
        The rows' log likelihood is taken for `score . theta - theta . information . theta / 2`.
    blocks
        The block of each coefficient; -1 for the intercept.
    scale
        What each coefficient is multiplied by before it is compared with others.
    prior
        The precision of each block.
    """

    mean: Floats
    information: Floats = field(repr=False)
    score: Floats = field(repr=False)
    blocks: NDArray[np.intp] = field(repr=False)
    scale: Floats = field(repr=False)
    prior: Floats

    @classmethod
    def before(cls, feature_map: Any, phi: Floats) -> Posterior:
        """Return what is known before the first label, for the columns of these rows."""
        n = phi.shape[1]
        own = getattr(feature_map, "blocks_", None)
        blocks = np.zeros(n, dtype=np.intp) if own is None else np.append(-1, own)
        blocks[0] = -1
        scale = np.ones(n)
        if own is None:
            scale[1:] = np.maximum(phi[:, 1:].std(axis=0), 1e-9)
        return cls(
            np.zeros(n), np.zeros((n, n)), np.zeros(n), blocks, scale, 1.0 / np.array(_VARIANCES)
        )

    @property
    def precision(self) -> Floats:
        """The posterior precision."""
        found: Floats = self.information + np.diag(self._prior_precision)
        return found

    @property
    def covariance(self) -> Floats:
        """The posterior covariance."""
        return inverse(self.precision)

    @property
    def _prior_precision(self) -> Floats:
        found: Floats = self.scale**2 * np.append(self.prior, _INTERCEPT)[self.blocks]
        return found

    def forgotten(self) -> Posterior:
        """Return the posterior without its rows, with mean and prior to begin the next fit at."""
        return replace(
            self, information=np.zeros_like(self.information), score=np.zeros_like(self.score)
        )

    def updated(self, phi: Floats, labels: Floats) -> Posterior:
        """Return the posterior after more rows, with a prior that fits it better."""
        return self.with_effects(phi, labels, np.ones(len(labels)), np.zeros(len(labels)), 0.0)[0]

    def with_effects(
        self, phi: Floats, n_positive: Floats, n_labels: Floats, effects: Floats, variance: float
    ) -> tuple[Posterior, Floats]:
        """Return the posterior after rows of many labels each, and the rows' random effects.

        Effects are added to log-odds. They are normal with this variance and integrated out.
        """
        found, effects = self._at_mode(phi, n_positive, n_labels, effects, variance)
        return (replace(found, prior=found._evident_prior()) if n_labels.any() else found), effects

    def optimistic(self, phi: Floats) -> Floats:
        """Return the mean if these rows had label 1."""
        ones = np.ones(len(phi))
        return self._at_mode(phi, ones, ones, 0.0 * ones, 0.0)[0].mean

    def _at_mode(
        self, phi: Floats, n_positive: Floats, n_labels: Floats, effects: Floats, variance: float
    ) -> tuple[Posterior, Floats]:
        """Add rows at the maximum over coefficients and effects, found by Newton's method.

        Each effect concerns one row, so that the equations of a step are solved for the effects
        first: what is left for the coefficients is their Schur complement.
        """
        theta, before = self.mean, self.precision
        penalty = 1.0 / max(variance, _NONE)  # without variance effects are 0

        def value(theta: Floats, effects: Floats) -> float:
            eta = phi @ theta + effects
            likelihood = float(n_positive @ eta - n_labels @ np.logaddexp(0.0, eta))
            likelihood -= penalty * float(effects @ effects) / 2.0
            return likelihood + float(self.score @ theta - theta @ before @ theta / 2.0)

        for _ in range(_NEWTON):
            q = expit(phi @ theta + effects)
            residual, information = n_positive - n_labels * q, n_labels * q * (1.0 - q)
            shrunk = 1.0 / (1.0 + variance * information)
            own = variance * residual - effects
            curvature = weighted_squares(phi, information * shrunk)
            slope = (residual - information * shrunk * own) @ phi
            gradient = slope + self.score - before @ theta
            step = cho_solve(cho_factor(before + curvature), gradient)
            change = shrunk * (own - variance * information * (phi @ step))
            # squared, in posterior deviations
            distance = float(gradient @ step) + penalty * float(own @ (shrunk * own))
            at = theta
            if distance > _NEAR:
                start = value(theta, effects)
                while value(theta + step, effects + change) < start and np.abs(step).max() > 1e-12:
                    step, change = step / 2.0, change / 2.0
            theta, effects = theta + step, effects + change
            if distance <= _REACHED:
                break
        score = self.score + slope + curvature @ at
        added = replace(self, mean=theta, information=self.information + curvature, score=score)
        return added, effects

    def _evident_prior(self) -> Floats:
        """Return the precisions that the coefficients found so far suggest."""
        share = 1.0 - np.diag(self.covariance) * self._prior_precision
        found = self.prior.copy()
        for block in range(len(found)):
            own = self.blocks == block
            squares = float(((self.mean * self.scale)[own] ** 2).sum())
            known = float(share[own].sum())
            found[block] = (known + _EXPECTED) / (squares + _EXPECTED * _VARIANCES[block])
        return found


def weighted_squares(phi: Floats, weight: Floats) -> Floats:
    """Return `phi' diag(weight) phi` of weights that are not negative."""
    scaled = phi * np.sqrt(weight)[:, None]
    found: Floats = scaled.T @ scaled  # a square takes half the time of another product
    return found


def inverse(precision: Floats) -> Floats:
    """Return the inverse of a positive definite matrix."""
    found: Floats = cho_solve(cho_factor(precision), np.eye(len(precision)))
    return (found + found.T) / 2.0
