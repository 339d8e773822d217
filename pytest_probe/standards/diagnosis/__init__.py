"""What an output that failed looks like: how much is wrong, where, and why.

A family of causes is a Recogniser, CAUSES lists them, the most specific first.
"""

from pytest_probe.standards.diagnosis.diagnose import CAUSES, Depth, diagnose

__all__ = ["CAUSES", "Depth", "diagnose"]
