"""Generated calls of torch's APIs: tensors of chosen size and dtype, and the call that takes them."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from msgspec import Struct, field

PLACES: Mapping[str, Any] = {
    "Torch": torch,
    "Tensor": torch.Tensor,
    "Functional": torch.nn.functional,
    "linalg": torch.linalg,
    "special": torch.special,
}


class Call(Struct, frozen=True):
    """A function by its recorded name ("Functional.softmax"), and what it is called with."""

    api: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)

    @property
    def function(self) -> Callable[..., Any]:
        place, _, name = self.api.partition(".")
        made: Callable[..., Any] = getattr(PLACES[place], name)
        return made if callable(made) else operator.attrgetter(name)  # a property: "Tensor.mT"


def call(api: str, *args: Any, **kwargs: Any) -> Call:
    return Call(api, args, kwargs)


def varied(make: Callable[..., Call], *choices: tuple[Any, ...]) -> tuple[Making, ...]:
    """A call for each choice, whose parts `make` takes behind the maker."""
    return tuple(_chosen(make, choice) for choice in choices)


def _chosen(make: Callable[..., Call], choice: tuple[Any, ...]) -> Making:
    return lambda maker: make(maker, *choice)


def place_of(name: str) -> str:
    """The recorded name of the function: "Functional.gelu"; where torch has several the first that is public."""
    for place in ("Torch", "Functional", "Tensor", "special", "linalg"):
        if inspect.isroutine(getattr(PLACES[place], name, None)) or (place == "Tensor" and hasattr(torch.Tensor, name)):
            return f"{place}.{name}"
    raise LookupError(name)


class Maker:
    """Makes tensors of one dtype from one stream; calls take `rows` and `cols` where they are free to."""

    def __init__(self, dtype: str, rows: int, cols: int, seed: int) -> None:
        self.dtype: torch.dtype = getattr(torch, dtype)
        self.rows, self.cols = rows, cols
        self._random = np.random.default_rng(seed)

    def tensor(self, values: Any) -> torch.Tensor:
        return torch.from_numpy(np.asarray(values, np.float64)).to(self.dtype)

    def x(self, *shape: int) -> torch.Tensor:
        """Standard normal; rows x cols without a shape."""
        return self.tensor(self._random.standard_normal(shape or (self.rows, self.cols)))

    def unit(self, *shape: int) -> torch.Tensor:
        """Between 0 and 1, far enough from both for every dtype."""
        return self.tensor(self._random.uniform(0.02, 0.98, shape or (self.rows, self.cols)))

    def positive(self, *shape: int) -> torch.Tensor:
        return self.tensor(self._random.uniform(0.1, 4.0, shape or (self.rows, self.cols)))

    def between(self, low: float, high: float, *shape: int) -> torch.Tensor:
        return self.tensor(self._random.uniform(low, high, shape or (self.rows, self.cols)))

    def index(self, high: int, *shape: int) -> torch.Tensor:
        return torch.from_numpy(np.asarray(self._random.integers(0, high, shape or (self.rows, self.cols))))

    def order(self, extent: int) -> torch.Tensor:
        """A permutation: indices without repetition."""
        return torch.from_numpy(self._random.permutation(extent))

    def mask(self, *shape: int) -> torch.Tensor:
        return torch.from_numpy(np.asarray(self._random.random(shape or (self.rows, self.cols)) < 0.5))

    def wide(self, *shape: int) -> torch.Tensor:
        """Standard normal, float32: for kernels that exist in no narrower dtype."""
        return self.x(*shape).float()

    def complex(self) -> torch.Tensor:
        return torch.complex(self.wide(), self.wide())

    def symmetric(self, extent: int) -> torch.Tensor:
        made = self.wide(extent, extent)
        return made + made.T

    def corners(self, *shape: int, step: int) -> torch.Tensor:
        """Places of maxima as pooling by `step` gives them."""
        places = torch.arange(0, shape[-1] * step, step) + self.index(step, shape[-1])
        return places.expand(shape).contiguous()


Making: TypeAlias = Callable[[Maker], Call]
# Calls by canonical name of the API: several where arguments decide what the kernel does.
Table: TypeAlias = Mapping[str, tuple[Making, ...]]
