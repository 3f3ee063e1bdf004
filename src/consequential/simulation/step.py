"""One time step of many runs, compiled: decide, log, weigh, and learn.

People, their order and the decisions' random numbers belong to a seed and are shared by its runs.
A run owns its theta and, where it learns from all data so far, one weight a person kept: a
weight of 0 is a rejection, and all else follows from the shared people.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consequential.learning.kernel import Ascent, ascend, prepared
from consequential.learning.matrices import mean_squares
from consequential.learning.newton import RIDGE, fit_logistic
from consequential.learning.prediction import MAX_ITERATIONS
from consequential.learning.sums import objective_value
from consequential.policies.compiled import Bend, compiled, exponential_ratio, linear_scores
from consequential.simulation.functionals import (
    ACCEPTED,
    ONES,
    SQUARES,
    ZEROS,
    Log,
    Notion,
    People,
    Room,
    Weighing,
    count_tally,
    count_weights,
    functionals,
)
from consequential.simulation.reservoir import keep_all

Floats = NDArray[np.float64]
Codes = NDArray[np.int16]

_STRETCH = 1024
TOGETHER = 4  # runs of a seed that decide together: their weights should stay in the cache


class Learning(NamedTuple):
    """What the runs of a strategy have in common."""

    world_cost: float
    cost: float  # the objective's
    link: Bend
    notion: Notion
    weighing: Weighing
    ascent: Ascent  # at rate 1 and penalty 0, with the sizes asked for
    enough_rows: float  # a smaller effective sample size shortens steps; 0 for never
    n_checked: int


class Happened(NamedTuple):
    """What time steps brought, (time steps, runs), or one of them, (runs,)."""

    gain: Floats  # realised utility a person
    effective: Floats  # effective sample size of the step's decisions
    rejected: NDArray[np.int64]  # ascent steps that were not finite; -1, -2: no update, see below
    before: Floats  # the estimated objective before the update and after it
    after: Floats
    absent: NDArray[np.int64]  # groups without a row to measure a benefit on, as bits


NOBODY_ACCEPTED, LABELS_ALIKE = -1, -2


@compiled
def _decide_on_some(
    phi: Floats, labels: Floats, uniforms: Floats, start: int, theta: Floats, link: Bend,
    eta: Floats, weights: Floats, run: int, found: Floats,
) -> None:  # fmt: skip
    """Fill in a run's `d / p` of the people from `start` on; add up what `decide` returns."""
    n = eta.size
    bend, flat, floor = link
    linear_scores(theta, phi, start, eta)
    here, drawn = weights[run, start : start + n], uniforms[start : start + n]
    label = labels[start : start + n]
    positives, total, squares, count = 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        # the propensity is `part / whole`; its inverse is all that is divided
        above, below = exponential_ratio(-abs(eta[i]))
        whole = above + below
        part = below + flat * above if eta[i] >= 0.0 else bend * above
        part = floor * whole + (1.0 - floor) * part
        inverse = whole / part  # before it is known whether it counts: no branch in the loop
        accepted = 1.0 if drawn[i] * whole < part else 0.0
        weight = inverse if drawn[i] * whole < part else 0.0
        here[i] = weight
        positives += accepted * label[i]
        total += weight
        squares += weight * weight
        count += accepted
    found[run, 0] += positives
    found[run, 1] += total
    found[run, 2] += squares
    found[run, 3] += count


@compiled
def decide(
    phi: Floats, label: Floats, uniforms: Floats, thetas: Floats, link: Bend, weights: Floats,
    found: Floats,
) -> None:  # fmt: skip
    """Let runs decide on the same people: fill in `d / p`, (runs, people), and what it comes to.

    That is, (runs, 4): how many accepted people have label 1, the sum of the weights, that of their
    squares, and how many are above 0. Runs take turns on a stretch of people, so that it is read
    but once.
    """
    n_runs, n = weights.shape
    room = np.empty(min(n, _STRETCH))
    for run in range(n_runs):
        for k in range(4):
            found[run, k] = 0.0
    for start in range(0, n, _STRETCH):
        eta = room[: min(_STRETCH, n - start)]
        for run in range(n_runs):
            _decide_on_some(
                phi, label, uniforms, start, thetas[run], link, eta, weights, run, found
            )


@compiled
def effective_size(total: float, squares: float) -> float:
    """Return the effective sample size of weights."""
    return total * total / squares if squares > 0.0 else 0.0


