"""Which frames of a stack are ours, and which are those of torch's activation checkpointing."""

from __future__ import annotations

import os
from types import CodeType

import torch

from pytest_probe.capture.frames import CallStacks

_OURS = os.path.join(os.path.dirname(__file__), "")
# Ends of the file's name, with either separator.
_CHECKPOINT = ("torch/utils/checkpoint.py", "torch\\utils\\checkpoint.py")


def call_stacks() -> CallStacks:
    return CallStacks(_OURS, _checkpoints, lambda: torch._C._current_graph_task_id() >= 0)


def _checkpoints(code: CodeType) -> bool:
    return code.co_filename.endswith(_CHECKPOINT)
