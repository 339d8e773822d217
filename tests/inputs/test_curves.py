"""Numbers of large tensors by the compiled kernel and by NumPy: the same bits."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pytest_probe.inputs.curves import Curve, Scaled
from pytest_probe.inputs.draws import Uniforms
from pytest_probe.numerics import kernel
from pytest_probe.numerics.arrays import BLOCK
from pytest_probe.numerics.dtypes import numpy_dtype

# No multiple of what the kernel, or NumPy, takes at a time.
SIZE = 2 * BLOCK + 1357
# Bends by their two numbers, shifts by their three.
MAPS: dict[str, list[tuple[float, ...]]] = {
    "none": [],
    "bends": [(0.1, -0.2), (-0.7, 0.3)],
    "beyond both ends": [(0.5, 1.7, 0.4), (0.2, 0.1)],
}
PARTS = ((0, SIZE), (0, 1), (1, 9), (2, 5), (5, 5), (77, BLOCK + 78), (SIZE - 3, SIZE))
# Sizes at which NumPy adds up in another way.
SUMMED = (1, 7, 8, 9, 15, 127, 128, 129, 136, 137, 1000, BLOCK - 1, BLOCK, BLOCK + 1, SIZE)
RANGES = ((-4.5, 4.0), (-3.0, 0.0), (0.0, 1e-40), (-0.0, 2.0), (-1e300, 1.5e300), (-1.7e308, 1.7e308))


def curve(maps: str, before: int = 0, size: int = SIZE) -> Curve:
    """Of a law that has numbers near zero, so that stretched ones become it; before: uniform numbers that were taken
    already."""
    key, counter = (np.array(words, np.uint64) for words in ([7, 2**64 - 5], [2**64 - 3, 2**64 - 1, 5, 0]))
    rng = np.random.Generator(np.random.Philox(key=key, counter=counter))
    rng.random(before)
    table = np.sort(np.concatenate([[0.0, 1.0], rng.beta(0.02, 1.3, 300)]))
    found = Curve(size, table, rng)
    for numbers in MAPS[maps]:
        (found.bend if len(numbers) == 2 else found.shift)(*numbers)
    return found


def bits(maps: str, before: int) -> list[Any]:
    """What any of the ways must give."""
    found: list[Any] = [curve(maps, before).part(*part).tobytes() for part in PARTS]
    for size in SUMMED:
        sums = np.empty((-(-size // BLOCK), 12))
        curve(maps, before, size)._power_sums(0, size, sums)
        found.append(sums.tobytes())
    for low, high in RANGES:
        scaled = Scaled(curve(maps, before), (2, SIZE), low, high)
        found += [scaled.part(*part).tobytes() for part in PARTS]
        for dtype in ("bfloat16", "float16", "float32", "float64"):
            out = np.empty(SIZE - 1, numpy_dtype(dtype))
            with np.errstate(all="ignore"):
                scaled.write(1, out)
            found.append(out.tobytes())
    return found


def chosen(before: int) -> list[bytes]:
    """Uniform numbers, and which of them are below a share."""
    rng = np.random.Generator(np.random.Philox(key=7))
    rng.random(before)
    wanted, found = Uniforms(rng, SIZE), []
    for start, stop in PARTS:
        out = np.empty(stop - start, bool)
        wanted.below(0.3, start, out)
        numbers = np.empty(stop - start)
        wanted.fill(start, numbers)
        found += [out.tobytes(), numbers.tobytes()]
    return found


def check_bits(compiled: ModuleType, maps: str, before: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "compiled", None)
        wanted = bits(maps, before), chosen(before)
        patch.setattr(kernel, "compiled", compiled)
        assert (bits(maps, before), chosen(before)) == wanted


@pytest.mark.parametrize("maps", MAPS)
@pytest.mark.parametrize("before", [0, 1, 6])
def test_the_kernel_gives_numpys_bits(compiled_numbers: ModuleType, maps: str, before: int) -> None:
    check_bits(compiled_numbers, maps, before)


def test_moments_are_the_same_with_and_without_the_kernel(compiled_numbers: ModuleType) -> None:
    def found() -> tuple[Any, ...]:
        bent = curve("bends")
        before = bent.moments()
        bent.bend(0.1, 0.1)
        return before, bent.moments(), bent.room()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "compiled", None)
        wanted = found()
        patch.setattr(kernel, "compiled", compiled_numbers)
        assert found() == wanted


@pytest.mark.parametrize("given", [(0, 1, 1.0, 0, 0, 0, 1, 1), (1, 1, 0.5, 0, 0, 0, 1, 1), (1, 1, 1.0, 0, 1, 0, 1, 1)])
def test_what_is_no_drawing_is_refused(compiled_numbers: ModuleType, given: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="give addresses"):
        compiled_numbers.curve(*given)