@compiled
def reweigh(weighing: Weighing, weights: Floats) -> None:
    """Clip inverse propensities, or turn them into decisions."""
    if not weighing.weighted:
        for i in range(weights.size):
            weights[i] = 1.0 if weights[i] > 0.0 else 0.0
    elif weighing.largest < np.inf:
        for i in range(weights.size):
            weights[i] = min(weights[i], weighing.largest)


class Shared(NamedTuple):
    """What the runs of each seed share; the first axis is the seed."""

    phi: Floats  # this step's people: (seeds, inputs, n)
    group: Codes
    label: Floats
    uniforms: Floats  # decide on them
    kept_phi: Floats  # all people learned from: (seeds, inputs, room)
    kept_group: Codes
    kept_label: Floats
    n_kept: NDArray[np.int64]
    sizes: Floats  # of their groups: (seeds, groups)
    moves: NDArray[np.int64]  # (seeds, n, 3), see `keep_all`
    n_moves: NDArray[np.int64]
    starts: Floats  # where in the circle of people to begin, in [0, 1)
    keys: NDArray[np.uint64]  # of the random numbers for sampled decisions
    draws: Floats  # the first of these numbers: (seeds, some or none)


class Passed(NamedTuple):
    """The people each seed's updates pass over, in order, where all runs pass the same."""

    phi: Floats  # (seeds, inputs, n_passed)
    group: Codes
    label: Floats
    values: Floats  # (seeds, benefits, n_passed), where benefits need no label
    scale: Floats  # (seeds, inputs, inputs): mean(phi phi')


@compiled
def _find_accepted(weights: Floats, start: int, n: int, rows: NDArray[np.uint64]) -> None:
    """Find n of the accepted rows, read in a circle from the given one on."""
    block, i, position = 1024, 0, 0
    while i + block <= weights.size:
        count = 0
        for weight in weights[i : i + block]:
            count += weight > 0.0
        if position + count > start:
            break
        position += count
        i += block
    while position < start:
        position += weights[i] > 0.0
        i += 1
    found = 0
    while found < n:
        # a whole stretch where all may enter, which needs no look at whether there are enough
        last = min(i + min(block, max(n - found, 1)), weights.size)
        found += _add_accepted(weights, i, last, rows, found)
        i = last if last < weights.size else 0


@compiled
def _add_accepted(
    weights: Floats, first: int, last: int, rows: NDArray[np.uint64], found: int
) -> int:
    """Add the accepted ones of some rows to those found, and return how many they are."""
    at, none, one = np.uint64(found), np.uint64(0), np.uint64(1)
    for row in range(np.uint64(first), np.uint64(last)):
        rows[at] = row  # the next takes its place where this one is rejected
        at += one if weights[row] > 0.0 else none
    return int(at) - found


@compiled
def _accepted_people(
    phi: Floats, group: Codes, label: Floats, weights: Floats, start: int, n: int, room: Room
) -> tuple[People, Floats]:
    """Return n of the accepted people, read in a circle from the given one on."""
    m, rows = phi.shape[0], room.rows
    _find_accepted(weights, start, n, rows)
    chosen = room.phi[: m * n].reshape((m, n))
    groups, labels, own = room.group[:n], room.label[:n], room.weights[:n]
    last = np.uint64(n)  # places are unsigned: of others it would be asked whether they are
    for at in range(last):
        i = rows[at]
        groups[at], labels[at], own[at] = group[i], label[i], weights[i]
    for k in range(m):
        column, out = phi[k], chosen[k]
        for at in range(last):
            out[at] = column[rows[at]]
    return People(chosen, groups, labels), own


