"""Policy files that were changed at random: each is refused by name, or decides as it did."""

from __future__ import annotations

import contextlib
import tracemalloc
import warnings

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal
from policy_mutations import mutated
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    OneHotEncoder,
    PolynomialFeatures,
    QuantileTransformer,
    SplineTransformer,
    StandardScaler,
)

import consequential as cq
from consequential.policy import Preparation

RNG = np.random.default_rng(0)
NUMBERS = np.column_stack([RNG.normal(size=(200, 2)), RNG.integers(4, size=200)])
LABEL = NUMBERS[:, 0] + (NUMBERS[:, 2] == 1) > 0.2
TABLE = pa.table({"income": [2.0, None, 4.0] * 20, "purpose": ["car", "home", None] * 20})
MEMORY = 2 << 20  # bytes, beside ten times the file


def prepared() -> cq.Policy:
    preparation = Preparation.of(TABLE)
    names = preparation.feature_names
    summary = cq.FeatureSummary.of(np.asarray(preparation.transform(TABLE)), names)
    return cq.Policy(np.arange(6.0), feature_names=names, preparation=preparation, summary=summary)


def mapped(feature_map) -> cq.Policy:
    width = feature_map.fit(NUMBERS).transform(NUMBERS).shape[1]
    return cq.Policy(np.linspace(-1.0, 1.0, width + 1), feature_map=feature_map)


def models() -> cq.Mixture:
    # a seed, for the archive has the state of its random numbers: other bytes would be flipped
    boosted = HistGradientBoostingClassifier(max_iter=2, categorical_features=[2], random_state=0)
    binned = make_pipeline(KBinsDiscretizer(3, strategy="uniform"), LogisticRegression())
    rules = [cq.ThresholdPolicy(each.fit(NUMBERS, LABEL), 0.5) for each in (boosted, binned)]
    return cq.Mixture([rules[0], rules[1].with_floor(0.1)], [0.5, 0.5])


def posterior() -> cq.PosteriorPolicy:
    model = mapped(cq.Curves(n_knots=2))
    n = model.theta.size
    chances = np.linspace(-0.5, 0.5, n)[None]
    return cq.PosteriorPolicy(
        model, np.eye(n), 0.4, True, 0.1, [0.0, 0.1, 0.1], chances, ["people"]
    )


POLICIES = {
    "linear": lambda: cq.Policy([0.1, 2.0, 1.0, 0.0], floor=0.1),
    "preparation": prepared,
    "splines": lambda: mapped(SplineTransformer(3)),
    "models": models,
    "posterior": posterior,
    "products": lambda: mapped(make_pipeline(StandardScaler(), PolynomialFeatures(2))),
    "words": lambda: mapped(OneHotEncoder(drop="first", handle_unknown="ignore", max_categories=3)),
    "quantiles": lambda: mapped(QuantileTransformer(n_quantiles=10)),
}


def read(content: bytes, file) -> cq.DecisionRule | None:
    """Return the policy in a changed file; None where it is refused, shortly and by its name."""
    file.write_bytes(content)
    try:
        return cq.load_policy(file)
    except cq.PolicyError as error:
        message = str(error)
    assert message.startswith(str(file))
    assert len(message) < 1_000
    return None


def propensity_of(policy):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about categories that are not known
        return policy.propensity(TABLE if getattr(policy, "preparation", None) else NUMBERS)


EVERY = {"linear": 4, "preparation": 11, "splines": 13, "models": 67, "posterior": 31}
SLOW = [pytest.param(kind, 1, marks=pytest.mark.slow) for kind in EVERY]


@pytest.mark.parametrize(("kind", "every"), [*EVERY.items(), *SLOW])
def test_a_file_with_a_flipped_bit_is_refused_or_the_same(kind, every, tmp_path):
    policy, rng = POLICIES[kind](), np.random.default_rng(0)
    before, data = propensity_of(policy), cq.policy_to_json(policy).encode()
    accepted = 0
    for place in range(0, len(data), every):
        flipped = bytearray(data)
        flipped[place] ^= 1 << int(rng.integers(8))
        found = read(bytes(flipped), tmp_path / "policy.json")
        if found is not None:
            assert_array_equal(propensity_of(found), before)
            accepted += 1
    assert accepted < 0.3 * len(data) / every  # those in spaces and in dates of archives


SEEDS = [range(20), pytest.param(range(100, 500), marks=pytest.mark.slow)]


@pytest.mark.parametrize("seeds", SEEDS, ids=["some", "hundreds"])
@pytest.mark.parametrize("kind", POLICIES)
def test_a_forged_file_is_refused_by_name_or_read_in_little_memory(kind, seeds, tmp_path):
    text, file = cq.policy_to_json(POLICIES[kind]()), tmp_path / "policy.json"
    tracemalloc.start()
    try:
        for seed in seeds:
            content = mutated(text, np.random.default_rng(seed)).encode()
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            policy = read(content, file)
            if policy is not None:
                with contextlib.suppress(Exception):  # it has no answer for these, but no crash
                    policy.propensity(NUMBERS)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < 10 * len(content) + MEMORY, f"seed {seed}"
    finally:
        tracemalloc.stop()
