"""Baselines: the usual ways to learn whom to accept, and ours, evaluated on one log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from sklearn.base import clone

from consequential.baseline.predictors import (
    accepted_only,
    augmentation,
    boosted_trees,
    fuzzy_augmentation,
    inverse_propensity,
    parcelling,
    reduction,
)
from consequential.estimator import FairPolicyLearner
from consequential.evaluation import Evaluation, evaluate
from consequential.evaluation.rules import as_rule, is_learner, objective_of
from consequential.fairness import Fairness
from consequential.log import DecisionLog
from consequential.policies import AcceptAll, DecisionRule, Logged
from consequential.progress import shown
from consequential.shares import checked_share
from consequential.tables import text_table
from consequential.weightings import Weighting


@dataclass(frozen=True, slots=True)
class Entry:
    """One way to decide: the rule it led to and what that is worth, or why there is none."""

    name: str
    rule: DecisionRule | None
    evaluation: Evaluation | None
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the rule, ready for JSON."""
        found = None if self.evaluation is None else self.evaluation.to_dict()
        return {"name": self.name, "evaluation": found, "note": self.note}


@dataclass(frozen=True, slots=True, repr=False)
class Baselines:
    """What `baselines` found; print it for a table, or ask for one entry by its name.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.first_setting()
    >>> log = world.collect(world.initial_policy().with_floor(0.1), 4_000,
    ...                     np.random.default_rng(0))
    >>> found = cq.baselines(log, cost=world.cost)
    >>> found["accept all"].evaluation.acceptance.value
    1.0
    """

    entries: tuple[Entry, ...]
    n_learned: int
    n_judged: int

    def __getitem__(self, name: str) -> Entry:
        for entry in self.entries:
            if entry.name == name:
                return entry
        raise KeyError(f"no entry {name!r}; there are {', '.join(e.name for e in self.entries)}")

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the rules, ready for JSON."""
        return {
            "entries": [entry.to_dict() for entry in self.entries],
            "n_learned": self.n_learned,
            "n_judged": self.n_judged,
        }

    def __repr__(self) -> str:
        rows: list[tuple[str, ...]] = [("", "utility", "gap", "accepted")]
        for entry in self.entries:
            found = entry.evaluation
            if found is None:
                rows.append((entry.name, entry.note))
            else:
                estimates = repr(found.utility), repr(found.benefit_gap)
                rows.append((entry.name, *estimates, f"{found.acceptance.value:.1%}"))
        head = f"learned from {self.n_learned} decisions, evaluated on {self.n_judged} others"
        return "\n".join([head, *text_table(rows, align="<>", min_widths=(0, 26, 26))])


def baselines(
    log: DecisionLog,
    *,
    cost: float | None = None,
    fairness: str | Fairness = "demographic_parity",
    max_gap: float | None = None,
    feature_map: Any = None,
    learner: Any = None,
    rules: Mapping[str, Any] | None = None,
    weighting: Weighting | None = None,
    held_out: float = 0.5,
    by: Literal["random", "time_step"] = "random",
    confidence: float = 0.95,
    seed: int = 0,
) -> Baselines:
    """Learn from one part of a log in the usual ways, and ours; evaluate them on the other.

    The entries: what the log did; accept all; logistic regression and boosted trees on accepted
    people, cut at the cost; reject inference by augmentation, parcelling and fuzzy augmentation;
    the regression weighted by inverse propensity; fairlearn's exponentiated gradient on accepted
    people (with its bound at `max_gap`, or 0.01); and a `FairPolicyLearner` under `max_gap`. An
    entry that cannot be fitted stays in the table with the reason.

    Parameters
    ----------
    log
        The log; decisions younger than its horizon are left out.
    cost
        What accepting costs, and where predictors are cut; not needed where the log has a cost
        for each row, or values.
    fairness
        The notion whose gap is reported, and bounded where something can be bounded.
    max_gap
        The gap allowed to those entries that know of fairness.
    feature_map
        A scikit-learn transformer that all entries share.
    learner
        A learner to enter in place of `FairPolicyLearner`.
    rules
        Entries of your own by name: decision rules, learners with `fit_log`, or scikit-learn
        classifiers, which are fitted to accepted people and cut at the cost. What can be fitted is
        fitted again, to the part that is learned from.
    weighting
        How accepted people stand in for the rejected when rules are evaluated.
    held_out, by
        The share of decisions to evaluate on, drawn at random or the last ones by time step.
    confidence
        Of the intervals.
    seed
        Of the split, and of what is random in an entry.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> from sklearn.preprocessing import SplineTransformer
    >>> world = cq.worlds.second_setting()
    >>> log = world.collect(world.initial_policy().with_floor(0.1), 10_000,
    ...                     np.random.default_rng(0))
    >>> found = cq.baselines(log, cost=world.cost, feature_map=SplineTransformer(n_knots=8))
    >>> ours, usual = found["FairPolicyLearner"], found["accepted only"]
    >>> ours.evaluation.utility.value > usual.evaluation.utility.value
    True
    """
    cost = objective_of(log, cost, fairness).cost
    checked_share("held_out", held_out)
    if by not in ("random", "time_step"):
        raise ValueError(f"a log is split by 'random' or 'time_step', not {by!r}")
    known, unseen = log.settled().split(1.0 - held_out, by=by, rng=np.random.default_rng(seed))
    if learner is None:
        learner = FairPolicyLearner(
            cost=cost,
            fairness=fairness,
            max_gap=max_gap,
            feature_map=feature_map,
            random_state=seed,
        )
    bound = 0.01 if max_gap is None else max_gap
    predictors: dict[str, Callable[..., DecisionRule]] = {
        "accepted only": accepted_only,
        "boosted trees": partial(boosted_trees, seed=seed),
        "augmentation": augmentation,
        "parcelling": partial(parcelling, seed=seed),
        "fuzzy augmentation": fuzzy_augmentation,
        "inverse propensity": inverse_propensity,
        "fairlearn reduction": partial(reduction, fairness=fairness, max_gap=bound),
    }
    fixed: dict[str, Any] = {"what the log did": Logged(), "accept all": AcceptAll()}
    ways = fixed | predictors | {type(learner).__name__: learner}
    for name, rule in (rules or {}).items():
        if name in ways:
            raise ValueError(
                f"rules has the name {name!r}, which another entry has: choose another"
            )
        ways[name] = rule
        if hasattr(rule, "predict_proba") and hasattr(rule, "fit") and not is_learner(rule):
            ways[name] = predictors[name] = partial(accepted_only, classifier=rule)
    entries = []
    for name, way in shown(ways.items(), "baselines"):
        try:
            if name in predictors:
                rule = predictors[name](known, cost, feature_map=feature_map)
            else:
                learns = is_learner(way)
                rule = as_rule(clone(way, safe=False).fit_log(known) if learns else way)
        except (ValueError, ImportError) as reason:
            entries.append(Entry(name, None, None, f"left out: {reason}"))
            continue
        found = evaluate(
            rule, unseen, cost=cost, fairness=fairness, weighting=weighting, confidence=confidence
        )
        entries.append(Entry(name, rule, found))
    return Baselines(tuple(entries), len(known), len(unseen))
