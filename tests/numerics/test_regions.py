from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_probe.numerics.dtypes import BoolArray
from pytest_probe.numerics.regions import describe

EVERY = slice(None)


def wrong(shape: tuple[int, ...], *places: Any) -> BoolArray:
    mask = np.zeros(shape, dtype=bool)
    for place in places:
        mask[place] = True
    return mask


@pytest.mark.parametrize(
    ("shape", "place", "words"),
    [
        ((32, 64), slice(12, 16), "rows 12:16 of dim 0"),
        ((32, 64), (EVERY, slice(48, 64)), "last 16 of dim -1"),
        ((32, 64), (EVERY, slice(0, 2)), "first 2 of dim -1"),
        ((8, 64, 5), (EVERY, slice(None, None, 8)), "every 8th of dim 1"),
        ((8, 64, 5), (EVERY, slice(1, None, 2)), "every second of dim 1 from 1"),
        ((32, 64), 5, "row 5 of dim 0"),
        ((32, 64), 31, "last row 31 of dim 0"),
        ((32, 64), (EVERY, 7), "index 7 of dim -1"),
        ((32, 64), [3, 20], "rows 3, 20 of dim 0"),
        ((64, 64), (slice(32, 48), slice(48, 64)), "tile of 16 x 16 at (32, 48)"),
        ((2, 64, 64), (1, slice(32, 48), slice(16, 32)), "last row 1 of dim 0, tile of 16 x 16 at (32, 16)"),
        ((100,), slice(90, 100), "last 10 of dim 0"),
        ((10, 10), (3, 4), "element [3, 4]"),
        ((10, 10), ([3, 5], [4, 1]), "elements [3, 4], [5, 1]"),
        ((), (), "element []"),
        ((10, 10), EVERY, "everywhere"),
    ],
)
def test_a_place(shape: tuple[int, ...], place: Any, words: str) -> None:
    assert describe(wrong(shape, place)) == words


def test_a_dimension_that_has_a_name() -> None:
    assert describe(wrong((2, 4, 64, 8), (EVERY, 1)), {1: "head"}) == "head 1 (dim 1)"
    assert describe(wrong((2, 9, 64, 8), (EVERY, slice(4, 6))), {1: "channel"}) == "channels 4:6 (dim 1)"


def test_the_end_of_memory() -> None:
    mask = wrong((24, 250))
    mask.reshape(-1)[5700:] = True
    assert describe(mask) == "last 300 elements in order"
    mask.reshape(-1)[-20:] = False
    assert describe(mask) == "elements 5,700:5,980 in order"


@pytest.mark.parametrize("width", [1, 2])
def test_the_borders(width: int) -> None:
    mask = np.ones((2, 3, 12, 12), dtype=bool)
    mask[..., width:-width, width:-width] = False
    assert describe(mask) == f"outer {width} of the last 2 dims"


def test_the_diagonals() -> None:
    every = np.ones((4, 16, 16), dtype=bool)
    assert describe(np.triu(every, 1)) == "above the diagonal of the last two dims"
    assert describe(np.tril(every, -1)) == "below the diagonal of the last two dims"
    assert describe(every & np.eye(16, dtype=bool)) == "on the diagonal of the last two dims"
    assert describe(every & np.eye(16, k=1, dtype=bool)) == "one above the diagonal of the last two dims"
    assert describe(every & np.eye(16, k=-1, dtype=bool)) == "one below the diagonal of the last two dims"


def test_one_element_elsewhere_hides_no_place() -> None:
    assert describe(wrong((64, 64), slice(12, 16), (40, 3))) == "rows 12:16 of dim 0"


def test_scattered_errors_have_no_region() -> None:
    assert describe(np.random.default_rng(0).random((64, 64)) < 0.1) == "scattered"
    assert describe(wrong((3, 3))) == ""
    thin = wrong((64, 64))
    thin[10:20] = np.random.default_rng(0).random((10, 64)) < 0.3
    assert describe(thin) == f"rows 10:20 of dim 0, {100 * thin.sum() / 640:.2g} % of it"


@st.composite
def windows(draw: st.DrawFn) -> tuple[int, int, int, int]:
    """Rows, columns, and a window of rows that is neither all nor at an end."""
    rows, columns = draw(st.integers(6, 40)), draw(st.integers(4, 40))
    start = draw(st.integers(1, rows - 4))
    return rows, columns, start, draw(st.integers(start + 2, rows - 1))


@given(windows())
def test_planted_rows_are_described_exactly(planted: tuple[int, int, int, int]) -> None:
    rows, columns, start, end = planted
    words = describe(wrong((rows, columns), slice(start, end)))
    share = (end - start) / rows
    assert words == (f"rows {start}:{end} of dim 0" if share < 0.95 else "everywhere")


@given(st.integers(8, 40), st.integers(8, 40), st.data())
def test_a_planted_tile_is_described_exactly(rows: int, columns: int, data: st.DataObject) -> None:
    high, wide = data.draw(st.integers(2, rows // 2)), data.draw(st.integers(2, columns // 2))
    top, left = data.draw(st.integers(1, rows - high)), data.draw(st.integers(1, columns - wide))
    mask = wrong((rows, columns), (slice(top, top + high), slice(left, left + wide)))
    assert describe(mask) == f"tile of {high} x {wide} at ({top}, {left})"


@given(st.integers(2, 9), st.integers(3, 9), st.data())
def test_a_planted_step_is_described_exactly(step: int, count: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, step - 1))
    mask = wrong((5, step * count), (EVERY, slice(start, None, step)))
    words = describe(mask)
    assert words.startswith("every ")
    assert words.endswith(f" from {start}" if start else " of dim -1")


@given(st.lists(st.integers(1, 4), max_size=4), st.integers(0, 2**32))
def test_every_mask_has_words(shape: list[int], seed: int) -> None:
    random = np.random.default_rng(seed)
    mask = np.asarray(random.random(shape) < random.random())
    assert bool(describe(mask)) == bool(mask.any())
