"""Logs of loans as files, and what commands wrote about them."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa

COLUMNS = ["--sensitive", "sex", "--decision", "approved", "--label", "repaid"]

LOGGED = [*COLUMNS, "--propensity", "p"]

FEATURES = ["--features", "income,purpose"]

COST = ["--cost", "0.6"]

NAMES = ["income", "purpose=car", "purpose=home"]


def people(n=800, seed=0) -> pa.Table:
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n)
    income = rng.normal(3.0, 1.0, n) + 0.4 * (sex == "m")
    purpose = rng.choice(["car", "home"], n)
    p = (0.2 + 0.6 / (1 + np.exp(3.0 - income))).round(4)
    approved = rng.random(n) < p
    repaid = rng.random(n) < 1 / (1 + np.exp(2.5 - income - 0.5 * (purpose == "home")))
    return pa.table(
        {
            "number": np.arange(n),
            "income": income.round(3),
            "purpose": purpose,
            "sex": sex,
            "approved": approved.astype(int),
            "p": p,
            "repaid": pa.array(
                [int(y) if d else None for d, y in zip(approved, repaid, strict=True)]
            ),
            "month": np.arange(n) * 12 // n,
        }
    )


def results(folder) -> dict:
    return json.loads((folder / "results.json").read_text())


def text_of(page) -> str:
    return re.sub(r"<[^>]+>", " ", page.read_text())
