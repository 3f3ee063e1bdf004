"""
Who changes sides
=================

Two rules may accept equally many people, and not the same ones. The swap set counts whom the log
accepted and the new policy would not, and the reverse, by group.
"""

import matplotlib.pyplot as plt
import numpy as np

import consequential as cq

world = cq.worlds.second_setting()
log = world.collect(world.initial_policy().with_floor(0.05), 10_000, np.random.default_rng(0))
past, recent = log.split(0.5, by="random", rng=np.random.default_rng(1))
learner = cq.FairPolicyLearner(cost=world.cost, max_gap=0.05, method="model").fit_log(past)
found = cq.statistics.swap_set(learner, recent)
print(found)

# %%
# Intervals are for other people like these.

ax = plt.subplots(figsize=(6.4, 4), layout="constrained")[1]
rows = [(f"group {name}", swaps) for name, swaps in found.by_group.items()]
for name, sign in (("entering", 1), ("leaving", -1)):
    counts = [getattr(swaps, name) for _, swaps in rows]
    errors = [
        [each.value - each.low for each in counts],
        [each.high - each.value for each in counts],
    ]
    values = [sign * each.value for each in counts]
    ax.bar([group for group, _ in rows], values, yerr=errors, capsize=6, label=name)
ax.axhline(0, color="black", linewidth=1)
ax.tick_params(axis="x", labelsize=13)
ax.set(title="people who enter and leave")
ax.margins(y=0.2)
ax.legend(frameon=False, fontsize=12, ncols=2)
