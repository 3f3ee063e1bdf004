"""Files that earlier versions wrote are still read, and decide as they did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from numpy.testing import assert_allclose

import consequential as cq

FILES = Path(__file__).parent / "old_files"
EXPECTED = json.loads((FILES / "expected.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", EXPECTED["propensity"])
def test_an_old_file_decides_as_it_did(name):
    policy = cq.load_policy(FILES / f"{name}.json")
    found = policy.propensity(EXPECTED["people"], EXPECTED["sensitive"])
    assert_allclose(found, EXPECTED["propensity"][name], rtol=1e-12)


@pytest.mark.parametrize("name", EXPECTED["propensity"])
def test_an_old_file_can_be_written_anew(name):
    policy = cq.load_policy(FILES / f"{name}.json")
    again = cq.policy_from_json(cq.policy_to_json(policy))
    found = again.propensity(EXPECTED["people"], EXPECTED["sensitive"])
    assert_allclose(found, EXPECTED["propensity"][name], rtol=1e-12)


def test_all_old_schemas_are_tried():
    texts = [(FILES / f"{name}.json").read_text() for name in EXPECTED["propensity"]]
    assert {json.loads(text)["schema"] for text in texts} == {1, 2}


def spline(document) -> dict:
    state = document["policy"]["feature_map"]["state"]["steps"][1]["tuple"][1]["state"]
    return state["bsplines_"][0]["spline"]


DAMAGED = {
    "coefficients cut to one row": lambda s: s["c"].update(array=s["c"]["array"][:5], shape=[1, 5]),
    "knots cut": lambda s: s["t"].update(array=s["t"]["array"][:2], shape=[2]),
    "a degree beyond the knots": lambda s: s.update(k=50),
    "a missing knot": lambda s: s["t"]["array"].__setitem__(0, {"float": "nan"}),
    "an array of giants": lambda s: s["t"].update(dtype="<U900000000"),
    "a shape of giants": lambda s: s["t"].update(shape=[10**12]),
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_damaged_splines_are_refused(damage, tmp_path):
    document = json.loads((FILES / "schema-1-splines.json").read_text())
    damage(spline(document))
    (tmp_path / "policy.json").write_text(json.dumps(document))
    with pytest.raises(cq.PolicyError, match="is damaged"):
        cq.load_policy(tmp_path / "policy.json")


def test_a_damaged_encoder_is_refused():
    document = json.loads((FILES / "schema-1-one-hot.json").read_text())
    (encoder,) = parts(document, "OneHotEncoder")
    encoder["state"]["_n_features_outs"] = [1]
    with pytest.raises(cq.PolicyError, match="OneHotEncoder is damaged"):
        cq.policy_from_json(json.dumps(document))


def parts(data, kind) -> list[dict]:
    """Return the stored estimators of a kind."""
    inner = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    own = [data] if isinstance(data, dict) and data.get("estimator") == kind else []
    return own + [found for part in inner for found in parts(part, kind)]


def test_values_six_hundred_deep_are_refused():
    text = (FILES / "schema-1-groups.json").read_text()
    document = json.loads(text)
    document["policy"]["groups"] = json.loads("[" * 600 + "]" * 600)
    with pytest.raises(cq.PolicyError, match="is damaged"):
        cq.policy_from_json(json.dumps(document))
    with pytest.raises(cq.PolicyError, match="is not a policy file"):
        cq.policy_from_json("[" * 100_000)
