"""The penalised objective `utility - penalty/2 (benefit gap)^2` and its gradient."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consequential.log import DecisionLog, DecisionLogError, LogScan
from consequential.objective.fairness import Fairness, fairness_named, needs_labels
from consequential.objective.functionals import Coefficients, Sums, Tally
from consequential.objective.weightings.weights import InversePropensity, Weighting, counted_rows
from consequential.policy import Policy
from consequential.shares import checked_share

__all__ = ["Objective"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Totals:
    """The normalisers of a log: its number of rows; people, positives and negatives by group.

    Totals of the pieces of a log add up to those of the log.
    """

    n: int
    sums: Floats  # (3, groups)

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.n + other.n, self.sums + other.sums)


@dataclass(frozen=True, slots=True, init=False)
class Objective:
    """`F(S) = utility - penalty/2 (2/K) sum over pairs of groups (b_z - b_z')^2`.

    Estimand: the paper's `u(pi) - penalty/2 (b0 - b1)^2` [K20: objective] in the population of
    *all* applicants, from a log that has labels for the accepted only.

    Parameters
    ----------
    cost
        What accepting costs: label 1 is worth `1 - cost`, label 0 `-cost`. A log with a cost
        of its own for each row overrides it.
    fairness
        A notion or its name; None for utility alone.
    penalty
        The paper's lambda.
    weighting
        How accepted rows stand in for the rejected; inverse propensity by default.
    normalisation
        `"applicants"` divides by all applicants (N, and N_z within a group). `"paper"` divides
        by accepted rows and weights label-free benefits too, as the paper's estimator does; for
        demographic parity that is another quantity, see docs/deviations.md.
    decisions
        `"expected"` uses the propensity itself in sums and gradients; `"sampled"` draws one
        decision per row, the paper's log-derivative trick: same mean, more variance.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.first_setting()
    >>> policy = world.initial_policy("logistic")
    >>> log = world.collect(policy, 20_000, np.random.default_rng(0))
    >>> objective = cq.Objective(world.cost, "demographic_parity", penalty=1.0)
    >>> round(objective.value(policy, log), 2), objective.gradient(policy, log).round(2)
    (0.13, array([0.02, 0.01]))
    """

    cost: float
    fairness: Fairness | None
    penalty: float
    weighting: Weighting
    normalisation: Literal["applicants", "paper"]
    decisions: Literal["expected", "sampled"]

    def __init__(
        self,
        cost: float,
        fairness: str | Fairness | None = None,
        penalty: float = 0.0,
        *,
        weighting: Weighting | None = None,
        normalisation: Literal["applicants", "paper"] = "applicants",
        decisions: Literal["expected", "sampled"] = "expected",
    ) -> None:
        if not (np.isfinite(penalty) and penalty >= 0.0):
            raise ValueError(f"the penalty is finite and not negative, not {penalty!r}")
        if penalty > 0.0 and fairness is None:
            raise ValueError("a penalty needs a fairness notion to punish: give fairness=")
        if normalisation not in ("applicants", "paper"):
            raise ValueError(f"normalisation is 'applicants' or 'paper', not {normalisation!r}")
        if weighting is not None and not isinstance(weighting, Weighting):
            raise ValueError(f"weighting is a Weighting such as Clipped(10.0), not {weighting!r}")
        if decisions not in ("expected", "sampled"):
            raise ValueError(f"decisions are 'expected' or 'sampled', not {decisions!r}")
        for name, value in (
            ("cost", checked_share("the cost", cost)),
            ("fairness", None if fairness is None else fairness_named(fairness)),
            ("penalty", float(penalty)),
            ("weighting", weighting or InversePropensity()),
            ("normalisation", normalisation),
            ("decisions", decisions),
        ):
            object.__setattr__(self, name, value)

    # From a log to functionals

    def rows(self, log: DecisionLog) -> DecisionLog:
        """Return the rows the objective is about: settled ones, under `"paper"` accepted ones."""
        settled = log.settled()
        return settled.take(settled.decision) if self.normalisation == "paper" else settled

    def tallies(self, log: DecisionLog) -> tuple[Tally, Tally]:
        """Return the weighted counts for sums over all applicants, and for sums by group."""
        self.check_countable(log)
        found = self.weighting.tallies(log)
        if type(self.weighting).tallies is Weighting.tallies:
            weights = found[0].positives + found[0].negatives
            unseen = np.flatnonzero((weights != 0.0) & ~counted_rows(log))
            if len(unseen):
                raise ValueError(
                    f"{type(self.weighting).__name__}.weights must be 0 where no label is known, "
                    f"but row {unseen[0]} has {weights[unseen[0]]:g}: write "
                    "np.where(log.labelled, weights, 0.0)"
                )
        return found

    def check_countable(self, log: DecisionLog | LogScan) -> None:
        """Refuse notions that need labels where a log has values instead."""
        if log.value_range is None:
            return
        if self.fairness is not None and needs_labels(self.fairness):
            raise DecisionLogError(
                f"{self.fairness.name} counts people with label 1 or 0, and this log has values: "
                'use fairness="demographic_parity", or build the log with label= in place of value='
            )

    def totals(self, log: DecisionLog) -> Totals:
        """Return what a piece of a log adds to the normalisers of the whole log."""
        if self.normalisation != "applicants" or not self.weighting.row_by_row:
            raise ValueError(
                f"{type(self.weighting).__name__} with normalisation {self.normalisation!r} is a "
                "matter of the whole log: pieces of it cannot be added up"
            )
        _, within = self.tallies(log)
        columns = (within.people, within.positives, within.negatives)
        totals = np.stack([within.by_group(column) for column in columns])
        return Totals(len(log), totals)

    def coefficients(self, log: DecisionLog, totals: Totals | None = None) -> Coefficients:
        """Return the matrix A of a log, over `self.rows(log)`.

        With `totals` the log is a piece of a larger one, whose totals these are.
        """
        settled = log.settled()
        rows = self.rows(settled)
        if len(rows) == 0:
            raise DecisionLogError("nobody was accepted: there is nothing to learn from")
        tally, within = (self._of_rows(tally, settled) for tally in self.tallies(settled))
        n = len(rows)
        if totals is not None:
            n = totals.n
            within = replace(within, sizes=totals.sums[0], totals=totals.sums)
        benefits = () if self.fairness is None else self.fairness.benefits(within)
        return Coefficients(self.worth(rows, tally) / n, benefits, rows.group, len(rows.groups))

    def worth(self, rows: DecisionLog, tally: Tally) -> Floats:
        """Return what accepting the people of each row is worth; rejecting is worth nothing."""
        cost = self.cost if rows.cost is None else rows.cost
        gain: Floats = (1.0 - cost) * tally.positives - cost * tally.negatives
        return gain if rows.amount is None else rows.amount * gain

    def _of_rows(self, tally: Tally, log: DecisionLog) -> Tally:
        if self.normalisation == "applicants":
            return tally
        accepted = log.decision
        positives, negatives = tally.positives[accepted], tally.negatives[accepted]
        group = tally.group[accepted]
        sizes = np.bincount(group, minlength=len(tally.sizes)).astype(np.float64)
        return Tally(positives + negatives, positives, negatives, group, sizes)

    # From functionals to a number

    def value_at(self, sums: Sums) -> float:
        """Return `F(S)`."""
        if not self.penalty:
            return sums.utility
        spread = deviations(sums.benefits)
        return sums.utility - self.penalty * float((spread * spread).sum())

    def slopes_at(self, sums: Sums) -> Sums:
        """Return `dF/dS`, the derivative in each of the sums in the place of that sum."""
        spread = deviations(sums.benefits)
        by_benefit = -2.0 * self.penalty * spread
        numerators = np.divide(
            by_benefit, sums.denominators, out=np.zeros_like(spread), where=sums.usable
        )
        ratio = np.nan_to_num(sums.benefits, nan=0.0)
        return Sums(1.0, numerators, -numerators * ratio)

    # For a policy on a log

    def value(
        self, policy: Policy, log: DecisionLog, *, rng: np.random.Generator | None = None
    ) -> float:
        """Return the estimated objective of a policy on a log."""
        _, taken, _ = self._decided(policy, log, rng)
        return self.value_at(self.coefficients(log).sums(taken))

    def gradient(
        self,
        policy: Policy,
        log: DecisionLog,
        *,
        rng: np.random.Generator | None = None,
        sums: Sums | None = None,
    ) -> Floats:
        """Return the gradient in theta.

        `sums` gives other rows' functionals to evaluate `dF/dS` at; without them it is
        evaluated on the same rows, which is the exact derivative of `value`.
        """
        coefficients = self.coefficients(log)
        phi, taken, slope = self._decided(policy, log, rng)
        at = self.slopes_at(sums or coefficients.sums(taken))
        per_row = coefficients.row_slopes(at.utility, at.numerators, at.denominators)
        gradient: Floats = (per_row * slope) @ phi
        return gradient

    def _decided(
        self, policy: Policy, log: DecisionLog, rng: np.random.Generator | None
    ) -> tuple[Floats, Floats, Floats]:
        """Inputs, decisions, and the decisions' slopes in the linear score, of the rows."""
        rows = self.rows(log)
        people = rows.named_features, rows.sensitive if policy.uses_sensitive else None
        phi = policy.inputs(*people)
        taken, slope = decided(self.decisions, policy, phi @ policy.theta, rng)
        if policy.overrules:
            moves = policy.supports(*people)
            taken = np.where(moves, taken, policy.propensity(*people))
            slope = np.where(moves, slope, 0.0)
        return phi, taken, slope


