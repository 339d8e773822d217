"""How small a fault the rule finds, next to an oracle: `python benchmarks/oracle.py [--seeds N] [--faults N] [--lost]`.

The oracle knows the reference, and how each element scatters in 16 healthy runs of the kernel on neighbouring inputs.
It finds what is off by more than half an ulp and 6 standard deviations of that scatter. Each kernel runs once; then
faults are planted in its output: of 2 to 16 ulp or 1 to 100 %, in one element, in a row, in all and so on. Both judge
the same outputs, --faults drawn ones of each. The table has the share of what the oracle finds that the rule finds too.

Kernels are calls of the framework's and functions of a user's, 18 families. A kernel that *rounds once* computes in
float32; a *composed* one rounds each operation, as its reference in 16 bit does. Outputs have 64 or 16,384 elements.
Healthy outputs are judged as well. --lost lists the faults that the rule loses, by family, size and place.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from msgspec import Struct, field  # noqa: E402

from benchmarks.mutations import instead  # noqa: E402
from pytest_probe.check import Checker, RunRequest  # noqa: E402
from pytest_probe.model.comparison import Comparison  # noqa: E402
from pytest_probe.model.verdict import OutputVerdict  # noqa: E402
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, ulp, widen  # noqa: E402
from pytest_probe.registry import Registry  # noqa: E402
from pytest_probe.standards import STANDARDS  # noqa: E402
from tests.support.devices import Emulated  # noqa: E402

Tensor: TypeAlias = torch.Tensor
Function: TypeAlias = Callable[..., Tensor]
RUNS, DEVIATIONS = 16, 6.0
# Rows and columns of an output.
SIZES = ((4, 16), (64, 256))
DTYPES = ("float32", "bfloat16", "float16")
DEVICES = ("cpu", "other")
ONCE, COMPOSED = "rounds once", "composed"
ULPS, SHARES = (2, 4, 8, 16), (0.01, 0.02, 0.05, 0.1, 1.0)


class Family(Struct, frozen=True):
    """A reference and the shapes of its arguments for an output of so many rows and columns; api: the name of the
    framework's call, "" for a function of a user's."""

    name: str
    reference: Function
    shapes: Callable[[int, int], tuple[tuple[int, ...], ...]]
    api: str = ""


def swiglu(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(x @ gate) * (x @ up)


def rotary(x: Tensor, angles: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


def soft_cap(x: Tensor, weight: Tensor) -> Tensor:
    return 10 * torch.tanh(x @ weight / 10)


def hadamard(x: Tensor) -> Tensor:
    width = x.shape[-1]
    for step in (1 << bit for bit in range(width.bit_length() - 1)):
        pairs = x.reshape(-1, width // (2 * step), 2, step)
        x = torch.stack((pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]), 2).reshape(x.shape)
    return x * width**-0.5


def scan(x: Tensor, decay: Tensor) -> Tensor:
    state, found = torch.zeros_like(x[0]), []
    for row, share in zip(x, torch.sigmoid(decay), strict=True):
        state = share * state + row
        found.append(state)
    return torch.stack(found)


FAMILIES = (
    Family("linear", F.linear, lambda n, m: ((n, 128), (m, 128)), "Functional.linear"),
    Family(
        "conv2d", lambda x, w: F.conv2d(x, w, padding=1), lambda n, m: ((1, 16, n, m // 4), (4, 16, 3, 3)),
        "Functional.conv2d",
    ),
    Family("softmax", lambda x: F.softmax(x, -1), lambda n, m: ((n, m),), "Functional.softmax"),
    Family("log_softmax", lambda x: F.log_softmax(x, -1), lambda n, m: ((n, m),), "Functional.log_softmax"),
    Family(
        "layer_norm", lambda x, w, b: F.layer_norm(x, w.shape, w, b), lambda n, m: ((n, m), (m,), (m,)),
        "Functional.layer_norm",
    ),
    Family("gelu", F.gelu, lambda n, m: ((n, m),), "Functional.gelu"),
    Family("sigmoid", torch.sigmoid, lambda n, m: ((n, m),), "Torch.sigmoid"),
    Family("mul", torch.mul, lambda n, m: ((n, m), (n, m)), "Torch.mul"),
    Family("sum", lambda x: torch.sum(x, 0), lambda n, m: ((96, n, m),), "Torch.sum"),
    Family("addcmul", torch.addcmul, lambda n, m: ((n, m),) * 3, "Torch.addcmul"),
    Family(
        "attention call", F.scaled_dot_product_attention, lambda n, m: ((1, n, m), (1, 48, m), (1, 48, m)),
        "Functional.scaled_dot_product_attention",
    ),
    Family("SwiGLU", swiglu, lambda n, m: ((n, 64), (64, m), (64, m))),
    Family("rotary", rotary, lambda n, m: ((n, m), (n, m // 2))),
    Family("attention", attention, lambda n, m: ((n, 64), (80, 64), (80, m))),
    Family("RMS norm", rms_norm, lambda n, m: ((n, m), (m,))),
    Family("soft cap", soft_cap, lambda n, m: ((n, 64), (64, m))),
    Family("Hadamard", hadamard, lambda n, m: ((n, m),)),
    Family("scan", scan, lambda n, m: ((n, m), (n, m))),
)  # fmt: skip


def places(shape: tuple[int, ...], random: np.random.Generator) -> Iterator[tuple[str, BoolArray]]:
    """Where a fault may be, in an output."""
    rows = np.arange(int(np.prod(shape))).reshape(-1, shape[-1])
    row, column = (int(random.integers(extent)) for extent in rows.shape)
    high, wide = (max(2, extent // 8) for extent in rows.shape)
    top, left = row // high * high, column // wide * wide
    found = {
        "one element": rows[row, column],
        "last two": rows[-1, -2:],
        "a row": rows[row],
        "a tile": rows[top : top + high, left : left + wide],
        "last 1 %": rows.ravel()[-max(1, rows.size // 100) :],
        "every 64th": rows.ravel()[int(random.integers(64)) :: 64],
        "all": rows,
    }
    for name, chosen in found.items():
        there = np.zeros(rows.size, dtype=bool)
        there[np.ravel(chosen)] = True
        yield name, there.reshape(shape)


def faults(actual: AnyArray, random: np.random.Generator) -> Iterator[tuple[str, str, AnyArray, BoolArray]]:
    """Each size in each place, in the output's dtype."""
    wide, dtype = widen(actual), actual.dtype
    sized = {f"{count} ulp": wide + np.copysign(count * ulp(wide, dtype), wide) for count in ULPS}
    sized |= {f"{100 * share:g} %": wide * (1 + share) for share in SHARES}
    for (size, values), (place, there) in itertools.product(sized.items(), list(places(actual.shape, random))):
        yield size, place, np.where(there, values, wide).astype(dtype), there


