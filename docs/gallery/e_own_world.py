"""
A world of your own
===================

Two methods make a world: who applies, and how likely each is to have label 1. Every strategy,
metric and figure then works in it. A third, `at`, lets it change over time.
"""

import matplotlib.pyplot as plt
import numpy as np

import consequential as cq


class Shops(cq.worlds.World):
    """Shops ask for a loan, in two towns; a crisis comes over fifty steps."""

    name = "shops in a crisis"
    cost = 0.6
    parameters = cq.worlds.Parameters(time_steps=60, n_proposals=2048, batch_size=128)

    def __init__(self, crisis=0.0):
        self.crisis = crisis

    def propose(self, n, rng):
        town = rng.choice(["harbour", "hill"], size=n)
        turnover = rng.normal(size=n) + 0.8 * (town == "hill")
        return np.column_stack([turnover, rng.exponential(size=n)]), town

    def label_probability(self, features, sensitive):
        return 1 / (1 + np.exp(self.crisis - 1.5 * features[:, 0] - features[:, 1]))

    def at(self, time_step):
        return Shops(crisis=min(time_step / 25, 2.0))


# %%
# Learning from the last step follows the crisis, learning from all steps lags behind it.

strategies = [cq.lab.LearnToDecide("logistic"), cq.lab.LearnToDecide("logistic", "aggregated")]
runs = cq.simulate(Shops(), strategies, seeds=2, time_steps=40, progress=False)
ax = runs.plot("utility", ax=plt.subplots(figsize=(6.4, 4))[1])
ax.legend(frameon=False)

# %%
# Towns differ; what is accepted, and how differently, is measured on people nobody learns from.

print(runs.summary())
