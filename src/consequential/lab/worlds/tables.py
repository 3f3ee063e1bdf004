"""Worlds made of a table: its rows are the population, drawn with replacement."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.evaluation import Population
from consequential.lab.worlds.world import Parameters, People, World, labelled_population
from consequential.log import DecisionLog, DecisionLogError
from consequential.policy import as_features, group_codes
from consequential.shares import checked_share

if TYPE_CHECKING:
    from consequential.lab.kernels.alias_table import AliasTable

Floats = NDArray[np.float64]
Table = dict[str, NDArray[Any]]


class TableWorld(World):
    """Fully labelled rows taken as the truth: most to draw people from, the rest held out.

    Proposals are drawn with replacement from the training rows; metrics are measured on the
    held-out rows, which nobody learns from. With `split_seed=None` every seed of a simulation
    has a split of its own, so that the spread over seeds includes who was held out.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> rng = np.random.default_rng(0)
    >>> score, group = rng.normal(size=500), rng.choice(["a", "b"], size=500)
    >>> world = cq.worlds.TableWorld(score, group, score > 0, cost=0.4)
    >>> len(world.training_rows), len(world.held_out_rows)
    (400, 100)
    >>> world.collect(cq.AcceptAll(), 50, rng).n_accepted
    50
    """

    def __init__(
        self,
        features: ArrayLike,
        sensitive: ArrayLike | None,
        label: ArrayLike,
        *,
        cost: float,
        name: str = "table",
        feature_names: Sequence[str] | None = None,
        parameters: Parameters | None = None,
        held_out_fraction: float = 0.2,
        split_seed: int | None = 0,
    ) -> None:
        if not 0.0 < held_out_fraction < 1.0:
            raise ValueError(f"held_out_fraction lies in (0, 1), not {held_out_fraction!r}")
        # a table of people who were all accepted: a log's checks are the checks it needs
        matrix = as_features(features)
        ones = np.ones(len(matrix))
        checked = DecisionLog.from_arrays(
            matrix, ones, ones, label, sensitive, feature_names=feature_names
        )
        if checked.n_pending:
            n = checked.n_pending
            rows = "1 row has" if n == 1 else f"{n} rows have"
            raise DecisionLogError(
                f"{rows} no label: a world is made of people whose outcome is known"
            )
        self.cost = checked_share("the cost", cost)
        self.name = name
        self.parameters = parameters or Parameters()
        self.feature_names = checked.feature_names
        self.table = People(checked.features, checked.group, checked.label)
        self.groups = checked.groups
        self.n_held_out = max(1, round(held_out_fraction * len(checked)))
        if self.n_held_out == len(checked):
            raise ValueError(
                f"held_out_fraction={held_out_fraction} leaves no training row of {len(checked)}"
            )
        self.split_seed = split_seed
        self._split(split_seed or 0)

    def _split(self, seed: int) -> None:
        order = np.random.default_rng(seed).permutation(len(self.table.label))
        self.held_out_rows, self.training_rows = np.split(order, [self.n_held_out])

    def for_seed(self, seed: int) -> TableWorld:
        """Return the world as the runs of a seed have it: this split, or the seed's own."""
        if self.split_seed is not None:
            return self
        own = copy(self)
        for cached in ("held_out", "alias_table"):
            vars(own).pop(cached, None)
        own.split_seed = seed
        own._split(seed)
        return own

    def people(self, n: int, rng: np.random.Generator) -> People:
        """Draw n training rows with replacement."""
        return self._rows(self.training_rows[rng.integers(len(self.training_rows), size=n)])

    def _rows(self, rows: NDArray[np.intp]) -> People:
        return People(self.table.features[rows], self.table.group[rows], self.table.label[rows])

    def as_alias_table(self) -> AliasTable:
        """Return the training rows, all equally likely."""
        from consequential.lab.kernels.alias_table import alias_table

        rows = self._rows(self.training_rows)
        return alias_table(np.ones(len(rows.label)), rows.features, rows.group, rows.label)

    def propose(self, n: int, rng: np.random.Generator) -> tuple[Floats, NDArray[Any]]:
        """Draw n people of the training rows, without their labels."""
        people = self.people(n, rng)
        return people.features, np.array(self.groups, dtype=object)[people.group]

    def label_probability(self, features: Floats, sensitive: NDArray[Any]) -> Floats:
        """Return the share of label 1 among training rows with these features and group."""
        rows, n = self._rows(self.training_rows), len(self.training_rows)
        known = np.column_stack([rows.features, rows.group])
        asked = np.column_stack([features, group_codes(sensitive, self.groups)])
        everything = np.vstack([known, asked]) + 0.0  # -0.0 becomes 0.0
        kind = np.unique(everything, axis=0, return_inverse=True)[1].ravel()
        positives = np.bincount(kind[:n], rows.label, kind.max() + 1)
        count = np.bincount(kind[:n], minlength=len(positives))
        share = np.divide(positives, count, out=np.full(len(count), np.nan), where=count > 0)
        found: Floats = share[kind[n:]]
        return found

    def population(self, part: Literal["held_out", "training", "all"]) -> Population:
        """Return the held-out rows, the training rows or both as a population."""
        if part == "all":
            rows = self.table
        else:
            rows = self._rows(self.held_out_rows if part == "held_out" else self.training_rows)
        return labelled_population(self.named(rows.features), rows.group, rows.label, self.groups)

    @cached_property
    def held_out(self) -> Population:
        """The rows that metrics are measured on."""
        return self.population("held_out")


