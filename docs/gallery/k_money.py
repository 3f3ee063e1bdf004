"""
What a policy earns
===================

An order that is paid brings 600 EUR and one that is not costs 100. Utility then is money: per
application and per month, by group, against what the log did.
"""

import matplotlib.pyplot as plt
import numpy as np

import consequential as cq

world = cq.worlds.first_setting()
log = world.collect(world.initial_policy().with_floor(0.05), 20_000, np.random.default_rng(0))
past, recent = log.split(0.5, by="random", rng=np.random.default_rng(1))
learner = cq.FairPolicyLearner(cost=1 / 7, max_gap=0.1, method="model").fit_log(past)
found = cq.statistics.earnings(learner, recent, gain=600, loss=100, unit="EUR", monthly=500)
print(found)

# %%
# Groups add up to everyone. Intervals of the difference are narrower than those of either rule,
# since both are judged on the same people.

ax = plt.subplots(figsize=(6.4, 4), layout="constrained")[1]
parts = {"everyone": found.overall, **{f"group {z}": each for z, each in found.by_group.items()}}
for place, name in enumerate(("old", "new")):
    months = [getattr(part, name).scaled(found.monthly) for part in parts.values()]
    errors = [
        [each.value - each.low for each in months],
        [each.high - each.value for each in months],
    ]
    where = np.arange(len(parts)) + 0.4 * place
    ax.bar(where, [each.value for each in months], 0.4, yerr=errors, capsize=5, label=name)
ax.axhline(0, color="black", linewidth=1)
ax.set_xticks(np.arange(len(parts)) + 0.2, list(parts), fontsize=13)
ax.set(title="EUR per month")
ax.legend(frameon=False, fontsize=12)
