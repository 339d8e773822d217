"""A device whose results are off: by a few roundoffs or by thousands, one call by more than the next, some by NaN."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

# Roundoffs of the result's dtype; a call in 20 gives one NaN as well.
SCALES = (0.0, 0.0, 0.5, 2.0, 8.0, 100.0, 3000.0)
NAN = 20


class Noisy:
    """`noisy:7` draws by seed 7."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._random = torch.Generator().manual_seed(int(name.partition(":")[2]))

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def get(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return tree_map_only(torch.Tensor, self._off, function(*args, **kwargs))

    def _off(self, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or not tensor.numel():
            return tensor
        scale = SCALES[self._draw(len(SCALES))] * torch.finfo(tensor.dtype).eps
        noise = 1 + scale * torch.randn(tensor.shape, generator=self._random)
        if not self._draw(NAN):
            noise.view(-1)[0] = torch.nan
        return (tensor * noise).to(tensor.dtype)

    def _draw(self, count: int) -> int:
        return int(torch.randint(count, (), generator=self._random))
