"""
A neural policy
===============

Anything JAX can differentiate can be a policy (`pip install "consequential[jax]"`). In the second
setting two separate intervals of scores are worth accepting; no single threshold is worth more than
0.065 there. A network with one hidden layer finds both.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

import consequential as cq


def network(theta, x):
    """One hidden layer of steps; a probability per row."""
    hidden = jax.numpy.tanh(x / 3.5 @ theta["in"] + theta["shift"])
    return jax.nn.sigmoid(hidden @ theta["out"])


slopes = np.full(16, 20.0)
start = cq.lab.differentiable.DifferentiablePolicy(
    {"in": slopes[None], "shift": -slopes * np.linspace(-2, 2, 16), "out": np.zeros(16)},
    network,
)

# %%
# It decides, is logged and learns like any other policy.

world = cq.worlds.second_setting()
learner = cq.lab.differentiable.UpdateDifferentiable(
    cq.Objective(world.cost), n_iterations=100, batch_size=4096
)
run = cq.consequential_learning(
    world,
    start,
    learner,
    time_steps=5,
    n_proposals=32_768,
    rng=np.random.default_rng(0),
)
learned = [step.learned for step in run]
for policy in learned:
    print(f"utility {world.exact(policy).utility:.4f}")
print(f"best possible {world.optimal().utility:.4f}")

# %%
# The probability of a good outcome, the cost, and the chance of acceptance the network gives:

scores = np.linspace(-10, 10, 400)[:, None]
ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")[1]
ax.plot(scores, world.label_probability(scores, np.zeros(400)), color="grey", label="P(y = 1)")
ax.axhline(world.cost, color="grey", linestyle=":", label="cost")
ax.plot(scores, learned[-1].propensity(scores), label="chance of acceptance")
ax.set(xlabel="score")
ax.legend(frameon=False)
