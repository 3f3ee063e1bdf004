"""
From a log to a policy
======================

A table of past loans: labels for approved people only, and the probability with which each was
approved. Is the log good enough, what policy follows from it, and is that better?
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import consequential as cq

rng = np.random.default_rng(0)
n = 8000
sex = rng.choice(["f", "m"], size=n)
income = rng.normal(size=n) + 0.4 * (sex == "m")
debt = rng.exponential(size=n)
chance = 0.05 + 0.95 / (1 + np.exp(-2 * (income - 0.5)))  # the past rule looked at income alone
approved = rng.random(n) < chance
repays = rng.random(n) < 1 / (1 + np.exp(-(1.2 * income - 1.5 * debt + 1.5)))
frame = pd.DataFrame(
    {
        "income": income,
        "debt": debt,
        "sex": sex,
        "approved": approved.astype(int),
        "p": chance,
        "repaid": np.where(approved, repays, np.nan),
    }
)
print(frame.head())

# %%
# The log is checked when it is made. `overlap` says whether it can answer.

log = cq.DecisionLog.from_frame(
    frame,
    features=["income", "debt"],
    sensitive="sex",
    decision="approved",
    label="repaid",
    propensity="p",
)
print(cq.overlap(log))

# %%
# Learn on one half, compare on the other.

train, test = log.split(0.5, by="random", rng=np.random.default_rng(1))
learner = cq.FairPolicyLearner(cost=0.6, max_gap=0.05, floor=0.02).fit_log(train)
print(cq.compare(learner, cq.Logged(), test, cost=0.6))

# %%
# Whom the new policy accepts, and whom the old one did:

x, y = np.meshgrid(np.linspace(-3, 3, 60), np.linspace(0, 4, 60))
grid = np.column_stack([x.ravel(), y.ravel()])
old = 0.05 + 0.95 / (1 + np.exp(-2 * (grid[:, 0] - 0.5)))
figure, axes = plt.subplots(1, 2, figsize=(6.4, 3.8), sharey=True, layout="constrained")
for ax, title, values in zip(
    axes, ("the past rule", "learned"), (old, learner.policy_.propensity(grid)), strict=True
):
    shown = ax.contourf(x, y, values.reshape(x.shape), levels=np.linspace(0, 1, 11))
    ax.set(title=title, xlabel="income")
axes[0].set_ylabel("debt")
figure.colorbar(shown, ax=axes, label="probability of acceptance")
