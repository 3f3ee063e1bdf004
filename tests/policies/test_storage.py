"""Policies in files: exact, readable, whole, and free of code."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.ensemble import RandomForestClassifier
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    MinMaxScaler,
    OneHotEncoder,
    PolynomialFeatures,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
)

import consequential as cq
from consequential.files import write_atomically
from consequential.links import LINKS
from consequential.policies import Support, storage

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
    "every third": cq.EveryNth(3, PLAIN),
    "every n-th of numpy's": cq.EveryNth(np.int64(3)),
    "floor": cq.EveryNth(7).with_floor(0.05),
    "nested mixtures": cq.Mixture(
        [cq.Mixture([PLAIN, cq.EveryNth(2, cq.AcceptAll())], [0.1, 0.9]), cq.RejectAll()],
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
    assert [type(group) for group in loaded.groups] == [type(group) for group in groups]
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
CLASSIFIERS = [
    LogisticRegression(),
    LogisticRegression(C=np.inf, class_weight="balanced"),
    make_pipeline(StandardScaler(), SplineTransformer(), LogisticRegression()),
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


@pytest.mark.parametrize("classifier", CLASSIFIERS, ids=lambda c: type(c).__name__)
def test_a_classifier_comes_back_bit_for_bit(classifier, file):
    rule = cq.ThresholdPolicy(classifier.fit(SEEN / [1.0, 1e6], GOOD), 0.4)
    loaded = through(file, rule)
    assert_array_equal(loaded.predictor.predict_proba(NEW), classifier.predict_proba(NEW))
    assert_array_equal(loaded.propensity(NEW), rule.propensity(NEW))


def test_every_storable_type_is_among_those_tried():
    assert set(storage.STORABLE) == {type(e).__name__ for e in TRANSFORMERS + CLASSIFIERS}


def test_the_file_is_json_that_a_person_can_read(file):
    cq.save_policy(cq.Policy([0.1, 2.0], floor=0.25), file)
    assert json.loads(file.read_text(encoding="utf-8")) == {
        "format": "consequential policy",
        "schema": 1,
        "policy": {
            "type": "Policy",
            "theta": [0.1, 2.0],
            "link": "logistic",
            "feature_map": None,
            "floor": 0.25,
            "groups": [],
            "learned_from": "",
            "feature_names": [],
        },
    }


INCOME = np.linspace(0.0, 1.0, 1_000)[:, None]


def supported() -> cq.Policy:
    logged = np.where(INCOME[:, 0] < 0.2, 0.0, 0.5)
    return cq.Policy([0.1, 2.0], support=Support.of(INCOME, logged, n=len(INCOME)))


SCHEMAS = {
    "no support": (lambda: cq.Policy([0.1, 2.0]), 1),
    "no support within rules": (lambda: cq.EveryNth(2, cq.Policy([0.1, 2.0], floor=0.1)), 1),
    "a support": (supported, 2),
    "a support within rules": (lambda: cq.Mixture([cq.EveryNth(2, supported())], [1.0]), 2),
}


@pytest.mark.parametrize(("make", "schema"), SCHEMAS.values(), ids=SCHEMAS)
def test_only_a_file_with_a_support_has_a_schema_that_older_readers_refuse(make, schema, file):
    rule = make()
    loaded = through(file, rule)
    # older readers know schema 1, would overlook the support, and refuse any other number
    assert json.loads(file.read_text(encoding="utf-8"))["schema"] == schema
    assert_array_equal(loaded.propensity(INCOME), rule.propensity(INCOME))


def test_a_support_in_a_file_of_the_first_schema_is_still_read(file):
    policy = supported()
    cq.save_policy(policy, file)
    old = json.loads(file.read_text(encoding="utf-8")) | {"schema": 1}
    write_atomically(file, json.dumps(old))
    assert_array_equal(cq.load_policy(file).propensity(INCOME), policy.propensity(INCOME))


class OwnRule(cq.DecisionRule):
    def propensity(self, features, sensitive=None):
        return np.zeros(len(features))


class OwnScaler(StandardScaler):
    """A subclass may compute anything, so its numbers are not all there is."""


Namesake = type("StandardScaler", (StandardScaler,), {"__module__": "elsewhere"})


class OwnAcceptAll(cq.AcceptAll):
    """As may a subclass of a rule."""


def forest() -> RandomForestClassifier:
    return RandomForestClassifier(2, random_state=0).fit(SEEN, GOOD)


UNSTORABLE = {
    "a forest": (
        lambda: cq.ThresholdPolicy(forest(), 0.5),
        "RandomForestClassifier cannot be stored",
    ),
    "a forest in a pipeline": (
        lambda: cq.EveryNth(2, cq.ThresholdPolicy(make_pipeline(StandardScaler(), forest()), 0.5)),
        "RandomForestClassifier cannot be stored .* LogisticRegression",
    ),
    "a scaler of one's own": (
        lambda: cq.Policy([0.0] * 3, feature_map=OwnScaler().fit(SEEN)),
        "OwnScaler cannot be stored",
    ),
    "a namesake": (
        lambda: cq.Policy([0.0] * 3, feature_map=Namesake().fit(SEEN)),
        r"elsewhere\.StandardScaler cannot be stored",
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


@pytest.mark.parametrize("broken", ["os.replace", "os.chmod", "os.fdopen"])
def test_a_failed_write_leaves_the_old_file_and_no_other(broken, file, monkeypatch):
    cq.save_policy(cq.AcceptAll(), file)

    def full(*args, **kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr(f"consequential.policies.storage.{broken}", full)
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


def document(**changes):
    fields = {"type": "Policy", "theta": [1.0, 2.0], "link": "logistic", "feature_map": None}
    fields |= {"floor": 0.0, "groups": []} | changes
    kept = {key: value for key, value in fields.items() if value is not ...}
    return json.dumps({"format": "consequential policy", "schema": 1, "policy": kept})


DAMAGED = {
    "text": ("hello", "policy.json is not a policy file"),
    "nothing": ("", "is not a policy file"),
    "bytes that are not text": (b"\x80\x04\xff", "is not a policy file"),
    "a truncated file": (document()[:60], "is not a policy file"),
    "a list": ("[]", "is JSON but not a consequential policy"),
    "null": ("null", "is JSON but not a consequential policy"),
    "other JSON": ('{"format": "onnx"}', "is JSON but not a consequential policy"),
    "a newer schema": (
        '{"format": "consequential policy", "schema": 3}',
        "has schema 3; this version of consequential reads schemas 1 and 2",
    ),
    "no schema": ('{"format": "consequential policy"}', "has schema None"),
    "no policy": ('{"format": "consequential policy", "schema": 1}', "is damaged: .*'policy'"),
    "an unknown rule": (document(type="Oracle"), "is damaged: unknown type of policy 'Oracle'"),
    "an unknown link": (document(link="probit"), "is damaged: .*unknown link 'probit'"),
    "text for theta": (document(theta="abc"), "is damaged"),
    "an infinite theta": (document(theta=[1e999]), "is damaged: theta must be finite"),
    "a theta beyond floats": (document(theta=[10**400]), "is damaged"),
    "text for the floor": (document(floor="x"), "is damaged"),
    "a number for groups": (document(groups=3), "is damaged"),
    "a number for a map": (document(feature_map=3), "is damaged: .*int has no transform"),
    "an unknown value": (document(feature_map={"code": "1"}), r"unreadable .* keys \['code'\]"),
    "an array that does not fit": (
        document(groups=[{"array": [1], "dtype": "<f8", "shape": [2]}]),
        "is damaged: .*reshape",
    ),
    **{
        f"no {key}": (document(**{key: ...}), f"is damaged: .*'{key}'")
        for key in ("type", "theta", "link", "feature_map", "floor", "groups")
    },
}


@pytest.mark.parametrize(("content", "words"), DAMAGED.values(), ids=DAMAGED)
def test_a_file_that_is_no_policy_is_refused_with_the_reason(content, words, file):
    write_atomically(file, content)
    with pytest.raises(cq.PolicyError, match=words):
        cq.load_policy(file)


@pytest.mark.parametrize("kind", ["RandomForestClassifier", "os.system", "Popen", "__import__"])
def test_no_class_outside_the_list_is_loaded(kind, file, monkeypatch):
    write_atomically(file, document(feature_map={"estimator": kind, "state": {}}))
    monkeypatch.setattr(storage, "importlib", None)  # importing anything would now fail
    with pytest.raises(cq.PolicyError, match=f"'{kind}' is not among the types that can be read"):
        cq.load_policy(file)


class Bomb:
    """Makes a directory when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [0, pickle.HIGHEST_PROTOCOL])
def test_a_pickle_is_never_opened(protocol, file, tmp_path):
    write_atomically(file, pickle.dumps(Bomb(tmp_path / "exploded"), protocol))
    with pytest.raises(ValueError, match=r"policy|utf-8"):
        cq.load_policy(file)
    assert not (tmp_path / "exploded").exists()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.json"):
        cq.load_policy(tmp_path / "nothing.json")
