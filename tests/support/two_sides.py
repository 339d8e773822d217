"""Programs that are recorded twice, once with a planted fault, for comparisons of two dumps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from pytest_probe import capture


class Fault(TorchDispatchMode):
    """Changes what the n-th call of an operator below the recorded API returns."""

    def __init__(self, operator: str, call: int, change: Callable[[Any], Any]) -> None:
        super().__init__()
        self._operator, self._left, self._change = operator, call, change

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunction():  # what happens here is no call of the program's
            result = function(*args, **(kwargs or {}))
            if function.overloadpacket.__name__ != self._operator:
                return result
            self._left -= 1
            return self._change(result) if self._left == -1 else result


class Block(nn.Module):
    """One layer of a small GPT. fused: q, k and v are one product."""

    def __init__(self, width: int = 16, *, fused: bool = True, sdpa: bool = False) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        if fused:
            self.qkv_proj = nn.Linear(width, 3 * width)
        else:
            self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.fused, self.sdpa = fused, sdpa

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm(x)
        q, k, v = self.qkv_proj(inner).chunk(3, -1) if self.fused else self._apart(inner)
        x = x + self.out(self._attention(q, k, v))
        return x + self.down(F.gelu(self.up(x)))

    def _attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.sdpa:
            return F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
        return torch.matmul(F.softmax(torch.matmul(q, k.transpose(-1, -2)) / 4, -1), v)

    def _apart(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.q_proj(x), self.k_proj(x), self.v_proj(x)


class Gpt(nn.Module):
    def __init__(self, blocks: int = 3, *, recompute: bool = False, extra: bool = False, **options: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        self.blocks = nn.ModuleList(Block(**options) for _ in range(blocks))
        self.head = nn.Linear(16, 11)
        self._recompute, self._extra = recompute, extra

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x)
        for number, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=False) if self._recompute else block(x)
            if self._extra and number == 1:
                torch.exp(x)
        return self.head(x)


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.lstm, self.head = nn.Embedding(11, 6), nn.LSTM(6, 5, batch_first=True), nn.Linear(5, 11)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(self.embedding(x))[0])


def tokens(rows: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(11, (rows, 6), generator=generator), torch.randint(11, (rows, 6), generator=generator)


def fill(model: nn.Module) -> None:
    """Weights that depend on their names alone; q, k and v one behind the other are those of qkv."""
    for name, weight in model.named_parameters():
        parts = [name] if "qkv_proj" not in name else [name.replace("qkv", each) for each in "qkv"]
        drawn = [_drawn(part, (weight.shape[0] // len(parts), *weight.shape[1:])) for part in parts]
        weight.data = torch.cat(drawn).to(weight.dtype)


def _drawn(name: str, shape: tuple[int, ...]) -> Tensor:
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    return torch.randn(shape, generator=generator) / 4 + ("norm.weight" in name)


def record(
    folder: Path,
    model: Callable[[], nn.Module] = Gpt,
    fault: AbstractContextManager[Any] | None = None,
    *,
    parts: int = 1,
    task: str = "tensor",
    wrap: Callable[[nn.Module], Callable[[Tensor], Tensor]] = lambda model: model,
    modules: bool = False,
    **options: Any,
) -> Path:
    """A step of training, whose batch is taken in so many parts; modules: they are recorded as well."""
    made = model()
    fill(made)
    called = wrap(made)
    x, y = tokens()
    options |= {"level": "mix", "model": made} if modules else {}
    with capture(folder, task=task, **options), fault or nullcontext():
        for one, other in zip(x.chunk(parts), y.chunk(parts), strict=True):
            loss = F.cross_entropy(called(one).flatten(0, 1), other.flatten()) / parts
            loss.backward()
    return folder
