"""Paddle's APIs by torch's: how the names of both are spelled. Entries are in the YAML files."""

from __future__ import annotations

from collections.abc import Mapping

RECORD, CALL = "paddle", "torch"
# Where functions stand that are methods too, or that have a name in two modules.
SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "paddle.Tensor": ("paddle", "paddle.nn.functional", "paddle.linalg"),
    "paddle.tensor": ("paddle",),
    "paddle.linalg": ("paddle",),
    "paddle.nn.functional": ("paddle",),
    "paddle._C_ops": ("paddle", "paddle.nn.functional"),
    "torch.Tensor": ("torch", "torch.nn.functional", "torch.linalg"),
    "torch.nn.functional": ("torch",),
    "torch.special": ("torch",),
    "torch": ("torch.nn.functional", "torch.linalg"),
}
