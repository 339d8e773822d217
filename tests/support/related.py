"""Kernels that each break one relation between calls, and are right otherwise; and the calls that show them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from msgspec import Struct
from torch import Tensor


def memory_at(x: Tensor, element: int) -> Tensor | None:
    """One element of the memory that a tensor is in, counted from the tensor's first; None where that has none. What is
    written there torch does not notice, as from a kernel."""
    place = x.storage_offset() + element
    if not 0 <= place < x.untyped_storage().nbytes() // x.element_size():
        return None
    return torch.empty(0, dtype=x.dtype, device=x.device).set_(x.untyped_storage(), place, (1,), (1,))


def writes_behind_its_output(x: Tensor, inplace: bool = False) -> Tensor:
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    out.copy_(torch.relu(x))
    behind = memory_at(out, out.numel())
    if behind is not None:
        behind.fill_(3.0)
    return out


def writes_before_its_input(x: Tensor, inplace: bool = False) -> Tensor:
    before = memory_at(x, -1)
    if before is not None:
        before.fill_(3.0)
    return torch.relu(x)


def reads_behind_its_input(x: Tensor, dim: int) -> Tensor:
    out = torch.softmax(x, dim)
    behind = memory_at(x, x.numel())
    if behind is not None:
        out[-1] += behind * 2.0**-40
    return out


def leaves_its_tail(x: Tensor, inplace: bool = False) -> Tensor:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    out.view(-1)[:-1].copy_(torch.relu(x).reshape(-1)[:-1])
    return out


class Cached:
    """A kernel that takes what lies at one address for the same numbers."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, torch.Size], Tensor] = {}

    def __call__(self, x: Tensor, dim: int) -> Tensor:
        key = x.data_ptr(), x.shape
        if key not in self._known:
            # What was there before stays, so that its memory is not given to another tensor.
            self._known[key] = torch.softmax(x, dim)
        return self._known[key].clone()


def splits_by_batch(x: Tensor, dim: int) -> Tensor:
    """A sum in two parts where there are few rows."""
    return x.softmax(-1) if x.shape[0] > 4 else _in_parts(x)


def _in_parts(x: Tensor) -> Tensor:
    wide = torch.exp(x - x.amax(-1, keepdim=True))
    third = x.shape[-1] // 3
    return wide / (wide[..., :third].sum(-1, keepdim=True) + wide[..., third:].flip(-1).sum(-1, keepdim=True))


class Ordered:
    """A kernel that adds in another order where rows do not come in the order of its first call."""

    def __init__(self) -> None:
        self._first: list[list[float]] = []

    def __call__(self, x: Tensor, dim: int) -> Tensor:
        rows = x.float().cpu().tolist()
        self._first = self._first or rows
        places = [self._first.index(row) if row in self._first else -1 for row in rows]
        return x.softmax(-1) if places == sorted(places) else _in_parts(x)


def copies(x: Tensor) -> Tensor:
    return torch.relu(x)


def reads_after_writing(x: Tensor, y: Tensor) -> Tensor:
    first = memory_at(x, 0)
    assert first is not None
    own = first.as_strided(x.shape, x.stride(), x.storage_offset())
    own.mul_(2)
    out = own * 0.5 + y
    own.mul_(0.5)
    return out


def forgets_its_out(x: Tensor, out: Tensor | None = None) -> Tensor:
    return torch.exp(x)


def takes_all_for_contiguous(x: Tensor, inplace: bool = False) -> Tensor:
    flat = torch.empty(0, dtype=x.dtype, device=x.device).set_(
        x.untyped_storage(), x.storage_offset(), x.shape, torch.empty(x.shape, device="meta").stride()
    )
    return torch.relu(flat)


class Fault(Struct, frozen=True):
    """A kernel: relation is the one that it breaks, api what it stands for, beside the call on healthy functions."""

    relation: str
    api: str
    kernel: Callable[[], Callable[..., Any]]
    function: Callable[..., Any]
    further: tuple[Any, ...] = ()
    tensors: int = 1
    # What the kernel stands for, where that is not the recorded API.
    twin: str = ""

    def calls(self) -> Mapping[str, Callable[..., Any]]:
        return {self.twin or self.api: self.kernel()}

    def args(self, dtype: torch.dtype) -> tuple[Any, ...]:
        """Tensors of six rows, and what comes behind them."""
        generator = torch.Generator().manual_seed(3)
        drawn = [torch.randn(6, 96, generator=generator) for _ in range(self.tensors)]
        return (*(x.to(dtype) for x in drawn), *self.further)


FAULTS: Mapping[str, Fault] = {
    "write behind": Fault("guard", "Functional.relu", lambda: writes_behind_its_output, F.relu),
    "write before": Fault("guard", "Functional.relu", lambda: writes_before_its_input, F.relu),
    "read behind": Fault("guard", "Functional.softmax", lambda: reads_behind_its_input, F.softmax, (-1,)),
    "tail": Fault("all-written", "Functional.relu", lambda: leaves_its_tail, F.relu),
    "address": Fault("again", "Functional.softmax", Cached, F.softmax, (-1,)),
    "split": Fault("batch", "Functional.softmax", lambda: splits_by_batch, F.softmax, (-1,)),
    "order": Fault("order", "Functional.softmax", Ordered, F.softmax, (-1,)),
    "copy": Fault("inplace", "Functional.relu", lambda: copies, F.relu, twin="Functional.relu_"),
    "alias": Fault("alias", "Torch.add", lambda: reads_after_writing, torch.add, tensors=2),
    "out": Fault("out", "Torch.exp", lambda: forgets_its_out, torch.exp),
    "strides": Fault("layout", "Functional.relu", lambda: takes_all_for_contiguous, F.relu),
}
