"""
A predictor gets stuck, an exploring policy does not
=====================================================

The paper's first setting: one score, two groups, and a lender who starts from a model that is too
harsh. All strategies see the same applicants.
"""

import matplotlib.pyplot as plt

import consequential as cq

world = cq.worlds.first_setting()
strategies = [
    cq.lab.LearnToDecide("logistic", "aggregated"),
    cq.lab.LearnToDecide("semi_logistic", "aggregated"),
    cq.lab.LearnToPredict("aggregated"),
]
runs = cq.simulate(world, strategies, seeds=3, time_steps=60, progress=False)
print(runs.summary())

# %%
# The predictor fits the labels of the people it accepts, and is right about them. About the
# others it never learns anything, so its cut stays where it is. Policies that accept everybody
# with some chance find the best cut, worth the dotted line.

ax = runs.plot("utility", ax=plt.subplots(figsize=(6.4, 4))[1])
ax.axhline(world.optimal().utility, color="grey", linestyle=":", label="best possible")
ax.legend(frameon=False)

# %%
# What the last policy of each does, exactly:

for strategy in strategies:
    found = world.exact(runs.final_policy(strategy.name, seed=0))
    print(f"{strategy.name:<28} utility {found.utility:.4f}   gap {found.benefit_gap:+.4f}")
