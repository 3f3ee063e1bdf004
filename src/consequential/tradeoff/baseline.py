"""Baselines: the usual ways to learn whom to accept, and ours, evaluated on one log."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from consequential.evaluation import Evaluation, evaluate
from consequential.evaluation.cross_fitting import as_rule, is_learner, objective_of
from consequential.evaluation.rates import Floats
from consequential.learning import FairPolicyLearner
from consequential.log import DecisionLog, DecisionLogError
from consequential.objective.fairness import Fairness, fairness_named
from consequential.objective.weightings import InversePropensity, Weighting
from consequential.objective.weightings.fractional import fit_classifier
from consequential.objective.weightings.weights import counted_rows
from consequential.policy import (
    AcceptAll,
    DecisionRule,
    Logged,
    Mixture,
    RejectAll,
    ThresholdPolicy,
)
from consequential.shares import checked_share
from consequential.tables import text_table
from consequential.workers import shown

__all__ = ["Baselines", "Entry", "Predictor", "Reduction", "baselines"]

_CONSTRAINTS = {
    "demographic_parity": "DemographicParity",
    "equal_opportunity": "TruePositiveRateParity",
    "equalised_odds": "EqualizedOdds",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One way to decide: the rule it led to and what that is worth, or why there is none."""

    name: str
    rule: DecisionRule | None
    evaluation: Evaluation | None
    note: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Baselines:
    """What `baselines` found; print it for a table, or ask for one entry by its name.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.first_setting()
    >>> log = world.collect(world.initial_policy(), 2_000, np.random.default_rng(0))
    >>> cq.baselines(log, cost=world.cost)["accept all"].evaluation.acceptance.value
    1.0
    """

    entries: tuple[Entry, ...]
    n_learned: int
    n_judged: int

    def __getitem__(self, name: str) -> Entry:
        found = {entry.name: entry for entry in self.entries}
        if name not in found:
            raise KeyError(f"no entry {name!r}; there are {', '.join(found)}")
        return found[name]

    def __repr__(self) -> str:
        rows: list[tuple[str, ...]] = [("", "utility", "gap", "accepted")]
        for entry in self.entries:
            cells: tuple[str, ...] = (entry.note,)
            if found := entry.evaluation:
                accepted = f"{found.acceptance.value:.1%}"
                cells = repr(found.utility), repr(found.benefit_gap), accepted
            rows.append((entry.name, *cells))
        head = f"learned from {self.n_learned} decisions, evaluated on {self.n_judged} others"
        return "\n".join([head, *text_table(rows, align="<>", min_widths=(0, 26, 26))])


