"""Policies in files: exact, readable, whole, and free of code."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from policy_mutations import nested, resealed
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
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
from consequential.policies import Support

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
CLASSIFIERS = [
    LogisticRegression(),
    LogisticRegression(C=np.inf, class_weight="balanced"),
    make_pipeline(StandardScaler(), SplineTransformer(), LogisticRegression()),
    CalibratedClassifierCV(LogisticRegression(), cv=2),
    CalibratedClassifierCV(LogisticRegression(), method="isotonic", cv=2),
    HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=3),
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
        cq.EveryNth(2, base),
    ]
    assert len({cq.policy_digest(policy) for policy in (base, *others)}) == 6


def written(policy) -> dict:
    return json.loads(cq.policy_to_json(policy))


def test_a_file_may_be_laid_out_differently():
    document = written(PLAIN)
    assert resealed(document) == json.dumps(document)
    for text in (json.dumps(document), json.dumps(document, indent=7, sort_keys=True)):
        assert_array_equal(cq.policy_from_json(text).theta, PLAIN.theta)


CHANGES = {
    "theta": lambda d: d["policy"].update(theta=[0.1, 0.2, 0.3]),
    "a name": lambda d: d["policy"].update(feature_names=["a", "b"]),
    "a version": lambda d: d["versions"].update(numpy="1.0"),
    "a probe": lambda d: d["probes"]["people"][0].reverse(),
    "an addition": lambda d: d.update(author="me"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_file_that_somebody_edited_is_refused(change):
    document = written(PLAIN)
    change(document)
    with pytest.raises(cq.PolicyError, match=r"not what was written \(the digest differs\)"):
        cq.policy_from_json(json.dumps(document))


def test_a_policy_that_decides_otherwise_than_when_it_was_saved_is_refused():
    document = written(PLAIN)
    document["policy"]["theta"][1] += 1e-6
    document["versions"]["numpy"] = "0.9"
    words = r"does not decide as it did.* written with numpy 0\.9, and is read with numpy \d"
    with pytest.raises(cq.PolicyError, match=words):
        cq.policy_from_json(resealed(document))


FORGED = {
    "theta cut": (lambda p: p.update(theta=p["theta"][:1]), "theta has 1 parameters"),
    "theta of a number": (lambda p: p.update(theta=3.0), "theta cannot be 3.0"),
    "theta six hundred deep": (lambda p: p.update(theta=nested(600)), "damaged"),
    "groups six hundred deep": (lambda p: p.update(groups=nested(600)), "damaged"),
    "a floor of text": (lambda p: p.update(floor="0"), 'floor cannot be "0"'),
    "names in one word": (lambda p: p.update(feature_names="ab"), "feature_names cannot be"),
    "a fingerprint of numbers": (lambda p: p.update(learned_from=[1]), "learned_from cannot be"),
    "a summary cut": (lambda p: p["summary"].update(reference=[0.0]), "summary needs a reference"),
    "an endless summary": (
        lambda p: p["summary"].update(reference=[1e400, 0.0]),
        "not a policy file|must be finite",
    ),
    "a support with a strange share": (lambda p: p["support"].update(share=7.0), "shares in"),
    "a support that turns back": (lambda p: p["support"].update(left=[0, -1, -1]), "parents"),
    "a map of the old kind": (
        lambda p: p.update(feature_map={"estimator": "SVC", "state": {}}),
        "not among the types",
    ),
    "a map of nothing": (
        lambda p: p.update(feature_map={"skops": "", "sha256": ""}),
        "object is damaged",
    ),
    "a map without a digest": (lambda p: p.update(feature_map={"skops": "QUJD"}), "is damaged"),
}


@pytest.mark.parametrize(("change", "words"), FORGED.values(), ids=FORGED)
def test_a_forged_file_is_refused_with_the_reason(change, words):
    features = np.random.default_rng(0).normal(size=(1_000, 2))
    support = Support.of(features, np.where(features[:, 0] < 0.0, 0.0, 0.5), n=1_000)
    summary = cq.FeatureSummary.of(features, ["x0", "x1"])
    document = written(cq.Policy([0.1, 1.0, -1.0], support=support, summary=summary))
    assert len(document["policy"]["support"]["left"]) == 3
    change(document["policy"])
    with pytest.raises(cq.PolicyError, match=words):
        cq.policy_from_json(resealed(document))


@pytest.mark.parametrize("n", [10**400, 0, 2**63])
def test_absurd_numbers_are_refused(n):
    document = written(cq.EveryNth(3))
    document["policy"]["n"] = n
    with pytest.raises(cq.PolicyError, match=r"damaged|not a policy file"):
        cq.policy_from_json(resealed(document))


class OwnRule(cq.DecisionRule):
    def propensity(self, features, sensitive=None):
        return np.zeros(len(features))


Namesake = type("StandardScaler", (StandardScaler,), {"__module__": "elsewhere"})


class OwnAcceptAll(cq.AcceptAll):
    """A subclass may decide in any way, so its fields are not all there is."""


def neighbours() -> KNeighborsClassifier:
    return KNeighborsClassifier(2, algorithm="kd_tree").fit(SEEN, GOOD)


UNSTORABLE = {
    "neighbours": (
        lambda: cq.ThresholdPolicy(neighbours(), 0.5),
        "EuclideanDistance64 cannot be stored",
    ),
    "neighbours in a pipeline": (
        lambda: cq.EveryNth(
            2, cq.ThresholdPolicy(make_pipeline(StandardScaler(), neighbours()), 1)
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
        '{"format": "consequential policy", "schema": 4}',
        "has schema 4; this version of consequential reads schemas 1, 2, 3",
    ),
    "no schema": ('{"format": "consequential policy"}', "has schema None"),
    "no policy": ('{"format": "consequential policy", "schema": 1}', "is damaged: .*'policy'"),
    "an unknown rule": (document(type="Oracle"), "is damaged: unknown type of policy 'Oracle'"),
    "an unknown link": (document(link="probit"), "is damaged: .*unknown link 'probit'"),
    "text for theta": (document(theta="abc"), "is damaged"),
    "an infinite theta": (document(theta=[1e999]), "is not a policy file: Infinity"),
    "a theta beyond floats": (document(theta=[10**400]), "is damaged"),
    "text for the floor": (document(floor="x"), "is damaged"),
    "a number for groups": (document(groups=3), "is damaged"),
    "a number for a map": (document(feature_map=3), "is damaged: feature_map cannot be 3"),
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
def test_no_class_outside_the_list_is_loaded(kind, file):
    write_atomically(file, document(feature_map={"estimator": kind, "state": {}}))
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
