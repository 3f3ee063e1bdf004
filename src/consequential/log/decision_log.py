"""DecisionLog: the table of decisions that everything learns from and evaluates on."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.log import frames, parts
from consequential.log.attributes import by_attribute, grouped
from consequential.log.checks import (
    checked_decision,
    checked_features,
    checked_horizon,
    checked_outcomes,
    checked_propensity,
    checked_time_step,
)
from consequential.log.columns import DecisionLogError, Period, as_positive, column_name
from consequential.log.concerns import data_concerns, propensity_concerns
from consequential.log.estimation import EstimatedPropensity, Missing, observed_probability
from consequential.log.parts import ROW_COLUMNS
from consequential.policy import DecisionRule, NamedFeatures, Preparation

if TYPE_CHECKING:
    from consequential.log.scan import LogScan

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class DecisionLog:
    """People, what was decided about them, with what probability, and what came of it.

    Build one with `from_arrays`, `from_frame` or `from_file`, which check it once. Everything in it
    is read-only.

    Attributes
    ----------
    features
        One row per person.
    decision
        Whether the person was accepted.
    propensity
        The probability with which the rule in force would accept this person.
    label
        1.0 or 0.0 for people with a known outcome; NaN for rejected people, who have none, and
        for accepted people whose outcome is still to come. In a log of values it is the value,
        scaled from `value_range` to 0 to 1.
    group, groups
        Each row's sensitive group as a position in `groups`, the sorted names. Without a
        sensitive attribute there is one group.
    attributes
        Names of the sensitive columns, with the value that each group has in them. Groups of
        several columns are intersections, such as `"f & young"`; see `by`.
    time_step
        When the decision was taken.
    amount, cost
        Optional size of each decision and cost of each acceptance, where they differ by person. In
        a log of values `amount * (label - cost)` is the value.
    value_range
        The smallest and the largest value there can be; None for a log of labels.
    policies
        Optional: the rule in force at each time step.
    horizon
        How many time steps an outcome may take; None where outcomes are immediate.
    as_of
        The last time step of the complete log, which its parts keep: age is counted from it.
    estimated_propensity
        Whether the propensities were estimated after the fact instead of logged; every figure
        made from them says so.
    missing
        How accepted people without a label are treated. `"refuse"`: an error. `"against"`: their
        labels may be anything, so estimates are bounds and learning counts them as failures.
        `"at_random"`: given features and group, labels are missing by chance; people with a known
        label stand for the others.
    observed
        With `"at_random"`, the probability that each accepted person's label is known.
    notes
        How the input was read: which words are 1 and which 0, what a time step is, how a file was
        decoded.
    preparation
        What turned the raw columns of a frame or a file into the features; None for arrays.
    raw
        The raw columns that cannot be told from the features (words, dates, numbers with blanks),
        for policies that prepare them in their own way.

    Examples
    --------
    >>> import consequential as cq
    >>> log = cq.DecisionLog.from_arrays(
    ...     features=[[0.3], [0.9], [0.1]], decision=[0, 1, 1], propensity=[0.4, 0.8, 0.2],
    ...     label=[None, 1, 0], sensitive=["b", "a", "b"])
    >>> log
    DecisionLog(3 decisions, 2 accepted, 0 pending, 1 feature, groups a: 1, b: 2)
    """

    features: Floats
    decision: NDArray[np.bool_]
    propensity: Floats
    label: Floats
    group: NDArray[np.intp]
    time_step: NDArray[np.int64]
    groups: tuple[Hashable, ...]
    feature_names: tuple[str, ...]
    attributes: Mapping[str, tuple[Hashable, ...]] = field(default_factory=dict)
    amount: Floats | None = None
    cost: Floats | None = None
    value_range: tuple[float, float] | None = None
    policies: Mapping[int, DecisionRule] = field(default_factory=dict)
    horizon: int | None = None
    as_of: int | None = None
    estimated_propensity: bool = False
    missing: Missing = "refuse"
    observed: Floats | None = None
    notes: tuple[str, ...] = ()
    preparation: Preparation | None = None
    raw: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for column in (*self._row_columns.values(), *self.raw.values()):
            if column.flags.writeable:
                column.setflags(write=False)
        object.__setattr__(self, "policies", MappingProxyType(dict(self.policies)))

    def __reduce__(self) -> tuple[Any, ...]:
        # without what is cached; a read-only mapping cannot be pickled
        state = {column.name: getattr(self, column.name) for column in fields(self)}
        return partial(DecisionLog, **state | {"policies": dict(self.policies)}), ()

    # Building

    @classmethod
    def from_arrays(
        cls,
        features: ArrayLike,
        decision: ArrayLike,
        propensity: ArrayLike | EstimatedPropensity | None,
        label: ArrayLike | None = None,
        sensitive: ArrayLike | Mapping[str, ArrayLike] | None = None,
        time_step: ArrayLike | int = 0,
        *,
        value: ArrayLike | None = None,
        value_range: tuple[float, float] | None = None,
        amount: ArrayLike | None = None,
        cost: ArrayLike | None = None,
        groups: Sequence[Hashable] | None = None,
        feature_names: Sequence[str] | None = None,
        policies: Mapping[int, DecisionRule] | None = None,
        horizon: int | None = None,
        missing: Missing = "refuse",
        observed: ArrayLike | None = None,
        period: str | Period | None = None,
        positive_label: Any = None,
        copy: bool = True,
    ) -> DecisionLog:
        """Check arrays and make a log of them.

        Decisions and labels may be words (approved and declined, repaid and defaulted); `notes`
        says which is which, and `positive_label` names the label that is 1 where its word does not
        show it. In place of labels, `value` is the gain or loss of each accepted person, in money
        say; `value_range` is its smallest and largest possible value, by default of the values
        seen. `sensitive` may be several columns by name. `groups` fixes the groups and their order;
        without it they are the sorted values seen. With `period`, time steps are dates. With
        `copy=False` a large matrix of features is not copied: do not change it.
        """
        matrix, names = checked_features(features, feature_names, copy=copy)
        n = len(matrix)
        accepted, decision_notes = checked_decision(decision, n)
        group, group_names, by_name = grouped(sensitive, groups, n)
        horizon = checked_horizon(horizon)
        if isinstance(propensity, EstimatedPropensity):
            chances = propensity.propensities(matrix, accepted, group, group_names)
        elif column_name(propensity) == column_name(decision) != "":
            chances = accepted.astype(np.float64)  # of a rule that left nothing to chance
        else:
            chances = checked_propensity(propensity, accepted)
        positive = as_positive(positive_label)
        outcome = checked_outcomes(
            label, value, value_range, amount, cost, accepted, positive=positive
        )
        steps, step_notes = checked_time_step(time_step, period, n)
        log = cls(
            features=matrix,
            decision=accepted,
            propensity=chances,
            label=outcome.label,
            group=group,
            time_step=steps,
            groups=group_names,
            attributes=by_name,
            feature_names=names,
            amount=outcome.amount,
            cost=outcome.cost,
            value_range=outcome.value_range,
            policies=policies or {},
            horizon=horizon,
            as_of=int(steps.max()),
            estimated_propensity=isinstance(propensity, EstimatedPropensity),
            missing=missing,
            notes=decision_notes + outcome.notes + step_notes,
            preparation=getattr(features, "preparation", None),
            raw={name: np.array(column) for name, column in getattr(features, "raw", {}).items()},
        )
        frames.check_known_beforehand(log.raw, accepted)
        return replace(log, observed=observed_probability(log, observed))

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        features: Sequence[str] | None = None,
        decision: str,
        propensity: str | EstimatedPropensity,
        label: str | None = None,
        value: str | None = None,
        value_range: tuple[float, float] | None = None,
        sensitive: str | Sequence[str] | None = None,
        time_step: str | None = None,
        amount: str | None = None,
        cost: str | None = None,
        groups: Sequence[Hashable] | None = None,
        horizon: int | None = None,
        missing: Missing = "refuse",
        observed: str | None = None,
        period: str | Period | None = None,
        positive_label: Any = None,
        like: DecisionLog | DecisionRule | None = None,
    ) -> DecisionLog:
        """Make a log of the named columns of a pandas, polars or pyarrow frame.

        Features are taken as they come: numbers, words, booleans and dates, with missing values
        among them. A word becomes an indicator named `column=word`; see `Preparation` for
        everything that is done. With `like`, a log or a policy, features are prepared as they were
        there, and need not be named. Decisions and labels may be words; `notes` says which is 1,
        and `positive_label` names the label that is 1 where its word does not show it.
        Dates become time steps with `period`: `day`, `week`, `month`, `quarter` or `year`, counted
        from the first in the frame.

        Examples
        --------
        >>> import pyarrow as pa, consequential as cq
        >>> frame = pa.table({"income": [2.0, 3.5], "approved": ["yes", "no"], "p": [0.6, 0.3],
        ...                   "repaid": [1, None], "day": ["2024-01-31", "2024-03-01"]})
        >>> log = cq.DecisionLog.from_frame(frame, features=["income"], decision="approved",
        ...     propensity="p", label="repaid", time_step="day", period="month")
        >>> log
        DecisionLog(2 decisions, 1 accepted, 0 pending, 1 feature)
        >>> log.notes
        ("decision: 'yes' is 1, 'no' is 0", 'time_step: one step per month, step 0 is 2024-01')
        """
        if period is not None and time_step is None:
            raise DecisionLogError("period says what a time step is: name the column of dates")
        for role, name in {"decision": decision, "label": label, "value": value}.items():
            if name is not None and features is not None and name in list(features):
                raise DecisionLogError(f"{name!r} is the {role}, so it cannot be a feature")
        table = frames.as_table(frame)
        columns = frames.named_columns(
            table,
            decision=decision,
            propensity=propensity,
            label=label,
            value=value,
            sensitive=sensitive,
            time_step=0 if time_step is None else time_step,
            amount=amount,
            cost=cost,
            observed=observed,
        )
        people, notes = frames.prepared_features(table, features, like)
        log = cls.from_arrays(
            people,
            **columns,
            value_range=value_range,
            groups=groups,
            horizon=horizon,
            missing=missing,
            period=period,
            positive_label=positive_label,
            copy=False,  # the matrix was made here
        )
        return replace(log, notes=log.notes + notes)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **columns: Any) -> DecisionLog:
        """Make a log of a CSV or Parquet file; the named columns are those of `from_frame`.

        Columns of a CSV file may be separated by commas, semicolons or tabs.
        """
        table, notes = frames.read_table(path)
        log = cls.from_frame(table, **columns)
        return replace(log, notes=(*notes, *log.notes))

    @classmethod
    def scan(cls, path: str | os.PathLike[str], **columns: Any) -> LogScan:
        """Return a log of any size in a Parquet file or a folder of them, read piece by piece.

        The named columns are those of `from_frame`. With `client=`, a Dask client, its workers
        read and sum the pieces; else a few threads do, `n_threads=` of them.
        """
        from consequential.log.scan import scan_of

        return scan_of(path, **columns)

    concatenate = staticmethod(parts.concatenate)

    # Parts

    def take(self, rows: NDArray[Any] | slice) -> DecisionLog:
        """Return the log of some rows (an index, a mask or a slice); groups stay as they are."""
        raw = {name: column[rows] for name, column in self.raw.items()}
        columns = {name: column[rows] for name, column in self._row_columns.items()}
        return replace(self, **columns, raw=raw)

    @property
    def _row_columns(self) -> dict[str, Any]:
        """The columns that the log has, by name."""
        columns = {name: getattr(self, name) for name in ROW_COLUMNS}
        return {name: column for name, column in columns.items() if column is not None}

    split = parts.split
    settled = parts.settled
    mean_cost = parts.mean_cost
    propensity_of = parts.propensity_of
    by = by_attribute

    # Views

    def __len__(self) -> int:
        return len(self.decision)

    @cached_property
    def n_accepted(self) -> int:
        """How many people were accepted."""
        return int(self.decision.sum())

    @cached_property
    def n_pending(self) -> int:
        """How many accepted people have no label yet."""
        return int((self.decision & np.isnan(self.label)).sum())

    @cached_property
    def labelled(self) -> NDArray[np.bool_]:
        """Whose label is known."""
        return _frozen(self.decision & ~np.isnan(self.label))

    @property
    def label_propensity(self) -> Floats:
        """The probability that a person is accepted and, where labels are thinned, observed."""
        return self.propensity if self.observed is None else self.propensity * self.observed

    @property
    def has_costs(self) -> bool:
        """Whether every row has a cost of its own."""
        return self.cost is not None

    @cached_property
    def outcome(self) -> Floats:
        """The label, and 0 where there is none (those rows have weight 0 wherever it is used)."""
        return _frozen(np.nan_to_num(self.label, nan=0.0))

    @property
    def named_features(self) -> NamedFeatures:
        """The features with their names: what a rule is asked with, to find its columns by name."""
        return NamedFeatures(self.features, self.feature_names, self.preparation, self.raw)

    @property
    def sensitive(self) -> NDArray[Any]:
        """Each row's sensitive group by name."""
        return np.array(self.groups, dtype=object)[self.group]

    @cached_property
    def group_counts(self) -> NDArray[np.intp]:
        """How many rows each group has."""
        return _frozen(np.bincount(self.group, minlength=len(self.groups)))

    fingerprint = cached_property(parts.fingerprint)

    @cached_property
    def concerns(self) -> tuple[str, ...]:
        """What is suspicious in the log, a sentence each: wrong propensities, copies of rows."""
        return (*propensity_concerns(self), *data_concerns(self))

    to_frame = frames.to_frame

    __repr__ = parts.summary


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array
