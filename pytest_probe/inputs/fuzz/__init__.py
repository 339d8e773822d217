"""Calls drawn around recorded ones: hypothesis draws the structure, NumPy computes the contents.

In: recorded calls of an API, or its line in the table of constraints. Out: a strategy of drawn calls. Only `strategy`
imports hypothesis.
"""
