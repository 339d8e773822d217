"""What the benchmark asks: a kernel, its reference, its inputs, and whether it is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from msgspec import Struct
from msgspec.structs import replace

Function = Callable[..., Any]
Inputs = Callable[[torch.dtype, torch.Generator], list[Any]]

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
ALL, NARROW = (F32, BF16, F16), (BF16, F16)
CPU, OTHER = "cpu", "other"
DEVICES = (CPU, OTHER)
# A kernel that rounds as accelerators do, which the CPU's own kernels have no reason to.
ACCELERATOR = (OTHER,)


class Entry(Struct, frozen=True):
    """One kernel. fault says in a sentence what is wrong with it, "" where it is healthy.

    base is the healthy kernel that a fault is a change of. loose: the reference does not settle the result (random
    draws, the order among equals), so that float64 is no self-check. close: how near the reference a healthy kernel
    comes in float64, relative to the value and to the output's RMS. allow: the --probe-allow that it needs.
    """

    name: str
    family: str
    kernel: Function
    reference: Function
    inputs: Inputs
    fault: str = ""
    base: Function | None = None
    api: str = ""
    backward: bool = False
    dtypes: tuple[torch.dtype, ...] = ALL
    devices: tuple[str, ...] = DEVICES
    allow: tuple[str, ...] = ("none",)
    loose: bool = False
    close: float = 1e-10

    @property
    def healthy(self) -> bool:
        return not self.fault


class Task(Struct, frozen=True):
    """What several entries have in common: the healthy kernel, the reference, the inputs."""

    name: str
    family: str
    kernel: Function
    reference: Function
    inputs: Inputs
    api: str = ""
    backward: bool = False
    dtypes: tuple[torch.dtype, ...] = ALL
    loose: bool = False

    def healthy(self, how: str, kernel: Function | None = None, **other: Any) -> Entry:
        """The healthy kernel, or another one; other: what differs from the task."""
        return replace(self._entry(how, kernel or self.kernel), **other)

    def fault(self, how: str, defect: str, kernel: Function, **other: Any) -> Entry:
        """A kernel with one defect, to be seen in the forward: gradients are not asked for."""
        changed = {"fault": defect, "base": self.kernel, "backward": False, **other}
        return replace(self._entry(how, kernel), **changed)

    def wrong_gradient(self, how: str, defect: str, kernel: Function, **other: Any) -> Entry:
        """A kernel with one defect in its backward."""
        return self.fault(how, defect, kernel, **{"backward": True, **other})

    def _entry(self, how: str, kernel: Function) -> Entry:
        return Entry(
            f"{self.name}: {how}",
            self.family,
            kernel,
            self.reference,
            self.inputs,
            api=self.api,
            backward=self.backward,
            dtypes=self.dtypes,
            loose=self.loose,
        )
