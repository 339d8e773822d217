"""Operators of torch's OpInfo at poles, overflows, infinities and NaN: right answers, and five wrong ones for each.

    python benchmarks/infinities.py [NAME ...]

Each operator of one or two tensors, element by element, and each reduction of rows, is applied to 300 numbers with one
odd number in front of them. Where float64 then gives an infinity or NaN, the CPU's own answer has to pass, and NaN, the
other infinity, 0, a usual number and the largest number have to be errors: in three dtypes, on the CPU and under
another device name. Prints what is not so, and how often all is well.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, ReductionOpInfo, UnaryUfuncInfo  # noqa: E402

from pytest_probe.check import Checker, RunRequest  # noqa: E402
from pytest_probe.registry import Registry  # noqa: E402
from tests.evidence.infinities import Case, Function, numbers, places, spoiled, wrong_answers  # noqa: E402
from tests.support.devices import Emulated  # noqa: E402

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
DEVICES = ("cpu", "other")
ODD = {
    "0": 0.0, "-0": -0.0, "1": 1.0, "-1": -1.0, "-2": -2.0, "1e4": 1e4, "-1e4": -1e4, "inf": math.inf,
    "-inf": -math.inf, "NaN": math.nan,
}  # fmt: skip
# What is about a dtype has no other one as its reference.
OF_A_DTYPE = ("nextafter",)


def cases(wanted: set[str]) -> Iterator[tuple[str, Case]]:
    """A function and its inputs, by a name that says what is odd."""
    for op in op_db:
        label = ".".join(part for part in (op.name, op.variant_test_name) if part)
        if op.name in wanted or not (wanted or op.name in OF_A_DTYPE):
            for odd, value in ODD.items():
                yield from ((f"{label}({where}{odd})", case) for where, case in _of_op(op, value))


def _of_op(op: Any, odd: float) -> Iterator[tuple[str, Case]]:
    if isinstance(op, UnaryUfuncInfo):
        yield "", Case(op.op, lambda dtype: [numbers(dtype, odd)])
    elif isinstance(op, BinaryUfuncInfo):
        yield "", Case(op.op, lambda dtype: [numbers(dtype, odd), numbers(dtype, seed=1)])
        yield "x, ", Case(op.op, lambda dtype: [numbers(dtype), numbers(dtype, odd, seed=1)])
    elif isinstance(op, ReductionOpInfo):
        yield (
            "a row with ",
            Case(lambda x: op.op(x.reshape(10, 30), dim=-1), lambda dtype: [numbers(dtype, odd, low=-1.0)]),
        )


def checked(case: Case, function: Function, dtype: torch.dtype, device: str) -> tuple[str, str]:
    registry = Registry.default()
    registry.devices["other"] = Emulated
    checker = Checker(RunRequest(device=device, allow=("none",)), registry)
    [found] = checker.compare(function, case.function, case.inputs(dtype), key="infinities")
    return found.verdict, found.reason


def odd_places(case: Case, dtype: torch.dtype) -> list[tuple[int, float]]:
    """Where float64 gives an infinity or NaN; none where the operator gives no tensor of floats, or takes no such."""
    inputs = case.inputs(dtype)
    try:
        found, narrow = case.function(*(value.double() for value in inputs)), case.function(*inputs)
    except (RuntimeError, TypeError, NotImplementedError, IndexError, AssertionError):
        return []
    if not isinstance(found, torch.Tensor) or found.dtype is not torch.float64 or not narrow.is_floating_point():
        return []
    return places(case.function, inputs)


def wrongly_judged(name: str, case: Case, dtype: torch.dtype, device: str, counts: Counter[str]) -> Iterator[str]:
    where = f"{name} in {str(dtype).removeprefix('torch.')} on {device}"
    found = odd_places(case, dtype)
    if not found:
        return
    counts["right"] += 1
    verdict, reason = checked(case, case.function, dtype, device)
    if verdict != "pass":
        yield f"{where}: the CPU's own answer is {verdict}: {reason}"
    for place, right in found:
        for answer in wrong_answers(right):
            counts["wrong"] += 1
            verdict, reason = checked(case, spoiled(case.function, place, answer), dtype, device)
            if verdict != "error":
                counts[verdict] += 1
                yield f"{where}: {answer} in place of {right} is {verdict} {reason}"


def main() -> None:
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    for name, case in cases(set(sys.argv[1:])):
        for dtype in DTYPES:
            for device in DEVICES:
                for line in wrongly_judged(name, case, dtype, device, counts):
                    print(line, flush=True)
    print(f"{counts['right']:,} right answers, {counts['wrong']:,} wrong ones, of which {counts['pass']:,} pass, and "
          f"{counts['warning']:,} are warnings")  # fmt: skip


if __name__ == "__main__":
    main()
