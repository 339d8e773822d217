"""Calls of torch's APIs with arguments that nobody would give: drawn for a schema of aten's, or a sample of torch's own
tests (OpInfo) with a change."""

from __future__ import annotations

import contextlib
import random
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.testing._internal.common_methods_invocations as invocations

from benchmarks.crashing.search import Call, Subject, flat
from pytest_probe.frameworks.torch import safety, signatures
from pytest_probe.frameworks.torch.allowlist import is_api
from pytest_probe.frameworks.torch.calls import CALLS
from pytest_probe.frameworks.torch.framework import TorchDevice

Arguments: TypeAlias = "tuple[list[Any], dict[str, Any]]"

# A dump's namespaces, where they lead, and what aten puts before the names of each.
PLACES = {
    "Torch": ("torch", ""),
    "Tensor": ("torch.Tensor", ""),
    "Functional": ("torch.nn.functional", ""),
    "Torch.linalg": ("torch.linalg", "linalg_"),
    "Torch.fft": ("torch.fft", "fft_"),
    "Torch.special": ("torch.special", "special_"),
}
CPU = TorchDevice("cpu")
DTYPES = (torch.float32, torch.float64, torch.int64, torch.int32, torch.bool, torch.complex64, torch.bfloat16)
# Numbers for sizes, dimensions, indices.
NUMBERS = (0, 1, 2, 3, -1, -2, 5, 7, 16, 100, -100, 4096, 10**6, -(10**6), 2**31, -(2**31) - 1, 2**40, 2**62, -(2**62))
TEXTS = ("mean", "sum", "none", "max", "min", "prod", "nearest", "bilinear", "reflect", "constant", "amax", "L", "x")
INDEXING = ("ind", "offset", "length", "size", "target", "step", "pivots", "zero")


def subjects(glob: str) -> Iterator[Subject]:
    """Everything that the allow-list admits and torch says a schema or has samples of."""
    infos: dict[str, list[Any]] = {}
    for info in invocations.op_db:
        infos.setdefault(info.name.removeprefix("nn.functional."), []).append(info)
    for namespace, (place, prefix) in PLACES.items():
        owner = torch.Tensor if place == "torch.Tensor" else sys.modules[place]
        below = place.removeprefix("torch.") if prefix else ""
        for name in sorted(dir(owner)):
            full = f"{namespace}.{name}"
            asked = ("torch", f"{below}.{name}") if below else (place, name)  # as the allow-list is asked
            if not fnmatchcase(full, glob) or not is_api(*asked):
                continue
            schemas = torch._C._jit_get_schemas_for_operator(f"aten::{prefix}{name}")
            found = infos.get(f"{below}.{name}" if below else name, []) if namespace != "Tensor" else []
            if schemas or found:
                yield Subject(full, partial(_prepared, full, getattr(owner, name), schemas, found))


def _prepared(name: str, function: Any, schemas: Sequence[Any], infos: Sequence[Any], seed: int, guarded: bool) -> Call:
    return partial(_call, name, function, schemas, list(_samples(infos)), seed, guarded)


def _samples(infos: Sequence[Any]) -> Iterator[Arguments]:
    for info in infos:
        for dtype in (torch.float32, torch.int64):
            with contextlib.suppress(Exception):
                for _, sample in zip(range(20), info.sample_inputs("cpu", dtype, requires_grad=False), strict=False):
                    yield [sample.input, *sample.args], dict(sample.kwargs)


def _call(
    name: str,
    function: Any,
    schemas: Sequence[Any],
    samples: Sequence[Arguments],
    seed: int,
    guarded: bool,
    number: int,
    tell: Callable[[str], None],
) -> None:
    drawn = zlib.crc32(f"{name} {seed}".encode()) + number
    rng = random.Random(drawn)
    torch.manual_seed(drawn)
    draw = Draw(rng)
    if samples and (number % 2 or not schemas):
        args, kwargs = _mutated(rng, *samples[rng.randrange(len(samples))])
    else:
        args, kwargs = draw.call(schemas[rng.randrange(len(schemas))])
    shown = [*map(_shown, args), *(f"{key}={_shown(value)}" for key, value in kwargs.items())]
    tell(f"{name}({', '.join(shown)})")
    if guarded:  # raises where pytest_probe refuses the call
        taken = {key: CALLS.take(value, CPU) for key, value in kwargs.items()}
        safety.check_arguments(signatures.bind(name, [CALLS.take(value, CPU) for value in args], taken))
    tensors = [value for value in flat(function(*args, **kwargs)) if isinstance(value, torch.Tensor)]
    text = str([value.sum() for value in tensors if value.layout is torch.strided])  # reads what was returned
    wanted = [value for value in tensors if value.requires_grad]
    if text and wanted:
        torch.autograd.backward([value.sum() for value in wanted])