def from_frame(
    frame: Any,
    *,
    features: Sequence[str],
    sensitive: str | None,
    label: str,
    cost: float,
    name: str = "table",
    parameters: Parameters | None = None,
    held_out_fraction: float = 0.2,
) -> TableWorld:
    """Make a world of a fully labelled data frame (pandas, polars or pyarrow).

    Examples
    --------
    >>> import pyarrow as pa, consequential as cq
    >>> frame = pa.table({"x": [0.1, 0.4, 0.6, 0.9] * 5, "sex": ["f", "m"] * 10,
    ...                   "repaid": [0, 0, 1, 1] * 5})
    >>> world = cq.worlds.from_frame(frame, features=["x"], sensitive="sex", label="repaid",
    ...                              cost=0.5)
    >>> round(world.measure(cq.AcceptAll()).acceptance, 6)
    1.0
    """
    from consequential.log.frames import as_table, named_columns, prepared_features

    table = as_table(frame)
    columns = named_columns(table, sensitive=sensitive, label=label)
    people, _ = prepared_features(table, features, None)
    return TableWorld(
        np.asarray(people),
        columns["sensitive"],
        np.asarray(columns["label"]),
        cost=cost,
        name=name,
        feature_names=people.names,
        parameters=parameters,
        held_out_fraction=held_out_fraction,
    )


def compas(
    *,
    label: Literal["no_rearrest", "rearrest"] = "no_rearrest",
    sensitive: Literal["race", "sex"] = "race",
    standardised: bool = False,
    split_seed: int | None = 0,
) -> TableWorld:
    """Return the paper's COMPAS population: 5278 people in Broward County.

    The paper's words make y = 1 re-arrest, which the literal utility then rewards; the default
    here is `"no_rearrest"`. With `standardised=True` all five features have mean 0 and variance
    1, as in the code of the paper's authors, and not priors alone; `split_seed` is that of
    `TableWorld`. Read docs/data.md before drawing conclusions.

    Examples
    --------
    >>> import consequential as cq
    >>> world = cq.worlds.compas(label="rearrest")
    >>> len(world.table.label), int(world.table.label.sum()), world.groups
    (5278, 2483, ('African-American', 'Caucasian'))
    """
    _choose("label", label, ("no_rearrest", "rearrest"))
    _choose("sensitive", sensitive, ("race", "sex"))
    counted = read_data("compas.csv")
    paper = np.isin(counted["race"], ["African-American", "Caucasian"])
    table = {
        name: np.repeat(column[paper], counted["count"][paper]) for name, column in counted.items()
    }
    features = {f"age {age}": table["age"] == age for age in ("25-45", "over 45", "under 25")}
    features["priors (standardised)"] = _standardised(table["priors"])
    features["misdemeanour"] = table["misdemeanour"]
    if standardised:
        features = {name: _standardised(values) for name, values in features.items()}
    rearrest = table["rearrest"].astype(np.float64)
    return _world(
        features,
        table[sensitive],
        rearrest if label == "rearrest" else 1.0 - rearrest,
        cost=0.6,
        name="COMPAS" if label == "no_rearrest" else "COMPAS (re-arrest as y = 1)",
        parameters=Parameters(
            n_proposals=64**2, n_iterations=40 * 64, batch_size=64, learning_rate=0.1
        ),
        split_seed=split_seed,
    )


