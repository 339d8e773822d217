"""Dtypes, units in the last place, error metrics and the noise ratio.

In: NumPy arrays. Out: numbers. Nothing here knows an API, a framework or a tool's verdict.
"""
