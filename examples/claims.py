"""Claims: which insurance claims to inspect, when an inspection takes three months.

Everything is made up. To inspect is the positive decision here: fraud is found only where somebody
looked, and takes up to three months to be found, so the last months of the log are pending and must
not be read as honest. Claims differ in amount, and an inspection costs more where it is small
beside it. Being inspected for nothing is a burden; how it falls on groups is bounded.

    python examples/claims.py [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

import consequential as cq

INSPECTION = 150.0  # what one costs; it is worth its money where P(fraud) x amount is above it
COLUMNS = {
    "features": ["amount", "days_since_start", "earlier_claims", "kind"],
    "sensitive": "area",
    "decision": "inspected",
    "label": "fraud",
    "positive_label": 1,  # whoever inspects hopes to find it
    "propensity": "propensity",
    "time_step": "month",
    "amount": "amount",
    "cost": "relative_cost",
    "horizon": 3,
}
BURDEN = cq.fairness.BenefitParity(lambda inspected, fraud: float(inspected and not fraud))


def write_log(file: Path) -> None:
    """Make up 8000 claims over 18 months; adjusters looked mostly at large ones."""
    rng = np.random.default_rng(11)
    n = 8_000
    area = rng.choice(["coast", "inland"], p=[0.4, 0.6], size=n)
    amount = np.exp(rng.normal(np.where(area == "coast", 6.9, 6.6), 0.7)).clip(200, 20_000)
    days = rng.exponential(400, size=n)
    earlier = rng.poisson(0.6, size=n)
    kind = rng.choice(["fire", "theft", "water"], p=[0.1, 0.3, 0.6], size=n)
    risk = -2.2 + 1.2 * (days < 60) + 0.5 * earlier + 0.8 * (kind == "theft")
    fraud = rng.random(n) < 1 / (1 + np.exp(-risk))
    propensity = (0.03 + 0.9 / (1 + np.exp(-1.5 * (np.log(amount) - 7.4)))).round(6)
    inspected = rng.random(n) < propensity
    month = np.sort(rng.integers(18, size=n))
    known = inspected & (month + rng.integers(1, 4, size=n) <= 17)
    table = {
        "amount": amount.round(2),
        "days_since_start": days.round(),
        "earlier_claims": earlier,
        "kind": kind,
        "area": area,
        "month": month,
        "inspected": inspected.astype(int),
        "propensity": propensity,
        "relative_cost": (INSPECTION / amount).round(6),
        "fraud": pa.array([int(y) if k else None for k, y in zip(known, fraud, strict=True)]),
    }
    pa.csv.write_csv(pa.table(table), file)


def main(folder: Path) -> None:
    """Learn whom to inspect, in euros, and say what comes of it."""
    folder.mkdir(exist_ok=True)
    file = folder / "claims.csv"
    if not file.exists():
        write_log(file)
    log = cq.DecisionLog.from_file(file, **COLUMNS)
    print(f"{log}\n{len(log) - len(log.settled())} decisions are too young to be judged\n")
    learner = cq.FairPolicyLearner(fairness=BURDEN, max_gap=0.02, floor=0.02, n_starts=2)
    found = cq.compare(learner, cq.Logged(), log, fairness=BURDEN, folds=3)
    print(f"Euros per claim; the gap is in inspections of honest people.\n{found}\n\n{found.new}")
    cq.save_policy(learner.fit_log(log).policy_, folder / "policy.json")
    print(f"\npolicy: {folder / 'policy.json'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "claims-example"))
