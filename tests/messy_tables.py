"""A table of loans as a lender has it: blanks, words, booleans, dates, and labels still to come."""

from __future__ import annotations

import numpy as np
import pandas as pd

FEATURES = ["income", "purpose", "owner", "opened", "born", "debt"]
NAMED = {"decision": "approved", "propensity": "p", "label": "repaid", "sensitive": "region"}
PURPOSES = ("car", "home", "study", "boat")  # of which the last is rare


def messy_table(n=1200, seed=0, purposes=PURPOSES) -> pd.DataFrame:
    rng = np.random.default_rng(seed)

    def blanks(values, share):
        return np.where(rng.random(n) < share, None, np.asarray(values, dtype=object))

    income = rng.normal(3.0, 1.0, n).round(3)
    owner = rng.random(n) < 0.4
    purpose = rng.choice(purposes, n, p=[0.5, 0.3, 0.195, 0.005])
    opened = np.datetime64("2015-01-01") + rng.integers(0, 3000, n)
    p = (0.1 + 0.8 / (1.0 + np.exp(3.0 - income))).round(4)
    approved = rng.random(n) < p
    repaid = rng.random(n) < 1.0 / (1.0 + np.exp(3.0 - income - owner + (purpose == "study")))
    month = np.arange(n) * 12 // n
    return pd.DataFrame(
        {
            "income": blanks(income, 0.08).astype(float),
            "purpose": blanks(purpose, 0.1),
            "owner": pd.array(blanks(owner, 0.05), dtype="boolean"),
            "opened": blanks(opened.astype(str), 0.03),
            "born": (np.datetime64("1960-01-01") + rng.integers(0, 15000, n)).astype("M8[us]"),
            "debt": rng.gamma(2.0, 2.0, n).round(2).astype(str),
            "region": rng.choice(["east", "north", "west"], n),
            "approved": approved.astype(int),
            "p": p,
            "repaid": np.where(approved & (month < 10), repaid.astype(float), np.nan),
            "month": month,
        }
    )
