"""Lending: from a bank's decision log to a fairer policy, and whether it is better.

The people are real (Taiwan credit cards, docs/data.md); the past rule is not: this script
plays a bank that looked at credit limit and recent delays alone, let chance decide near the line,
and kept the probability of every decision. Its log is written to lending.csv and read back as any
log would be.

    python examples/lending.py [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

import consequential as cq
from consequential.lab.worlds.tables import read_data

COST = 0.75  # a card that goes well earns a third of what a default loses: 0.75 = 3 / (3 + 1)
COLUMNS = {
    "features": ["limit_bal", "education", "marriage", "age", "pay_0", "pay_2", "pay_3"],
    "sensitive": "sex",
    "decision": "approved",
    "label": "repaid",
    "propensity": "propensity",
    "time_step": "month",
}


def write_log(file: Path) -> None:
    """Play the past: 12 000 applicants over 24 months, repayment known for approved ones only."""
    people = read_data("taiwan.csv.gz")
    rng = np.random.default_rng(7)
    rows = rng.permutation(len(people["repaid"]))[:12_000]
    people = {name: column[rows] for name, column in people.items()}
    score = 1.2 * np.log(people["limit_bal"] / 100_000) - 0.8 * np.maximum(people["pay_0"], 0)
    propensity = 0.05 + 0.95 / (1 + np.exp(-score))
    approved = rng.random(len(rows)) < propensity
    table = {name: people[name] for name in [*COLUMNS["features"], "sex"]}
    table["month"] = np.sort(rng.integers(24, size=len(rows)))
    table["approved"] = approved.astype(int)
    table["propensity"] = propensity.round(6)
    outcomes = zip(approved, people["repaid"], strict=True)
    table["repaid"] = pa.array([int(y) if d else None for d, y in outcomes])
    pa.csv.write_csv(pa.table(table), file)


def main(folder: Path) -> None:
    """Look at the log, learn on its first 16 months, judge on its last 8."""
    folder.mkdir(exist_ok=True)
    file = folder / "lending.csv"
    if not file.exists():
        write_log(file)
    log = cq.DecisionLog.from_file(file, **COLUMNS)
    print(f"{log}\n\nDoes it explore?\n{cq.overlap(log)}")

    past, recent = log.split(2 / 3, by="time_step")
    learner = cq.FairPolicyLearner(cost=COST, max_gap=0.02, floor=0.02).fit_log(past)
    print(f"\nLearned from {len(past)} decisions: {learner.policy_}")
    gap, price = learner.result_.benefit_gap, learner.result_.cost_of_fairness
    print(f"there the gap in approval is {gap:.4f}, and fairness costs {price:.4f} in utility")

    print("\nOn the months that came after, new policy less past rule:")
    found = cq.compare(learner.policy_, cq.Logged(), recent, cost=COST)
    print(found)
    print(f"\nwhat it would do there\n{found.new}")

    cq.save_policy(learner.policy_, folder / "policy.json")
    print(f"\npolicy: {folder / 'policy.json'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "lending-example"))
