from __future__ import annotations

import math
import struct
import sys
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from msgspec import structs

from pytest_probe.capture import kernel
from pytest_probe.capture.snapshot import Seen
from pytest_probe.capture.statistics import fill_small_from, fill_together

FLOATS = ("float16", "bfloat16", "float32", "float64")
SIZES = (1, 2, 7, 8, 15, 16, 17, 1000, 2**20 + 3)


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def unaligned(array: np.ndarray, offset: int) -> np.ndarray:
    """The same numbers, so many bytes behind an aligned address. The memory ends with them."""
    memory = np.zeros(offset + array.nbytes, np.uint8)
    view = memory[offset:].view(array.dtype)
    view[:] = array
    return view


def drawn(dtype: np.dtype[Any], size: int, seed: int) -> np.ndarray:
    """Any bits of the dtype; of floats those that are finite, subnormal ones and both zeros among them."""
    generator = np.random.default_rng(seed)
    if dtype.kind == "b":
        return generator.random(size) < 0.5
    bits = generator.integers(0, 256, size * dtype.itemsize, np.uint8).view(dtype)
    if dtype.kind in "iu":
        return bits
    with np.errstate(invalid="ignore"):
        finite = np.where(np.isfinite(bits.astype(np.float64)), bits, np.zeros(1, dtype))
    if dtype.itemsize < 8:
        return np.asarray(finite)
    # The squares of larger ones overflow.
    return generator.standard_normal(size) * 10.0 ** generator.integers(-310, 150, size)


def check_statistics(compiled: ModuleType, array: np.ndarray, name: str) -> None:
    high, low, total, squares = compiled.measure(array.ctypes.data, array.size, kernel.DTYPES.index(name))
    wide = array.astype(np.float64)
    assert (high, low) == (array.max().item(), array.min().item())
    assert type(high) is (float if name in FLOATS else int)
    sizes = np.abs(wide).sum()
    assert math.isclose(total, math.fsum(wide), rel_tol=1e-15, abs_tol=4 * array.size * 2.0**-53 * sizes)
    assert math.isclose(squares, float(np.dot(wide, wide)), rel_tol=1e-10, abs_tol=1e-300)


def check_sizes(compiled: ModuleType, name: str) -> None:
    for size in SIZES:
        for offset in (0, 1, 3):
            check_statistics(compiled, unaligned(drawn(dtype_of(name), size, size), offset), name)


def check_masses(compiled: ModuleType, array: np.ndarray, name: str) -> None:
    told = (array.ctypes.data, array.size, kernel.DTYPES.index(name))
    found = compiled.summary(*told)
    assert found[4:] == (np.count_nonzero(array == 0), np.count_nonzero(array[1:] == array[:-1]))
    assert repr(found[:4]) == repr(compiled.measure(*told))


@pytest.mark.parametrize("name", kernel.DTYPES)
def test_statistics_of_every_dtype_equal_numpys(compiled: ModuleType, name: str) -> None:
    check_sizes(compiled, name)


@pytest.mark.parametrize("name", FLOATS)
def test_zeros_and_repeats_are_counted(compiled: ModuleType, name: str) -> None:
    check_repeats(compiled, name)


def check_repeats(compiled: ModuleType, name: str) -> None:
    few = np.random.default_rng(0).integers(-2, 3, 4099).astype(dtype_of(name))
    for array in (few, unaligned(few, 1), few[:1], np.array([0.0, -0.0, math.nan, math.nan], dtype_of(name))):
        check_masses(compiled, array, name)


# Extents and strides of rows, pieces and elements side by side, with gaps and without.
SAMPLES = [((1, 1, 1), (0, 0, 0)), ((32, 2, 4), (64, 30, 1)), ((5, 3, 2), (1, 200, 7)), ((16, 16, 4), (64, 4, 1))]


