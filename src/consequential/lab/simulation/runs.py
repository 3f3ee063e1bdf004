"""Runs: the results of a simulation, to save, load, summarise and plot."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from consequential.files import Columns, UnreadableFileError, load_columns, save_columns
from consequential.log.frames import make_frame
from consequential.plotting import add_legend, draw_band, new_axes, tidy
from consequential.policy import DecisionRule, Policy, PolicyError, ThresholdPolicy
from consequential.policy.storage import decode_rule, encode_rule
from consequential.tables import text_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Floats = NDArray[np.float64]

FORMAT = "consequential runs"
SCHEMA = 2
METRICS = ("utility", "effective_utility", "benefit_gap", "acceptance", "effective_sample_size")
LABELS = {
    "utility": "utility",
    "effective_utility": "effective utility (while learning)",
    "benefit_gap": "benefit gap",
    "acceptance": "share accepted",
    "effective_sample_size": "effective sample size",
}


class RunsError(ValueError):
    """Results that are not there or cannot be read."""


@dataclass(frozen=True, slots=True)
class Run:
    """One strategy, penalty and seed: metrics of every policy from the first to the last learned.

    Row t is the policy that decided at step t, the last row the one learned from all steps.
    `effective_sample_size` is that of the decisions before it; the first row has none.
    `thetas` are the parameters of the same policies, where all of them are linear.
    """

    strategy: str
    penalty: float
    seed: int
    metrics: dict[str, Floats]
    policy: DecisionRule | None
    notes: tuple[str, ...]
    thetas: Floats | None = None  # (rows, inputs), intercept first


def theta_of(rule: DecisionRule) -> Floats | None:
    """Return the parameters of a linear policy or of a thresholded logistic model."""
    if isinstance(rule, Policy):
        return rule.theta
    if isinstance(rule, ThresholdPolicy):
        from sklearn.linear_model import LogisticRegression

        model = rule.predictor
        if isinstance(model, LogisticRegression) and model.coef_.shape[0] == 1:
            return np.concatenate([np.broadcast_to(model.intercept_, 1), model.coef_[0]])
    return None


@dataclass(frozen=True, slots=True)
class Summary:
    """One row per strategy and penalty: quartiles over seeds of the metrics at the last step."""

    rows: tuple[dict[str, Any], ...]
    n_steps: int

    def __str__(self) -> str:
        counts = sorted({row["runs"] for row in self.rows})
        runs = " to ".join(str(count) for count in {counts[0]: 0, counts[-1]: 0})
        lines = [["strategy", "penalty", *(name.replace("_", " ") for name in METRICS[:4])]]
        for row in self.rows:
            cells = [_quartiles(row[name], row["runs"]) for name in METRICS[:4]]
            lines.append([row["strategy"], f"{row['penalty']:.4g}", *cells])
        head, rule, *rows = text_table(lines, ruled=True)
        spread = " [lower quartile, upper quartile]" if counts[-1] > 1 else ""
        note = f"after {self.n_steps} steps, median{spread} of {runs} run{'s' * (runs != '1')}"
        return "\n".join([head, rule, *rows, rule, note])


@dataclass(frozen=True, slots=True)
class Runs:
    """All runs of a simulation.

    Examples
    --------
    >>> import consequential as cq
    >>> runs = cq.simulate(cq.worlds.second_setting(), cq.lab.LearnToPredict("iterative"),
    ...                    seeds=3, time_steps=10, progress=False)
    >>> runs.strategies, runs.penalties, runs.seeds
    (('deterministic, iterative',), (0.0,), (0, 1, 2))
    >>> runs.summary().rows[0]["utility"].round(2)
    array([0.02, 0.02, 0.02])
    """

    runs: tuple[Run, ...]
    world: str
    groups: tuple[Hashable, ...]
    fairness: str
    interrupted: bool = False

    @property
    def strategies(self) -> tuple[str, ...]:
        """Names of the strategies, in the order they were given."""
        return tuple(dict.fromkeys(run.strategy for run in self.runs))

    @property
    def penalties(self) -> tuple[float, ...]:
        """The penalties, increasing."""
        return tuple(sorted({run.penalty for run in self.runs}))

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, increasing."""
        return tuple(sorted({run.seed for run in self.runs}))

    @property
    def notes(self) -> tuple[str, ...]:
        """Everything that was reported on the way, with the run it belongs to."""
        return tuple(
            f"{run.strategy}, penalty {run.penalty:g}, seed {run.seed}, {note}"
            for run in self.runs
            for note in run.notes
        )

    def has(self, strategy: str, penalty: float) -> bool:
        """Whether there is any run of this strategy and penalty."""
        return any(run.strategy == strategy and run.penalty == penalty for run in self.runs)

    def select(self, strategy: str, penalty: float | None = None) -> tuple[Run, ...]:
        """Return the runs of a strategy; the penalty may be left out where there is one."""
        if strategy not in self.strategies:
            raise RunsError(f"no strategy {strategy!r}; there are {list(self.strategies)}")
        if penalty is None:
            if len(self.penalties) > 1:
                raise RunsError(f"name the penalty: one of {list(self.penalties)}")
            penalty = self.penalties[0]
        found = tuple(r for r in self.runs if r.strategy == strategy and r.penalty == penalty)
        if not found:
            raise RunsError(f"no runs of {strategy!r} with penalty {penalty:g}")
        return found

    def metric(self, name: str, strategy: str, penalty: float | None = None) -> Floats:
        """Return a metric of a strategy, one row per seed and one column per time step."""
        found = self.select(strategy, penalty)
        if name not in found[0].metrics:
            raise RunsError(f"no metric {name!r}; there are {list(found[0].metrics)}")
        return np.stack([run.metrics[name] for run in found])

    def final_policy(
        self, strategy: str, seed: int = 0, penalty: float | None = None
    ) -> DecisionRule:
        """Return the last policy a run learned."""
        for run in self.select(strategy, penalty):
            if run.seed == seed:
                if run.policy is None:
                    raise RunsError("this run's policy could not be stored in the file")
                return run.policy
        raise RunsError(f"no seed {seed}; there are {list(self.seeds)}")

    def summary(self) -> Summary:
        """Return median and quartiles over seeds at the last step; print it for a table."""
        rows = []
        for strategy in self.strategies:
            for penalty in self.penalties:
                if not self.has(strategy, penalty):
                    continue  # an interrupted simulation may not have come to it
                row: dict[str, Any] = {"strategy": strategy, "penalty": penalty}
                row["runs"] = len(self.select(strategy, penalty))
                for name in self.runs[0].metrics:
                    last = self.metric(name, strategy, penalty)[:, -1]
                    row[name] = np.percentile(last, [25, 50, 75])
                rows.append(row)
        return Summary(tuple(rows), len(self.runs[0].metrics["utility"]) - 1)

    def plot(
        self,
        metric: str = "utility",
        *,
        over: Literal["time_step", "penalty"] = "time_step",
        penalty: float | None = None,
        strategies: Sequence[str] | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Plot medians with quartile bands, over time steps or (at the last step) penalties."""
        return plot_metric(self, metric, over, penalty, strategies or self.strategies, ax)

    def to_frame(self, backend: Literal["pyarrow", "pandas", "polars"] = "pyarrow") -> Any:
        """Return one row per run and time step."""
        return make_frame(self._columns(), backend)

    def _columns(self) -> Columns:
        sizes = [len(run.metrics["utility"]) for run in self.runs]
        columns: Columns = {
            "strategy": np.repeat(np.array([r.strategy for r in self.runs], dtype=object), sizes),
            "penalty": np.repeat([run.penalty for run in self.runs], sizes),
            "seed": np.repeat([run.seed for run in self.runs], sizes),
            "time_step": np.concatenate([np.arange(size) for size in sizes]),
        }
        for name in self.runs[0].metrics:
            columns[name] = np.concatenate([run.metrics[name] for run in self.runs])
        return columns

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one Parquet file, policies included; completely or not at all."""
        about = {
            "format": FORMAT,
            "schema": SCHEMA,
            "world": self.world,
            "groups": [g if isinstance(g, int | float | str) else str(g) for g in self.groups],
            "fairness": self.fairness,
            "interrupted": self.interrupted,
            "notes": [list(run.notes) for run in self.runs],
            "policies": [_storable(run.policy) for run in self.runs],
            "inputs": [0 if run.thetas is None else run.thetas.shape[1] for run in self.runs],
        }
        save_columns(path, self._columns() | _theta_columns(self.runs), about)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Runs:
        """Read runs that `save` wrote."""
        try:
            return cls._from_columns(*load_columns(path, FORMAT, SCHEMA))
        except UnreadableFileError as error:
            raise RunsError(str(error)) from None
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            where = os.fspath(path)
            raise RunsError(f"{where} is damaged: {type(error).__name__}: {error}") from None

    @classmethod
    def _from_columns(cls, columns: Columns, about: dict[str, Any]) -> Runs:
        starts = np.flatnonzero(columns["time_step"] == 0)
        inputs = about["inputs"]
        thetas = [columns.pop(_theta_column(k)) for k in range(max(inputs, default=0))]
        runs = []
        for k, piece in enumerate(np.split(np.arange(len(columns["seed"])), starts[1:])):
            first = piece[0]
            policy = about["policies"][k]
            names = [n for n in columns if n not in ("strategy", "penalty", "seed", "time_step")]
            runs.append(
                Run(
                    str(columns["strategy"][first]),
                    float(columns["penalty"][first]),
                    int(columns["seed"][first]),
                    {name: columns[name][piece] for name in names},
                    None if policy is None else decode_rule(policy),
                    tuple(about["notes"][k]),
                    np.stack([t[piece] for t in thetas[: inputs[k]]], 1) if inputs[k] else None,
                )
            )
        world, groups = about["world"], tuple(about["groups"])
        return cls(tuple(runs), world, groups, about["fairness"], about["interrupted"])


def _theta_column(k: int) -> str:
    return f"theta {k}"


def _theta_columns(runs: Sequence[Run]) -> dict[str, Floats]:
    """Thetas as columns beside the metrics, NaN where a run has fewer."""
    widest = max((0 if run.thetas is None else run.thetas.shape[1] for run in runs), default=0)
    rows = []
    for run in runs:
        padded = np.full((len(run.metrics["utility"]), widest), np.nan)
        if run.thetas is not None:
            padded[:, : run.thetas.shape[1]] = run.thetas
        rows.append(padded)
    return {_theta_column(k): np.concatenate([row[:, k] for row in rows]) for k in range(widest)}


def _quartiles(quartiles: Floats, n_runs: int) -> str:
    low, middle, high = (re.sub(r"^(-?)0\.", r"\1.", f"{value:.4f}") for value in quartiles)
    return f"{middle} [{low}, {high}]" if n_runs > 1 else middle


def _storable(policy: DecisionRule | None) -> dict[str, Any] | None:
    try:
        return None if policy is None else encode_rule(policy)
    except PolicyError:
        return None  # a classifier that cannot be stored: its metrics are kept


def plot_metric(
    runs: Runs,
    metric: str,
    over: Literal["time_step", "penalty"],
    penalty: float | None,
    strategies: Sequence[str],
    ax: Axes | None,
) -> Axes:
    """Draw a metric's median and quartiles over seeds, one line per strategy."""
    ax = new_axes(ax)
    if over not in ("time_step", "penalty"):
        raise ValueError(f"over is 'time_step' or 'penalty', not {over!r}")
    for strategy in strategies:
        if strategy not in runs.strategies:
            runs.select(strategy)  # says which there are
        x, values = _series(runs, metric, over, penalty, strategy)
        if not values:
            continue  # an interrupted simulation may not have come to it
        quartiles = np.array([np.percentile(v, [25, 50, 75]) for v in values]).T
        draw_band(ax, np.asarray(x), quartiles, strategy, strategies)
    if over == "penalty":
        smallest = min((p for p in runs.penalties if p > 0), default=1.0)
        ax.set_xscale("symlog", linthresh=smallest)
    ax.set_xlabel("time step" if over == "time_step" else "penalty (lambda)")
    ax.set_ylabel(LABELS.get(metric, metric), parse_math=False)
    ax.set_title(runs.world, loc="left", fontsize=10, parse_math=False)
    ax.title.set_parse_math(False)
    tidy(ax)
    add_legend(ax)
    return ax


def _series(
    runs: Runs,
    metric: str,
    over: Literal["time_step", "penalty"],
    penalty: float | None,
    strategy: str,
) -> tuple[list[float], list[Floats]]:
    """Return where and which finite values over seeds there are to draw."""
    if over == "penalty":
        done = [p for p in runs.penalties if runs.has(strategy, p)]
        return done, [runs.metric(metric, strategy, p)[:, -1] for p in done]
    if penalty is not None and not runs.has(strategy, penalty):
        return [], []
    values = runs.metric(metric, strategy, penalty)
    steps = np.flatnonzero(np.isfinite(values).all(axis=0))
    return steps.astype(float).tolist(), list(values[:, steps].T)
