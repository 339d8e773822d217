"""Which frames of a stack are ours, and which are those in which Paddle computes again what it forgot."""

from __future__ import annotations

import os
from types import CodeType

from pytest_probe.capture.frames import CallStacks

_OURS = os.path.join(os.path.dirname(__file__), "")
# The file's name ends so, with either separator; these of its functions run in a backward.
_RECOMPUTE = ("recompute.py", "recompute_hybrid.py")
_BACKWARD = ("backward", "unpack", "inner_unpack")


def call_stacks() -> CallStacks:
    return CallStacks(_OURS, _computes_again, lambda: True)


def _computes_again(code: CodeType) -> bool:
    return code.co_name in _BACKWARD and code.co_filename.endswith(_RECOMPUTE)
