"""Learning from a log, beside scikit-learn and fairlearn on the same matrix, in one run.

    python benchmarks/logs.py [--rows 1000000] [--features 20] [--correlation 0.0]
                              [--without-fairlearn]

Everybody is labelled, so that all three can learn from the same rows.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
from measure import machine
from sklearn.linear_model import LogisticRegression

import consequential as cq

MAX_GAP = 0.02
COST = 0.5


def made(n, k, seed=0, correlation=0.0):
    rng = np.random.default_rng(seed)
    group = rng.integers(2, size=n)
    features = rng.normal(size=(n, k))
    if correlation:  # with what all features have in common
        features *= np.sqrt(1.0 - correlation)
        features += np.sqrt(correlation) * rng.normal(size=(n, 1))
    weights = rng.normal(size=k) * 0.4
    for column in range(k // 4):  # one group is better off, so that a bound on the gap binds
        features[:, column] += 0.4 * np.sign(weights[column]) * group
    label = np.empty(n)
    for start in range(0, n, 100_000):
        part = slice(start, start + 100_000)
        chance = 1.0 / (1.0 + np.exp(-(features[part] @ weights - 0.3)))
        label[part] = rng.random(len(chance)) < chance
    return features, label, group


def learner():
    return cq.FairPolicyLearner(cost=COST, max_gap=MAX_GAP, method="direct")


def timed(function):
    started = time.perf_counter()
    found = function()
    return time.perf_counter() - started, found


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def worth(propensity, label, group):
    gap = propensity[group == 0].mean() - propensity[group == 1].mean()
    return float((propensity * (label - COST)).mean()), float(gap)


def fairlearns(features, label, group):
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient

    # it bounds how far a group is from everybody; two groups are twice that apart

    reduction = ExponentiatedGradient(
        LogisticRegression(), DemographicParity(difference_bound=MAX_GAP / 2)
    )
    reduction.fit(features, label, sensitive_features=group)
    return reduction


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--correlation", type=float, default=0.0, help="between features")
    parser.add_argument("--without-fairlearn", action="store_true")
    options = parser.parse_args()
    small, labels, groups = made(1000, options.features)
    learner().fit(small, labels, sensitive_features=groups)  # compiled, and imported
    LogisticRegression().fit(small, labels)
    idle = resident()
    features, label, group = made(options.rows, options.features, 0, options.correlation)
    ours, theirs = [], []
    for _ in range(options.repeats):
        theirs.append(timed(lambda: LogisticRegression().fit(features, label))[0])
        seconds, fitted = timed(lambda: learner().fit(features, label, sensitive_features=group))
        ours.append(seconds)
    memory = (peak() - idle) / features.nbytes
    print(machine())
    print(f"{options.rows} rows x {options.features} features, parity gap at most {MAX_GAP}")
    print(
        f"scikit-learn's LogisticRegression  {min(theirs):.2f} s (median {np.median(theirs):.2f})"
    )
    print(f"FairPolicyLearner                  {min(ours):.2f} s (median {np.median(ours):.2f})")
    ratios = np.divide(ours, theirs)
    print(f"ratio {np.median(ratios):.2f}, at least {ratios.min():.2f}, at most {ratios.max():.2f}")
    print(f"peak memory above the idle process: {memory:.2f} times the matrix, input included")
    utility, gap = worth(fitted.predict_proba(features)[:, 1], label, group)
    print(f"FairPolicyLearner: utility {utility:.5f}, gap {gap:+.4f}")
    if options.without_fairlearn:
        return
    seconds, reduction = timed(lambda: fairlearns(features, label, group))
    utility, gap = worth(reduction._pmf_predict(features)[:, 1], label, group)
    print(f"fairlearn's ExponentiatedGradient: utility {utility:.5f}, gap {gap:+.4f}")
    print(f"  {seconds:.1f} s, {seconds / np.median(ours):.0f} times FairPolicyLearner")


if __name__ == "__main__":
    main()
