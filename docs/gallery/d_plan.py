"""
Plan exploration
================

A rule that leaves nothing to chance cannot be checked. What would a small chance for everybody
cost, and how long until an improvement could be proven?
"""

import matplotlib.pyplot as plt
import numpy as np

import consequential as cq

world = cq.worlds.first_setting()
officer = cq.ThresholdPolicy(cq.logistic_model([-3.0, 5.0]), world.cost)
log = world.collect(officer, 5000, np.random.default_rng(0))
print(cq.overlap(log))

# %%
# Nothing is known about the people this officer never accepts, so losses are bounded, not
# estimated. With `rate` applicants a month and outcomes three months late:

found = cq.plan(
    log,
    cost=world.cost,
    improvement=0.02,
    changed=0.3,
    rate=5000,
    horizon=3,
    floors=(0.01, 0.02, 0.05, 0.1, 0.2),
)
print(found)

# %%
# A larger floor costs more each month and is done sooner. What it costs in all is nearly the
# same.

figure, axes = plt.subplots(2, 1, figsize=(6.4, 4.6), layout="constrained")
options = found.options
for ax, title, values in (
    (axes[0], "months until proven", [each.months for each in options]),
    (axes[1], "most it can cost, per thousand", [each.worst_loss for each in options]),
):
    ax.plot([each.floor for each in options], values, marker="o")
    ax.set(title=title, xlabel="exploration floor", ylim=(0, None))
