"""Policy files that were changed: each is refused by name, or decides as it did."""

from __future__ import annotations

import contextlib
import json
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose
from policy_mutations import files_of, mutated, packed, resealed
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
from consequential.policies import Preparation
from consequential.policies.old_files import decoded

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
    return cq.Mixture([rules[0], cq.EveryNth(3, rules[1])], [0.5, 0.5])


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
    "products": lambda: mapped(make_pipeline(StandardScaler(), PolynomialFeatures(2))),
    "words": lambda: mapped(OneHotEncoder(drop="first", handle_unknown="ignore", max_categories=3)),
    "posterior": posterior,
    "quantiles": lambda: mapped(QuantileTransformer(n_quantiles=10)),
}


def people_for(policy) -> object:
    return TABLE if getattr(policy, "preparation", None) else NUMBERS


def propensity_of(policy, people):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about categories that are not known
        return policy.propensity(people)


def read_or_refused(content, file, before) -> bool:
    """Whether a changed file is read; then it decides on people as `before` says."""
    file.write_bytes(content)
    try:
        policy = cq.load_policy(file)
    except cq.PolicyError as error:
        message = str(error)
    else:
        message = ""
    if message:
        assert message.startswith(str(file))
        assert len(message) < 1_000
        return False
    if before is None:
        with contextlib.suppress(Exception):  # it has no answer for these people, but no crash
            policy.propensity(NUMBERS)
    else:
        people, propensity = before
        assert_allclose(propensity_of(policy, people), propensity, rtol=0, atol=0)
    return True


def flipped(text, every):
    data, rng = text.encode(), np.random.default_rng(0)
    for place in range(0, len(data), every):
        bit = 1 << int(rng.integers(8))
        yield data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :]


def check_flips(kind, file, every) -> None:
    policy = POLICIES[kind]()
    people = people_for(policy)
    before = people, propensity_of(policy, people)
    text = cq.policy_to_json(policy)
    read = [read_or_refused(each, file, before) for each in flipped(text, every)]
    assert sum(read) < 0.3 * len(read)  # those in spaces and in dates of archives


@pytest.mark.parametrize(
    ("kind", "every"),
    [("linear", 4), ("preparation", 11), ("splines", 13), ("models", 67), ("posterior", 31)],
)
def test_a_file_with_a_flipped_bit_is_refused_or_the_same(kind, every, tmp_path):
    check_flips(kind, tmp_path / "policy.json", every)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["linear", "preparation", "splines", "models", "posterior"])
def test_a_file_with_any_flipped_byte_is_refused_or_the_same(kind, tmp_path):
    check_flips(kind, tmp_path / "policy.json", every=1)


OLD = sorted((Path(__file__).parent / "old_files").glob("schema*.json"))
TEXTS = {kind: lambda make=make: cq.policy_to_json(make()) for kind, make in POLICIES.items()}
TEXTS |= {old.stem: old.read_text for old in OLD}


def check_mutations(kind, file, seeds) -> None:
    """Read mutated files: none raises anything but a PolicyError, or takes much memory."""
    text = TEXTS[kind]()
    file.write_text(text)
    cq.load_policy(file)  # imports what it needs
    tracemalloc.start()
    try:
        for seed in seeds:
            content = mutated(text, np.random.default_rng(seed)).encode()
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            read_or_refused(content, file, None)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < 10 * len(content) + MEMORY, f"seed {seed}"
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", TEXTS)
def test_a_forged_file_is_refused_by_name_or_read(kind, tmp_path):
    check_mutations(kind, tmp_path / "policy.json", range(20))


@pytest.mark.slow
@pytest.mark.parametrize("kind", TEXTS)
def test_thousands_of_forged_files_are_refused_by_name_or_read(kind, tmp_path):
    check_mutations(kind, tmp_path / "policy.json", range(100, 500))


def forged(policy, change) -> str:
    """Return the file of a policy with a feature map, whose archive was changed."""
    document = json.loads(cq.policy_to_json(policy))
    archive = document["policy"]["feature_map"]
    files = files_of(archive)
    change(files)
    archive.update(packed(files))
    return resealed(document)


def with_array(header: str, data: bytes):
    """Return a change of an archive's first array to one with this header and data."""

    def change(files):
        name = next(name for name in files if name.endswith(".npy"))
        text = header.ljust(117).encode() + b"\n"
        files[name] = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data

    return change


SIZES = {
    "gigabytes": "{'descr': '<f8', 'fortran_order': False, 'shape': (1073741824,), }",
    "nothing, very often": "{'descr': '|V0', 'fortran_order': False, 'shape': (10000000000,), }",
    "a negative size": "{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -1), }",
}


@pytest.mark.parametrize("header", SIZES.values(), ids=SIZES)
def test_an_array_that_declares_more_than_it_has_is_refused(header):
    with pytest.raises(cq.PolicyError, match=r"an array of shape \(.* has \d+ bytes"):
        cq.policy_from_json(forged(mapped(StandardScaler()), with_array(header, bytes(8))))


@pytest.mark.parametrize(
    ("transformer", "width"),
    [(SplineTransformer(3), "n_features_out_"), (PolynomialFeatures(2), "_n_out_full")],
    ids=["splines", "products"],
)
def test_a_map_that_declares_a_giant_width_is_refused(transformer, width):
    def widen(files):
        tree = json.loads(files["schema.json"])
        tree["content"]["content"][width]["content"] = "100000000"
        files["schema.json"] = json.dumps(tree).encode()

    with pytest.raises(cq.PolicyError, match="is damaged"):
        cq.policy_from_json(forged(mapped(transformer), widen))


def test_an_old_file_takes_no_memory_for_what_it_declares():
    items = {"array": ["a"] * 100, "dtype": "<U100000", "shape": [100]}
    assert decoded(items).dtype == "<U1"
    for giant in ({"scalar": 10**10, "dtype": "V8"}, items | {"dtype": "(100000,)f8"}):
        with pytest.raises(cq.PolicyError, match="is none that was written"):
            decoded(giant)


def test_a_file_that_swells_is_refused():
    text = forged(mapped(StandardScaler()), lambda files: files.update(zeros=bytes(10**8)))
    with pytest.raises(cq.PolicyError, match="cut off, or too large"):
        cq.policy_from_json(text)


def test_a_policy_of_many_zeros_is_stored_all_the_same():
    scaler = StandardScaler().fit(NUMBERS)
    scaler.zeros_ = np.zeros(10**6)
    again = cq.policy_from_json(cq.policy_to_json(cq.Policy([0.0] * 4, feature_map=scaler)))
    assert again.feature_map.zeros_.shape == (10**6,)
