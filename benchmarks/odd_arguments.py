"""Arguments that nobody would give: drawn for a schema of aten's, or a sample of torch's own tests with a change."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

DTYPES = (torch.float32, torch.float64, torch.int64, torch.int32, torch.bool, torch.complex64, torch.bfloat16)
# Numbers for sizes, dimensions, indices.
NUMBERS = (0, 1, 2, 3, -1, -2, 5, 7, 16, 100, -100, 4096, 10**6, -(10**6), 2**31, -(2**31) - 1, 2**40, 2**62, -(2**62))
SMALL = NUMBERS[:9]
TEXTS = ("mean", "sum", "none", "max", "min", "prod", "nearest", "bilinear", "reflect", "constant", "amax", "L", "x")


class Draw:
    """Draws arguments; mostly plain ones, so that a call gets beyond its first check."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.shape = self._shape()
        self.count = rng.choice((1, 2, 3))

    def call(self, schema: Any) -> tuple[list[Any], dict[str, Any]]:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for argument in schema.arguments:
            if argument.is_out:
                continue
            optional = argument.default_value is not None or str(argument.type).startswith("Optional")
            if optional and self.rng.random() < 0.4:
                value = argument.default_value
            else:
                value = self.value(str(argument.type), argument.name)
            if argument.kwarg_only:
                kwargs[argument.name] = value
            else:
                args.append(value)
        return args, kwargs

    def value(self, kind: str, name: str) -> Any:
        if kind.startswith("Optional["):
            return None if self.rng.random() < 0.3 else self.value(kind[9:-1], name)
        if kind.startswith("List["):
            if kind == "List[Tensor]" and self.rng.random() < 0.8:
                shape = () if name == "state_steps" else self.shape
                dtype = torch.float32 if self.rng.random() < 0.9 else self._dtype()
                return [torch.randn(shape).to(dtype) for _ in range(self.count)]
            count = self.rng.choice((0, 1, 2, 2, 3, 4))
            return [self.value(kind[5:-1], name) for _ in range(count)]
        make = _KINDS.get(kind)
        return None if make is None else make(self, name)

    def tensor(self, name: str) -> torch.Tensor:
        shape = self.shape if self.rng.random() < 0.6 else self._shape()
        integer = any(word in name for word in ("ind", "offset", "length", "size", "target", "step", "pivots", "zero"))
        dtype = torch.int64 if integer and self.rng.random() < 0.8 else self._dtype()
        if dtype in (torch.int64, torch.int32):
            wild = self.rng.random() < 0.5
            made = _integers(self.rng, shape, dtype, wild)
        else:
            made = torch.randn(shape).to(dtype)
        if self.rng.random() < 0.1 and made.dim() > 1:
            made = made.transpose(0, -1)
        return made.requires_grad_() if made.is_floating_point() and self.rng.random() < 0.5 else made

    def number(self) -> int:
        return self.rng.choice(SMALL if self.rng.random() < 0.8 else NUMBERS)

    def _shape(self) -> tuple[int, ...]:
        return tuple(self.rng.choice((0, 1, 2, 3, 4, 5, 8)) for _ in range(self.rng.choice((0, 1, 1, 2, 2, 3, 4, 5))))

    def _dtype(self) -> torch.dtype:
        return torch.float32 if self.rng.random() < 0.6 else self.rng.choice(DTYPES)


_KINDS: dict[str, Callable[[Draw, str], Any]] = {
    "Tensor": Draw.tensor,
    "int": lambda draw, name: draw.number(),
    "SymInt": lambda draw, name: draw.number(),
    "float": lambda draw, name: draw.rng.choice((0.0, 0.5, 1.0, -1.0, 2.0, 1e-8, 1e30, float("nan"), float("inf"))),
    "number": lambda draw, name: draw.rng.choice((0, 1, 2, -1, 0.5, 1e30, float("nan"), 10**6)),
    "bool": lambda draw, name: draw.rng.random() < 0.5,
    "str": lambda draw, name: draw.rng.choice(TEXTS),
    "Device": lambda draw, name: torch.device("cpu"),
}


def _integers(rng: random.Random, shape: tuple[int, ...], dtype: torch.dtype, wild: bool) -> torch.Tensor:
    made = torch.randint(0, 3, shape, dtype=dtype)
    if wild and made.numel():
        flat = made.reshape(-1)
        for _ in range(rng.choice((1, made.numel()))):
            limit = torch.iinfo(dtype)
            flat[rng.randrange(made.numel())] = min(max(rng.choice(NUMBERS), limit.min), limit.max)
    return made


def mutated(rng: random.Random, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """A call with one to three of its values changed; floating tensors require grad half of the time."""
    places: list[tuple[Any, Any]] = [(args, place) for place in range(len(args))]
    places += [(kwargs, name) for name in kwargs]
    args[:] = [_copied(value) for value in args]
    for name in kwargs:
        kwargs[name] = _copied(kwargs[name])
    for _ in range(rng.choice((1, 1, 2, 3))):
        if places:
            holder, place = rng.choice(places)
            holder[place] = _changed(rng, holder[place])
    return args, kwargs


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone() if value.layout is torch.strided else value
    return [_copied(item) for item in value] if type(value) in (list, tuple) else value


def _changed(rng: random.Random, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _changed_tensor(rng, value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice(NUMBERS)
    if isinstance(value, float):
        return rng.choice((0.0, -1.0, 1e30, float("nan")))
    if isinstance(value, list) and value:
        kind = rng.randrange(4)
        if kind == 0:
            return value[:-1]
        if kind == 1:
            return [*value, value[-1]]
        place = rng.randrange(len(value))
        return [*value[:place], _changed(rng, value[place]), *value[place + 1 :]]
    return rng.choice(TEXTS) if isinstance(value, str) else value


def _changed_tensor(rng: random.Random, value: torch.Tensor) -> torch.Tensor:
    if value.layout is not torch.strided:
        return value
    if not value.is_floating_point() and not value.is_complex() and value.dtype != torch.bool and rng.random() < 0.7:
        return _integers(rng, tuple(value.shape), value.dtype, wild=True)
    kind = rng.randrange(6)
    if kind == 0:
        return value.reshape(-1)
    if kind == 1 and value.dim():
        return value.narrow(rng.randrange(value.dim()), 0, 0)
    if kind == 2 and value.dim():
        axis = rng.randrange(value.dim())
        return value.narrow(axis, 0, (value.shape[axis] + 1) // 2)
    if kind == 3:
        return value.unsqueeze(0)
    if kind == 4:
        return value.to(rng.choice(DTYPES))
    return value.requires_grad_() if value.is_floating_point() else value


def call_text(name: str, args: list[Any], kwargs: dict[str, Any]) -> str:
    """The call, with tensors by dtype, shape and, where they are few integers, their values."""
    shown = [*map(_shown, args), *(f"{key}={_shown(value)}" for key, value in kwargs.items())]
    return f"{name}({', '.join(shown)})"


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        text = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        few = value.layout is torch.strided and not value.is_floating_point() and 0 < value.numel() <= 6
        return text + (str(value.tolist()) if few else "")
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_shown, value))}]"
    return repr(value)[:60]
