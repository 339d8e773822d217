"""Errors that a device makes by intent, such as TF32 or flushing to zero.

In: a comparison above its limits. Out: its verdict under the modes that the user allows, or the mode that would
explain it.
"""