class Draw:
    """Draws arguments; mostly plain ones, so that a call gets beyond its first check."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.shape = self._shape()
        self.count = rng.choice((1, 2, 3))

    def call(self, schema: Any) -> Arguments:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for argument in schema.arguments:
            if argument.is_out:
                continue
            optional = argument.default_value is not None or str(argument.type).startswith("Optional")
            default = optional and self.rng.random() < 0.4
            value = argument.default_value if default else self.value(str(argument.type), argument.name)
            if argument.kwarg_only:
                kwargs[argument.name] = value
            else:
                args.append(value)
        return args, kwargs

    def value(self, kind: str, name: str) -> Any:
        if kind.startswith("Optional["):
            return None if self.rng.random() < 0.3 else self.value(kind[9:-1], name)
        if kind == "List[Tensor]" and self.rng.random() < 0.8:
            shape = () if name == "state_steps" else self.shape
            dtype = torch.float32 if self.rng.random() < 0.9 else self._dtype()
            return [torch.randn(shape).to(dtype) for _ in range(self.count)]
        if kind.startswith("List["):
            return [self.value(kind[5:-1], name) for _ in range(self.rng.choice((0, 1, 2, 2, 3, 4)))]
        if kind == "Tensor":
            return self._tensor(name)
        if kind in ("int", "SymInt"):
            return self.rng.choice(NUMBERS[:9] if self.rng.random() < 0.8 else NUMBERS)
        return self.rng.choice(CHOICES.get(kind, (None,)))

    def _tensor(self, name: str) -> torch.Tensor:
        shape = self.shape if self.rng.random() < 0.6 else self._shape()
        integer = any(word in name for word in INDEXING) and self.rng.random() < 0.8
        dtype = torch.int64 if integer else self._dtype()
        if dtype in (torch.int64, torch.int32):
            made = _integers(self.rng, shape, dtype, wild=self.rng.random() < 0.5)
        else:
            made = torch.randn(shape).to(dtype)
        if self.rng.random() < 0.1 and made.dim() > 1:
            made = made.transpose(0, -1)
        return made.requires_grad_() if made.is_floating_point() and self.rng.random() < 0.5 else made

    def _shape(self) -> tuple[int, ...]:
        return tuple(self.rng.choice((0, 1, 2, 3, 4, 5, 8)) for _ in range(self.rng.choice((0, 1, 1, 2, 2, 3, 4, 5))))

    def _dtype(self) -> torch.dtype:
        return torch.float32 if self.rng.random() < 0.6 else self.rng.choice(DTYPES)


CHOICES: dict[str, Sequence[Any]] = {
    "float": (0.0, 0.5, 1.0, -1.0, 2.0, 1e-8, 1e30, float("nan"), float("inf")),
    "number": (0, 1, 2, -1, 0.5, 1e30, float("nan"), 10**6),
    "bool": (True, False),
    "str": TEXTS,
    "Device": (torch.device("cpu"),),
}


def _integers(rng: random.Random, shape: tuple[int, ...], dtype: torch.dtype, wild: bool) -> torch.Tensor:
    made = torch.randint(0, 3, shape, dtype=dtype)
    if wild and made.numel():
        limit = torch.iinfo(dtype)
        for _ in range(rng.choice((1, made.numel()))):
            made.view(-1)[rng.randrange(made.numel())] = min(max(rng.choice(NUMBERS), limit.min), limit.max)
    return made


def _mutated(rng: random.Random, args: list[Any], kwargs: dict[str, Any]) -> Arguments:
    """The call with one to three of its values changed."""
    args, kwargs = [*map(_copied, args)], {name: _copied(value) for name, value in kwargs.items()}
    places: list[tuple[Any, Any]] = [(args, place) for place in range(len(args))]
    places += [(kwargs, name) for name in kwargs]
    for _ in range(rng.choice((1, 1, 2, 3)) if places else 0):
        holder, place = rng.choice(places)
        holder[place] = _changed(rng, holder[place])
    return args, kwargs


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone() if value.layout is torch.strided else value
    return [_copied(item) for item in value] if type(value) in (list, tuple) else value


def _changed(rng: random.Random, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _changed_tensor(rng, value) if value.layout is torch.strided else value
    if isinstance(value, list) and value:
        place = rng.randrange(len(value))
        changed = [*value[:place], _changed(rng, value[place]), *value[place + 1 :]]
        return rng.choice((value[:-1], [*value, value[-1]], changed, changed))
    choices = {bool: (not value,), int: NUMBERS, float: (0.0, -1.0, 1e30, float("nan")), str: TEXTS}
    return rng.choice(choices.get(type(value), (value,)))


def _changed_tensor(rng: random.Random, value: torch.Tensor) -> torch.Tensor:
    if value.dtype in (torch.int64, torch.int32) and rng.random() < 0.7:
        return _integers(rng, tuple(value.shape), value.dtype, wild=True)
    changed = [value.reshape(-1), value.unsqueeze(0), value.to(rng.choice(DTYPES))]
    if value.dim():
        axis = rng.randrange(value.dim())
        changed += [value.narrow(axis, 0, size) for size in (0, (value.shape[axis] + 1) // 2)]
    return rng.choice([*changed, value.requires_grad_() if value.is_floating_point() else value])


def _shown(value: Any) -> str:
    """Tensors by dtype, shape and, where they are few integers, their values."""
    if isinstance(value, torch.Tensor):
        text = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        few = value.layout is torch.strided and not value.is_floating_point() and 0 < value.numel() <= 6
        return text + (str(value.tolist()) if few else "")
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_shown, value))}]"
    return repr(value)[:60]
