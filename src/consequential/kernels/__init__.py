"""Kernels: everything that Numba compiles, and nothing else imports Numba.

A kernel reads arrays and small named tuples of numbers. What it computes is what the other packages
say in NumPy; tests compare the two.
"""

NOBODY = 1e-300  # a denominator up to this is that of a group without anybody
ROOT_TWO = (
    2.0**0.5
)  # residuals are ROOT_TWO times deviations, so that lambda/2 sum r^2 is the penalty
