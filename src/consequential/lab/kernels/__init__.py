"""Kernels: everything that Numba compiles, and nothing else imports Numba.

A kernel reads arrays and small named tuples of numbers. What it computes is what the other packages
say in NumPy; tests compare the two.
"""

# residuals are this many times deviations, so that lambda/2 times their squares is the penalty
ROOT_TWO = 2.0**0.5