def excess(values: AnyArray, expected: AnyArray, dtype: Any) -> AnyArray:
    """How far numbers are off, beyond half an ulp."""
    return np.asarray(np.maximum(np.abs(widen(values) - expected) - ulp(expected, dtype) / 2, 0.0))


class Kernel(Struct, frozen=True):
    """A family's kernel in one dtype, with arguments."""

    family: Family
    kind: str
    dtype: str
    args: tuple[Tensor, ...]

    def __call__(self, *args: Tensor) -> Tensor:
        return self.unrounded(*args).to(getattr(torch, self.dtype))

    def unrounded(self, *args: Tensor) -> Tensor:
        """Before the last rounding, where that is apart."""
        apart = self.kind == ONCE and self.dtype != "float32"
        return self.family.reference(*(each.float() if apart else each for each in args))

    def scatter(self, generator: torch.Generator) -> AnyArray:
        """The standard deviation of each element, from runs on neighbouring inputs beside their own references."""
        squares: Any = 0.0
        for _ in range(RUNS):
            near = [self._near(each, generator) for each in self.args]
            expected = self.family.reference(*(each.double() for each in near))
            squares = squares + (self.unrounded(*near).double() - expected).numpy() ** 2
        return np.asarray(np.sqrt(squares / RUNS))

    def _near(self, tensor: Tensor, generator: torch.Generator) -> Tensor:
        moved = torch.rand(tensor.shape, generator=generator, dtype=torch.float64) * 2 - 1
        return (tensor.double() * (1 + 2 * torch.finfo(tensor.dtype).eps * moved)).to(tensor.dtype)


