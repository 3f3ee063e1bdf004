"""
A log that explores, and one that does not
==========================================

A log speaks about people who had a chance of being accepted, and about nobody else. `overlap`
says who had one.
"""

import matplotlib.pyplot as plt
import numpy as np

import consequential as cq

world = cq.worlds.first_setting()
officer = cq.ThresholdPolicy(cq.logistic_model([-1.0, 5.0]), world.cost)
logs = {
    "nothing left to chance": world.collect(officer, 5000, np.random.default_rng(0)),
    "a floor of 0.1": world.collect(officer.with_floor(0.1), 5000, np.random.default_rng(0)),
}
for name, log in logs.items():
    print(name, cq.overlap(log), sep="\n", end="\n\n")

# %%
# Where nobody was accepted there are no labels, and no method can tell what they would have been.

figure, axes = plt.subplots(2, 1, figsize=(6.4, 4.4), sharex=True, layout="constrained")
for ax, (name, log) in zip(axes, logs.items(), strict=True):
    score = log.features[:, 0]
    parts = [score[~log.decision], score[log.decision]]
    ax.hist(parts, bins=40, stacked=True, color=["0.8", "C0"], label=["rejected", "accepted"])
    ax.set_title(f"{name}: exploring? {cq.overlap(log).exploring}", fontsize=13)
axes[0].legend(fontsize=11, loc="lower right")
axes[1].set_xlabel("score")
