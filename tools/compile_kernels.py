"""Compile the kernels once, so that processes which start together need not each do it."""

from __future__ import annotations

import time

import numpy as np

import consequential as cq

start = time.perf_counter()
world = cq.worlds.second_setting()
policy = world.initial_policy()
log = world.collect(policy, 500, np.random.default_rng(0))
objective = cq.Objective(world.cost, "demographic_parity", 1.0)
cq.UpdatePolicy(objective, 2, 50)(policy, log, rng=np.random.default_rng(0))
cq.simulate(world, cq.paper_strategies(), seeds=1, time_steps=1, n_proposals=500, progress=False)
print(f"kernels compiled or found on disk in {time.perf_counter() - start:.0f} s")
