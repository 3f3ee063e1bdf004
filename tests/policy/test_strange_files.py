"""Strange policy files: each is refused with the reason, and nothing in it is run."""

from __future__ import annotations

import base64
import json
import os
import pickle
import zlib
from functools import cache
from zipfile import ZIP_DEFLATED

import numpy as np
import pytest
from policy_mutations import files_of, nested, packed, resealed
from sklearn.preprocessing import PolynomialFeatures, SplineTransformer, StandardScaler

import consequential as cq
from consequential.files import write_atomically
from consequential.policy import Support

FEATURES = np.random.default_rng(0).normal(size=(1_000, 2))


@cache
def supported() -> str:
    """The file of a policy with a support and a summary."""
    explored = np.where(FEATURES[:, 0] < 0.0, 0.0, 0.5)
    support = Support.of(FEATURES, explored, n=1_000)
    summary = cq.FeatureSummary.of(FEATURES, ["x0", "x1"])
    return cq.policy_to_json(cq.Policy([0.1, 1.0, -1.0], support=support, summary=summary))


def edited(change) -> str:
    document = json.loads(supported())
    change(document)
    return json.dumps(document)


def forged(**fields) -> str:
    """A file with other fields of the policy (... for none), and its digest made anew."""
    document = json.loads(supported())
    policy = document["policy"] | fields
    document["policy"] = {name: value for name, value in policy.items() if value is not ...}
    return resealed(document)


def part_of(field, **changes) -> str:
    return forged(**{field: json.loads(supported())["policy"][field] | changes})


def archived(stored) -> str:
    return forged(feature_map=stored)


def repacked(change, transformer=None, **options) -> str:
    """A file whose archived feature map has changed files, with every digest made anew."""
    fitted = (transformer or StandardScaler()).fit(FEATURES)
    width = fitted.transform(FEATURES[:1]).shape[1]
    document = json.loads(cq.policy_to_json(cq.Policy(np.zeros(width + 1), feature_map=fitted)))
    archive = document["policy"]["feature_map"]
    files = files_of(archive)
    change(files)
    archive.update(packed(files, **options))
    return resealed(document)


def with_type(module, name, loader="ObjectNode") -> str:
    def change(files):
        tree = json.loads(files["schema.json"])
        tree |= {"__module__": module, "__class__": name, "__loader__": loader}
        files["schema.json"] = json.dumps(tree).encode()

    return repacked(change)


def with_width(transformer, name) -> str:
    def change(files):
        tree = json.loads(files["schema.json"])
        tree["content"]["content"][name]["content"] = "100000000"
        files["schema.json"] = json.dumps(tree).encode()

    return repacked(change, transformer)


def with_array(descr, shape) -> str:
    """A file whose first array has eight bytes, and declares something else."""

    def change(files):
        name = next(name for name in files if name.endswith(".npy"))
        header = {"descr": descr, "fortran_order": False, "shape": shape}
        text = str(header).ljust(117).encode() + b"\n"
        files[name] = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(8)

    return repacked(change)


def zipped(data: bytes) -> dict[str, str]:
    return {"skops": base64.b64encode(data).decode(), "sha256": ""}


def schema(number) -> str:
    return json.dumps({"format": "consequential policy", "schema": number})


