"""Policies in files: exact, readable, whole, and free of code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from policy_mutations import resealed
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.kernel_approximation import RBFSampler
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    OneHotEncoder,
    PolynomialFeatures,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
)
from sklearn.svm import SVC

import consequential as cq
from consequential.files import write_atomically
from consequential.policy.links import LINKS

SEEN = np.random.default_rng(1).normal(size=(60, 2)) * [1.0, 1e6]
NEW = np.random.default_rng(2).normal(size=(200, 2)) * [2.0, 1e6]
KINDS = np.random.default_rng(3).integers(3, size=(60, 2)).astype(float)
GOOD = SEEN[:, 0] > 0


@pytest.fixture
def file(tmp_path):
    return tmp_path / "policy.json"


def through(file, rule):
    cq.save_policy(rule, file)
    return cq.load_policy(file)


PLAIN = cq.Policy([0.1, 1 / 3, 1e-300])
GROUPED = [0.1, 0.2, 0.3, -0.1, -0.2, -0.3]
RULES = {
    "policy": PLAIN,
    "semi-logistic": cq.Policy([0.1, 2.0, 3e-7], "semi_logistic", floor=0.1),
    "smooth": cq.Policy([-np.pi, 2.0, 3e-7], "smooth_semi_logistic"),
    "accept all": cq.AcceptAll(),
    "reject all": cq.RejectAll(),
    "threshold": cq.ThresholdPolicy(cq.logistic_model([0.1, 1.0, -1e-6]), 0.3),
    "threshold of numpy's": cq.ThresholdPolicy(
        cq.logistic_model([0.1, 1.0, -1e-6]), np.float32(0.3)
    ),
    "floor": cq.RejectAll().with_floor(np.float32(0.05)),
    "nested mixtures": cq.Mixture(
        [cq.Mixture([PLAIN, cq.AcceptAll()], [0.1, 0.9]), cq.RejectAll()],
        [1 / 3, 2 / 3],
    ),
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_comes_back_with_the_same_propensities_to_the_last_bit(rule, file):
    loaded = through(file, rule)
    assert type(loaded) is type(rule)
    assert_array_equal(loaded.propensity(NEW), rule.propensity(NEW))
    written = file.read_bytes()
    cq.save_policy(loaded, file)
    assert file.read_bytes() == written


@pytest.mark.parametrize(
    "groups",
    [["f", "m"], [1, 0], [True, False], [np.int64(3), np.int64(5)], [0.5, 1.5]],
    ids=["text", "integers", "booleans", "numpy's", "floats"],
)
def test_groups_come_back_as_the_values_they_were(groups, file):
    policy = cq.Policy(GROUPED, groups=groups)
    loaded = through(file, policy)
    sensitive = [groups[k % 2] for k in range(len(NEW))]
    assert loaded.uses_sensitive
    assert loaded.groups == policy.groups
    assert [type(group) for group in loaded.groups] == [type(group) for group in policy.groups]
    assert_array_equal(loaded.propensity(NEW, sensitive), policy.propensity(NEW, sensitive))


BINS = {"n_bins": 4, "strategy": "uniform"}
TRANSFORMERS = [
    KBinsDiscretizer(**BINS),
    KBinsDiscretizer(encode="ordinal", **BINS),
    MinMaxScaler(feature_range=(-1, 2), clip=True),
    OneHotEncoder(drop="first", handle_unknown="ignore", min_frequency=2),
    OneHotEncoder(max_categories=2),
    PolynomialFeatures((1, 3), interaction_only=True),
    RBFSampler(n_components=7, random_state=0),
    RobustScaler(),
    SplineTransformer(n_knots=4),
    SplineTransformer(extrapolation="periodic", sparse_output=True),
    SplineTransformer(knots="quantile", extrapolation="linear"),
    StandardScaler().set_output(transform="default"),
    make_pipeline(StandardScaler(), "passthrough", SplineTransformer(3), PolynomialFeatures(2)),
]


@pytest.mark.parametrize("transformer", TRANSFORMERS, ids=lambda t: type(t).__name__)
def test_a_transformer_comes_back_bit_for_bit(transformer, file, rng):
    seen, new = (KINDS, KINDS) if isinstance(transformer, OneHotEncoder) else (SEEN, NEW)
    n_inputs = transformer.fit(seen).transform(seen).shape[1]
    policy = cq.Policy(rng.normal(size=n_inputs + 1), feature_map=transformer)
    loaded = through(file, policy)
    assert_array_equal(loaded.inputs(new), policy.inputs(new))
    assert_array_equal(loaded.propensity(new), policy.propensity(new))
    assert repr(loaded.feature_map) == repr(transformer)


def test_the_file_is_json_that_a_person_can_read(file):
    cq.save_policy(cq.Policy([0.1, 2.0], floor=0.25, feature_names=["income"]), file)
    document = json.loads(file.read_text(encoding="utf-8"))
    assert list(document) == ["format", "schema", "digest", "versions", "policy", "probes"]
    assert (document["format"], document["schema"]) == ("consequential policy", 3)
    assert {"consequential", "numpy", "scikit-learn", "python"} <= set(document["versions"])
    assert document["policy"] == {
        "type": "Policy",
        "theta": [0.1, 2.0],
        "link": "logistic",
        "feature_map": None,
        "floor": 0.25,
        "groups": [],
        "learned_from": "",
        "feature_names": ["income"],
        "support": None,
        "summary": None,
        "preparation": None,
    }
    assert document["probes"]["features"] == ["income"]
    assert len(document["probes"]["people"]) == len(document["probes"]["propensity"]) == 12


# --- digests


def test_a_digest_is_the_same_after_saving_and_in_another_process(file):
    splines = make_pipeline(StandardScaler(), SplineTransformer(3)).fit(SEEN)
    policy = cq.Policy(np.linspace(-1.0, 1.0, 11), feature_map=splines, groups=[])
    digest = cq.policy_digest(policy)
    assert cq.policy_digest(through(file, policy)) == digest
    program = (
        "import sys, consequential as cq; print(cq.policy_digest(cq.load_policy(sys.argv[1])))"
    )
    done = subprocess.run([sys.executable, "-c", program, file], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == (digest, "")


def test_a_digest_tells_policies_apart():
    base = cq.Policy([0.1, 2.0], feature_names=["income"])
    others = [
        cq.Policy([0.1, 2.0 + 1e-15], feature_names=["income"]),
        cq.Policy([0.1, 2.0], feature_names=["debt"]),
        base.with_floor(0.1),
        replace(base, learned_from="another log"),
        cq.Mixture([base], [1.0]),
    ]
    assert len({cq.policy_digest(policy) for policy in (base, *others)}) == 6


def written(policy) -> dict:
    return json.loads(cq.policy_to_json(policy))


def test_a_file_may_be_laid_out_differently():
    document = written(PLAIN)
    assert resealed(document) == json.dumps(document)
    for text in (json.dumps(document), json.dumps(document, indent=7, sort_keys=True)):
        assert_array_equal(cq.policy_from_json(text).theta, PLAIN.theta)


class OwnRule(cq.DecisionRule):
    def propensity(self, features, sensitive=None):
        return np.zeros(len(features))


Namesake = type("StandardScaler", (StandardScaler,), {"__module__": "elsewhere"})


class OwnAcceptAll(cq.AcceptAll):
    """A subclass may decide in any way, so its fields are not all there is."""


class OwnScaler(StandardScaler):
    """A class that another process may not have."""


def own_function(features):
    return features


def neighbours() -> KNeighborsClassifier:
    return KNeighborsClassifier(2, algorithm="kd_tree").fit(SEEN, GOOD)


UNSTORABLE = {
    "neighbours": (
        lambda: cq.ThresholdPolicy(neighbours(), 0.5),
        "EuclideanDistance64 cannot be stored",
    ),
    "neighbours in a pipeline": (
        lambda: cq.ThresholdPolicy(make_pipeline(StandardScaler(), neighbours()), 1).with_floor(
            0.5
        ),
        "EuclideanDistance64 cannot be stored",
    ),
    "a forest": (
        lambda: cq.ThresholdPolicy(RandomForestClassifier(2).fit(SEEN, GOOD), 0.5),
        r"sklearn\.tree\._tree\.Tree cannot be stored .*HistGradientBoostingClassifier",
    ),
    "a namesake": (
        lambda: cq.Policy([0.0] * 3, feature_map=Namesake().fit(SEEN)),
        r"elsewhere\.StandardScaler cannot be stored",
    ),
    "a class of one's own": (
        lambda: cq.Policy([0.0] * 3, feature_map=OwnScaler().fit(SEEN)),
        r"test_storage\.OwnScaler cannot be stored",
    ),
    "a function of one's own": (
        lambda: cq.Policy([0.0] * 3, feature_map=FunctionTransformer(own_function).fit(SEEN)),
        "own_function cannot be stored",
    ),
    "a support vector machine": (
        lambda: cq.ThresholdPolicy(CalibratedClassifierCV(SVC(), cv=2).fit(SEEN, GOOD), 0.5),
        r"sklearn\.svm\._classes\.SVC cannot be stored",
    ),
    "a rule of one's own": (lambda: cq.Mixture([OwnRule()], [1.0]), "a OwnRule cannot be stored"),
    "no rule": (lambda: "accept all", "a str cannot be stored"),
    "a subclass of a rule": (OwnAcceptAll, "a OwnAcceptAll cannot be stored"),
    "a link of one's own": (
        lambda: cq.Policy([0.0], replace(LINKS["logistic"], name="own")),
        "link 'own'",
    ),
    "groups of bytes": (
        lambda: cq.Policy([0.0, 1.0], groups=[b"a", b"b"]),
        "bytes cannot be stored",
    ),
}


@pytest.mark.parametrize(("make", "words"), UNSTORABLE.values(), ids=UNSTORABLE)
def test_what_cannot_be_stored_is_named_and_leaves_the_old_file_alone(make, words, file):
    cq.save_policy(cq.AcceptAll(), file)
    before = file.read_bytes()
    with pytest.raises(cq.PolicyError, match=words):
        cq.save_policy(make(), file)
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("broken", ["os.replace", "os.chmod", "os.fsync"])
def test_a_failed_write_leaves_the_old_file_and_no_other(broken, file, monkeypatch):
    cq.save_policy(cq.AcceptAll(), file)

    def full(*args, **kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr(f"consequential.policy.storage.{broken}", full)
    with pytest.raises(OSError, match="no space left"):
        cq.save_policy(cq.RejectAll(), file)
    monkeypatch.undo()
    assert cq.load_policy(file) == cq.AcceptAll()
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
def test_a_new_file_has_the_permissions_of_any_new_file(umask, file):
    old = os.umask(umask)
    try:
        cq.save_policy(cq.AcceptAll(), file)
        assert os.umask(umask) == umask
    finally:
        os.umask(old)
    assert file.stat().st_mode & 0o777 == 0o666 & ~umask


@pytest.mark.parametrize("content", ["ü\n", b"\x00\xff"], ids=["text", "bytes"])
def test_text_is_written_in_utf8_and_bytes_as_they_are(content, tmp_path):
    write_atomically(tmp_path / "file", content)
    expected = content if isinstance(content, bytes) else content.encode("utf-8")
    assert (tmp_path / "file").read_bytes() == expected