def baselines(
    log: DecisionLog,
    *,
    cost: float | None = None,
    fairness: str | Fairness = "demographic_parity",
    max_gap: float | None = None,
    feature_map: Any = None,
    rules: Mapping[str, Any] | None = None,
    weighting: Weighting | None = None,
    held_out: float = 0.5,
    by: Literal["random", "time_step"] = "random",
    confidence: float = 0.95,
    seed: int = 0,
) -> Baselines:
    """Learn from one part of a log in the usual ways, and ours; evaluate them on the other.

    The entries: what the log did; accept all; logistic regression and boosted trees on accepted
    people, cut at the cost; reject inference by augmentation; the regression weighted by inverse
    propensity; fairlearn's exponentiated gradient on accepted people; and a `FairPolicyLearner`.
    An entry that cannot be fitted stays in the table with the reason.

    Parameters
    ----------
    cost, fairness, weighting, confidence
        As in `evaluate`; predictors are cut at the cost.
    max_gap
        The gap allowed to the last two; without one fairlearn's is 0.01.
    feature_map
        A scikit-learn transformer that all entries share.
    rules
        Entries of your own by name, beside the others or in the place of one: decision rules,
        learners with `fit_log`, or scikit-learn classifiers, which are fitted to accepted people
        and cut at the cost. What can be fitted is fitted again, to the part that is learned from.
    held_out, by
        The share of decisions to evaluate on, drawn at random or the last ones by time step.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.second_setting()
    >>> start, rng = world.initial_policy().with_floor(0.1), np.random.default_rng(0)
    >>> found = cq.baselines(world.collect(start, 10_000, rng), cost=world.cost)
    >>> ours, usual = (found[name].evaluation for name in ("FairPolicyLearner", "accepted only"))
    >>> ours.utility.value > usual.utility.value
    True
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    cost = objective_of(log, cost, fairness).cost
    checked_share("held_out", held_out)
    known, unseen = log.settled().split(1.0 - held_out, by=by, rng=np.random.default_rng(seed))
    trees = HistGradientBoostingClassifier(random_state=seed)
    bounded: dict[str, Any] = {"cost": cost, "feature_map": feature_map, "fairness": fairness}
    ways: dict[str, Any] = {
        "what the log did": Logged(),
        "accept all": AcceptAll(),
        "accepted only": Predictor(cost, feature_map),
        "boosted trees": Predictor(cost, feature_map, trees),
        "augmentation": Predictor(cost, feature_map, weigh=augmentation),
        "inverse propensity": Predictor(cost, feature_map, weigh=inverse_propensity),
        "fairlearn reduction": Reduction(**bounded, max_gap=0.01 if max_gap is None else max_gap),
        "FairPolicyLearner": FairPolicyLearner(**bounded, max_gap=max_gap, random_state=seed),
    }
    for name, rule in (rules or {}).items():
        is_model = hasattr(rule, "predict_proba") and hasattr(rule, "fit") and not is_learner(rule)
        ways[name] = Predictor(cost, feature_map, rule) if is_model else rule
    asked: dict[str, Any] = {"weighting": weighting, "confidence": confidence}
    entries = []
    for name, way in shown(ways.items(), "baselines"):
        try:
            rule = as_rule(clone(way, safe=False).fit_log(known) if is_learner(way) else way)
        except (ValueError, ImportError) as reason:
            entries.append(Entry(name, None, None, f"left out: {reason}"))
        else:
            found = evaluate(rule, unseen, cost=cost, fairness=fairness, **asked)
            entries.append(Entry(name, rule, found))
    return Baselines(tuple(entries), len(known), len(unseen))


@dataclass(eq=False)
class Predictor:
    """Fit a classifier to accepted people, and accept where its prediction reaches the cost.

    The classifier is any of scikit-learn's, or else a logistic regression; `weigh` says of a log,
    its mapped features and its rows with a label what each of these rows counts. Missing labels
    count as failures where the log says so; otherwise those rows are left out.
    """

    cost: float
    feature_map: Any = None
    classifier: Any = None
    weigh: Callable[[DecisionLog, Floats, NDArray[np.bool_]], Floats] | None = None

    def fit_log(self, log: DecisionLog) -> Predictor:
        """Learn the rule, `policy_`."""
        log, inputs, known = self._prepared(log)
        model = _logistic() if self.classifier is None else clone(self.classifier)
        weights = None if self.weigh is None else self.weigh(log, inputs, known)
        labels = np.asarray(log.outcome[known], dtype=np.float64)
        model = fit_classifier(model, inputs[known], labels, weights)
        self.policy_: DecisionRule = self._cut(model, log.mean_cost(self.cost))
        return self

    def _prepared(self, log: DecisionLog) -> tuple[DecisionLog, Floats, NDArray[np.bool_]]:
        """Return the settled rows, their features mapped, and which have a label."""
        log = log.settled()
        known, inputs = counted_rows(log), np.asarray(log.features)
        if len(np.unique(log.outcome[known])) < 2:
            found = "the same label" if known.any() else "no label: nobody was accepted"
            raise DecisionLogError(f"accepted people have {found}; there is nothing to tell apart")
        if self.feature_map is not None:
            self.map_ = clone(self.feature_map).fit(inputs)
            mapped = self.map_.transform(inputs)
            inputs = mapped.toarray() if hasattr(mapped, "toarray") else np.asarray(mapped)
        return log, inputs, known

    def _cut(self, model: Any, threshold: float) -> DecisionRule:
        if getattr(model, "constant", None) is not None:  # fairlearn's, where one is best for all
            return AcceptAll() if int(np.ravel(model.constant)[0]) == 1 else RejectAll()
        whole = model if self.feature_map is None else make_pipeline(self.map_, model)
        return ThresholdPolicy(whole, threshold)


def inverse_propensity(log: DecisionLog, inputs: Floats, known: NDArray[np.bool_]) -> Floats:
    """Let each accepted person stand for `1 / propensity` applicants."""
    return InversePropensity().weights(log)[known]


def augmentation(log: DecisionLog, inputs: Floats, known: NDArray[np.bool_]) -> Floats:
    """Return the weights of reject inference by augmentation, also called re-weighting.

    A regression, blind to propensities, tells accepted from rejected applicants. Its score is cut
    into ten bands of equally many applicants; each accepted person counts applicants / accepted of
    their band. Bands in which nobody was accepted get no weight.
    """
    score = np.ones(len(log))
    if not log.decision.all():
        score = _logistic().fit(inputs, log.decision).predict_proba(inputs)[:, 1]
    band = np.searchsorted(np.quantile(score, np.arange(1, 10) / 10), score, side="right")
    applicants, accepted = (np.bincount(each, minlength=10) for each in (band, band[known]))
    weights: Floats = (applicants / np.maximum(accepted, 1))[band[known]]
    return weights


@dataclass(eq=False)
class Reduction(Predictor):
    """Fairlearn's exponentiated gradient over logistic regressions, on accepted people.

    It minimises the cost of wrong decisions (`cost` for label 0 accepted, `1 - cost` for label 1
    rejected) under a bound on the gap, both among accepted people: it knows of no others.
    """

    fairness: str | Fairness = "demographic_parity"
    max_gap: float = 0.01

    def fit_log(self, log: DecisionLog) -> Reduction:
        """Learn the mixture of rules, `policy_`."""
        try:
            import fairlearn.reductions as reductions
        except ImportError:
            raise ImportError("it is fairlearn's: pip install 'consequential[fairness]'") from None
        notion = fairness_named(self.fairness).name
        if notion not in _CONSTRAINTS:
            raise ValueError(f"fairlearn knows {', '.join(_CONSTRAINTS)}, not {notion}")
        if log.value_range is not None:
            raise DecisionLogError("fairlearn's reductions need labels of 0 and 1, not values")
        log, inputs, known = self._prepared(log)
        cost = log.mean_cost(self.cost)
        if len(np.unique(log.group[known])) < 2:
            raise DecisionLogError("accepted people are of one group: there is no gap to bound")
        learner = reductions.ExponentiatedGradient(
            _logistic(),
            # it bounds each group's distance from all people: half of what two may differ by
            getattr(reductions, _CONSTRAINTS[notion])(difference_bound=self.max_gap / 2.0),
            objective=reductions.ErrorRate(costs={"fp": cost, "fn": 1.0 - cost}),
            sample_weight_name="logisticregression__sample_weight",
        )
        labels = log.outcome[known].astype(np.int64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its use of pandas is its own affair
            learner.fit(inputs[known], labels, sensitive_features=log.group[known])
        weights = np.asarray(learner.weights_, dtype=np.float64)
        kept = np.flatnonzero(weights > 0)
        rules = [self._cut(learner.predictors_[k], 0.5) for k in kept]
        self.policy_ = Mixture(rules, (weights[kept] / weights[kept].sum()).tolist())
        return self


def _logistic() -> Any:
    # next to no penalty, but enough for features that are collinear once they are of one scale
    model = LogisticRegression(C=1e4, solver="newton-cholesky", max_iter=1000)
    return make_pipeline(StandardScaler(), model)
