"""What the verdicts are tried on: calls with their arguments, from dumps, from OpInfo and drawn."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Protocol, TypeAlias

import torch
import torch.nn.functional as F
from msgspec import Struct

from pytest_probe.check import Case, Checker

LARGEST = 200_000  # elements of all tensors of one call


class Sample(Struct, frozen=True):
    """One call; label names it in lists, cases makes it ready for a checker, seed is its framework's."""

    label: str
    cases: Callable[[Checker], Sequence[Case]]
    seed: Callable[[int], object] = torch.manual_seed


class LeftOut(Struct, frozen=True):
    """What a source has and cannot give, and why."""

    label: str
    reason: str


Samples: TypeAlias = Iterator["Sample | LeftOut"]


class Wish(Struct, frozen=True):
    """Which samples: so many an API, in a dtype, of the APIs that a pattern matches. tiny makes products subnormal."""

    dtype: str
    count: int
    api: str = "*"
    tiny: bool = False

    def takes(self, api: str) -> bool:
        return fnmatchcase(api, self.api)


class Source(Protocol):
    def __call__(self, wish: Wish) -> Samples: ...


def of_function(
    label: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    api: str,
    backward: bool,
    tiny: bool = False,
) -> Sample | LeftOut:
    """A call of a function, which is its own reference."""
    tensors = list(_tensors([*args, *kwargs.values()]))
    size = sum(tensor.numel() for tensor in tensors)
    if size > LARGEST:
        return LeftOut(label, f"more than {LARGEST:,} elements")
    if any(tensor.layout is not torch.strided or tensor.is_quantized for tensor in tensors):
        return LeftOut(label, "sparse, nested or quantized tensors")
    if tiny:
        args, kwargs = _tiny(tuple(args), label), {name: _tiny(value, label) for name, value in kwargs.items()}

    def cases(checker: Checker) -> Sequence[Case]:
        return checker.pairs(function, function, args, kwargs, api=api, backward=backward, key=label)

    return Sample(label, cases)


def seed_of(label: str) -> int:
    return zlib.crc32(label.encode())


def named(api: str) -> Callable[..., Any]:
    """The function of a dump's name for it: "Functional.softmax", "Torch.linalg.svd"."""
    namespace, _, path = api.partition(".")
    found: Any = {"Functional": F, "Tensor": torch.Tensor, "Torch": torch}[namespace]
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, dict):
        yield from _tensors(list(tree.values()))
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            yield from _tensors(item)


def _tiny(tree: Any, label: str) -> Any:
    """Floats made so small that some of them, or of their products, are subnormal."""
    if isinstance(tree, torch.Tensor):
        return tree * 2.0 ** (-120 if seed_of(label) % 2 else -60) if tree.is_floating_point() else tree
    if isinstance(tree, (list, tuple)):
        return type(tree)(_tiny(item, label) for item in tree)
    return tree
