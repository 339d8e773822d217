"""The compiled kernel of numbers beside NumPy: CPU time of one thread for an element, in the same process.

    OMP_NUM_THREADS=1 python benchmarks/numbers_kernel.py [--size 22]

Drawn tensors follow recorded statistics, from the draw to the dtype; outputs are looked at piece by piece, as a large
case is, with errors in one element of ten; arguments move as in a perturbed run. The least of nine times.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator

import numpy as np

from pytest_probe.check.run_kinds import Independent, by_blocks
from pytest_probe.frameworks.torch.signatures import bind
from pytest_probe.inputs.generated import generate_in
from pytest_probe.model.comparison import ComparedCase, Comparison
from pytest_probe.model.dump import TensorSpec
from pytest_probe.numerics import kernel
from pytest_probe.numerics.dtypes import AnyArray, numpy_dtype, round_to
from pytest_probe.numerics.metrics import Description
from pytest_probe.standards.noise.unsampled_suspects import UnsampledSuspects

PIECE = 2**18
ROUNDOFF = 2.0**-24


def stream() -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=0))


def works(size: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """What is measured, by name."""
    shape = (size // 1024, 1024)
    norm = math.sqrt(size)
    laws = {"as of normal numbers": (4.5, -4.5, 0.0, norm), "as after relu": (5.5, 0.0, 0.399, norm * math.sqrt(0.5))}
    for name, told in laws.items():
        spec = TensorSpec("bfloat16", shape, *told)
        yield f"numbers {name}", lambda spec=spec: generate_in(spec, stream(), "bfloat16")  # type: ignore[misc]
    for dtype in ("bfloat16", "float32"):
        actual, expected = sides(size, dtype)
        case = ComparedCase(
            bind("Torch.exp", (), {}), frozenset(), "forward", "" if dtype == "float32" else dtype, True
        )
        evidence = None  # which a test of single elements never asks for
        whole = Comparison("output.0", case, actual, expected, actual.dtype, ROUNDOFF, evidence)  # type: ignore[arg-type]
        test = UnsampledSuspects(whole, 16.0, 0.0)
        yield f"metrics, {dtype}", lambda a=actual, e=expected: by_pieces(Description.of, a, e)  # type: ignore[misc]
        yield f"open elements, {dtype}", lambda t=test, a=actual, e=expected: by_pieces(t, a, e)  # type: ignore[misc]
        target = numpy_dtype("float64")
        yield (
            f"moved arguments, {dtype}",
            lambda a=actual, t=target: by_blocks(a, Independent(stream()), ROUNDOFF, False, t),  # type: ignore[misc]
        )


def sides(size: int, dtype: str) -> tuple[AnyArray, AnyArray]:
    """An output and its reference."""
    rng = np.random.default_rng(0)
    expected = rng.standard_normal(size)
    off = np.where(rng.random(size) < 0.1, 1 + rng.standard_normal(size) * 2.0**-20, 1.0)
    return round_to(expected * off, dtype), expected


def by_pieces(look: Callable[[AnyArray, AnyArray], object], actual: AnyArray, expected: AnyArray) -> None:
    for start in range(0, actual.size, PIECE):
        look(actual[start : start + PIECE], expected[start : start + PIECE])


def least(work: Callable[[], object]) -> float:
    """CPU seconds."""
    times = []
    for _ in range(9):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description="The compiled kernel of numbers beside NumPy")
    parser.add_argument("--size", type=int, default=22, help="2 to this power elements")
    size = 2 ** parser.parse_args().size
    compiled = kernel.compiled
    if compiled is None:
        raise SystemExit("no kernel of numbers was built: python kernel/build.py pytest_probe/numerics numerics")
    print(f"| {compiled.INSTRUCTIONS}, 2^{size.bit_length() - 1} elements | the kernel | NumPy |\n|---|---|---|")
    for name, work in works(size):
        found = []
        for kernel.compiled in (compiled, None):
            found.append(least(work) / size * 1e9)
        print(f"| {name} | {found[0]:.1f} ns | {found[1]:.1f} ns |", flush=True)


if __name__ == "__main__":
    main()
