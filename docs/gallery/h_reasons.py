"""
Reasons for a refusal
=====================

A policy says which features hold a person's score down: how much higher it would be with one
feature at the median, or at the commonest word, of the people it learned from.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import consequential as cq

rng = np.random.default_rng(0)
n = 6000
people = pd.DataFrame({"income": rng.normal(30, 8, n), "debt": rng.exponential(5, n)})
people["purpose"] = rng.choice(["car", "home", "study"], n, p=[0.5, 0.3, 0.2])
score = 0.15 * (people["income"] - 30) - 0.4 * people["debt"] + 2.5
score -= 1.5 * (people["purpose"] == "study")
p = 0.1 + 0.8 / (1 + np.exp(-0.2 * (people["income"] - 30)))
approved = rng.random(n) < p
repaid = np.where(approved, rng.random(n) < 1 / (1 + np.exp(-score)), np.nan)
frame = people.assign(p=p, approved=approved, repaid=repaid)
log = cq.DecisionLog.from_frame(
    frame, features=list(people), decision="approved", label="repaid", propensity="p"
)
policy = cq.FairPolicyLearner(cost=0.6, floor=0.02).fit_log(log).policy_

# %%
# One applicant, as the table has them:

applicant = {"income": 22.0, "debt": 9.0, "purpose": "study"}
reasons = policy.reasons(applicant)
print("accepted with probability", policy.propensity(applicant), *reasons, sep="\n")

ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")[1]
ax.barh([f"{each.feature}: {each.value}" for each in reasons], [each.rise for each in reasons])
ax.tick_params(axis="y", labelsize=13)
ax.set(title="how far each feature holds the score down")
