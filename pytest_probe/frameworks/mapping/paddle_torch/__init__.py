"""Paddle's APIs by torch's: how the names of both are spelled. Entries are in the YAML files."""

from __future__ import annotations

from collections.abc import Mapping

RECORD, CALL = "paddle", "torch"
# Where functions stand that are methods too, or that have a name in two modules; and what operators are called.
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
    **{
        f"torch.Tensor.__{prefix}{name}__": (f"torch.{function}",)
        for name, function in (("add", "add"), ("mul", "mul"), ("sub", "sub"), ("truediv", "div"))
        for prefix in ("", "i", *(("r",) if name in ("add", "mul") else ()))
    },
    **{f"torch.Tensor.__{name}__": (f"torch.{name}",) for name in "eq ne lt le gt ge matmul".split()},
}