NOT_ONE = "policy.json is not a policy file"
OTHER_JSON = "is JSON but not a consequential policy"
EDITED = r"not what was written \(the digest differs\)"
NO_OBJECT = "is damaged: a stored scikit-learn object is damaged"
NO_TYPE = "cannot be stored in a policy file or read from one"
SIZE = r"an array of shape \(.* has \d+ bytes"
STRANGE = {
    "text": (lambda: "hello", NOT_ONE),
    "nothing": (lambda: "", NOT_ONE),
    "bytes that are not text": (lambda: b"\x80\x04\xff", NOT_ONE),
    "a truncated file": (lambda: supported()[:60], NOT_ONE),
    "lists without an end": (lambda: "[" * 100_000, NOT_ONE),
    "a list": (lambda: "[]", OTHER_JSON),
    "null": (lambda: "null", OTHER_JSON),
    "other JSON": (lambda: '{"format": "onnx"}', OTHER_JSON),
    "an older schema": (lambda: schema(2), r"has schema 2; this version .* reads schema 3$"),
    "a newer schema": (lambda: schema(4), r"has schema 4; this version .* reads schema 3$"),
    "no schema": (lambda: '{"format": "consequential policy"}', "has schema None"),
    "a schema in a list": (lambda: schema([3]), "has schema of a list"),
    "no digest": (lambda: schema(3), "is damaged: .*'digest'"),
    "no policy": (lambda: resealed(json.loads(schema(3))), "is damaged: .*'policy'"),
    # edited by somebody who does not know how digests are made
    "another theta": (lambda: edited(lambda d: d["policy"].update(theta=[0.1, 0.2, 0.3])), EDITED),
    "another name": (lambda: edited(lambda d: d["policy"].update(feature_names=["a"])), EDITED),
    "another version": (lambda: edited(lambda d: d["versions"].update(numpy="1.0")), EDITED),
    "another probe": (lambda: edited(lambda d: d["probes"]["people"][0].reverse()), EDITED),
    "an addition": (lambda: edited(lambda d: d.update(author="me")), EDITED),
    # and by somebody who does
    **{
        f"no {name}": (lambda name=name: forged(**{name: ...}), f"is damaged: .*'{name}'")
        for name in ("type", "theta", "link", "feature_map", "floor", "groups", "summary")
    },
    "an unknown rule": (lambda: forged(type="Oracle"), "unknown type of policy 'Oracle'"),
    "an unknown link": (lambda: forged(link="probit"), "unknown link 'probit'"),
    "theta cut": (lambda: forged(theta=[0.1]), "theta has 1 parameters"),
    "theta of a number": (lambda: forged(theta=3.0), "theta cannot be 3.0"),
    "an endless theta": (lambda: forged(theta=[1e999]), f"{NOT_ONE}: Infinity"),
    "theta beyond floats": (lambda: forged(theta=[10**400]), "is damaged"),
    "theta six hundred deep": (lambda: forged(theta=nested(600)), "is damaged"),
    "groups six hundred deep": (lambda: forged(groups=nested(600)), "is damaged"),
    "a number for groups": (lambda: forged(groups=3), "groups cannot be 3"),
    "a floor of text": (lambda: forged(floor="0"), 'floor cannot be "0"'),
    "names in one word": (lambda: forged(feature_names="ab"), "feature_names cannot be"),
    "a fingerprint of numbers": (lambda: forged(learned_from=[1]), "learned_from cannot be"),
    "a summary cut": (lambda: part_of("summary", reference=[0.0]), "summary needs a reference"),
    "a support with a strange share": (lambda: part_of("support", share=7.0), "shares in"),
    "a support that turns back": (lambda: part_of("support", left=[0, -1, -1]), "parents"),
    "a number for a map": (lambda: archived(3), "feature_map cannot be 3"),
    "a map of another kind": (
        lambda: archived({"estimator": "os.system", "state": {}}),
        r"unreadable feature_map with keys \['estimator', 'state'\]",
    ),
    # archives
    "without a digest": (lambda: archived({"skops": "QUJD"}), NO_OBJECT),
    "without text": (lambda: archived({"skops": "ü", "sha256": ""}), NO_OBJECT),
    "not compressed": (lambda: archived(zipped(b"abc")), NO_OBJECT),
    "no archive": (lambda: archived(zipped(zlib.compress(b"abc"))), NO_OBJECT),
    "an archive cut off": (lambda: archived(zipped(zlib.compress(b"abc" * 100)[:-9])), NO_OBJECT),
    "an archive of nothing": (lambda: archived(packed({})), NO_OBJECT),
    "changed content": (
        lambda: archived(packed({"schema.json": b"{}"}) | {"sha256": "0" * 64}),
        "its content was changed",
    ),
    "compressed twice": (
        lambda: repacked(lambda files: files.update(z=bytes(10**6)), compression=ZIP_DEFLATED),
        "compressed twice",
    ),
    "an archive that swells": (
        lambda: repacked(lambda files: files.update(zeros=bytes(10**8))),
        "cut off, or too large",
    ),
    "gigabytes": (lambda: with_array("<f8", (2**30,)), SIZE),
    "nothing, very often": (lambda: with_array("|V0", (10**10,)), SIZE),
    "a negative size": (lambda: with_array("<f8", (-1, -1)), SIZE),
    "giant splines": (lambda: with_width(SplineTransformer(3), "n_features_out_"), "is damaged"),
    "giant products": (lambda: with_width(PolynomialFeatures(2), "_n_out_full"), "is damaged"),
    # types that run something, or are none of those that a file needs
    "a function of the system": (lambda: with_type("os", "system", "FunctionNode"), NO_TYPE),
    "a class of the system": (lambda: with_type("subprocess", "Popen"), NO_TYPE),
    "a function of ours": (
        lambda: with_type("consequential.policy.storage", "save_policy", "FunctionNode"),
        NO_TYPE,
    ),
    "a module that ours imports": (
        lambda: with_type("consequential.policy.storage", "os", "FunctionNode"),
        NO_TYPE,
    ),
    "a class of ours that no archive needs": (
        lambda: with_type("consequential.policy.summary", "FeatureSummary"),
        NO_TYPE,
    ),
    "a module that is not there": (
        lambda: with_type("consequential.policy.nothing", "Scores"),
        NO_TYPE,
    ),
}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "policy.json"


@pytest.mark.parametrize(("make", "words"), STRANGE.values(), ids=STRANGE)
def test_a_strange_file_is_refused_with_the_reason(make, words, file):
    write_atomically(file, make())
    with pytest.raises(cq.PolicyError, match=words):
        cq.load_policy(file)


def test_a_file_forged_without_a_change_is_read(file):
    for content in (edited(lambda d: None), forged(), repacked(lambda files: None)):
        write_atomically(file, content)
        assert isinstance(cq.load_policy(file), cq.Policy)


def test_a_policy_that_decides_otherwise_than_when_it_was_saved_is_refused():
    document = json.loads(supported())
    document["policy"]["theta"][1] += 1e-6
    document["versions"]["numpy"] = "0.9"
    words = r"does not decide as it did.* written with numpy 0\.9, and is read with numpy \d"
    with pytest.raises(cq.PolicyError, match=words):
        cq.policy_from_json(resealed(document))


class Bomb:
    """Makes a directory when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [0, pickle.HIGHEST_PROTOCOL])
def test_a_pickle_is_never_opened(protocol, file, tmp_path):
    write_atomically(file, pickle.dumps(Bomb(tmp_path / "exploded"), protocol))
    with pytest.raises(cq.PolicyError, match="is not a policy file"):
        cq.load_policy(file)
    assert not (tmp_path / "exploded").exists()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.json"):
        cq.load_policy(tmp_path / "nothing.json")
