"""Contractions that are too large for a float64 reference: judged by sampled rows and by checksums of the others.

In: a bound call and a budget of operations. Out: smaller calls with the same reference, and comparisons of them.
"""
