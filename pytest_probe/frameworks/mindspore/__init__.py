"""MindSpore: what its APIs are called elsewhere, and torch's calls that correspond to them.

Only files that run MindSpore import it; stored outputs are judged without it.
"""
