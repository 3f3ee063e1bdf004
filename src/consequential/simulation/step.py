"""One time step of many runs, compiled: decide, log, weigh, and learn.

People, their order and the decisions' random numbers belong to a seed and are shared by its runs.
A run owns its theta and, where it learns from all data so far, one weight a person kept: a
weight of 0 is a rejection, and all else follows from the shared people.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consequential.learning.kernel import Ascent, ascend, prepared
from consequential.learning.matrices import mean_squares
from consequential.learning.newton import RIDGE, fit_logistic
from consequential.learning.prediction import MAX_ITERATIONS
from consequential.learning.sums import objective_value
from consequential.policies.compiled import Bend, compiled, linear_scores, propensities
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
    functionals,
    room_for,
)
from consequential.simulation.reservoir import keep_all, keep_weights

Floats = NDArray[np.float64]
Codes = NDArray[np.int16]

_STRETCH = 1024


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
    """What a run's time step brought; a number a run."""

    gain: Floats  # realised utility a person
    effective: Floats  # effective sample size of the step's decisions
    rejected: NDArray[np.int64]  # ascent steps that were not finite; -1, -2: no update, see below
    before: Floats  # the estimated objective before the update and after it
    after: Floats
    absent: NDArray[np.int64]  # groups without a row to measure a benefit on, as bits


NOBODY_ACCEPTED, LABELS_ALIKE = -1, -2


@compiled
def decide(
    phi: Floats, label: Floats, uniforms: Floats, theta: Floats, link: Bend, cost: float,
    weights: Floats,
) -> tuple[float, float, float, float]:  # fmt: skip
    """Fill in `d / p` for each person; return the realised utility, and what weights add up to.

    That is their sum, the sum of their squares, and how many are above 0.
    """
    n = weights.size
    room, chances = np.empty(_STRETCH), np.empty(_STRETCH)
    gain, total, squares, count = 0.0, 0.0, 0.0, 0.0
    for start in range(0, n, _STRETCH):
        length = min(_STRETCH, n - start)
        eta, chance = room[:length], chances[:length]
        linear_scores(theta, phi, start, eta)
        propensities(link, eta, chance)
        here, drawn = weights[start : start + length], uniforms[start : start + length]
        outcome = label[start : start + length]
        for i in range(length):
            accepted = 1.0 if drawn[i] < chance[i] else 0.0
            weight = 1.0 / chance[i] if drawn[i] < chance[i] else 0.0
            here[i] = weight
            gain += accepted * (outcome[i] - cost)
            total += weight
            squares += weight * weight
            count += accepted
    return gain / n, total, squares, count


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


@compiled
def read_circle(values: NDArray[Any], start: int, out: NDArray[Any]) -> None:
    """Copy a stretch of values, read in a circle."""
    first = min(out.size, values.size - start)
    out[:first] = values[start : start + first]
    if first < out.size:
        out[first:] = values[: out.size - first]


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
    lost: NDArray[np.int64]  # (seeds, n), see `keep_people`
    starts: Floats  # where in the circle of people to begin, in [0, 1)
    keys: NDArray[np.uint64]  # of the random numbers for sampled decisions


class Passed(NamedTuple):
    """The people each seed's updates pass over, in order, where all runs pass the same."""

    phi: Floats  # (seeds, inputs, n_passed)
    group: Codes
    label: Floats
    values: Floats  # (seeds, benefits, n_passed), where benefits need no label
    scale: Floats  # (seeds, inputs, inputs): mean(phi phi')


@compiled
def _find_accepted(weights: Floats, start: int, n: int, rows: NDArray[np.int64]) -> None:
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
        i = i if i < weights.size else 0
        rows[found] = i
        found += weights[i] > 0.0
        i += 1


@compiled
def _accepted_people(
    phi: Floats, group: Codes, label: Floats, weights: Floats, start: int, n: int, room: Room
) -> tuple[People, Floats]:
    """Return n of the accepted people, read in a circle from the given one on."""
    m, rows = phi.shape[0], room.rows
    _find_accepted(weights, start, n, rows)
    chosen = room.phi[: m * n].reshape((m, n))
    groups, labels, own = room.group[:n], room.label[:n], room.weights[:n]
    for at in range(n):
        i = rows[at]
        groups[at], labels[at], own[at] = group[i], label[i], weights[i]
    for k in range(m):
        column, out = phi[k], chosen[k]
        for at in range(n):
            out[at] = column[rows[at]]
    return People(chosen, groups, labels), own


@compiled
def advance_deciding(
    first: int, last: int, seed_of: NDArray[np.int64], shared: Shared, passed: Passed,
    aggregated: bool, learning: Learning, base_rate: float, penalties: Floats, thetas: Floats,
    kept_weights: Floats, tallies: Floats, happened: Happened,
) -> None:  # fmt: skip
    """Let runs decide on this step's people and update their policies."""
    weighing = learning.weighing
    by_group = weighing.accepted_only or weighing.self_normalised or not learning.notion.label_free
    as_drawn = weighing.weighted and weighing.largest == np.inf
    n_passed, _ = prepared(learning.ascent, max(shared.n_kept.max(), 1), 0.0, 1.0)
    room = room_for(
        shared.label.shape[1], n_passed + 2 * learning.ascent.batch_size, thetas.shape[1],
        learning.notion.values.shape[0], weighing.accepted_only,
        learning.notion.label_free and not weighing.accepted_only,
        bool(learning.notion.is_ratio.any()),
    )  # fmt: skip
    for run in range(first, last):
        seed = seed_of[run]
        group, label = shared.group[seed], shared.label[seed]
        weights, tally = room.fresh, np.zeros((shared.sizes.shape[1], 4))
        gain, total, squares, count = decide(
            shared.phi[seed], label, shared.uniforms[seed], thetas[run], learning.link,
            learning.world_cost, weights,
        )  # fmt: skip
        happened.gain[run], happened.effective[run] = gain, effective_size(total, squares)
        reweigh(weighing, weights)
        if aggregated:
            tally = tallies[run]
            holds = keep_weights(
                shared.moves[seed], shared.n_moves[seed], shared.lost[seed], group, label, weights,
                kept_weights[run], tally,
            )  # fmt: skip
            n = shared.n_kept[seed]
            weights, group = kept_weights[run, :n], shared.kept_group[seed, :n]
            label = shared.kept_label[seed, :n]
            if not holds:
                count_tally(weights, label, group, tally)
        elif by_group or not as_drawn:
            count_tally(weights, label, group, tally)
        else:
            tally[0, ZEROS], tally[0, ACCEPTED], tally[0, SQUARES] = total, count, squares
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
            values, scale = passed.values[seed], mean_squares(people.phi)
        else:
            people = People(passed.phi[seed], passed.group[seed], passed.label[seed])
            own = room.weights[:n_passed]
            read_circle(weights, start, own)
            values, scale = passed.values[seed], passed.scale[seed]
        rows = functionals(
            log,
            people,
            own,
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
        theta, rejected = ascend(rows, learning.link, ascent, thetas[run], scale, shared.keys[seed])
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
    for run in range(first, last):
        seed = seed_of[run]
        weights = np.empty(shared.label.shape[1])
        cut = thetas[run].copy()
        cut[0] -= shift
        gain, total, squares, _ = decide(
            shared.phi[seed], shared.label[seed], shared.uniforms[seed], cut, rule, cost, weights
        )
        happened.gain[run], happened.effective[run] = gain, effective_size(total, squares)
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
