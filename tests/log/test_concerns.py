"""What is suspicious in a log: found where it is, and never where it is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

import consequential as cq
from consequential.log.concerns import data_concerns, propensity_concerns, row_hashes

SHAPES = {
    "anything": lambda rng, n: rng.random(n),
    "harsh": lambda rng, n: rng.beta(1.0, 9.0, n),
    "generous": lambda rng, n: rng.beta(9.0, 1.0, n),
    "one chance": lambda rng, n: np.full(n, 0.2),
    "a floor below a threshold": lambda rng, n: np.where(rng.random(n) < 0.5, 0.05, 1.0),
    "sure or not": lambda rng, n: (rng.random(n) < 0.5).astype(float),
}


def log_of(propensity, decision, features=None, **columns) -> cq.DecisionLog:
    n = len(propensity)
    features = np.random.default_rng(n).normal(size=n) if features is None else features
    label = np.where(decision, np.arange(n) % 2, np.nan)
    return cq.DecisionLog.from_arrays(features, decision, propensity, label, **columns)


def drawn(shape, n, seed):
    rng = np.random.default_rng(seed)
    p = SHAPES[shape](rng, n)
    return p, rng.random(n) < p


# --- propensities


@pytest.mark.parametrize("shape", SHAPES)
def test_honest_propensities_are_not_doubted(shape):
    # an error rate of 1 in 1000 would show as one in these 300 with probability .26; Bernstein's
    # bound is not sharp, and the rate is far smaller
    logs = (log_of(*drawn(shape, n, seed)) for n in (4, 60, 1500) for seed in range(100))
    assert [concern for log in logs for concern in propensity_concerns(log)] == []


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [10, 100, 2000])
def test_at_most_one_honest_log_in_a_thousand_is_doubted(shape, n):
    doubted = sum(bool(propensity_concerns(log_of(*drawn(shape, n, seed)))) for seed in range(4000))
    assert doubted <= 4 + 4 * 2  # four expected at the bound, and four standard deviations


@pytest.mark.parametrize("shape", ["anything", "harsh", "generous", "one chance"])
def test_probabilities_of_the_action_taken_are_recognised(shape):
    p, d = drawn(shape, 3000, 0)
    (said,) = propensity_concerns(log_of(np.where(d, p, 1.0 - p), d))
    assert "look like probabilities of the action taken (use 1 - p for the rejected)" in said
    assert f"but a share {d.mean():.3f} was accepted" in said
    assert propensity_concerns(log_of(p, d)) == ()


@pytest.mark.parametrize("shape", ["anything", "harsh", "generous", "one chance"])
def test_probabilities_of_rejection_are_recognised(shape):
    p, d = drawn(shape, 3000, 0)
    (said,) = propensity_concerns(log_of(1.0 - p, d))
    assert "look like probabilities of rejection (use 1 - p for everybody)" in said
    assert "A log needs the probability of acceptance" in said


def test_probabilities_whose_mean_fits_are_doubted_by_whom_they_favour():
    p, d = drawn("anything", 3000, 0)  # inverted, the mean is .5 as before
    (said,) = propensity_concerns(log_of(1.0 - p, d))
    assert said.startswith("decisions do not follow the propensities: they look like prob")


def test_other_wrong_propensities_are_doubted_without_advice():
    p, d = drawn("harsh", 3000, 0)
    (said,) = propensity_concerns(log_of(0.3 + 0.7 * p, d))
    assert "decisions were not drawn with them" in said
    assert "1 - p" not in said


def test_propensities_that_are_a_little_off_are_not_doubted():
    p, d = drawn("anything", 200_000, 0)
    # .015 too high in the mean, far beyond what chance explains, but without consequence
    assert propensity_concerns(log_of(p + 0.03 * (1.0 - p), d)) == ()


def test_a_log_of_accepted_people_only_says_who_is_missing():
    log = log_of(*drawn("generous", 2000, 0))
    accepted = log.take(log.decision)
    (concern,) = propensity_concerns(accepted)
    assert "rejected applicants too, and here they are missing" in concern
    found = cq.overlap(accepted)
    assert found.exploring == "no"
    assert concern in found.reasons


def test_estimates_of_propensities_are_not_doubted():
    world = cq.worlds.second_setting()
    for seed in range(2):
        lost = world.collect(
            world.initial_policy().with_floor(0.05), 2000, np.random.default_rng(seed)
        )
        guessed = cq.DecisionLog.from_arrays(
            lost.features, lost.decision, cq.EstimatedPropensity(), lost.label, lost.sensitive
        )
        assert propensity_concerns(guessed) == ()
        # and when nobody says that they are estimates
        assert propensity_concerns(log_of(guessed.propensity, lost.decision)) == ()


def test_a_scan_is_doubted_as_the_log_is(tmp_path):
    p, d = drawn("harsh", 900, 0)
    for name, propensity in (("right", p), ("wrong", np.where(d, p, 1.0 - p))):
        log = log_of(propensity, d)
        pq.write_table(log.to_frame(), tmp_path / f"{name}.parquet", row_group_size=200)
        names = {name: name for name in ("decision", "propensity", "label")}
        scan = cq.DecisionLog.scan(tmp_path / f"{name}.parquet", features=["x0"], **names)
        assert propensity_concerns(scan) == propensity_concerns(log)


# --- copies of rows


def copies(log: cq.DecisionLog) -> list[str]:
    return [concern for concern in data_concerns(log) if "exact copies" in concern]


def repeated(log: cq.DecisionLog, rows) -> cq.DecisionLog:
    return log.take(np.concatenate([np.arange(len(log)), rows]))


WORLDS = {
    "first setting": cq.worlds.first_setting,
    "COMPAS": cq.worlds.compas,
    "German credit": cq.worlds.german,
}


@pytest.fixture(scope="module", params=WORLDS)
def world(request):
    return WORLDS[request.param]()


def rules_of(world):
    cut = cq.ThresholdPolicy(
        cq.logistic_model(world.initial_theta(np.random.default_rng(0))), world.cost
    )
    return (world.initial_policy(), world.initial_policy("semi_logistic"), cut, cq.AcceptAll())


@pytest.mark.parametrize(("n", "seeds"), [(25, 5), (100, 5), (1000, 2), (4000, 1)])
def test_people_who_are_alike_by_chance_are_no_copies(world, n, seeds):
    # the tables are drawn from with replacement, and COMPAS has few different people
    for rule in rules_of(world):
        for seed in range(seeds):
            assert copies(world.collect(rule, n, np.random.default_rng(seed))) == []


@pytest.mark.parametrize("n", [100, 2000])
def test_a_log_with_every_row_three_times_is_reported(world, n):
    for rule in rules_of(world):
        log = world.collect(rule, n, np.random.default_rng(0))
        thrice = cq.DecisionLog.concatenate([log, log, log])
        (said,) = copies(thrice)
        assert "every row occurs 3 times or a multiple of that. Keep one of each" in said
        assert int(said.split()[0]) >= 2 * n  # chance may have made a few more


def test_integers_only_are_alike_by_chance(rng):
    for seed in range(20):
        p, d = drawn("anything", 2000, seed)
        p = p.round(1).clip(0.1, 0.9)
        d = np.random.default_rng(seed).random(2000) < p
        features = np.column_stack([rng.integers(10, size=2000), (10 * p).astype(int)])
        assert copies(log_of(p, d, features)) == []


def test_a_tenth_of_the_rows_twice_is_reported_with_their_number():
    log = log_of(*drawn("anything", 1000, 0))
    (said,) = copies(repeated(log, np.arange(0, 1000, 10)))
    assert said.startswith(
        "100 rows are exact copies of other rows (first: row 1000): of 100 pairs"
    )
    assert "decided differently by chance, and 0 were" in said


def test_one_row_twice_may_be_chance():
    assert copies(repeated(log_of(*drawn("anything", 1000, 0)), [17])) == []


def test_people_alike_in_all_but_the_time_are_no_copies():
    log = log_of(*drawn("anything", 200, 0))
    later = replace(log, time_step=log.time_step + 1, as_of=1)
    assert copies(cq.DecisionLog.concatenate([log, later])) == []


def test_equal_rows_have_equal_hashes_and_others_do_not():
    # whole numbers leave most bits of a float empty, which weak hashes do not survive
    grid = np.stack(np.meshgrid(*[np.arange(-10.0, 10.0)] * 4), axis=-1).reshape(-1, 4)
    assert len(np.unique(row_hashes(grid))) == len(grid)
    assert len(np.unique(row_hashes(grid[:, :2], grid[:, 2], grid[:, 3].astype(np.int64)))) == len(
        grid
    )
    assert row_hashes(np.array([0.0])) == row_hashes(np.array([-0.0]))
    assert row_hashes(np.array([np.nan, 1.0]))[0] == row_hashes(np.array([np.nan]))[0]


# --- identifiers and constants


def features_said(n=100, **columns) -> tuple[str, ...]:
    p, d = drawn("anything", n, 0)
    made = {"x": np.random.default_rng(1).normal(size=n)} | columns
    return data_concerns(
        log_of(p, d, np.column_stack(list(made.values())), feature_names=list(made))
    )


SHUFFLED = np.random.default_rng(2).permutation(100_000)[:100]


@pytest.mark.parametrize("name", ["id", "customer_id", "customerId", "Account No", "case"])
def test_an_identifier_among_the_features_is_reported(name):
    (said,) = features_said(**{name: SHUFFLED})
    assert f"the feature {name!r} has another whole number in every row" in said
    assert "identifier" in said


@pytest.mark.parametrize("column", [np.arange(100), np.arange(500, 0, -5), np.arange(100) ** 2])
def test_a_number_of_the_row_is_reported_whatever_its_name(column):
    (said,) = features_said(line=column)
    assert "the feature 'line' has another whole number in every row" in said


@pytest.mark.parametrize(
    "columns",
    [
        {"income": SHUFFLED},
        {"id": SHUFFLED // 2000},
        {"paid": SHUFFLED},
        {"customer": SHUFFLED + 0.5},
        {"month": np.arange(100) // 10},
    ],
    ids=["income", "few different", "no word of it", "no whole numbers", "months"],
)
def test_whole_numbers_of_other_kinds_are_not_reported(columns):
    assert features_said(**columns) == ()


def test_constant_features_are_reported():
    (said,) = features_said(country=np.full(100, 49.0))
    assert said == "the feature 'country' has the same value in all rows: nothing can depend on it"


def test_a_log_remembers_its_concerns():
    p, d = drawn("harsh", 400, 0)
    log = log_of(1.0 - p, d, np.column_stack([p, np.ones(400)]), feature_names=["x", "one"])
    assert log.concerns == (*propensity_concerns(log), *data_concerns(log))
    assert len(log.concerns) == 2
    assert log.concerns is log.concerns
