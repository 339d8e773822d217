"""Small arrays of integers by the compiled kernel beside NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import UNSET, structs

from pytest_probe.capture import kernel
from pytest_probe.capture.snapshot import Seen
from pytest_probe.capture.statistics import MAX_KEPT_INTEGERS, fill_small_from, fill_together

INTEGERS = [name for name in kernel.DTYPES if "int" in name]


@pytest.fixture(autouse=True)
def _compiled() -> None:
    if kernel.compiled is None:
        pytest.skip("no kernel was built")


def both(array: np.ndarray) -> tuple[bool, Seen, Seen]:
    """Whether the kernel's numbers stand, these, and NumPy's."""
    ones = [Seen("torch.Tensor", array.dtype.name, array.shape, False) for _ in range(2)]
    filled = fill_small_from(array.ctypes.data, array.size, kernel.DTYPES.index(array.dtype.name), ones[0])
    fill_together(array, [array.size], ones[1:])
    return filled, ones[0], ones[1]


@pytest.mark.parametrize("size", [1, 2, MAX_KEPT_INTEGERS, MAX_KEPT_INTEGERS + 1])
@pytest.mark.parametrize("name", INTEGERS)
def test_few_integers_are_kept(name: str, size: int) -> None:
    limits = np.iinfo(name)
    array = np.random.default_rng(size).integers(max(limits.min, -9999), min(limits.max, 9999), size).astype(name)
    filled, ours, theirs = both(array)
    assert filled
    assert structs.asdict(ours) == structs.asdict(theirs)
    assert ours.values == (array.tolist() if 1 < size <= MAX_KEPT_INTEGERS else UNSET)


@pytest.mark.parametrize(("largest", "stands"), [(94906265, True), (94906266, False)])
def test_sums_that_are_rounded_are_numpys(largest: int, stands: bool) -> None:
    """94,906,265 squared is the last square below 2**53."""
    filled, ours, theirs = both(np.array([0, largest], np.int64))
    assert filled is stands
    assert (structs.asdict(ours) == structs.asdict(theirs)) is stands
