"""Fairlearn's reductions approach on accepted people."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from consequential.baseline.predictors import Crowd
from consequential.log import DecisionLog, DecisionLogError
from consequential.objective import Fairness, fairness_named
from consequential.policies import AcceptAll, DecisionRule, Mixture, RejectAll, ThresholdPolicy

_MOMENTS = {
    "demographic_parity": "DemographicParity",
    "equal_opportunity": "TruePositiveRateParity",
    "equalised_odds": "EqualizedOdds",
}


def reduction(
    log: DecisionLog,
    cost: float,
    *,
    fairness: str | Fairness = "demographic_parity",
    max_gap: float = 0.01,
    feature_map: Any = None,
) -> Mixture:
    """Fairlearn's exponentiated gradient over logistic regressions, on accepted people.

    It minimises the cost of wrong decisions (`cost` for label 0 accepted, `1 - cost` for label 1
    rejected) under a bound on the gap, among the people accepted: about the others it is not told
    anything. What it returns is randomised, a mixture of rules. Needs the `fairness` extra.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> from consequential.baseline import reduction
    >>> world = cq.worlds.first_setting()
    >>> log = world.collect(cq.AcceptAll(), 2_000, np.random.default_rng(0))
    >>> rule = reduction(log, world.cost, max_gap=0.05)
    >>> abs(world.exact(rule).benefit_gap) < 0.1
    True
    """
    moments = _fairlearn()
    notion = fairness_named(fairness).name
    if notion not in _MOMENTS:
        raise ValueError(f"fairlearn's reductions know {', '.join(_MOMENTS)}, not {notion}")
    crowd = Crowd(log, feature_map)
    accepted = crowd.log.decision
    sensitive = crowd.log.group[accepted]
    if len(np.unique(sensitive)) < 2:
        raise DecisionLogError("accepted people are of one group: there is no gap to bound")
    from sklearn.linear_model import LogisticRegression

    # it bounds each group's distance from all people: half of what two groups may differ by
    constraints = getattr(moments, _MOMENTS[notion])(difference_bound=max_gap / 2.0)
    learner = moments.ExponentiatedGradient(
        LogisticRegression(C=1e4, solver="newton-cholesky", max_iter=1000),
        constraints=constraints,
        objective=moments.ErrorRate(costs={"fp": cost, "fn": 1.0 - cost}),
    )
    labels = crowd.log.label[accepted].astype(np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its use of pandas is its own affair
        learner.fit(crowd.inputs[accepted], labels, sensitive_features=sensitive)
    weights = np.asarray(learner.weights_, dtype=np.float64)
    kept = np.flatnonzero(weights > 0)
    rules = [_rule(crowd, learner.predictors_[k]) for k in kept]
    return Mixture(rules, (weights[kept] / weights[kept].sum()).tolist())


def _rule(crowd: Crowd, model: Any) -> DecisionRule:
    if hasattr(model, "constant"):  # what fairlearn takes where one decision is best for all
        return AcceptAll() if int(np.ravel(model.constant)[0]) == 1 else RejectAll()
    return ThresholdPolicy(crowd.predictor(model), 0.5)


def _fairlearn() -> Any:
    try:
        import fairlearn.reductions
    except ImportError:
        raise ImportError(
            "this baseline is fairlearn's: install consequential[fairness] to have it"
        ) from None
    return fairlearn.reductions
