"""Patterns: people with the very same features, and what their own labels say beyond a model.

No feature map is quite right. Where people with equal features (a *covariate pattern*) come again
and again, their labels show it: each pattern has a random effect, normal with mean 0, on top of the
model's log-odds. Without it many labels of one person would count like labels of many people.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from consequential.lab.algorithm.posterior import Posterior, inverse, weighted_squares
from consequential.policy import PosteriorPolicy
from consequential.policy.features import row_keys

Floats = NDArray[np.float64]

_RETURNING = 0.75  # fewer patterns than this share of the first rows: people do return
_MOST = 2048  # patterns among the first rows
_VARIANCE = 0.1  # expected of the effects
_EXPECTED = 2.0  # how many effects the expectation counts for


@dataclass(slots=True, eq=False)
class Patterns:
    """Patterns, how many people had them, the labels of these people, and the random effects."""

    features: Floats
    phi: Floats = field(default_factory=lambda: np.zeros((0, 0)), init=False, repr=False)
    n_people: Floats = field(default_factory=lambda: np.zeros(0), init=False)
    n_labels: Floats = field(default_factory=lambda: np.zeros(0), init=False)
    n_positive: Floats = field(default_factory=lambda: np.zeros(0), init=False)
    effects: Floats = field(default_factory=lambda: np.zeros(0), init=False)
    deviation: Floats = field(default_factory=lambda: np.zeros(0), init=False)
    variance: float = field(default=_VARIANCE, init=False)
    _codes: dict[bytes, int] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def among(cls, features: Floats) -> Patterns | None:
        """Return no patterns yet, or None where hardly anybody returns."""
        n_patterns = len(set(row_keys(features)))
        returning = n_patterns <= min(_RETURNING * len(features), _MOST)
        return cls(features[:0]) if returning else None

    def add(
        self, features: Floats, phi: Floats, labelled: NDArray[np.bool_], labels: Floats
    ) -> None:
        """Count people, and the labels of those who have one."""
        codes, new = np.empty(len(features), dtype=np.intp), []
        for row, key in enumerate(row_keys(features)):
            if key not in self._codes:
                self._codes[key] = len(self._codes)
                new.append(row)
            codes[row] = self._codes[key]
        self.features = np.vstack([self.features, features[new]])
        self.phi = np.vstack([self.phi.reshape(-1, phi.shape[1]), phi[new]])
        for name, rows in (
            ("n_people", codes),
            ("n_labels", codes[labelled]),
            ("n_positive", codes[labelled & (labels == 1.0)]),
            ("effects", codes[:0]),
        ):
            total = np.bincount(rows, minlength=len(self.features)).astype(np.float64)
            before = getattr(self, name)
            total[: len(before)] += before
            setattr(self, name, total)

    def forget(self) -> None:
        """Forget everybody; effects stay, to begin the next fit at."""
        for counts in (self.n_people, self.n_labels, self.n_positive):
            counts[:] = 0.0

    def updated(self, known: Posterior) -> Posterior:
        """Return the posterior of the model; the effects and their variance are updated too."""
        found, self.effects = known.forgotten().with_effects(
            self.phi, self.n_positive, self.n_labels, self.effects, self.variance
        )
        information = self._information(found, self.n_labels)
        share = self.variance * information / (1.0 + self.variance * information)
        squares = float((self.effects**2).sum())
        self.variance = (squares + _EXPECTED * _VARIANCE) / (float(share.sum()) + _EXPECTED)
        return found

    def foreseen(self, known: Posterior, cut: float, foresight: float) -> Floats:
        """Return the model's covariance, and set the deviations of the patterns' log-odds.

        That is after `foresight` times as many more people, with labels of those above the cut.
        """
        more = self.n_people * (self.phi @ known.mean + self.effects > cut)
        information = self._information(known, self.n_labels + foresight * more)
        shrunk = 1.0 / (1.0 + self.variance * information)
        added = weighted_squares(self.phi, information * shrunk)
        covariance = inverse(known.forgotten().precision + added)
        by_model = ((self.phi @ covariance) * self.phi).sum(axis=1)
        self.deviation = np.sqrt(by_model * shrunk**2 + self.variance * shrunk)
        return covariance

    def put_into(self, policy: PosteriorPolicy, *, certain: bool) -> PosteriorPolicy:
        """Return a policy that knows the patterns, and of others that their effects are unknown."""
        log_odds = self.phi @ policy.model.theta + self.effects
        deviation = 0.0 * self.deviation if certain else self.deviation
        # averaged over effects, log-odds are nearer to 0
        nearer = 1.0 / np.sqrt(1.0 + np.pi * self.variance / 8.0)
        return replace(
            policy,
            model=policy.model.at(nearer * policy.model.theta),
            covariance=nearer**2 * policy.covariance,
            patterns=np.column_stack([self.features, log_odds, deviation]),
        )

    def _information(self, known: Posterior, n_labels: Floats) -> Floats:
        q = expit(self.phi @ known.mean + self.effects)
        found: Floats = n_labels * q * (1.0 - q)
        return found
