"""
What the learner chooses from
=============================

`FairPolicyLearner` learns in several ways and compares them on rows they were not learned from,
beside a plain regression, the past rule, and accepting or rejecting everybody.
"""

import matplotlib.pyplot as plt
import numpy as np

import consequential as cq

rng = np.random.default_rng(0)
features = rng.normal(size=(6000, 3))
group = np.where(features[:, 2] + rng.normal(size=6000) > 0, "a", "b")
chance = 1 / (1 + np.exp(-1.5 * features[:, 0] * features[:, 1] - 0.5 * features[:, 2]))
propensity = 0.2 + 0.6 / (1 + np.exp(-features[:, 0]))
decision = rng.random(6000) < propensity
label = np.where(decision, rng.random(6000) < chance, np.nan)
log = cq.DecisionLog.from_arrays(features, decision, propensity, label, group)
candidates = cq.FairPolicyLearner(cost=0.55, max_gap=0.05).fit_log(log).result_.candidates
print(candidates)

# %%
# Labels follow a product of two features, which a plain regression cannot see.

ax = plt.subplots(figsize=(6.4, 4), layout="constrained")[1]
for height, entry in enumerate(reversed(candidates.entries)):
    utility = entry.value.utility
    ax.plot([utility.low, utility.high], [height, height], color="C0", linewidth=3)
    ax.plot(utility.value, height, "o", color="C1" if entry.chosen else "C0", markersize=9)
names = [entry.name for entry in reversed(candidates.entries)]
ax.set_yticks(range(len(names)), names, fontsize=12)
ax.set(title="utility, cross-fitted (orange: chosen)")
