"""Large arguments move block by block: by the same numbers as all at once, on any number of threads."""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
import pytest

from pytest_probe.check import perturbed as perturbing
from pytest_probe.check.perturbed import perturbed
from pytest_probe.check.run_kinds import Independent, Range, SameForEqualValues, by_blocks
from pytest_probe.inputs import draws
from pytest_probe.numerics import kernel
from pytest_probe.numerics.dtypes import AnyArray, numpy_dtype, round_to

SHAPE = (37, 701)
ENDS: dict[str, list[float]] = {
    "numbers": [],
    "zeros of both signs, below all": [0.0, -0.0, 1.0],
    "zeros of both signs, above all": [-1.0, -0.0, 0.0],
    "zeros of both signs": [0.0, -0.0],
    "zeros of one sign, below all": [0.0],
    "infinities": [math.inf, -math.inf],
    "NaN": [math.nan],
}


def array(ends: str, dtype: str) -> AnyArray:
    values = np.random.default_rng(0).standard_normal(SHAPE)
    if " all" in ends:
        values = np.abs(values) * (1 if "below" in ends else -1)
    found: AnyArray = round_to(values, dtype)
    for place, number in enumerate(ENDS[ends]):
        found[place * 17, 600] = found[place * 11, 3] = number
    return found


def generator() -> np.random.Generator:
    rng = np.random.Generator(np.random.Philox(key=3))
    rng.random(3)
    return rng


def check_sizes(compiled: ModuleType) -> None:
    """The kernel's numbers beside NumPy's."""
    for dtype in ("bfloat16", "float16", "float32", "float64"):
        for size in (1, 5, 511, 513, 9000):
            values = array("zeros of one sign, below all", dtype).reshape(-1)[:size]
            with pytest.MonkeyPatch.context() as patch:
                found = []
                for each in (None, compiled):
                    patch.setattr(kernel, "compiled", each)
                    moved = (
                        by_blocks(values, Independent(generator()), 0.01, inward, numpy_dtype(target))
                        for target in ("bfloat16", "float32", "float64")
                        for inward in (False, True)
                    )
                    found.append([each.tobytes() for each in moved])
                assert found[0] == found[1], (dtype, size)


def test_the_kernel_gives_numpys_bits(compiled_numbers: ModuleType) -> None:
    check_sizes(compiled_numbers)


@pytest.fixture(autouse=True, params=["compiled", "not compiled"])
def kernel_or_not(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    found: ModuleType | None = None
    if request.param == "compiled":
        found = request.getfixturevalue("compiled_numbers")
    monkeypatch.setattr(kernel, "compiled", found)


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("inward", [False, True])
@pytest.mark.parametrize("cores", [1, 4])
def test_blocks_move_as_the_whole(
    monkeypatch: pytest.MonkeyPatch, ends: str, dtype: str, inward: bool, cores: int
) -> None:
    monkeypatch.setattr(draws, "usable_cores", lambda: cores)
    monkeypatch.setattr(draws, "_TURN", 1)
    values = array(ends, dtype)
    for target in ("", "float32", "float64"):
        one, other = generator(), generator()
        wanted = perturbed(values, Independent(one), 0.01, inward, target)
        alike = perturbed(values, SameForEqualValues(5), 0.01, inward, target)
        with monkeypatch.context() as patch:
            patch.setattr(perturbing, "PASS", 100)
            assert perturbed(values, Independent(other), 0.01, inward, target).tobytes() == wanted.tobytes()
            assert perturbed(values, SameForEqualValues(5), 0.01, inward, target).tobytes() == alike.tobytes()
        assert one.random() == other.random()


def test_columns_first_and_a_constant() -> None:
    values = np.asfortranarray(array("numbers", "float32"))
    found = by_blocks(values, Independent(generator()), 0.01, False, numpy_dtype("float64"))
    assert found.tobytes() == perturbed(values, Independent(generator()), 0.01, False, "float64").tobytes()
    constant = np.full(SHAPE, 3.0)
    found = by_blocks(constant, Independent(generator()), 0.01, False, constant.dtype)
    assert found.tobytes() == perturbed(constant, Independent(generator()), 0.01, False, "").tobytes()


def test_a_dtype_that_the_kernel_does_not_write() -> None:
    values = array("numbers", "float16")
    found = by_blocks(values, Independent(generator()), 0.01, False, values.dtype)
    assert found.tobytes() == perturbed(values, Independent(generator()), 0.01, False, "").tobytes()


def test_the_range_of_nothing_has_no_ends() -> None:
    assert Range.of(np.empty(0)) == Range()
