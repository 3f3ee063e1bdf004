"""The learner as a scikit-learn user meets it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.kernel_approximation import RBFSampler
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, SplineTransformer, StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import consequential as cq
from exploring_logs import exploring_log

CHECKS = [
    pytest.param(estimator, check, id=check.func.__name__)
    for estimator, check in estimator_checks_generator(cq.FairPolicyLearner(method="direct"))
    # The first wants SciPy to be told about other arrays than NumPy's before it is imported. The
    # second has labels one and two, of which nobody can tell which is hoped for.
    if check.func.__name__ not in ("check_array_api_input", "check_classifiers_classes")
]


@pytest.mark.parametrize(("estimator", "check"), CHECKS)
def test_it_keeps_scikit_learns_rules(estimator, check):
    check(estimator)


def arrays(log):
    """X, y and the rest as a scikit-learn user has them."""
    metadata = {
        "sensitive_features": log.sensitive,
        "decisions": log.decision.astype(int),
        "propensities": log.propensity,
    }
    return np.array(log.features), np.array(log.label), metadata


def first_log(n=20_000, seed=0, floor=0.05):
    world = cq.worlds.first_setting()
    start = world.initial_policy().with_floor(floor)
    return world, world.collect(start, n, np.random.default_rng(seed))


# --- the same by every way in


def test_arrays_and_logs_teach_the_same():
    log = exploring_log(n=800)
    X, y, metadata = arrays(log)
    options = {"cost": 0.45, "max_gap": 0.02}
    by_log = cq.FairPolicyLearner(method="direct", **options).fit_log(log)
    by_arrays = cq.FairPolicyLearner(method="direct", **options).fit(X, y, **metadata)
    assert_array_equal(by_log.policy_.theta, by_arrays.policy_.theta)


def test_labels_of_rejected_people_are_ignored():
    log = exploring_log(n=500)
    X, y, metadata = arrays(log)
    made_up = np.where(np.isnan(y), 1.0, y)
    one = cq.FairPolicyLearner(method="direct", penalty=1.0).fit(X, y, **metadata)
    two = cq.FairPolicyLearner(method="direct", penalty=1.0).fit(X, made_up, **metadata)
    assert_array_equal(one.policy_.theta, two.policy_.theta)


def test_labels_may_have_any_names():
    log = exploring_log(n=500)
    X, y, metadata = arrays(log)
    words = np.where(np.isnan(y), None, np.where(y == 1, "repaid", "defaulted"))
    learner = cq.FairPolicyLearner(method="direct").fit(X, words, **metadata)
    assert learner.classes_.tolist() == ["defaulted", "repaid"]
    assert set(learner.predict(X)) <= {"defaulted", "repaid"}


def test_decisions_and_labels_in_words_mean_what_they_mean_in_a_log():
    log = exploring_log(n=500)
    X, y, metadata = arrays(log)
    numbers = cq.FairPolicyLearner(method="direct").fit(X, y, **metadata)
    # in order of letters paid would come first, which is the place of the outcome not hoped for
    y_words = pd.Series(np.where(np.isnan(y), None, np.where(y == 1, "paid", "unpaid")))
    in_words = metadata | {"decisions": np.where(log.decision, "approved", "declined")}
    words = cq.FairPolicyLearner(method="direct").fit(X, y_words, **in_words)
    assert_array_equal(words.policy_.theta, numbers.policy_.theta)
    assert words.classes_.tolist() == ["unpaid", "paid"]
    assert words.coding_ == (
        "decision: 'approved' is 1, 'declined' is 0",
        "label: 'paid' is 1, 'unpaid' is 0",
    )
    assert numbers.coding_ == ()
    assert words.score(X, y_words, **in_words) == numbers.score(X, y, **metadata)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_frames_come_back_as_frames_with_what_a_log_must_keep(library):
    log = exploring_log(n=300)
    X, y, metadata = arrays(log)
    frame = library({"income": X[:, 0], "debt": X[:, 1]})
    learner = cq.FairPolicyLearner(method="direct").fit(frame, y, **metadata)
    assert learner.feature_names_in_.tolist() == ["income", "debt"]
    decided = learner.decide(frame, random_state=3)
    assert isinstance(decided, library)
    assert list(decided.columns) == ["decision", "propensity"]
    assert_allclose(decided["propensity"].to_numpy(), learner.predict_proba(frame)[:, 1])


def test_pandas_keeps_its_index():
    log = exploring_log(n=50)
    X, y, metadata = arrays(log)
    frame = pd.DataFrame(X, columns=["a", "b"], index=[f"person {k}" for k in range(50)])
    learner = cq.FairPolicyLearner(method="direct").fit(frame, y, **metadata)
    assert learner.decide(frame, random_state=0).index.tolist() == frame.index.tolist()


def test_decisions_are_drawn_with_the_propensity_and_repeat_with_the_seed():
    world, log = first_log()
    learner = cq.FairPolicyLearner(method="direct", cost=world.cost, floor=0.3).fit_log(log)
    X = np.full((20_000, 1), -0.75)
    one, two = (learner.decide(X, random_state=7) for _ in range(2))
    assert_array_equal(one, two)
    chance = learner.predict_proba(X)[0, 1]
    assert abs(one.mean() - chance) < 5 * np.sqrt(chance * (1 - chance) / len(X))


def test_nobody_falls_below_the_floor():
    _, log = first_log(2000)
    learner = cq.FairPolicyLearner(method="direct", cost=0.6, floor=0.07).fit_log(log)
    propensity = learner.predict_proba(log.features)[:, 1]
    assert 0.07 <= propensity.min() < 0.09
    assert learner.policy_.floor == 0.07


# --- pipelines and searches


def test_it_works_at_the_end_of_a_pipeline_and_in_a_grid_search():
    log = exploring_log(n=600)
    X, y, metadata = arrays(log)
    y = np.where(np.isnan(y), 0.0, y)
    asked = dict.fromkeys(metadata, True)
    with sklearn.config_context(enable_metadata_routing=True):
        learner = (
            cq.FairPolicyLearner(method="direct")
            .set_fit_request(**asked)
            .set_score_request(**asked)
        )
        pipeline = make_pipeline(StandardScaler(), learner)
        search = GridSearchCV(pipeline, {"fairpolicylearner__max_gap": [0.0, 0.2, None]}, cv=3)
        search.fit(X, y, **metadata)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert search.best_params_["fairpolicylearner__max_gap"] in (0.0, 0.2, None)
    assert search.predict(X).shape == (600,)


def test_the_score_is_the_estimated_utility_of_all_applicants():
    world, log = first_log(200_000)
    X, y, metadata = arrays(log)
    learner = cq.FairPolicyLearner(method="direct", cost=world.cost).fit_log(
        log.take(slice(0, 20_000))
    )
    truth = world.exact(learner.policy_).utility
    assert abs(learner.score(X, y, **metadata) - truth) < 0.01


@pytest.mark.parametrize(
    "feature_map",
    [
        SplineTransformer(n_knots=5),
        PolynomialFeatures(2, include_bias=False),
        RBFSampler(n_components=20, random_state=0),
        make_pipeline(StandardScaler(), SplineTransformer(n_knots=4)),
    ],
)
def test_rich_feature_maps_are_fitted_kept_and_stored(feature_map, tmp_path):
    log = exploring_log(n=500)
    plain = cq.FairPolicyLearner(method="direct", l2=1e-4).fit_log(log)
    rich = cq.FairPolicyLearner(method="direct", feature_map=feature_map, l2=1e-4).fit_log(log)
    assert rich.result_.utility > plain.result_.utility - 1e-3
    assert not hasattr(feature_map, "n_features_in_")  # the user's own stays unfitted
    cq.save_policy(rich.policy_, tmp_path / "policy.json")
    again = cq.load_policy(tmp_path / "policy.json")
    assert_allclose(again.propensity(log.features), log.propensity_of(rich.policy_))
    assert again.learned_from == log.fingerprint


# --- learning


def test_amounts_and_costs_count_row_by_row():
    # the same people twice as large weigh twice as much: as if they came twice
    log = exploring_log(n=200)
    X, y, metadata = arrays(log)
    double = np.where(np.arange(200) < 100, 2.0, 1.0)
    rows = np.r_[np.arange(100), np.arange(200)]
    one = cq.FairPolicyLearner(method="direct", l2=1e-3).fit(X, y, amounts=double, **metadata)
    two = cq.FairPolicyLearner(method="direct", l2=1e-3).fit(
        X[rows], y[rows], **{key: value[rows] for key, value in metadata.items()}
    )
    assert_allclose(one.result_.utility * 200, two.result_.utility * 300, rtol=0.01)
    dear = cq.FairPolicyLearner(method="direct").fit(X, y, costs=np.full(200, 0.9), **metadata)
    cheap = cq.FairPolicyLearner(method="direct").fit(X, y, costs=np.full(200, 0.1), **metadata)
    assert log.propensity_of(dear.policy_).mean() < log.propensity_of(cheap.policy_).mean() - 0.2


@pytest.mark.parametrize(
    "weighting",
    [
        cq.weightings.Clipped(5.0),
        cq.weightings.SelfNormalised(),
        cq.weightings.DoublyRobust(folds=2),
        cq.weightings.Unweighted(),
    ],
)
def test_any_weighting_can_be_learned_with(weighting):
    log = exploring_log(n=400)
    learner = cq.FairPolicyLearner(method="direct", weighting=weighting, max_gap=0.05).fit_log(log)
    assert learner.result_.violation <= 1e-3


def test_a_group_aware_policy_is_asked_for_and_says_so():
    world, log = first_log()
    learner = cq.FairPolicyLearner(
        method="direct", cost=world.cost, max_gap=0.0, uses_sensitive=True
    ).fit_log(log)
    assert learner.policy_.uses_sensitive
    assert "uses the sensitive attribute" in repr(learner.policy_)
    with pytest.raises(cq.PolicyError, match="pass sensitive_features="):
        learner.predict(log.features)
    assert learner.predict(log.features, sensitive_features=log.sensitive).shape == (len(log),)
    unaware = cq.FairPolicyLearner(method="direct", cost=world.cost, max_gap=0.0).fit_log(log)
    assert learner.result_.utility > unaware.result_.utility + 0.01


def test_folds_give_a_value_that_was_not_learned_from():
    world, log = first_log(6000)
    learner = cq.FairPolicyLearner(method="direct", cost=world.cost).fit_log(log, folds=3)
    assert learner.value_.utility.low < world.exact(learner.policy_).utility
    assert learner.value_.utility.value <= learner.result_.utility + 0.01
    assert not hasattr(cq.FairPolicyLearner(method="direct").fit_log(log), "value_")


def test_pending_labels_wait():
    log = exploring_log(n=300)
    label = np.where(np.arange(300) < 150, log.label, np.nan)
    waiting = cq.DecisionLog.from_arrays(
        log.features,
        log.decision,
        log.propensity,
        label,
        log.sensitive,
        (np.arange(300) >= 150) * 1,
        horizon=1,
    )
    learned = cq.FairPolicyLearner(method="direct", l2=1e-3).fit_log(waiting)
    early = cq.FairPolicyLearner(method="direct", l2=1e-3).fit_log(log.take(slice(0, 150)))
    assert_allclose(learned.policy_.theta, early.policy_.theta)


# --- what it reaches, against the truth

LARGE = 200_000


def spline():
    return SplineTransformer(n_knots=12)


def reached(world, seed, n, **options):
    start = world.initial_policy().with_floor(0.05)
    log = world.collect(start, n, np.random.default_rng(seed))
    learner = cq.FairPolicyLearner(method="direct", cost=world.cost, l2=0.0, **options).fit_log(log)
    return world.exact(learner.policy_)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in range(1, 10))]
)
def test_what_200_000_decisions_teach(seed):
    first, second = cq.worlds.first_setting(), cq.worlds.second_setting()
    assert reached(second, seed, LARGE, feature_map=spline()).utility >= 0.0900
    fair = reached(second, seed, LARGE, feature_map=spline(), max_gap=0.0)
    assert fair.utility >= 0.062
    assert abs(fair.benefit_gap) <= 0.01
    aware = reached(second, seed, LARGE, feature_map=spline(), max_gap=0.0, uses_sensitive=True)
    assert aware.utility >= 0.0860
    aware = reached(first, seed, LARGE, max_gap=0.0, uses_sensitive=True)
    assert aware.utility >= 0.1760
    assert abs(aware.benefit_gap) <= 0.01


# --- what cannot be


def bad(**changes):
    log = exploring_log(n=60)
    X, y, metadata = arrays(log)
    return {"X": X, "y": y, **metadata} | changes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cost": 0.0}, "the cost lies strictly between 0 and 1"),
        ({"cost": 1.5}, "the cost lies strictly between 0 and 1"),
        ({"fairness": "kindness"}, "unknown fairness notion 'kindness'"),
        ({"penalty": -1.0}, "the penalty is finite and not negative"),
        ({"max_gap": -0.1}, "max_gap lies between 0 and 1"),
        ({"min_ratio": 2.0}, "min_ratio lies in"),
        ({"max_gap": 0.1, "min_ratio": 0.8}, "not both"),
        ({"link": "probit"}, "unknown link 'probit'"),
        ({"l2": -1.0}, "l2 is finite and not negative"),
        ({"l2": float("nan")}, "l2 is finite and not negative"),
        ({"floor": 1.0}, r"an exploration floor lies in \[0, 1\)"),
        ({"n_starts": 0}, "n_starts is a whole number of at least 1"),
        ({"max_passes": 2.5}, "max_passes is a whole number of at least 1"),
        ({"method": "best"}, "method is one of auto, model, scores, direct"),
        ({"outcome_model": "boosting"}, "with predict_proba"),
        ({"unsupported": "accept"}, "unsupported is one of reject, as_logged, trust_model"),
        ({"confidence": 0.95}, "give max_gap"),
        ({"confidence": 0.3, "max_gap": 0.1}, "between 0.5 and 1"),
        ({"confidence": 1.0, "max_gap": 0.1}, "between 0.5 and 1"),
        ({"weighting": "clipped"}, "weighting is a Weighting"),
        ({"feature_map": object()}, "Cannot clone object"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        cq.FairPolicyLearner(**{"method": "direct"} | options).fit(**bad())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": np.zeros(60)}, "one class"),
        ({"y": np.arange(60) % 3}, "Only binary"),
        ({"y": np.zeros(59)}, "y has shape"),
        ({"y": None}, "requires y"),
        ({"X": np.full((60, 2), np.nan)}, "NaN"),
        ({"X": np.array([["a", "b"]] * 60)}, "could not convert|dtype='numeric'"),
        ({"decisions": np.zeros(60)}, "nobody was accepted"),
        ({"decisions": np.ones(3)}, "decisions has shape"),
        ({"decisions": np.array(["maybe"] * 60)}, "not known as yes and no. Code it as 1 for acc"),
        ({"y": np.array(["good", "repaid"] * 30)}, "one class in two words"),
        (
            {"y": pd.Series(["yes", "no"] * 30, name="default")},
            "the label 'default' has the values 'no', 'yes': is yes the outcome hoped for",
        ),
        ({"decisions": np.full(60, 2)}, "nobody was accepted"),
        ({"decisions": None, "y": np.arange(60) % 2}, "propensities are given but no decisions"),
        ({"propensities": np.full(60, 1.5)}, r"outside \[0, 1\]"),
        ({"propensities": np.zeros(60)}, "propensity 0 although decision is 1"),
        ({"propensities": np.full(59, 0.5)}, "propensity has 59 values"),
        ({"propensities": None}, "propensity is missing"),
        ({"sensitive_features": np.zeros(10)}, "one value per row is needed"),
        ({"sensitive_features": np.array([None] * 60)}, "no sensitive group"),
        ({"amounts": np.full(60, -1.0)}, "amount that is not above 0"),
        ({"costs": np.full(60, 1.0)}, "a cost outside"),
    ],
)
def test_tables_that_make_no_sense_are_refused(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        cq.FairPolicyLearner(method="direct").fit(**bad(**changes))


def test_fairness_without_groups_is_refused():
    log = exploring_log(n=60, n_groups=1)
    for options in ({"max_gap": 0.1}, {"penalty": 1.0}, {"uses_sensitive": True}):
        with pytest.raises(cq.DecisionLogError, match="at least two groups"):
            cq.FairPolicyLearner(method="direct", **options).fit_log(log)


def test_a_label_never_seen_cannot_be_scored():
    log = exploring_log(n=60)
    X, y, metadata = arrays(log)
    learner = cq.FairPolicyLearner(method="direct").fit(X, y, **metadata)
    with pytest.raises(ValueError, match=r"y has a label 2\.0"):
        learner.score(X, np.full(60, 2.0), **metadata)