def german(
    *,
    sensitive: Literal["sex", "age"] = "sex",
    cost: float = 0.7,
    split_seed: int | None = 0,
) -> TableWorld:
    """Return German credit: 1000 credits that were granted; see docs/data.md.

    With `sensitive="age"` the groups are people up to 25 and over 25, and age is no feature.
    `split_seed` is that of `TableWorld`.

    Examples
    --------
    >>> import consequential as cq
    >>> world = cq.worlds.german()
    >>> len(world.table.label), world.groups, float(world.table.label.mean())
    (1000, ('Female', 'Male'), 0.7)
    """
    _choose("sensitive", sensitive, ("sex", "age"))
    table = read_data("german.csv")
    groups, repaid = table.pop("sex"), table.pop("repaid")
    if sensitive == "age":
        groups = np.where(table.pop("age") <= 25, "25 and under", "over 25")
    return _world(
        _encoded(table),
        groups,
        repaid,
        cost=cost,
        name="German credit",
        parameters=Parameters(n_proposals=1024, learning_rate=0.1),
        split_seed=split_seed,
    )


def taiwan(*, cost: float = 0.75, split_seed: int | None = 0) -> TableWorld:
    """Return Taiwan credit cards: 30 000 card holders; see docs/data.md.

    `split_seed` is that of `TableWorld`.

    Examples
    --------
    >>> import consequential as cq
    >>> world = cq.worlds.taiwan()
    >>> len(world.table.label), world.groups
    (30000, ('Female', 'Male'))
    """
    table = read_data("taiwan.csv.gz")
    sex, repaid = table.pop("sex"), table.pop("repaid")
    return _world(
        _encoded(table),
        sex,
        repaid,
        cost=cost,
        name="Taiwan credit cards",
        parameters=Parameters(n_proposals=4096, learning_rate=0.1),
        split_seed=split_seed,
    )


def read_data(name: str) -> Table:
    """Read a shipped data file as columns."""
    import pyarrow.csv

    with as_file(files("consequential.lab.worlds") / "data" / name) as path:
        table = pyarrow.csv.read_csv(path)
    return {
        column: table[column].combine_chunks().to_numpy(zero_copy_only=False)
        for column in table.column_names
    }


def _encoded(table: Table) -> Table:
    """Standardise numbers and one-hot encode words (the first in order is the base line)."""
    columns: Table = {}
    for name, values in table.items():
        if values.dtype.kind in "iuf":
            columns[name] = _standardised(values)
        else:
            columns |= {f"{name}: {word}": values == word for word in np.unique(values)[1:]}
    return columns


def _standardised(values: NDArray[Any]) -> Floats:
    number = values.astype(np.float64)
    standardised: Floats = (number - number.mean()) / number.std()
    return standardised


def _world(features: Table, sensitive: ArrayLike, label: ArrayLike, **options: Any) -> TableWorld:
    matrix = np.column_stack(list(features.values())).astype(np.float64)
    return TableWorld(matrix, sensitive, label, feature_names=list(features), **options)


def _choose(name: str, value: str, options: tuple[str, ...]) -> None:
    if value not in options:
        raise ValueError(f"{name} is one of {', '.join(options)}, not {value!r}")
