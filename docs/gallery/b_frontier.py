"""
What fairness costs
===================

In the second setting the people worth accepting lie in two separate intervals of the score, and
one group has more of them. How much utility does a smaller gap between groups cost? The log knows
labels of accepted people only.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.preprocessing import SplineTransformer

import consequential as cq

world = cq.worlds.second_setting()
past_rule = world.initial_policy().with_floor(0.05)
log = world.collect(past_rule, 20_000, np.random.default_rng(0))

# %%
# One fit for each bound on the gap, each row judged by a policy that has not seen it. All
# intervals hold at once.

learner = cq.FairPolicyLearner(
    cost=world.cost, n_starts=1, feature_map=SplineTransformer(n_knots=9, degree=2)
)
found = cq.frontier(
    log, cost=world.cost, learner=learner, max_gaps=[0.0, 0.05, 0.1, None], folds=2, progress=False
)
print(found)

# %%
# Here the truth is known too: the best policies there are, for every bound.

ax = found.plot(plt.subplots(figsize=(6.4, 4.4))[1])
bounds = [0.0, 0.05, 0.1, 0.15, 0.2]
best = [world.optimal(max_gap=bound) for bound in bounds]
ax.plot(
    [abs(each.benefit_gap) for each in best],
    [each.utility for each in best],
    color="grey",
    linestyle=":",
    label="best possible",
)
ax.legend(frameon=False, loc="upper right")