class Scores(Struct):
    """In the place of a standard: judges the healthy output and drawn faults of the kernel at hand."""

    name: str = "scores"
    column: tuple[str, str, str] = ("", "", "")
    label: str = ""
    faults: int = 0
    bound: AnyArray = np.zeros(())
    random: np.random.Generator = np.random.default_rng()
    counts: Counter[tuple[tuple[str, str, str], str]] = field(default_factory=Counter)
    lost: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def judge(self, comparison: Comparison) -> OutputVerdict:
        expected, dtype = comparison.expected, comparison.actual.dtype
        verdict = STANDARDS["auto"].judge(comparison)
        beyond = excess(comparison.actual, expected, dtype) > self.bound
        self.counts.update(
            {(self.column, "healthy"): 1, (self.column, "false"): verdict.verdict == "error",
             (self.column, "false of the oracle"): bool(beyond.any())}
        )  # fmt: skip
        if verdict.verdict == "error":
            print(f"false error: {self.label} {self.column}: {verdict.reason}", flush=True)
        planted = list(faults(comparison.actual, self.random))
        drawn = self.random.permutation(len(planted))[: self.faults]
        for size, place, changed, there in (planted[number] for number in drawn):
            if not ((excess(changed, expected, dtype) > self.bound) & there & ~beyond).any():
                continue
            found = STANDARDS["auto"].judge(instead(comparison, changed)).verdict == "error"
            self.counts.update({(self.column, "oracle"): 1, (self.column, "rule"): found})
            bits = "32" if self.column[0] == "float32" else "16"
            self.counts.update({((bits, place, size), "oracle"): 1, ((bits, place, size), "rule"): found})
            if not found:
                self.lost[(*self.column, self.label, place, size)] += 1
        return verdict


def kernels(seed: int) -> Iterator[tuple[str, Kernel]]:
    for family, dtype, size in itertools.product(FAMILIES, DTYPES, SIZES):
        label = f"{family.name} {size[0] * size[1]}"
        generator = torch.Generator().manual_seed(zlib.crc32(f"{label} {dtype} {seed}".encode()))
        args = tuple(
            torch.randn(shape, generator=generator).to(getattr(torch, dtype)) for shape in family.shapes(*size)
        )
        kinds = (ONCE,) if family.api or dtype == "float32" else (ONCE, COMPOSED)
        yield from ((label, Kernel(family, kind, dtype, args)) for kind in kinds)


def scored(seeds: range, count: int) -> Scores:
    scores, registry = Scores(faults=count), Registry.default()
    registry.devices["other"], registry.standards[scores.name] = Emulated, scores
    checkers = {device: Checker(RunRequest(device=device, standard=scores.name), registry) for device in DEVICES}
    for seed in seeds:
        for label, kernel in kernels(seed):
            scores.label, scores.random = label, np.random.default_rng(zlib.crc32(f"{label} {seed}".encode()))
            scores.bound = DEVIATIONS * kernel.scatter(torch.Generator().manual_seed(seed))
            for device, checker in checkers.items():
                scores.column = (kernel.dtype, kernel.kind, device)
                reference, api = kernel.family.reference, kernel.family.api
                checker.compare(kernel, reference, kernel.args, api=api, key=label, dtype=False)
    return scores


def share(counts: Mapping[tuple[tuple[str, str, str], str], int], column: tuple[str, str, str]) -> str:
    oracle, rule = counts[column, "oracle"], counts[column, "rule"]
    return f"{100 * rule / oracle:.1f} % of {oracle:,}" if oracle else ""


def table(scores: Scores) -> Iterator[str]:
    counts = scores.counts
    yield "| dtype | kernel | device | of what the oracle finds | healthy | false errors | of the oracle |"
    yield "|---|---|---|---:|---:|---:|---:|"
    for column in itertools.product(DTYPES, (ONCE, COMPOSED), DEVICES):
        if counts[column, "healthy"]:
            healthy = (f"{counts[column, kind]:,}" for kind in ("healthy", "false", "false of the oracle"))
            yield f"| {' | '.join([*column, share(counts, column), *healthy])} |"
    sizes = [*(f"{count} ulp" for count in ULPS), *(f"{100 * each:g} %" for each in SHARES)]
    for bits in ("16", "32"):
        yield f"\n| {bits} bit | {' | '.join(sizes)} |\n|---|{'---:|' * len(sizes)}"
        for place, _ in places(SIZES[0], np.random.default_rng(0)):
            cells = (share(counts, (bits, place, size)).partition(" of ")[0] for size in sizes)
            yield f"| {place} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1, help="draws of the arguments")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--faults", type=int, default=63, help="drawn faults of each output, of 63")
    parser.add_argument("--lost", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    start = time.process_time()
    scores = scored(range(options.first, options.first + options.seeds), options.faults)
    print("\n".join(table(scores)))
    if options.lost:
        print("\n" + "\n".join(f"{count} x {', '.join(what)}" for what, count in sorted(scores.lost.items())))
    print(f"\n{time.process_time() - start:.0f} s of CPU")


if __name__ == "__main__":
    main()