def decided(
    decisions: Literal["expected", "sampled"],
    policy: Policy,
    eta: Floats,
    rng: Any,
) -> tuple[Floats, Floats]:
    """Return `(pi, g')` in expectation, or `(d, d g'/g)` for one draw of the decisions.

    `rng` has `random(size)`, as a NumPy generator does.
    """
    propensity = policy.probability(eta)
    if decisions == "expected":
        return propensity, policy.derivative(eta)
    if rng is None:
        raise ValueError("sampled decisions need rng=numpy.random.default_rng(seed)")
    drawn = (rng.random(propensity.shape) < propensity).astype(np.float64)
    return drawn, drawn * policy.log_derivative(eta)


def deviations(benefits: Floats) -> Floats:
    """Each group's benefit less the groups' mean; 0 where it is undefined.

    The penalty `lambda/2 (2/K) sum over pairs (b_z - b_z')^2` is `lambda` times their squares.
    """
    known = np.isfinite(benefits)
    spread: Floats = centred(np.where(known, benefits, 0.0), known)
    return spread


def centred(values: Any, known: Any) -> Any:
    """Subtract each benefit's mean over the groups where it is known; 0 for the others.

    For NumPy and JAX arrays over benefits and groups, 0 where nothing is known.
    """
    xp = values.__array_namespace__()
    n_known = xp.maximum(xp.sum(known, axis=1, keepdims=True), 1)
    mean = xp.sum(values, axis=1, keepdims=True) / n_known
    return xp.where(known, values - mean, 0.0)
