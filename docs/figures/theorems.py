"""Draw the figures of docs/theorems.md: `python docs/figures/theorems.py`, some minutes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# the learners and worlds that the tests of the theorems use
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "lab" / "paper"))

from toy_learners import (
    Hopeful,
    KeepWhatPays,
    LearnByBoosting,
    LearnByPerceptron,
    best_cut_by_inverse_propensity,
    estimate,
    fit_to_population,
    ridge_with_folds,
)
from toy_worlds import Ladder, Plateaus, cut_at, induced, value, where_it_cuts

import consequential as cq

# Okabe and Ito's colours, told apart by people with any kind of colour vision
BLUE, SKY, GREEN, ORANGE, RED, PINK = (
    "#0072B2",
    "#56B4E9",
    "#009E73",
    "#E69F00",
    "#D55E00",
    "#CC79A7",
)
BLACK, GREY = "#000000", "#8A8A8A"
STYLE = {
    "font.size": 11.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "legend.fontsize": 10.5,
    "lines.linewidth": 2.2,
    "svg.hashsalt": "consequential",  # the same file every time
}


def panels() -> tuple[Figure, Axes, Axes]:
    figure = Figure(figsize=(9.6, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    return figure, left, right


def rng(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def limitation() -> Figure:
    """Proposition 1: what a predictor learns from the people a threshold let through."""
    world = cq.worlds.lending()
    thresholds = np.arange(500, 776, 25)

    def fitted(threshold: float, n: int, seed: int) -> cq.ThresholdPolicy:
        start = cut_at(threshold)
        log = world.collect(start, n, rng(seed))
        learner = cq.lab.FitPredictor(world.cost, ridge_with_folds("neg_log_loss"))
        return learner(start, log, rng=rng(seed)).policy

    def explored(threshold: float, seed: int) -> cq.ThresholdPolicy:
        start = cq.worlds.lending(initial_threshold=threshold).initial_policy("logistic")
        return best_cut_by_inverse_propensity(world.collect(start, 10_000, rng(seed)), world.cost)

    def unlimited(threshold: float) -> cq.ThresholdPolicy:
        start = cut_at(threshold)
        return fit_to_population(induced(world.population_for(start), start), world.cost)

    def utilities(learn: Callable[[float, int], cq.DecisionRule], seeds: int) -> np.ndarray:
        return np.array(
            [[world.exact(learn(xi, seed)).utility for seed in range(seeds)] for xi in thresholds]
        )

    figure, left, right = panels()
    left.axhline(world.optimal().utility, color=BLACK, linestyle="--", linewidth=1.3)
    left.text(775, world.optimal().utility + 0.006, "best possible", ha="right")
    exploring = utilities(explored, 15).mean(axis=1)
    left.plot(thresholds, exploring, color=GREEN, marker="D", markersize=5)
    finer = np.arange(500, 776, 5)
    limit = [world.exact(unlimited(xi)).utility for xi in finer]
    left.plot(finer, limit, color=ORANGE, linestyle="-.")
    for n, seeds, colour, marker in ((100_000, 5, RED, "s"), (10_000, 15, BLUE, "o")):
        learned = utilities(lambda xi, seed, n=n: fitted(xi, n, seed), seeds).mean(axis=1)
        left.plot(thresholds, learned, color=colour, marker=marker, markersize=5)
    names = [
        "exploring start, 10 000",
        "threshold, unlimited data",
        "threshold, 100 000",
        "threshold, 10 000",
    ]
    left.legend(left.lines[1:], names, loc="lower left", bbox_to_anchor=(0.0, 0.12))
    left.set(
        xlabel="where the start cuts (FICO score)",
        ylabel="utility of the learned rule",
        title="A harsh start is not undone by data",
        ylim=(-0.04, 0.165),
    )

    scores = world.scores
    population = world.cells(0)
    truth = (population.mass * population.label_probability).sum(1) / population.mass.sum(1)
    right.plot(scores, truth, color=GREY, linewidth=5, alpha=0.45)
    right.text(382, 0.22, "truth", color="#5A5A5A")
    for threshold, colour, place in (
        (525, GREEN, (585, 0.42)),
        (700, BLUE, (450, 0.79)),
        (750, RED, (310, 0.92)),
    ):
        rule = fitted(threshold, 10_000, 0)
        predicted = rule.predictor.predict_proba(scores[:, None])[:, 1]
        outside = scores < threshold
        right.plot(scores[outside], predicted[outside], color=colour, linestyle=(0, (3, 1.5)))
        right.plot(scores[~outside], predicted[~outside], color=colour, linewidth=3.4)
        right.text(*place, f"start at {threshold}", color=colour)
    right.axhline(world.cost, color=BLACK, linestyle=":", linewidth=1.3)
    right.text(850, world.cost - 0.055, "cost", ha="right")
    right.set(
        xlabel="FICO score",
        ylabel="chance of repayment",
        title="Dashed: said of people never accepted",
        ylim=(0, 1.03),
    )
    return figure


def impossibility() -> Figure:
    """Proposition 2: cuts over time, and how often accidents find the optimum."""
    world, steps, start = cq.worlds.first_setting(), 12, 0.2409
    figure, left, right = panels()

    def rules(rule: cq.DecisionRule, learner: object, n: int, seed: int) -> list[cq.DecisionRule]:
        run = cq.consequential_learning(
            world, rule, learner, time_steps=steps, n_proposals=n, rng=rng(seed)
        )
        return [rule, *(step.learned for step in run)]

    times = np.arange(steps + 1)
    left.axhspan(-0.3, start, color=GREY, alpha=0.16, linewidth=0)
    left.text(12, 0.02, "worth accepting,\nrejected by the start", ha="right", va="center")
    for seed in range(25):
        cuts = [
            where_it_cuts(r) for r in rules(cut_at(start), KeepWhatPays(world.cost), 1000, seed)
        ]
        left.plot(times, cuts, color=RED, linewidth=0.8, alpha=0.7, drawstyle="steps-post")
    model = cq.ThresholdPolicy(cq.logistic_model(world.initial_theta(rng(0))), world.cost)
    refitted = [where_it_cuts(r) for r in rules(model, cq.lab.FitPredictor(world.cost), 32_768, 0)]
    left.plot(times, refitted, color=ORANGE, marker="s", markersize=5)
    decide = cq.UpdatePolicy(cq.Objective(world.cost), n_iterations=128, batch_size=256)
    learned = rules(world.initial_policy("logistic"), decide, 32_768, 0)
    even = [-policy.theta[0] / policy.theta[1] for policy in learned]
    left.plot(times, even, color=GREEN, marker="D", markersize=5)
    left.axhline(-0.3, color=BLACK, linestyle="--", linewidth=1.3)
    left.text(12, -0.39, "best cut", ha="right")
    names = ["never looks outside (25 runs)", "logistic regression, refitted", "exploring policy"]
    shown = [left.lines[0], left.lines[25], left.lines[26]]
    key = left.legend(shown, names, loc="upper left", bbox_to_anchor=(0.0, 1.02))
    key.get_lines()[0].set(linewidth=1.6, alpha=1.0)
    left.set(xlabel="time step", ylabel="cut", title="First setting", ylim=(-0.45, 0.86))

    ladder, n, runs = Ladder(), 40, 1000
    down, too_far = ladder.no_default(2, n), ladder.no_default(1, n)
    reached = np.zeros((runs, steps + 1))
    for seed in range(runs):
        run = cq.consequential_learning(
            ladder, cut_at(2.0), Hopeful(), time_steps=steps, n_proposals=n, rng=rng(seed)
        )
        reached[seed, 1:] = [where_it_cuts(step.learned) == ladder.best for step in run]
    exactly = [
        sum((1 - down) ** k * down * (1 - too_far) ** (t - 1 - k) for k in range(t)) for t in times
    ]
    share = reached.mean(axis=0)
    right.plot(times, times * down, color=BLACK, linestyle="--", label="bound: sum of the δ")
    right.plot(times, exactly, color=BLUE, label="exact probability")
    right.errorbar(
        times,
        share,
        2 * np.sqrt(share * (1 - share) / runs),
        color=ORANGE,
        fmt="o",
        markersize=5,
        elinewidth=1.6,
        label=f"{runs} runs (two standard errors)",
    )
    right.set(
        xlabel="time step T",
        ylabel="share of runs at the optimum",
        title="Exploring only by accident",
        ylim=(-0.02, 0.75),
    )
    right.legend(loc="upper left")
    return figure


def error_based() -> Figure:
    """The corollary: a rule without errors among the accepted stays as it is."""
    world, steps = Plateaus(), 20
    figure, left, right = panels()
    left.axvspan(0.75, 1.0, color=BLUE, alpha=0.18, linewidth=0)
    left.axvspan(0.25, 0.75, color=ORANGE, alpha=0.22, linewidth=0)
    for low, high in ((0.0, 0.25), (0.25, 0.75), (0.75, 1.0)):
        level = world.score_probability(np.array([low]))[0]
        left.plot([low, high], [level, level], color=BLACK, linewidth=2.6)
    left.axhline(world.cost, color=BLACK, linestyle=":", linewidth=1.3)
    left.text(0.01, world.cost + 0.025, "cost")
    left.text(0.5, 0.28, "worth accepting,\nnever accepted", ha="center", va="center")
    left.text(0.875, 0.28, "accepted,\nnever\nwrong", ha="center", va="center")
    left.set(
        xlabel="score",
        ylabel="chance of label 1",
        title="The rule: accept from .75 on",
        ylim=(0, 1.05),
        xlim=(0, 1),
    )

    times = np.arange(steps + 1)
    right.axhline(world.optimal().utility, color=BLACK, linestyle="--", linewidth=1.3)
    right.text(steps, world.optimal().utility + 0.006, "best possible", ha="right")

    def utilities(rule: cq.DecisionRule, learner: object, n: int) -> list[float]:
        run = cq.consequential_learning(
            world, rule, learner, time_steps=steps, n_proposals=n, rng=rng(0)
        )
        return [
            world.exact(r).utility for r in [rule, *(step.learned for step in run)]
        ]  # the truth, not an estimate

    ascent = cq.UpdatePolicy(cq.Objective(world.cost), n_iterations=64, batch_size=128)
    steep = cq.ThresholdPolicy(cq.logistic_model([-15.0, 20.0]), 0.5)
    lines = [
        ("exploring policy", cq.Policy([-7.5, 10.0]), ascent, GREEN, "D", 1, 0),
        ("perceptron", LearnByPerceptron.start(0.75), LearnByPerceptron(), RED, "o", 3, 0),
        ("boosted trees", LearnByBoosting.start(0.75), LearnByBoosting(), BLUE, "s", 3, 1),
        ("logistic regression", steep, cq.lab.FitPredictor(world.cost), ORANGE, "^", 3, 2),
    ]
    for label, rule, learner, colour, marker, every, offset in lines:
        right.plot(
            times,
            utilities(rule, learner, 8192 if learner is ascent else 1000),
            color=colour,
            marker=marker,
            markersize=5.5 if every == 1 else 8,
            markevery=(offset, every),
            label=label,
        )
    right.set(xlabel="time step", ylabel="utility", title="No error, no movement", ylim=(0.0, 0.31))
    right.legend(loc="lower right", ncols=2)
    return figure


def supremum() -> Figure:
    """Proposition 3: the proof's policies approach the optimum, and any exploring log shows it."""
    figure, left, right = panels()
    first, second = cq.worlds.first_setting(), cq.worlds.second_setting()
    ns = np.array([2, 4, 10, 30, 100, 300, 1000])
    targets = [
        ("second", second, 0.0, {}, RED, "s"),
        ("second, no gap", second, 0.0, {"max_gap": 0.0, "uses_sensitive": True}, PINK, "p"),
        ("first", first, 0.0, {}, BLUE, "o"),
        ("first, penalty 1", first, 1.0, {"penalty": 1.0}, GREEN, "D"),
    ]
    for label, world, penalty, wanted, colour, marker in targets:
        policy = world.optimal(**wanted).policy
        best = value(world.exact(policy), penalty)
        short = [best - value(world.exact(policy.with_floor(1 / n)), penalty) for n in ns]
        hollow = label == "second, no gap"  # it lies on "second"
        left.loglog(
            ns,
            short,
            color=colour,
            marker=marker,
            markersize=15 if hollow else 7,
            markerfacecolor="none" if hollow else colour,
            markeredgewidth=1.8,
            linestyle="none",
            label=label,
        )
        left.loglog(ns, short[-1] * ns[-1] / ns, color=colour, linewidth=1.2)
    left.legend(loc="upper right", title="points: exact; lines: C / n", alignment="left")
    left.set(
        xlabel="n",
        ylabel="short of the optimum",
        title="A chance of 1/n for everybody else",
        ylim=(2e-6, 1.2),
    )

    policy = first.optimal().policy
    truth = np.array([first.exact(policy.with_floor(1 / n)).utility for n in ns])
    right.axhline(first.optimal().utility, color=BLACK, linestyle="--", linewidth=1.3)
    right.text(1.6, first.optimal().utility + 0.0035, "best possible")
    right.plot(ns, truth, color=BLACK, label="truth")
    model = cq.ThresholdPolicy(cq.logistic_model(first.initial_theta(rng(0))), first.cost)
    starts = [
        ("logistic, floor .05", first.initial_policy("logistic").with_floor(0.05), GREEN, "D"),
        ("one in four, else a cut", cq.Mixture([cq.AcceptAll(), model], [0.25, 0.75]), BLUE, "o"),
        ("semi-logistic", first.initial_policy("semi_logistic"), ORANGE, "s"),
        ("the cut alone", model, RED, "X"),
    ]
    for k, (label, start, colour, marker) in enumerate(starts):
        log = first.collect(start, 200_000, rng(k))
        told = np.array([estimate(policy.with_floor(1 / n), log, first.cost, 0.0) for n in ns])
        right.errorbar(
            ns * 1.12 ** (k - 1.5),
            told[:, 0],
            2 * told[:, 1],
            color=colour,
            fmt=marker,
            markersize=6,
            elinewidth=1.6,
            label=label,
        )
    right.set_xscale("log")
    right.set(
        xlabel="n",
        ylabel="utility, estimated from one log",
        title="Whoever explored, the log knows",
        ylim=(0.14, 0.188),
    )
    right.legend(loc="lower right", ncols=2, columnspacing=1.0, handletextpad=0.4)
    return figure


FIGURES = {
    "limitation": limitation,
    "impossibility": impossibility,
    "error-based": error_based,
    "supremum": supremum,
}


def main() -> None:
    """Write every figure, or those named on the command line, beside this file."""
    folder = Path(__file__).parent
    for name in sys.argv[1:] or FIGURES:
        with matplotlib.rc_context(STYLE):
            FIGURES[name]().savefig(folder / f"{name}.svg", metadata={"Date": None})
        print(f"{name}.svg")


if __name__ == "__main__":
    main()
