"""What an objective refuses, and which rows of a log it looks at."""

from __future__ import annotations

import numpy as np
import pytest

import consequential as cq
from exploring_logs import exploring_log

POLICY = cq.Policy([0.3, 0.5])


@pytest.mark.parametrize("cost", [0.0, 1.0, -0.1, 1.5, float("nan"), float("inf")])
def test_a_cost_outside_the_open_unit_interval_is_an_error(cost):
    with pytest.raises(ValueError, match="cost lies strictly between 0 and 1"):
        cq.Objective(cost)


@pytest.mark.parametrize("penalty", [-1.0, float("nan"), float("inf")])
def test_a_penalty_that_is_negative_or_not_finite_is_an_error(penalty):
    with pytest.raises(ValueError, match="penalty is finite and not negative"):
        cq.Objective(0.4, "demographic_parity", penalty)


def test_a_penalty_without_a_fairness_notion_is_an_error():
    with pytest.raises(ValueError, match="needs a fairness notion"):
        cq.Objective(0.4, penalty=1.0)


@pytest.mark.parametrize("option", ["normalisation", "decisions"])
def test_an_unknown_option_is_an_error_that_lists_the_known_ones(option):
    known = {"normalisation": "'applicants' or 'paper'", "decisions": "'expected' or 'sampled'"}
    with pytest.raises(ValueError, match=f"{known[option]}, not 'both'"):
        cq.Objective(0.4, **{option: "both"})


def test_an_unknown_notion_is_an_error_that_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"'parity'.*demographic_parity.*predictive_parity"):
        cq.Objective(0.4, "parity")


@pytest.mark.parametrize("method", ["value", "gradient"])
def test_sampled_decisions_without_a_generator_are_an_error(method):
    log = exploring_log(20, n_features=1)
    objective = cq.Objective(0.4, decisions="sampled")
    with pytest.raises(ValueError, match="need rng="):
        getattr(objective, method)(POLICY, log)


@pytest.mark.parametrize("method", ["value", "gradient"])
def test_under_the_papers_normalisation_a_log_without_acceptances_is_an_error(method):
    log = cq.DecisionLog.from_arrays([[0.0], [1.0]], [0, 0], [0.5, 0.5], [None, None])
    objective = cq.Objective(0.4, normalisation="paper")
    with pytest.raises(cq.DecisionLogError, match="nobody was accepted"):
        getattr(objective, method)(POLICY, log)
    assert cq.Objective(0.4).value(POLICY, log) == 0.0


@pytest.mark.parametrize("normalisation", ["applicants", "paper"])
def test_a_pending_label_is_an_error_and_never_a_failure(normalisation):
    log = cq.DecisionLog.from_arrays([[0.0], [1.0]], [1, 1], [0.5, 0.5], [1, None])
    with pytest.raises(cq.DecisionLogError, match="1 accepted row has no label"):
        cq.Objective(0.4, normalisation=normalisation).value(POLICY, log)


@pytest.mark.parametrize("normalisation", ["applicants", "paper"])
def test_only_decisions_older_than_the_horizon_count_accepted_and_rejected_alike(normalisation):
    """Steps 0 to 5 with a horizon of 2: steps 4 and 5 do not count, whatever is known of them."""
    rng = np.random.default_rng(1)
    n, step = 120, np.arange(120) // 20
    decision = rng.random(n) < 0.6
    label = np.where(decision, rng.random(n) < 0.5, np.nan)
    early_failure = rng.random(n) < 0.5
    label[(step >= 4) & decision & early_failure] = 0.0
    label[(step >= 4) & decision & ~early_failure] = np.nan
    columns = (rng.normal(size=(n, 1)), decision, np.full(n, 0.6), label, rng.integers(2, size=n))

    def log_of(rows: np.ndarray, horizon: int | None) -> cq.DecisionLog:
        features, decided, propensity, labels, group = (column[rows] for column in columns)
        return cq.DecisionLog.from_arrays(
            features, decided, propensity, labels, group, step[rows], horizon=horizon
        )

    whole, old = log_of(step >= 0, 2), log_of(step <= 3, None)
    assert whole.n_pending > 0
    objective = cq.Objective(0.4, "equalised_odds", 2.0, normalisation=normalisation)
    assert objective.value(POLICY, whole) == objective.value(POLICY, old)
    assert (objective.gradient(POLICY, whole) == objective.gradient(POLICY, old)).all()
    rows = objective.rows(whole)
    assert rows.time_step.max() == 3
    assert rows.decision.all() == (normalisation == "paper")


def test_a_horizon_longer_than_the_log_is_an_error():
    log = cq.DecisionLog.from_arrays(
        [[0.0], [1.0]], [1, 1], [0.5] * 2, [1, 1], time_step=[0, 1], horizon=5
    )
    with pytest.raises(cq.DecisionLogError, match="as old as the horizon of 5"):
        cq.Objective(0.4).value(POLICY, log)


def test_an_objective_is_a_value():
    one, same = (cq.Objective(0.4, "equal_opportunity", 2) for _ in range(2))
    assert one == same
    assert hash(one) == hash(same)
    assert one != cq.Objective(0.4, "equal_opportunity", 3)
    with pytest.raises(AttributeError):
        one.cost = 0.5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weighting": "clipped"}, "weighting is a Weighting such as"),
        ({"weighting": cq.weightings.SelfNormalised}, "weighting is a Weighting such as"),
    ],
)
def test_options_of_the_wrong_kind_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        cq.Objective(0.5, **options)
