"""One time step of a seed's runs: decide, weigh, and learn.

People and the random numbers that decide on them belong to a seed and are shared by its runs. A run
has its own theta and, if it learns from all data so far, one weight per person kept: a weight of 0
is a rejection, and everything else follows from the shared people.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consequential.lab.kernels.batch_sums import CHUNK, Codes, batch_shares, objective_value
from consequential.lab.kernels.compiled_ascent import Ascent, ascend, fitted_sizes
from consequential.lab.kernels.functionals import (
    ACCEPTED,
    ONES,
    SQUARES,
    ZEROS,
    Learning,
    Notion,
    Reading,
    Workspace,
    count_tally,
    functionals,
    label_free_columns,
)
from consequential.lab.kernels.jit import compiled
from consequential.lab.kernels.links import THRESHOLD, exponential_ratio, linear_scores
from consequential.lab.kernels.matrices import RIDGE, fit_logistic, mean_squares
from consequential.policy.links import LinkNumbers

Floats = NDArray[np.float64]

NOBODY_ACCEPTED, LABELS_ALIKE = -1, -2  # reasons why there was no update, see `Outcome`


class StepPeople(NamedTuple):
    """The people of a time step, and the random numbers that decide on them."""

    inputs: Floats  # (inputs, n)
    group: Codes
    label: Floats
    uniforms: Floats


class Kept(NamedTuple):
    """The people that runs learn from, and where those of this step enter."""

    inputs: Floats  # (inputs, at least n)
    group: Codes
    label: Floats
    n: int
    sizes: Floats  # (groups,): how many of them are in each group
    grows: bool  # whether people of earlier steps are kept
    moves: NDArray[np.int64]  # (moves, 3), see kernels.reservoir


class RunStates(NamedTuple):
    """The runs of a strategy and seed, one per penalty."""

    thetas: Floats  # (runs, inputs)
    penalties: Floats  # (runs,)
    weights: Floats  # (runs, people kept)


class StepOutcome(NamedTuple):
    """What time steps brought, (time steps, runs), or one of them, (runs,)."""

    gain: Floats  # realised utility per person
    effective: Floats  # effective sample size of the step's decisions
    rejected: NDArray[np.int64]  # ascent steps that were not finite, or a reason for no update
    before: Floats  # the estimated objective before and after the update
    after: Floats
    absent: NDArray[np.int64]  # groups without a row to measure a benefit on, as bits


@compiled
def read_cyclically(values: NDArray[Any], start: int, out: NDArray[Any]) -> None:
    """Copy values from `start` on, and go on from the beginning after the last one."""
    first = min(out.size, values.size - start)
    for i in range(first):
        out[i] = values[start + i]
    for i in range(first, out.size):
        out[i] = values[i - first]


@compiled
def _copy(values: Floats, out: Floats) -> None:
    # for an assignment of arrays Numba would compile an error message about shapes, for 2 s
    for i in range(out.size):
        out[i] = values[i]


@compiled
def count_groups(group: Codes, sizes: Floats) -> None:
    """Set how many people each group has."""
    for z in range(sizes.size):
        count = 0
        for i in range(group.size):
            count += group[i] == z
        sizes[z] = count


@compiled
def reading_of(
    kept: Kept, n: int, size: int, start: float, key: np.uint64, notion: Notion,
    accepted_only: bool,
) -> Reading:  # fmt: skip
    """Return n people read cyclically, in minibatches of a size; none if each run has its own."""
    n = 0 if accepted_only else n
    m, first = kept.inputs.shape[0], int(start * kept.n)
    inputs, group, label = np.empty((m, n)), np.empty(n, np.int16), np.empty(n)
    for k in range(m):
        read_cyclically(kept.inputs[k, : kept.n], first, inputs[k])
    read_cyclically(kept.group[: kept.n], first, group)
    read_cyclically(kept.label[: kept.n], first, label)
    columns = np.zeros((0, n))
    if notion.label_free:
        columns = label_free_columns(notion, kept.sizes, group)
    shares = batch_shares(group, size, kept.sizes.size)
    return Reading(inputs, group, label, columns, shares, mean_squares(inputs), start, key)


@compiled
def decide(
    people: StepPeople, theta: Floats, link: LinkNumbers, weights: Floats
) -> tuple[float, float, float, float]:
    """Set `d / p` of all people.

    Return how many accepted people have label 1, the sum of the weights, that of their squares, and
    how many are above 0.
    """
    scores = np.empty(min(weights.size, CHUNK))
    below, flat, floor = link
    positives, total, squares, count = 0.0, 0.0, 0.0, 0.0
    for start in range(0, weights.size, CHUNK):
        n = min(CHUNK, weights.size - start)
        eta, here = scores[:n], weights[start : start + n]
        drawn, label = people.uniforms[start : start + n], people.label[start : start + n]
        linear_scores(theta, people.inputs, start, eta)
        for i in range(n):
            # the propensity is part / all_; only its inverse is divided
            above, under = exponential_ratio(-abs(eta[i]))
            all_ = above + under
            part = under + flat * above if eta[i] >= 0.0 else below * above
            part = floor * all_ + (1.0 - floor) * part
            inverse = all_ / part  # computed for all, so that the loop has no branch
            accepted = 1.0 if drawn[i] * all_ < part else 0.0
            weight = inverse if drawn[i] * all_ < part else 0.0
            here[i] = weight
            positives += accepted * label[i]
            total += weight
            squares += weight * weight
            count += accepted
    return positives, total, squares, count


@compiled
def _reweigh(learning: Learning, weights: Floats) -> None:
    """Clip inverse propensities, or turn them into decisions."""
    if not learning.weighted:
        for i in range(weights.size):
            weights[i] = 1.0 if weights[i] > 0.0 else 0.0
    elif learning.largest_weight < np.inf:
        for i in range(weights.size):
            weights[i] = min(weights[i], learning.largest_weight)


@compiled
def _effective_size(total: float, squares: float) -> float:
    return total * total / squares if squares > 0.0 else 0.0


@compiled
def accepted_rows(weights: Floats, start: int, n: int) -> NDArray[np.int64]:
    """Return n accepted rows, read cyclically from the given one on."""
    found, count = np.empty(weights.size + 1, np.int64), 0
    for i in range(weights.size):
        found[count] = i  # overwritten by the next one if this one is rejected
        count += 1 if weights[i] > 0.0 else 0
    rows = np.empty(n, np.int64)
    read_cyclically(found[:count], start, rows)
    return rows


@compiled
def _accepted_reading(
    kept: Kept, weights: Floats, start: int, n: int, size: int, reading: Reading,
    preconditioned: bool, own: Floats,
) -> Reading:  # fmt: skip
    """Return the accepted people that an update of one run reads; set their weights."""
    rows, m = accepted_rows(weights, start, n), kept.inputs.shape[0]
    inputs, group, label = np.empty((m, n)), np.empty(n, np.int16), np.empty(n)
    for at in range(n):
        i = rows[at]
        group[at], label[at], own[at] = kept.group[i], kept.label[i], weights[i]
    for k in range(m):
        column = kept.inputs[k]
        for at in range(n):
            inputs[k, at] = column[rows[at]]
    scale = mean_squares(inputs) if preconditioned else reading.scale
    shares = batch_shares(group, size, kept.sizes.size)
    return Reading(inputs, group, label, reading.columns, shares, scale, reading.start, reading.key)


@compiled
def advance_deciding(
    people: StepPeople, kept: Kept, reading: Reading, learning: Learning, rate: float,
    runs: RunStates, outcome: StepOutcome,
) -> None:  # fmt: skip
    """Let runs decide on this step's people and update their policies."""
    by_group = learning.accepted_only or learning.self_normalised or not learning.notion.label_free
    fresh, n_groups = np.empty(people.label.size), kept.sizes.size
    n_most = fitted_sizes(learning.ascent, kept.n)[0] + 2 * learning.ascent.batch_size
    n_columns = 2 * learning.notion.values.shape[0] * n_groups if by_group else 0
    work = Workspace(np.empty(n_most), np.empty(n_most), np.empty(n_columns * n_most))
    for run in range(runs.thetas.shape[0]):
        theta = runs.thetas[run].copy()
        positives, total, squares, count = decide(people, theta, learning.link, fresh)
        outcome.gain[run] = (positives - learning.world_cost * count) / fresh.size
        outcome.effective[run] = _effective_size(total, squares)
        outcome.before[run] = outcome.after[run] = 0.0
        outcome.absent[run], outcome.rejected[run] = 0, NOBODY_ACCEPTED
        _reweigh(learning, fresh)
        weights = fresh
        if kept.grows:
            keep(kept.moves, fresh, runs.weights[run])
            weights = runs.weights[run, : kept.n]
        tally = np.zeros((n_groups, 4))
        count_tally(weights, kept.label[: kept.n], kept.group[: kept.n], tally)
        n_accepted, total, squares = 0, 0.0, 0.0
        for z in range(n_groups):
            n_accepted += int(tally[z, ACCEPTED])
            total += tally[z, ZEROS] + tally[z, ONES]
            squares += tally[z, SQUARES]
        if n_accepted == 0:
            continue
        own_rate = rate
        if learning.enough_rows > 0.0:
            effective = _effective_size(total, squares)
            own_rate *= min(1.0, np.sqrt(effective / learning.enough_rows))
        n_rows = n_accepted if learning.accepted_only else kept.n
        n_read, size = fitted_sizes(learning.ascent, n_rows)
        start, a = int(reading.start * n_rows), learning.ascent
        n_iterations = a.n_iterations
        if learning.max_passes > 0:
            n_iterations = min(n_iterations, max(1, learning.max_passes * n_rows // size))
        ascent = Ascent(
            n_iterations, size, a.n_reference, runs.penalties[run], a.sampled, a.preconditioned,
            own_rate, a.ridge, a.max_step, a.max_share,
        )  # fmt: skip
        own = work.weights[:n_read]
        if learning.accepted_only:
            own_reading = _accepted_reading(
                kept, weights, start, n_read, size, reading, a.preconditioned, own
            )
        else:
            own_reading = reading
            read_cyclically(weights, start, own)
        rows = functionals(
            learning,
            own_reading,
            own,
            tally,
            kept.sizes,
            float(n_rows),
            ascent.penalty > 0.0,
            work,
        )
        for z in range(n_groups):
            for b in range(rows.benefits.defined.shape[0]):
                if not rows.benefits.defined[b, z]:
                    outcome.absent[run] |= 1 << z
        learned, rejected = ascend(
            rows, learning.link, ascent, theta, own_reading.scale, reading.key
        )
        n_checked = min(n_read, learning.n_checked)
        link, penalty = learning.link, ascent.penalty
        outcome.before[run] = objective_value(rows, link, theta, n_checked, penalty)
        outcome.after[run] = objective_value(rows, link, learned, n_checked, penalty)
        outcome.rejected[run] = rejected
        _copy(learned, runs.thetas[run])


@compiled
def advance_predicting(
    people: StepPeople, kept: Kept, cost: float, shift: float, max_iterations: int, runs: RunStates,
    outcome: StepOutcome,
) -> None:  # fmt: skip
    """Let runs threshold their models on this step's people and fit them again.

    `shift` is the score at which a model predicts its threshold.
    """
    fresh = np.empty(people.label.size)
    for run in range(runs.thetas.shape[0]):
        theta = runs.thetas[run].copy()
        theta[0] -= shift
        positives, total, squares, count = decide(people, theta, THRESHOLD, fresh)
        outcome.gain[run] = (positives - cost * count) / fresh.size
        outcome.effective[run] = _effective_size(total, squares)
        weights = fresh
        if kept.grows:
            keep(kept.moves, fresh, runs.weights[run])
            weights = runs.weights[run, : kept.n]
        label = kept.label[: kept.n]
        accepted, positives = 0.0, 0.0
        for i in range(kept.n):
            accepted += weights[i]
            positives += weights[i] * label[i]
        outcome.rejected[run] = NOBODY_ACCEPTED if accepted == 0.0 else LABELS_ALIKE
        if 0.0 < positives < accepted:
            fitted, reached = fit_logistic(
                kept.inputs, label, weights, runs.thetas[run], RIDGE, max_iterations
            )
            _copy(fitted, runs.thetas[run])
            outcome.rejected[run] = 0 if reached else 1


@compiled
def keep(moves: NDArray[np.int64], fresh: NDArray[Any], kept: NDArray[Any]) -> None:
    """Put a step's entries into a reservoir, as `reservoir_moves` says."""
    for move in range(moves.shape[0]):
        entry, end, slot = moves[move]
        if end >= 0:
            kept[end] = kept[slot]
        kept[slot] = fresh[entry]
