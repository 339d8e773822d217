"""Calls of Paddle's APIs and operators with arguments drawn by chance: Paddle says no schemas of its APIs."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import numpy as np
import paddle

from benchmarks.crashing.search import Call, Subject, flat
from pytest_probe.frameworks.paddle import allowlist, safety, signatures
from pytest_probe.model.run import Leaf

SHAPES = [(2, 3), (3,), (), (0, 3), (4, 4), (2, 3, 4, 4), (2, 3, 5), (1,), (3, 2)]
DTYPES = ["float32"] * 7 + ["int64"] * 3 + ["bool", "int32", "float64", "complex64"]
INTEGERS = [0, 1, 2, -1, 3, -5, 7, 100, 2**31, -(2**31)]
FLOATS = [0.5, 1e-5, float("nan"), -2.0]
COUNTS = [0, 1, 1, 2, 2, 2, 3, 3, 4, 5]


def _tensor(rng: random.Random) -> Leaf:
    shape, dtype = rng.choice(SHAPES), rng.choice(DTYPES)
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    if dtype.startswith("int"):
        far = 1 << 40 if dtype == "int64" else 99
        low, high = rng.choice([0, -3, -far]), rng.choice([2, 5, far])
        return Leaf(numbers.integers(low, high, shape).astype(dtype))
    return Leaf(np.asarray(numbers.standard_normal(shape) * rng.choice([1, 1, 1e10])).astype(dtype))


# Each kind of argument, and how often it is drawn, of a hundred.
KINDS: dict[Callable[[random.Random], Any], int] = {
    _tensor: 62,
    lambda rng: rng.choice(INTEGERS): 16,
    lambda rng: rng.choice(FLOATS): 4,
    lambda rng: None: 6,
    lambda rng: [rng.choice([0, 1, 2, -1, 5, 1 << 40]) for _ in range(rng.randrange(4))]: 6,
    lambda rng: rng.choice([True, False]): 3,
    lambda rng: [_tensor(rng) for _ in range(rng.randrange(3))]: 3,
}


def _arguments(rng: random.Random, method: bool) -> list[Any]:
    """Leaf in the place of a tensor; a method has one first."""
    found = [rng.choices([*KINDS], [*KINDS.values()])[0](rng) for _ in range(rng.choice(COUNTS))]
    return [_tensor(rng), *found[1:]] if method else found


def subjects(glob: str) -> Iterator[Subject]:
    """Everything that the allow-list admits: APIs and operators."""
    paddle.disable_signal_handler()
    operators = {f"paddle._C_ops.{name}" for name in dir(paddle._C_ops) if allowlist.is_api(f"_C_ops.{name}")}
    for name in sorted({*allowlist.apis(), *operators}):
        if fnmatchcase(name, glob):
            yield Subject(name, partial(_prepared, name))


def _prepared(name: str, seed: int, guarded: bool) -> Call:
    return partial(_call, name, seed, guarded)


def _call(name: str, seed: int, guarded: bool, number: int, tell: Callable[[str], None]) -> None:
    rng = random.Random(zlib.crc32(f"{name} {seed} {number}".encode()))
    args = _arguments(rng, ".Tensor." in name)
    tell(f"{name}({', '.join(map(_text, args))})")
    if guarded:
        safety.check_arguments(signatures.bind(name, args, {}))
    (api,) = allowlist.candidates("paddle", name.partition(".")[2], {})
    result = api.lookup()(*map(_made, args))
    tensors = [value for value in flat(result) if isinstance(value, paddle.Tensor)]
    text = str([value.numpy().sum() for value in tensors])  # reads what was returned
    wanted = [value.sum() for value in tensors if not value.stop_gradient]
    if text and wanted:
        paddle.autograd.backward(wanted)


def _made(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_made, value))
    if isinstance(value, Leaf):
        return paddle.to_tensor(value.array, stop_gradient=value.array.dtype.kind != "f")
    return value


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return f"{value.array.dtype}{list(value.array.shape)}" if isinstance(value, Leaf) else repr(value)
