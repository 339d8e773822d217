"""A run beside another one, of another device or tool.

In: the results of both. Out: the ratios of their errors, and a verdict by them.
"""