@pytest.mark.parametrize(("extents", "strides"), SAMPLES)
@pytest.mark.parametrize("name", FLOATS)
def test_a_sample_has_the_elements_of_numpy(
    compiled: ModuleType, name: str, extents: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    check_sample(compiled, name, extents, strides)


def check_sample(compiled: ModuleType, name: str, extents: tuple[int, ...], strides: tuple[int, ...]) -> None:
    dtype = dtype_of(name)
    last = sum((extent - 1) * stride for extent, stride in zip(extents, strides, strict=True))
    memory = unaligned(np.random.default_rng(0).integers(-2, 3, last + 1).astype(dtype), 1)
    steps = [stride * dtype.itemsize for stride in strides]
    taken = np.lib.stride_tricks.as_strided(memory, extents, steps).reshape(-1)
    found = compiled.sample(memory.ctypes.data, extents, strides, kernel.DTYPES.index(name))
    assert found == (np.count_nonzero(taken == 0), np.count_nonzero(taken[1:] == taken[:-1]))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_all_numbers_of_16_bits_are_read(compiled: ModuleType, name: str) -> None:
    """One by one: a sum of two says what each was."""
    for number in np.arange(2**16, dtype=np.uint16).view(dtype_of(name)):
        wide = float(number)
        high, low, total, squares = compiled.measure(np.array([number]).ctypes.data, 1, kernel.DTYPES.index(name))
        if math.isnan(wide):
            assert math.isnan(squares)
        else:
            assert (high, low, total, squares) == (wide, wide, wide, wide * wide)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("strange", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_shows_in_the_squares(compiled: ModuleType, name: str, strange: float) -> None:
    check_strange(compiled, name, strange)


def check_strange(compiled: ModuleType, name: str, strange: float) -> None:
    for size, place in ((1, 0), (8, 7), (1000, 0), (1000, 999)):
        array = np.ones(size, dtype_of(name))
        array[place] = strange
        assert not math.isfinite(compiled.measure(array.ctypes.data, size, kernel.DTYPES.index(name))[3])


def test_integers_beyond_what_a_float_holds(compiled: ModuleType) -> None:
    for name in ("int64", "uint64"):
        ends = np.iinfo(name)
        array = np.array([ends.max, ends.min, 1], name)
        assert compiled.measure(array.ctypes.data, 3, kernel.DTYPES.index(name))[:2] == (ends.max, ends.min)


def test_any_byte_but_zero_is_true(compiled: ModuleType) -> None:
    array = np.array([0, 1, 255, 2], np.uint8)
    assert compiled.measure(array.ctypes.data, 4, kernel.DTYPES.index("bool")) == (1, 0, 3.0, 3.0)


REFUSED = [
    *(
        ("measure", given, error)
        for given, error in (
            ((), TypeError),
            (("address", 1, 0), TypeError),
            ((0, 1, 0), ValueError),
            ((1, 0, 0), ValueError),
            ((1, -5, 0), ValueError),
            ((1, 1, 13), ValueError),
            ((1, 1, -1), ValueError),
            ((1, 2**80, 0), OverflowError),
        )
    ),
    ("summary", (1, 0, 0), ValueError),
    ("summary", (1, 1, kernel.DTYPES.index("int32")), ValueError),
    *(
        ("sample", given, error)
        for given, error in (
            ((), TypeError),
            ((0, (1, 1, 1), (1, 1, 1), 12), ValueError),
            ((1, (1, 1), (1, 1, 1), 12), ValueError),
            ((1, [1, 1, 1], (1, 1, 1), 12), ValueError),
            ((1, (1, 1, "1"), (1, 1, 1), 12), TypeError),
            ((1, (1, 0, 1), (1, 1, 1), 12), ValueError),
            ((1, (1, 1, 1), (1, -1, 1), 12), ValueError),
            ((1, (1025, 1, 1), (1, 1, 1), 12), ValueError),
            ((1, (64, 8, 4), (1, 1, 1), 12), ValueError),
            ((1, (1, 1, 1), (1, 1, 1), 8), ValueError),
        )
    ),
]


@pytest.mark.parametrize(("function", "arguments", "error"), REFUSED)
def test_what_cannot_be_meant_is_refused(
    compiled: ModuleType, function: str, arguments: tuple[Any, ...], error: type
) -> None:
    with pytest.raises(error):
        getattr(compiled, function)(*arguments)


def deep(compiled: ModuleType, frames: int) -> bytes:
    """The key of a stack that has so many frames more than its caller's."""
    key: bytes = compiled.stack(sys._getframe()) if frames == 1 else deep(compiled, frames - 1)
    return key


def test_stacks_of_frames_equal_pythons(compiled: ModuleType) -> None:
    here = [compiled.stack(sys._getframe()) for _ in range(2)]
    assert here[0] == here[1] != compiled.stack(sys._getframe())
    frame, key = sys._getframe(), deep(compiled, 1)
    words = struct.unpack(f"{len(key) // struct.calcsize('P')}P", key)
    assert words[::2][:2] == (id(deep.__code__), id(frame.f_code))
    # Room is made more than once.
    for frames in (2, 63, 64, 65, 500):
        assert len(deep(compiled, frames)) - len(deep(compiled, 1)) == (frames - 1) * 2 * struct.calcsize("P")
    with pytest.raises(TypeError, match="give a frame"):
        compiled.stack(1)


@pytest.mark.parametrize(("largest", "stands"), [(94906265, True), (94906266, False)])
def test_sums_of_integers_that_are_rounded_are_numpys(
    compiled: ModuleType, largest: int, stands: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """94,906,265 squared is the last square below 2**53."""
    monkeypatch.setattr(kernel, "compiled", compiled)
    array = np.array([0, largest], np.int64)
    ours, theirs = (Seen("torch.Tensor", "int64", array.shape, False) for _ in range(2))
    assert fill_small_from(array.ctypes.data, 2, kernel.DTYPES.index("int64"), ours) is stands
    fill_together(array, [2], [theirs])
    assert (structs.asdict(ours) == structs.asdict(theirs)) is stands
