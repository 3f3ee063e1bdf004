"""Hiring: whom to invite to a trial period, from a log that kept no propensities.

Everything is made up. Recruiters invited people by test score and experience, each with a mood of
their own; whether a person passes the trial is known only for those invited. Nobody wrote down with
what probability anybody was invited, so it is estimated, and the last table says how wrong the
estimates may be before the conclusion falls.

    python examples/hiring.py [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

import consequential as cq

COST = 0.5  # a trial that fails loses as much as one that succeeds brings
COLUMNS = {
    "features": ["test", "years", "school"],
    "sensitive": "gender",
    "decision": "invited",
    "label": "passed",
}


def write_log(file: Path) -> None:
    """Make up 8000 applications; the recruiters underrate one school, where women are more."""
    rng = np.random.default_rng(3)
    n = 8_000
    gender = rng.choice(["man", "woman"], size=n)
    school = np.where(rng.random(n) < np.where(gender == "woman", 0.5, 0.2), "evening", "day")
    ability = rng.normal(size=n)
    test = ability + 0.7 * rng.normal(size=n) - 0.5 * (school == "evening")
    years = rng.gamma(2.0, 2.0, size=n)
    liking = 1.2 * test + 0.1 * years - 0.8 * (school == "evening") - 0.5
    invited = rng.random(n) < 1 / (1 + np.exp(-liking))
    passed = rng.random(n) < 1 / (1 + np.exp(-(1.5 * ability + 0.1 * years - 0.6)))
    table = {
        "test": (50 + 10 * test).round(1),
        "years": years.round(1),
        "school": school,
        "gender": gender,
        "invited": invited.astype(int),
        "passed": pa.array([int(y) if d else None for d, y in zip(invited, passed, strict=True)]),
    }
    pa.csv.write_csv(pa.table(table), file)


def main(folder: Path) -> None:
    """Estimate who could have been invited, learn, compare, and doubt."""
    folder.mkdir(exist_ok=True)
    file = folder / "hiring.csv"
    if not file.exists():
        write_log(file)
    log = cq.DecisionLog.from_file(file, propensity=cq.EstimatedPropensity(floor=0.02), **COLUMNS)
    print(f"{log}\n\nCould everybody have been invited?\n{cq.overlap(log)}")

    rng = np.random.default_rng(0)
    some, others = log.split(0.5, by="random", rng=rng)
    question = {"cost": COST, "fairness": "equal_opportunity"}
    policy = cq.FairPolicyLearner(**question, max_gap=0.03, floor=0.02).fit_log(some).policy_
    print(f"\nLearned from half of the log: {policy}\nOn the other half, less the recruiters:")
    found = cq.compare(policy, cq.Logged(), others, **question)
    print(found)
    print("\nShare of able people invited, corrected for who was:")
    for group in log.groups:
        before, after = found.old.benefits[group], found.new.benefits[group]
        print(f"  {group:6} before {before}   after {after}")

    print("\nRecruiters may have gone by something that is not in the file. The gain in utility,")
    print(cq.sensitivity(policy, others, versus=cq.Logged(), **question))
    cq.save_policy(policy, folder / "policy.json")
    print(f"\npolicy: {folder / 'policy.json'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "hiring-example"))
