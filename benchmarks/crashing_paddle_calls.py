"""Which of Paddle's calls end the process on odd arguments? A dump is untrusted, and may ask for any of them.

    python benchmarks/crashing_paddle_calls.py [--seed N] [--calls N] [--api GLOB] [--unguarded]

As crashing_calls.py: every API and every operator that a dump may name is called on the CPU, with its backward, in
forked children. Paddle says no schemas of its APIs, so that their arguments are drawn by chance, from none to five of
them: tensors of several shapes and dtypes, indices out of range, numbers, lists, None. Calls that the checks of
pytest_probe refuse are not made; --unguarded makes them all the same.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import warnings
import zlib
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from msgspec import Struct

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import paddle

from benchmarks.deaths import Call, Search, flat
from pytest_probe.frameworks.paddle import allowlist, safety, signatures
from pytest_probe.model.arguments import Leaf

SHAPES = [(2, 3), (3,), (), (0, 3), (4, 4), (2, 3, 4, 4), (2, 3, 5), (1,), (3, 2)]
DTYPES = ["float32"] * 7 + ["int64"] * 3 + ["bool", "int32", "float64", "complex64"]
INTEGERS = [0, 1, 2, -1, 3, -5, 7, 100, 2**31, -(2**31)]
FLOATS = [0.5, 1e-5, float("nan"), -2.0]
# How often each kind of argument is drawn, of a hundred: see Draw.argument.
KINDS = [62, 16, 4, 6, 6, 3, 3]
COUNTS = [0, 1, 1, 2, 2, 2, 3, 3, 4, 5]


class Draw(Struct, frozen=True):
    """Odd arguments: Leaf in the place of a tensor."""

    rng: random.Random

    def tensor(self) -> Leaf:
        shape, dtype = self.rng.choice(SHAPES), self.rng.choice(DTYPES)
        numbers = np.random.default_rng(self.rng.randrange(1 << 30))
        if dtype.startswith("int"):
            far = 1 << 40 if dtype == "int64" else 99
            low, high = self.rng.choice([0, -3, -far]), self.rng.choice([2, 5, far])
            return Leaf(numbers.integers(low, high, shape).astype(dtype))
        return Leaf(np.asarray(numbers.standard_normal(shape) * self.rng.choice([1, 1, 1e10])).astype(dtype))

    def argument(self) -> Any:
        kind = self.rng.choices(["tensor", "integer", "float", "none", "integers", "flag", "tensors"], KINDS)[0]
        return {
            "tensor": self.tensor,
            "integer": lambda: self.rng.choice(INTEGERS),
            "float": lambda: self.rng.choice(FLOATS),
            "none": lambda: None,
            "integers": lambda: [self.rng.choice([0, 1, 2, -1, 5, 1 << 40]) for _ in range(self.rng.randrange(4))],
            "flag": lambda: self.rng.choice([True, False]),
            "tensors": lambda: [self.tensor() for _ in range(self.rng.randrange(3))],
        }[kind]()

    def arguments(self, method: bool) -> list[Any]:
        found = [self.argument() for _ in range(self.rng.choice(COUNTS))]
        return [self.tensor(), *found[1:]] if method else found


class Calls(Struct, frozen=True):
    """The calls of one API, by their numbers."""

    name: str
    seed: int
    guarded: bool

    def prepare(self) -> Call:
        return self._call

    def _call(self, number: int, tell: Callable[[str], None]) -> None:
        draw = Draw(random.Random(zlib.crc32(f"{self.name} {self.seed} {number}".encode())))
        args = draw.arguments(".Tensor." in self.name)
        tell(f"{self.name}({', '.join(map(_text, args))})")
        if self.guarded:
            safety.check_arguments(signatures.bind(self.name, args, {}))
        (api,) = allowlist.candidates("paddle", self.name.partition(".")[2], {})
        function = api.lookup()
        tensors = [value for value in flat(function(*map(_made, args))) if isinstance(value, paddle.Tensor)]
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


def _operators() -> list[str]:
    return [f"paddle._C_ops.{name}" for name in dir(paddle._C_ops) if allowlist.is_api(f"_C_ops.{name}")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--calls", type=int, default=100, help="calls of each API (default: 100)")
    parser.add_argument("--api", default="*", metavar="GLOB", help="only these, as dumps name them")
    parser.add_argument("--unguarded", action="store_true", help="make the calls that the checks refuse, too")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    paddle.disable_signal_handler()
    names = [name for name in sorted({*allowlist.apis(), *_operators()}) if fnmatchcase(name, given.api)]
    deaths = 0
    for name in names:
        for death in Search(given.calls, Calls(name, given.seed, not given.unguarded).prepare).deaths():
            deaths += 1
            print(death, flush=True)
    print(f"{len(names)} APIs, {given.calls} calls each: {deaths} deaths")


if __name__ == "__main__":
    main()
