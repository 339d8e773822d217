"""Healthy and faulty kernels, family by family, written from the field's published kernels and bugs.

`parts` has what both halves use; `open` may be read by whoever works on the rule, `closed` only once the rule stands.
"""
