"""Verdicts on healthy calls of millions of elements: `python benchmarks/large_calls.py drawn|healthy [--count N]`.

drawn: calls of 2^20 to 2^24 elements, drawn among functions, dtypes, two device names, and both directions, each judged
in pieces and by the whole output; calls whose verdicts differ are listed. healthy: each function at 2^24 elements, in
three dtypes, forward and backward, under both names, in pieces alone; what does not pass is listed.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from pytest_probe.check import Checker, RunRequest, judging  # noqa: E402
from pytest_probe.check.large import cuts  # noqa: E402
from pytest_probe.registry import Registry  # noqa: E402
from tests.support.devices import Emulated  # noqa: E402

Tensor = torch.Tensor
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
DEVICES = ("cpu", "other")
WIDTH = 1024


class Call(NamedTuple):
    """A call: its name in a dump, "" for none; the function; and the arguments for rows of 1,024 elements."""

    api: str
    function: Callable[..., Any]
    given: Callable[[Rows], list[Any]]


class Rows:
    """Tensors of some rows of 1,024 elements, in a dtype, drawn from a seed."""

    def __init__(self, count: int, dtype: torch.dtype, seed: int) -> None:
        self.count, self.dtype = count, dtype
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape or (self.count, WIDTH), generator=self.generator).to(self.dtype)

    def positive(self, *shape: int) -> Tensor:
        return (torch.rand(shape or (self.count, WIDTH), generator=self.generator) + 0.1).to(self.dtype)

    def indices(self, below: int, *shape: int) -> Tensor:
        return torch.randint(below, shape, generator=self.generator)

    def mask(self) -> Tensor:
        return torch.rand(self.count, WIDTH, generator=self.generator) < 0.5


def images(rows: Rows) -> Tensor:
    return rows.normal(rows.count // 16, 16, 32, 32)


CALLS: tuple[Call, ...] = (
    Call("Functional.gelu", F.gelu, lambda rows: [rows.normal()]),
    Call("Functional.silu", F.silu, lambda rows: [rows.normal()]),
    Call("Functional.relu", F.relu, lambda rows: [rows.normal()]),
    Call("Functional.hardtanh", F.hardtanh, lambda rows: [rows.normal()]),
    Call("Torch.exp", torch.exp, lambda rows: [rows.normal()]),
    Call("Torch.tanh", torch.tanh, lambda rows: [rows.normal()]),
    Call("Torch.sigmoid", torch.sigmoid, lambda rows: [rows.normal()]),
    Call("Torch.log", torch.log, lambda rows: [rows.positive()]),
    Call("Torch.rsqrt", torch.rsqrt, lambda rows: [rows.positive()]),
    Call("Torch.add", torch.add, lambda rows: [rows.normal(), rows.normal()]),
    Call("Torch.mul", torch.mul, lambda rows: [rows.normal(), rows.normal(WIDTH)]),
    Call("Torch.div", torch.div, lambda rows: [rows.normal(), rows.positive()]),
    Call("Torch.pow", torch.pow, lambda rows: [rows.positive(), 3.0]),
    Call("Torch.addcmul", torch.addcmul, lambda rows: [rows.normal(), rows.normal(), rows.normal()]),
    Call("Torch.where", torch.where, lambda rows: [rows.mask(), rows.normal(), rows.normal()]),
    Call("Functional.softmax", F.softmax, lambda rows: [rows.normal(), -1]),
    Call("Functional.log_softmax", F.log_softmax, lambda rows: [rows.normal(), -1]),
    Call("Functional.layer_norm", F.layer_norm, lambda rows: [rows.normal(), [WIDTH], *_weights(rows, 2)]),
    Call("Functional.rms_norm", F.rms_norm, lambda rows: [rows.normal(), [WIDTH], *_weights(rows, 1)]),
    Call("Functional.group_norm", F.group_norm, lambda rows: [images(rows), 4]),
    Call("Functional.batch_norm", lambda x: F.batch_norm(x, None, None, training=True), lambda rows: [images(rows)]),
    Call("Functional.cross_entropy", F.cross_entropy, lambda rows: [rows.normal(), rows.indices(WIDTH, rows.count)]),
    Call("Functional.mse_loss", F.mse_loss, lambda rows: [rows.normal(), rows.normal()]),
    Call("Functional.embedding", F.embedding, lambda rows: [rows.indices(rows.count, rows.count), rows.normal()]),
    Call("Functional.linear", F.linear, lambda rows: [rows.normal(), rows.normal(64, WIDTH)]),
    Call("Torch.sum", lambda x: torch.sum(x, -1), lambda rows: [rows.normal()]),
    Call("Torch.mean", torch.mean, lambda rows: [rows.positive()]),
    Call("Torch.cumsum", lambda x: torch.cumsum(x, 0), lambda rows: [rows.normal(64, rows.count * WIDTH // 64)]),
    Call("Functional.max_pool2d", lambda x: F.max_pool2d(x, 2), lambda rows: [images(rows)]),
    Call("Torch.cat", lambda x, y: torch.cat([x, y], -1), lambda rows: [rows.normal(), rows.normal()]),
)


def _weights(rows: Rows, count: int) -> list[Tensor]:
    return [rows.positive(WIDTH) for _ in range(count)]


class Place(NamedTuple):
    """One check."""

    call: Call
    rows: int
    dtype: torch.dtype
    device: str
    backward: bool
    seed: int

    def __str__(self) -> str:
        direction = "backward" if self.backward else "forward"
        size = f"2^{math.log2(self.rows * WIDTH):.1f}"
        return f"{self.call.api} {direction}, {size}, {str(self.dtype).removeprefix('torch.')}, {self.device}"


def judged(place: Place) -> tuple[str, str, float]:
    """The verdict, its reason and the CPU seconds."""
    registry = Registry.default()
    registry.devices["other"] = Emulated
    given = place.call.given(Rows(place.rows, place.dtype, place.seed))
    checker = Checker(RunRequest(device=place.device), registry)
    start = time.process_time()
    function = place.call.function
    found = checker.compare(function, function, given, api=place.call.api, key="call", backward=place.backward)
    return found[-1].verdict, found[-1].reason, time.process_time() - start


def no_cause(*_: object) -> None:
    """No verdict hangs on the cause of an error."""


def drawn(count: int) -> Iterator[Place]:
    draw = random.Random(40)
    for number in range(count):
        rows = 16 * round(2 ** draw.uniform(6, 10))
        yield Place(draw.choice(CALLS), rows, draw.choice(DTYPES), draw.choice(DEVICES), draw.random() < 0.5, number)


def both_ways(count: int) -> None:
    verdicts, differ, seconds = Counter[str](), list[str](), [0.0, 0.0]
    for number, place in enumerate(drawn(count)):
        in_pieces = judged(place)
        with mock.patch.object(cuts, "LARGE", sys.maxsize):
            whole = judged(place)
        seconds = [sum(pair) for pair in zip(seconds, (in_pieces[2], whole[2]), strict=True)]
        verdicts[in_pieces[0]] += 1
        if in_pieces[0] != whole[0]:
            differ.append(f"{place}: {in_pieces[0]} {in_pieces[1]}; by the whole {whole[0]} {whole[1]}")
            print(differ[-1], flush=True)
        print(
            f"{number + 1}: {place}: {in_pieces[0]}, {in_pieces[2]:.1f} and {whole[2]:.1f} s",
            file=sys.stderr,
            flush=True,
        )
    told = ", ".join(f"{number} {word}" for word, number in verdicts.items())
    print(f"{count} drawn calls: {told}; {len(differ)} have another verdict by the whole output")
    print(f"CPU {seconds[0]:.0f} s in pieces, {seconds[1]:.0f} s by the whole")


def healthy(count: int) -> None:
    found = Counter[str]()
    for call in CALLS[:count]:
        for dtype in DTYPES:
            for device in DEVICES:
                for backward in (False, True):
                    place = Place(call, 2**14, dtype, device, backward, 1)
                    verdict, reason, seconds = judged(place)
                    found[verdict] += 1
                    if verdict != "pass":
                        print(f"{place}: {verdict} {reason}", flush=True)
                    print(f"{place}: {verdict}, {seconds:.1f} s", file=sys.stderr, flush=True)
    told = ", ".join(f"{number} {word}" for word, number in found.items())
    print(f"{sum(found.values())} checks of {len(CALLS[:count])} healthy calls of 2^24 elements: {told}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Verdicts on healthy calls of millions of elements")
    parser.add_argument("what", choices=["drawn", "healthy"])
    parser.add_argument("--count", type=int)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with mock.patch.object(judging, "diagnose", no_cause):
        if options.what == "drawn":
            both_ways(options.count or 200)
        else:
            healthy(options.count or len(CALLS))


if __name__ == "__main__":
    main()