@compiled
def advance_deciding(
    first: int, last: int, seed_of: NDArray[np.int64], shared: Shared, passed: Passed,
    aggregated: bool, learning: Learning, base_rate: float, penalties: Floats, thetas: Floats,
    kept_weights: Floats, happened: Happened, room: Room,
) -> None:  # fmt: skip
    """Let runs decide on this step's people and update their policies."""
    weighing = learning.weighing
    by_group = weighing.accepted_only or weighing.self_normalised or not learning.notion.label_free
    found, begun, decided = np.empty((TOGETHER, 4)), first, first
    for run in range(first, last):
        seed = seed_of[run]
        if run == decided:
            while decided < min(run + TOGETHER, last) and seed_of[decided] == seed:
                decided += 1
            together = decided - run
            decide(
                shared.phi[seed], shared.label[seed], shared.uniforms[seed], thetas[run:decided],
                learning.link, room.fresh[:together], found[:together],
            )  # fmt: skip
            begun = run
        group, label = shared.group[seed], shared.label[seed]
        weights, tally = room.fresh[run - begun], np.zeros((shared.sizes.shape[1], 4))
        positives, total, squares, count = found[run - begun]
        happened.gain[run] = (positives - learning.world_cost * count) / label.size
        happened.effective[run] = effective_size(total, squares)
        reweigh(weighing, weights)
        if aggregated:
            keep_all(shared.moves[seed], shared.n_moves[seed], weights, kept_weights[run])
            n = shared.n_kept[seed]
            weights, group = kept_weights[run, :n], shared.kept_group[seed, :n]
            label = shared.kept_label[seed, :n]
        if by_group:
            count_tally(weights, label, group, tally)
        else:
            count_weights(weights, tally[0])
        n = weights.size
        log = Log(tally, shared.sizes[seed])
        total, squares = 0.0, 0.0
        n_accepted = 0
        for z in range(tally.shape[0]):
            total += tally[z, ZEROS] + tally[z, ONES]
            squares += tally[z, SQUARES]
            n_accepted += int(tally[z, ACCEPTED])
        happened.before[run] = happened.after[run] = 0.0
        happened.absent[run] = 0
        happened.rejected[run] = NOBODY_ACCEPTED
        if n_accepted == 0:
            continue
        rate = base_rate
        if learning.enough_rows > 0.0:
            rate *= min(1.0, np.sqrt(effective_size(total, squares) / learning.enough_rows))
        n_rows = n_accepted if weighing.accepted_only else n
        n_passed, ascent = prepared(learning.ascent, n_rows, penalties[run], rate)
        start = int(shared.starts[seed] * n_rows)
        if weighing.accepted_only:
            people, own = _accepted_people(
                shared.kept_phi[seed], group, label, weights, start, n_passed, room
            )
            start = 0
            values, scale = passed.values[seed], passed.scale[seed]
            if learning.ascent.preconditioned:
                scale = mean_squares(people.phi)
        else:
            people = People(passed.phi[seed], passed.group[seed], passed.label[seed])
            own, values, scale = weights, passed.values[seed], passed.scale[seed]
        rows = functionals(
            log,
            people,
            own,
            start,
            learning.notion,
            weighing,
            learning.cost,
            float(n_rows),
            values,
            room,
        )
        for z in range(shared.sizes.shape[1]):
            if not rows.defined[:, z].all():
                happened.absent[run] |= 1 << z
        theta, rejected = ascend(
            rows, learning.link, ascent, thetas[run], scale, shared.keys[seed],
            shared.draws[seed], room.copies,
        )  # fmt: skip
        n_checked = min(n_passed, learning.n_checked)
        happened.before[run] = objective_value(
            rows, learning.link, thetas[run], n_checked, ascent.penalty
        )
        happened.after[run] = objective_value(rows, learning.link, theta, n_checked, ascent.penalty)
        happened.rejected[run] = rejected
        thetas[run] = theta


@compiled
def advance_predicting(
    first: int, last: int, seed_of: NDArray[np.int64], shared: Shared, aggregated: bool,
    cost: float, shift: float, thetas: Floats, kept_weights: Floats, happened: Happened,
) -> None:  # fmt: skip
    """Let runs threshold their models on this step's people and fit them again.

    `shift` is the score at which a model predicts its threshold.
    """
    rule = Bend(0.0, 1.0, 0.0)
    fresh, found = np.empty((1, shared.label.shape[1])), np.empty((1, 4))
    cut = np.empty((1, thetas.shape[1]))
    for run in range(first, last):
        seed = seed_of[run]
        cut[0] = thetas[run]
        cut[0, 0] -= shift
        decide(shared.phi[seed], shared.label[seed], shared.uniforms[seed], cut, rule, fresh, found)
        weights = fresh[0]
        positives, total, squares, count = found[0]
        happened.gain[run] = (positives - cost * count) / weights.size
        happened.effective[run] = effective_size(total, squares)
        if aggregated:
            keep_all(shared.moves[seed], shared.n_moves[seed], weights, kept_weights[run])
            weights = kept_weights[run, : shared.n_kept[seed]]
        n = weights.size
        label = shared.kept_label[seed, :n]
        accepted, positives = 0.0, 0.0
        for i in range(n):
            accepted += weights[i]
            positives += weights[i] * label[i]
        happened.rejected[run] = NOBODY_ACCEPTED if accepted == 0.0 else LABELS_ALIKE
        if 0.0 < positives < accepted:
            theta, reached = fit_logistic(
                shared.kept_phi[seed], label, weights, thetas[run], RIDGE, MAX_ITERATIONS
            )
            thetas[run] = theta
            happened.rejected[run] = 0 if reached else 1
