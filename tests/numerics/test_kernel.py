"""The compiled kernel of numbers beside NumPy: the same bits."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pytest_probe.numerics import kernel
from pytest_probe.numerics.arrays import BLOCK
from pytest_probe.numerics.dtypes import float_format, numpy_dtype, round_to
from pytest_probe.numerics.metrics import describe
from pytest_probe.standards.noise.unsampled_suspects import UnsampledSuspects
from tests.support import kernels
from tests.support.asking import comparison

FLOATS = ("bfloat16", "float16", "float32", "float64")
# No multiples of what the kernel, or NumPy, takes at a time.
SIZES = (1, 7, 8, 130, 515, BLOCK + 9, 9 * BLOCK + 129)


def sides(dtype: str, size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """An output, of which few elements are off, and its reference: of all binades of the dtype, zeros of both signs,
    ties and numbers between two subnormal ones among them."""
    generator, form = np.random.default_rng(seed), float_format(dtype)
    low, high = math.log2(form.smallest), math.log2(form.max)
    expected = np.exp2(generator.uniform(max(low, -1000) - 2, min(high, 900) - 1, size)) * generator.choice(
        [-1, 1], size
    )
    expected[generator.random(size) < 0.05] = -0.0
    ties = generator.random(size) < 0.1
    expected[ties] = (1 + generator.integers(0, 64, size) * 2.0**-form.precision)[ties]
    off = np.where(generator.random(size) < 0.1, generator.standard_normal(size) * 2.0**-5, 0.0)
    moved = np.where((generator.random(size) < 0.01) & (expected == 0), form.smallest, expected * (1 + off))
    with np.errstate(all="ignore"):
        return round_to(moved, dtype), expected


def seen(actual: np.ndarray, expected: np.ndarray, least: float, limit: float, precision: str) -> tuple[Any, Any]:
    """Metrics of an output, and which of its elements are open."""
    beside = comparison(actual, expected, precision=numpy_dtype(precision) if precision else None)
    return describe(actual, expected), UnsampledSuspects(beside, limit, least)(actual, expected).tolist()


def check(
    compiled: ModuleType,
    actual: np.ndarray,
    expected: np.ndarray,
    least: float = 0.0,
    limit: float = 64.0,
    precision: str = "",
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "compiled", None)
        wanted = seen(actual, expected, least, limit, precision)
        patch.setattr(kernel, "compiled", compiled)
        assert seen(actual, expected, least, limit, precision) == wanted


def check_sizes(compiled: ModuleType, dtype: str) -> None:
    form = float_format(dtype)
    for size in SIZES:
        actual, expected = sides(dtype, size)
        for least, limit in ((0.0, 64.0), (1e-3, 16.0), (math.inf, 1.0), (math.nan, 1.0)):
            check(compiled, actual, expected, least, limit)
        # It is the kernel that gives this, and not NumPy.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernel, "compiled", compiled)
            assert kernel.describe(actual, expected, form) is not None
            assert kernel.opened(actual, expected, form, roundoff=1.0, least=1.0, limit=1.0) is not None


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_kernel_gives_numpys_bits(compiled_numbers: ModuleType, dtype: str) -> None:
    check_sizes(compiled_numbers, dtype)


def check_sums(compiled: ModuleType, dtype: str) -> None:
    """Every result is rounded, into subnormal numbers and beyond the range; the order of terms is theirs."""
    random, narrow, form = np.random.default_rng(1), numpy_dtype(dtype), float_format(dtype)
    places = random.integers(0, 3, 400)
    for size in (1.0, form.max / 4, 2.0**form.min_exponent):
        terms = random.standard_normal((400, 2)) * size
        expected, total = np.zeros((3, 2)), np.zeros((3, 2))
        for place, term in zip(places, terms, strict=True):
            with np.errstate(over="ignore"):
                expected[place] = (expected[place] + term).astype(np.float32).astype(narrow)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernel, "compiled", compiled)
            kernel.pile(total, places, terms, form)
        assert total.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_kernel_rounds_every_sum(compiled_numbers: ModuleType, dtype: str) -> None:
    check_sums(compiled_numbers, dtype)


@pytest.mark.parametrize("place", [-1, 3])
def test_no_term_is_written_outside_the_sums(compiled_numbers: ModuleType, place: int) -> None:
    total, terms = np.zeros(3), np.ones(1)
    with pytest.raises(IndexError, match="a place is outside"):
        kernel.pile(total, np.array([place]), terms, float_format("float16"))
    assert not total.any()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize(
    "strange", [(math.nan, 1.0), (1.0, math.nan), (math.inf, 1.0), (-math.inf, -math.inf), (1.0, 1e300), (0.0, 0.0)]
)
def test_what_is_not_finite_or_beyond_the_range(
    compiled_numbers: ModuleType, dtype: str, strange: tuple[float, float]
) -> None:
    """At some places, since the kernel looks at several elements at a time."""
    for place in (0, 3, 511, 512, 699):
        actual, expected = sides(dtype, 700)
        actual[place], expected[place] = strange
        check(compiled_numbers, actual, expected)


def test_an_output_of_another_precision(compiled_numbers: ModuleType) -> None:
    """Counted in ulps of bfloat16; one of float32 may be beyond its range."""
    actual, expected = sides("float32", 700)
    for largest in (1.0, 3.4e38):
        actual[5] = expected[5] = largest
        check(compiled_numbers, actual, expected, precision="bfloat16")


@pytest.mark.parametrize("layout", ["columns first", "every second", "complex", "empty"])
def test_other_arrays(compiled_numbers: ModuleType, layout: str) -> None:
    def changed(side: np.ndarray) -> np.ndarray:
        whole = side[:600].reshape(20, 30)
        return {"every second": whole[:, ::2], "complex": whole + 1j, "empty": whole[:0]}.get(layout, whole.T)

    actual, expected = map(changed, sides("float32", 700))
    check(compiled_numbers, actual, expected)


# Under the sanitizers, and with flags that a user may set.
BESIDE_NUMPY = """
import _kernel
from tests.check import test_run_kinds
from tests.inputs import test_curves
from tests.numerics import test_kernel
for maps in test_curves.MAPS:
    test_curves.check_bits(_kernel, maps, 3)
