"""Faults in outputs of a million elements, of calls that are cut: `python benchmarks/large_faults.py [CALL ...]`.

Each fault is planted in each call, forward or in the gradient of the first argument, in three dtypes, on the CPU and
under another device name. Each is judged twice: in pieces, as large calls are, and by the whole output. A line a fault
has how many of its cases are errors in either way, and a last table the verdicts and the CPU time of healthy ones.
Places of faults are those of the tensor in rows of 1,024 elements.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from msgspec import Struct  # noqa: E402

from pytest_probe.check import (  # noqa: E402
    Checker,
    RunRequest,
    judging,
)
from pytest_probe.check.large import cuts  # noqa: E402
from pytest_probe.registry import Registry  # noqa: E402
from tests.support.devices import Emulated  # noqa: E402

Fault = Callable[[torch.Tensor], torch.Tensor]
WIDTH, SIZE = 1024, cuts.LARGE
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
DEVICES = ("cpu", "other")


class Call(Struct, frozen=True):
    """shapes are those of its tensors, of the first one first; rest are further arguments."""

    function: Callable[..., torch.Tensor]
    shapes: tuple[tuple[int, ...], ...] = ((SIZE // WIDTH, WIDTH),)
    rest: tuple[Any, ...] = ()
    api: str = ""

    def arguments(self, dtype: torch.dtype) -> list[Any]:
        generator = torch.Generator().manual_seed(1)
        return [*(torch.randn(shape, generator=generator).to(dtype) for shape in self.shapes), *self.rest]


def _rows(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda x, source, places: function(x, 0, places, source)


_PLACES = torch.randperm(SIZE // WIDTH, generator=torch.Generator().manual_seed(2))[: SIZE // WIDTH // 2]
_HALF = ((SIZE // WIDTH, WIDTH), (SIZE // WIDTH // 2, WIDTH))
CALLS: dict[str, Call] = {
    "gelu": Call(F.gelu, api="Functional.gelu"),
    "softmax": Call(lambda x: F.softmax(x, -1)),
    "layer_norm": Call(lambda x: F.layer_norm(x, [WIDTH])),
    "conv2d": Call(lambda x, w: F.conv2d(x, w, padding=1), ((8, 16, 128, 64), (16, 16, 3, 3))),
    "attention": Call(F.scaled_dot_product_attention, ((2, 32, 256, 64),) * 3),
    "batch_norm": Call(lambda x: F.batch_norm(x, None, None, training=True), ((32, 32, 32, 32),)),
    "avg_pool2d": Call(lambda x: F.avg_pool2d(x, 3, 1, 1), ((32, 32, 32, 32),)),
    "scatter": Call(_rows(torch.scatter), _HALF, (_PLACES[:, None].expand(_HALF[1]),)),
    "index_add": Call(_rows(torch.index_add), _HALF, (_PLACES,)),
    "cumsum": Call(lambda x: torch.cumsum(x, -1)),
}


def changed(place: Any, change: Callable[[torch.Tensor], Any]) -> Fault:
    """A fault in one place of the output."""

    def planted(right: torch.Tensor) -> torch.Tensor:
        wrong = right.clone()
        wrong[place] = change(right[place])
        return wrong

    return planted


def by_ulps(steps: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda right: right * (1 + steps * torch.finfo(right.dtype).eps)


def shifted(right: torch.Tensor) -> torch.Tensor:
    """A quarter of an ulp more on average: every fourth element is the next number."""
    wrong = right.clone()
    wrong.view(-1)[::4] = torch.nextafter(right.view(-1)[::4], torch.full((), torch.inf, dtype=right.dtype))
    return wrong


# In the middle, where no drawn row need be.
AT = (771, 513)
FAULTS: dict[str, Fault] = {
    "one element off by 16 ulps": changed(AT, by_ulps(16)),
    "one element off by 64 ulps": changed(AT, by_ulps(64)),
    "one element off by 1,024 ulps": changed(AT, by_ulps(1024)),
    "one element NaN": changed(AT, lambda right: torch.nan),
    "one element 0": changed(AT, torch.zeros_like),
    "one row 1 % too large": changed(771, lambda right: right * 1.01),
    "one row of the next": changed(771, lambda right: right.roll(1, -1)),
    "the last 7 elements 0": changed((-1, slice(-7, None)), torch.zeros_like),
    "one tile of 128 by 128 1 % too large": changed((slice(256, 384), slice(128, 256)), lambda right: right * 1.01),
    "every element off by 2^-10": lambda right: (
        right * (1 + 2.0**-10) if right.dtype is torch.float32 else right * 1.01
    ),
    "a quarter of an ulp too large": shifted,
    "two rows swapped": changed(slice(771, 773), lambda right: right.flip(0)),
    "no tail": changed(slice(-32, None), torch.zeros_like),
}


class Planted(torch.autograd.Function):
    """A function whose output, or gradient, has a fault where it does not run in float64."""

    @staticmethod
    def forward(context: Any, right: torch.Tensor, fault: Fault, there: bool) -> torch.Tensor:
        context.fault, context.there = fault, there
        return right.clone() if there or right.dtype is torch.float64 else fault(right)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        wrong = context.there and gradient.dtype is not torch.float64
        return context.fault(gradient) if wrong else gradient, None, None


def planted(function: Callable[..., torch.Tensor], fault: Fault, backward: bool) -> Callable[..., Any]:
    def in_rows(right: torch.Tensor) -> torch.Tensor:
        return fault(right.reshape(-1, WIDTH)).reshape(right.shape)

    if backward:
        return lambda x, *rest: function(Planted.apply(x, in_rows, True), *rest)
    return lambda *given: Planted.apply(function(*given), in_rows, False)


def verdict(name: str, dtype: torch.dtype, device: str, backward: bool, fault: Fault | None) -> str:
    registry = Registry.default()
    registry.devices["other"] = Emulated
    call = CALLS[name]
    wrong = call.function if fault is None else planted(call.function, fault, backward)
    checker = Checker(RunRequest(device=device), registry)
    given = call.arguments(dtype)
    found = checker.compare(wrong, call.function, given, api=call.api, key=name, backward=backward)
    return found[-1].verdict


def no_cause(*_: object) -> None:
    """No verdict hangs on the cause of an error. A mock would keep what it is called with."""


def both_ways(*args: Any) -> tuple[str, str]:
    """The verdict in pieces, and by the whole."""
    first = verdict(*args)
    with mock.patch.object(cuts, "LARGE", sys.maxsize):
        return first, verdict(*args)


def places(names: Sequence[str]) -> Iterator[tuple[str, torch.dtype, str, bool]]:
    yield from itertools.product(names, DTYPES, DEVICES, (False, True))


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("calls", nargs="*", metavar="CALL", help=", ".join(CALLS))
    names = parser.parse_args().calls or [*CALLS]
    with mock.patch.object(judging, "diagnose", no_cause):
        print("| fault | cases | errors in pieces | by the whole |\n|---|---|---|---|")
        for label, fault in FAULTS.items():
            found = [both_ways(*place, fault) for place in places(names)]
            first, whole = (sum(pair[side] == "error" for pair in found) for side in (0, 1))
            print(f"| {label} | {len(found)} | {first} | {whole} |", flush=True)
        print("\n| healthy | verdicts | CPU s in pieces | by the whole |\n|---|---|---|---|")
        for name in names:
            verdicts, seconds = Counter[str](), [0.0, 0.0]
            for place in places([name]):
                for side, least in enumerate((cuts.LARGE, sys.maxsize)):
                    start = time.process_time()
                    with mock.patch.object(cuts, "LARGE", least):
                        verdicts[verdict(*place, None)] += 1
                    seconds[side] += time.process_time() - start
            print(f"| {name} | {dict(verdicts)} | {seconds[0]:.1f} | {seconds[1]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
