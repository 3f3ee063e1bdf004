"""Without Numba: everything but simulations and learning from minibatches."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import consequential as cq

BLOCKED = """
import sys
sys.modules["numba"] = None  # importing it raises an ImportError

import numpy as np
import consequential as cq

world = cq.worlds.second_setting()
policy = world.initial_policy()
"""


def python(program: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BLOCKED + program],
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_rule_is_learned_evaluated_kept_and_followed_without_numba(tmp_path):
    program = """
train, test = (world.collect(policy, 3000, np.random.default_rng(k)) for k in range(2))
learner = cq.FairPolicyLearner(cost=world.cost, max_gap=0.1).fit_log(train)
direct = cq.FairPolicyLearner(cost=world.cost, penalty=1.0, method="direct").fit_log(train)
cq.evaluate(learner, test, cost=world.cost)
cq.compare(learner, cq.Logged(), test, cost=world.cost)
cq.frontier(train, cost=world.cost, fairness="demographic_parity", max_gaps=[0.1])
cq.plan(train, cost=world.cost, improvement=0.05)
cq.save_policy(direct.policy_, "policy.json")
read = cq.load_policy("policy.json")
chances = read.propensity(test.features)
assert (chances == direct.policy_.propensity(test.features)).all()
read.decide(test.features, rng=np.random.default_rng(0))
print([m for m in sys.modules if m.startswith(("llvmlite", "numba.", "consequential.lab.kernels"))])
"""
    assert python(program, tmp_path).strip() == "[]"


def test_worlds_have_the_same_people_without_numba(tmp_path):
    worlds = ("first_setting", "second_setting", "lending", "german")
    found = python(
        f"""
for name in {worlds}:
    world = getattr(cq.worlds, name)()
    print(world.collect(cq.AcceptAll(), 300, np.random.default_rng(3)).fingerprint)
""",
        tmp_path,
    )
    assert found.split() == [
        getattr(cq.worlds, name)()
        .collect(cq.AcceptAll(), 300, np.random.default_rng(3))
        .fingerprint
        for name in worlds
    ]


@pytest.mark.parametrize(
    "program",
    [
        "cq.simulate(world, cq.lab.LearnToDecide('logistic'), seeds=1)",
        "cq.UpdatePolicy(cq.Objective(0.5), 1, 1)",
        "cq.lab.FitPredictor(0.5)(cq.ThresholdPolicy(cq.logistic_model([0.0, 1.0]), 0.5), log,"
        " rng=None)",
    ],
)
def test_what_needs_numba_says_how_to_get_it(program, tmp_path):
    said = python(
        f"""
log = world.collect(cq.AcceptAll(), 300, np.random.default_rng(0))
try:
    {program}
except ImportError as error:
    print(error)
""",
        tmp_path,
    )
    assert said.strip().endswith('need Numba: pip install "consequential[lab]"')


def test_what_needs_numba_is_not_listed_without_it(tmp_path):
    program = """
from consequential import *
print("simulate" in dir(cq), "UpdatePolicy" in cq.__all__, "evaluate" in globals())
"""
    assert python(program, tmp_path).split() == ["False", "False", "True"]


def test_a_command_that_needs_numba_says_so_in_a_sentence(tmp_path):
    said = python(
        "from consequential.cli import main; sys.stderr = sys.stdout; main(['demo'])", tmp_path
    )
    assert said.startswith("consequential: simulations and learning from minibatches need Numba")
    assert len(said.splitlines()) == 1