for dtype in test_kernel.FLOATS:
    test_kernel.check_sizes(_kernel, dtype)
for dtype in ("bfloat16", "float16"):
    test_kernel.check_sums(_kernel, dtype)
test_run_kinds.check_sizes(_kernel)
print(_kernel.INSTRUCTIONS)
"""


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["", "-DBASELINE"])
def test_the_sanitizers_find_nothing(variant: str, compiled_numbers: ModuleType, tmp_path: Path) -> None:
    """ASan and UBSan, with this CPU's instructions and as on a CPU of an unknown kind."""
    checks = "-fsanitize=address,undefined -fno-sanitize-recover=all"
    library = kernels.sanitizer()
    path = kernels.built(tmp_path, "numerics", CFLAGS=f"{checks} {variant}", LDFLAGS=checks)
    told = kernels.run(BESIDE_NUMPY, folder=path.parent, LD_PRELOAD=library, ASAN_OPTIONS="detect_leaks=0")
    expected = "baseline" if variant else compiled_numbers.INSTRUCTIONS
    assert (told.returncode, told.stdout) == (0, f"{expected}\n"), told.stderr


@pytest.mark.slow
@pytest.mark.parametrize("flags", ["-ffast-math", "-Ofast -march=native"])
def test_flags_of_a_user_change_no_bit(flags: str, tmp_path: Path) -> None:
    path = kernels.built(tmp_path, "numerics", CFLAGS=flags, LDFLAGS=flags)
    told = kernels.run(BESIDE_NUMPY, folder=path.parent)
    assert told.returncode == 0, told.stderr


def test_the_source_is_the_one_that_is_expected(compiled_numbers: ModuleType) -> None:
    assert compiled_numbers.REVISION == kernel.REVISION


def test_what_is_no_array_is_refused(compiled_numbers: ModuleType) -> None:
    form = 2.0**-126, 2.0**127, 2.0**-23
    for given in ((0, 2, 1, 1), (1, 2, 0, 1), (1, 4, 1, 1), (1, 2, 1, 0)):
        with pytest.raises(ValueError, match="give addresses"):
            compiled_numbers.describe(*given, *form)
        with pytest.raises(ValueError, match="give addresses"):
            compiled_numbers.opened(*given, *form, 1.0, 1.0, 1.0, 1.0, 1.0, 1)
