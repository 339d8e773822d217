"""Quantisers of every rule pass whatever the seed, and each fault is an error that says what it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pytest_probe.errors import BrokenCall
from pytest_probe.numerics.dtypes import packed
from pytest_probe.numerics.scaled import RECIPES
from pytest_probe.standards.quantisers import Quantised, Wanted, judge
from tests.support.scaled import swizzled

SEEDS = 12
E8M0, E4M3, FLOAT4 = (
    np.dtype(getattr(ml_dtypes, name)) for name in ("float8_e8m0fnu", "float8_e4m3fn", "float4_e2m1fn")
)
TOP = {E4M3: (448.0, 8, 3), np.dtype(ml_dtypes.float8_e5m2): (57344.0, 15, 2), FLOAT4: (6.0, 2, 1)}
FORMATS = list(TOP)


def data(seed: int, shape: tuple[int, int] = (32, 256)) -> np.ndarray:
    """bfloat16 with blocks of zeros, of one huge number, of tiny ones, and with NaN and an infinity."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-20, 20, size=(shape[0], shape[1] // 32)).repeat(32, 1)
    x[0, :32], x[1, 5], x[2, :32], x[3, 40], x[4, 70] = 0.0, 1e30, 1e-38, np.nan, np.inf
    return x.astype(ml_dtypes.bfloat16)


def exponent(largest: np.ndarray, rule: str, dtype: np.dtype) -> np.ndarray:
    """By float32's bits, as kernels find it."""
    top, power, places = TOP[dtype]
    bits = largest.astype(np.float32).view(np.int32)
    if rule == "even":
        bits = (bits + (1 << (22 - places))) & ~((1 << 23) - 1)
    if rule == "rceil":
        quotient = largest.astype(np.float32) / np.float32(top)
        with np.errstate(divide="ignore"):
            return np.ceil(np.log2(quotient.astype(np.float64)))
    found = (bits >> 23) - 127 + ((bits & 0x7FFFFF) > 0 if rule == "ceil" else 0)
    return found - power


def largest_of(blocks: np.ndarray) -> np.ndarray:
    return np.asarray(np.abs(blocks).max(axis=2))


def in_blocks(x: np.ndarray, size: int) -> np.ndarray:
    """In float64, the last block of a row filled with zeros."""
    return np.pad(x.astype(np.float64), ((0, 0), (0, -x.shape[1] % size))).reshape(x.shape[0], -1, size)


def mx(
    x: np.ndarray,
    dtype: np.dtype,
    rule: str,
    block: int = 32,
    round_: Callable[..., Any] | None = None,
    largest_of: Callable[[np.ndarray], np.ndarray] = largest_of,
    least: int = 0,
) -> Quantised:
    """A quantiser with scales of E8M0, NaN where a block has no largest number."""
    wide = in_blocks(x, block)
    largest = largest_of(wide)
    finite = np.isfinite(largest)
    codes = np.clip(exponent(np.where(finite, largest, 1), rule, dtype) + 127, least, 254)
    codes = np.where(finite, np.where(largest == 0, least, codes), 255).astype(np.uint8)
    with np.errstate(invalid="ignore"):
        scaled = (
            wide * (0.75 if rule == "0.75" else 1.0) / 2.0 ** (np.where(codes == 255, 127, codes)[..., None] - 127.0)
        )
    scaled = np.nan_to_num(scaled.reshape(x.shape[0], -1)[:, : x.shape[1]], nan=0.0, posinf=1e9, neginf=-1e9)
    top = TOP[dtype][0]
    values = (np.clip(scaled, -top, top) if round_ is None else round_(scaled)).astype(dtype)
    return Quantised(packed(values) if dtype == FLOAT4 else values, codes.view(E8M0))


def outcomes(x: np.ndarray, found: Quantised, **how: Any) -> tuple[str, str]:
    """Reasons of both verdicts, "" where it passes."""
    wanted = Wanted(RECIPES[how.pop("recipe", "BlockWise1x32")], how.pop("order", "grid"), **how)
    scales, elements = judge(x, [found], wanted)
    return scales.reason, elements.reason


@pytest.mark.parametrize("rule", ["floor", "ceil", "even", "rceil", "0.75"])
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_each_rule_is_known(rule: str, dtype: np.dtype) -> None:
    for seed in range(SEEDS):
        x = data(seed)
        scales, elements = judge(x, [mx(x, dtype, rule)], Wanted(RECIPES["BlockWise1x32"], "grid"))
        assert (scales.reason, elements.reason, seed) == ("", "", seed)
        assert scales.metrics["rule"] == ("floor" if rule == "0.75" else rule)
        assert outcomes(x, mx(x, dtype, rule), rule=rule) == ("", "")


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_the_maximum_rounded_by_another_rule_is_named(dtype: np.dtype) -> None:
    x = data(1)
    scales, _ = outcomes(x, mx(x, dtype, "ceil"), rule="floor")
    assert scales.startswith("scales follow ceil, not floor: ")


def test_scales_that_follow_no_rule_are_an_error() -> None:
    x, found = data(2), mx(data(2), E4M3, "floor")
    codes = found.scales.view(np.uint8).copy()
    codes[9, 3] += 3
    scales, elements = outcomes(x, Quantised(found.values, codes.view(E8M0)))
    assert scales.startswith(
        "scales follow no rule: 1 blocks of 256 are unlike floor; block [9, 3], whose largest number"
    )
    assert "; by rule: floor " in scales
    assert "elements are not x / scale rounded to nearest even" in elements


def test_the_rule_of_each_block_must_be_the_same() -> None:
    x = data(3)
    one, other = mx(x, E4M3, "floor"), mx(x, E4M3, "ceil")
    rows = np.arange(32) < 16
    mixed = Quantised(
        np.where(rows[:, None], one.values.view(np.uint8), other.values.view(np.uint8)).view(E4M3),
        np.where(rows[:, None], one.scales.view(np.uint8), other.scales.view(np.uint8)).view(E8M0),
    )
    assert outcomes(x, mixed)[0].startswith("scales follow no rule")


def _truncated(scaled: np.ndarray) -> np.ndarray:
    step = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(scaled), 2.0**-6))) - 3)
    return np.clip(np.trunc(scaled / step) * step, -448, 448)


def _through_bfloat16(scaled: np.ndarray) -> np.ndarray:
    return np.clip(scaled, -448, 448).astype(np.float16)


@pytest.mark.parametrize(
    ("round_", "words"),
    [
        (_truncated, "scales follow floor, elements truncate: "),
        (lambda scaled: scaled, "scales follow floor, elements are not saturated: "),
        (lambda scaled: -np.clip(scaled, -448, 448), "scales follow floor, elements have the other sign: "),
        (lambda scaled: np.clip(scaled * 1.03, -448, 448), "scales follow floor, elements are not x / scale rounded"),
        (lambda scaled: np.where(np.abs(scaled) > 100, 0, scaled), "elements are not x / scale rounded to nearest"),
    ],
)  # fmt: skip
def test_what_elements_do_otherwise_is_named(round_: Callable[..., Any], words: str) -> None:
    x = data(4)
    with np.errstate(invalid="ignore"):
        found = mx(x, E4M3, "floor", round_=round_)
    assert words in outcomes(x, found)[1]


def test_elements_that_are_not_saturated_may_be_what_is_asked_for() -> None:
    x = data(5)
    found = mx(x, E4M3, "floor", round_=lambda scaled: scaled)
    assert outcomes(x, found, saturate=False) == ("", "")
    assert "elements are saturated" in outcomes(x, mx(x, E4M3, "floor"), saturate=False)[1]


def test_nan_must_stay_and_zeros_must_too() -> None:
    x, found = data(6), mx(data(6), E4M3, "floor")
    codes = found.scales.view(np.uint8).copy()
    codes[3, 1] = 100
    assert "1 NaN became other numbers, the first [3, 40]" in outcomes(x, Quantised(found.values, codes.view(E8M0)))[1]
    values = found.values.copy()
    values[0, 7] = 1.0
    assert "1 zeros became other numbers, the first [0, 7]" in outcomes(x, Quantised(values, found.scales))[1]
    codes = found.scales.view(np.uint8).copy()
    codes[0, 0] = 255
    assert (
        "1 blocks of zeros have a scale that is no number" in outcomes(x, Quantised(found.values, codes.view(E8M0)))[0]
    )


def nvfp4(x: np.ndarray, *, whole: bool, divided: bool = True, swapped: bool = False) -> Quantised:
    wide = in_blocks(np.nan_to_num(x.astype(np.float32), posinf=1.0), 16).astype(np.float32)
    largest = np.abs(wide).max(axis=2)
    of_all = np.float32(largest.max() / (6 * 448)) if whole else np.float32(1)
    scales = np.clip(largest / np.float32(6) / (of_all if divided else 1), 2.0**-9, 448).astype(E4M3)
    values = np.clip(wide / (scales.astype(np.float32) * of_all)[..., None], -6, 6).reshape(x.shape[0], -1)
    values = values[:, : x.shape[1]].astype(FLOAT4)
    return Quantised(packed(values[:, np.arange(x.shape[1]) ^ 1] if swapped else values), scales, float(of_all))


@pytest.mark.parametrize("whole", [False, True])
def test_nvfp4_of_one_level_and_of_two(whole: bool) -> None:
    for seed in range(SEEDS):
        x = (np.random.default_rng(seed).standard_normal((48, 160)) * 30).astype(ml_dtypes.bfloat16)
        assert outcomes(x, nvfp4(x, whole=whole), recipe="BlockWise1x16", rule="nearest") == ("", "")


@pytest.mark.parametrize("recipe", ["TensorWise", "RowWise", "BlockWise1x128", "BlockWise128x128"])
def test_scales_of_float32(recipe: str) -> None:
    own = RECIPES[recipe]
    for seed in range(SEEDS):
        x = np.random.default_rng(seed).standard_normal((256, 256)).astype(np.float32)
        rows, columns = own.rows or 256, own.columns or 256
        blocks = np.abs(x).reshape(256 // rows, rows, 256 // columns, columns).max(axis=(1, 3))
        scales = blocks * np.float32(1 / 448)
        factors = np.repeat(np.repeat(np.float32(1) / scales, rows, 0), columns, 1)
        found = Quantised(np.clip(x * factors, -448, 448).astype(E4M3), scales)
        assert outcomes(x, found, recipe=recipe, rule="nearest") == ("", "")
        assert outcomes(x, Quantised(found.values, scales * np.float32(1.001)), recipe=recipe)[0] != ""


def in_tiles(found: Quantised) -> Quantised:
    stored = swizzled(found.scales.view(np.uint8)).view(found.scales.dtype)
    return Quantised(found.values, stored, found.whole)


def of_sizes(*shape: int) -> np.ndarray:
    """Blocks of 16 of many sizes."""
    rng = np.random.default_rng(11)
    sizes = (2.0 ** rng.integers(-6, 4, size=(shape[0], -(-shape[1] // 16)))).repeat(16, 1)[:, : shape[1]]
    return (rng.standard_normal(shape) * sizes).astype(ml_dtypes.bfloat16)


def whole_numbers(*shape: int) -> np.ndarray:
    """Many of which lie half between two numbers of four digits."""
    return np.random.default_rng(12).integers(-27, 28, size=shape).astype(ml_dtypes.bfloat16)


def floor(x: np.ndarray, **how: Any) -> Quantised:
    return mx(x, E4M3, "floor", **how)


NV: dict[str, Any] = {"recipe": "BlockWise1x16", "rule": "nearest"}
TILES: dict[str, Any] = {"order": "swizzled"}
HEALTHY: dict[str, tuple[np.ndarray, Callable[[np.ndarray], Quantised], dict[str, Any]]] = {
    "one row, cut block": (of_sizes(1, 80), floor, {}),
    "zeros": (np.zeros((3, 80), ml_dtypes.bfloat16), floor, {}),
    "padded tiles": (of_sizes(100, 80), lambda x: in_tiles(floor(x)), TILES),
    "tiles of odd numbers": (data(8), lambda x: in_tiles(mx(x, E4M3, "rceil")), TILES),
    "ties": (whole_numbers(20, 64), floor, {}),
    "two levels, cut block": (of_sizes(20, 88), lambda x: nvfp4(x, whole=True), NV),
    "two levels in tiles": (of_sizes(130, 48), lambda x: in_tiles(nvfp4(x, whole=True)), NV | TILES),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_quantiser_passes(name: str) -> None:
    x, quantise, how = HEALTHY[name]
    assert outcomes(x, quantise(x), **how) == ("", "")


def _away(scaled: np.ndarray) -> np.ndarray:
    step = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(scaled), 2.0**-6))) - 3)
    return np.clip(np.copysign(np.floor(np.abs(scaled) / step + 0.5) * step, scaled), -448, 448)


def _by_another_block(x: np.ndarray) -> Quantised:
    found = floor(x)
    return Quantised(found.values, np.roll(found.scales.view(np.uint8), 1, 1).view(E8M0))


def _row_wise(x: np.ndarray, scale: Callable[[np.ndarray], np.ndarray], narrow: bool = False) -> Quantised:
    scales = scale(x.astype(np.float32)).astype(np.float32)
    inverse = np.float32(1) / scales
    inverse = inverse.astype(ml_dtypes.bfloat16).astype(np.float32) if narrow else inverse
    return Quantised(np.clip(x.astype(np.float32) * inverse, -448, 448).astype(E4M3), scales)


def _largest(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.abs(x).max(axis=1, keepdims=True))


ROWS: dict[str, Any] = {"recipe": "RowWise"}
MANY = of_sizes(24, 256)
FAULTY: dict[str, tuple[np.ndarray, Callable[[np.ndarray], Quantised], dict[str, Any]]] = {
    "a maximum without signs": (MANY, lambda x: floor(x, largest_of=lambda b: np.abs(b.max(2))), {}),
    "a maximum of 31 numbers": (MANY, lambda x: floor(x, largest_of=lambda b: np.abs(b[..., 1:]).max(2)), {}),
    "the maximum of two blocks": (
        MANY, lambda x: floor(x, largest_of=lambda b: np.maximum(largest_of(b), np.roll(largest_of(b), 1, 1))), {}
    ),
    "powers kept above 2^-10": (MANY, lambda x: floor(x, least=117), {}),
    "the scale of another block": (MANY, _by_another_block, {}),
    "small quotients flushed": (
        MANY, lambda x: floor(x, round_=lambda y: np.where(np.abs(y) < 2.0**-6, 0, np.clip(y, -448, 448))), {}
    ),
    "elements in two roundings": (
        MANY, lambda x: floor(x, round_=lambda y: np.clip(y, -448, 448).astype(ml_dtypes.float8_e5m2)), {}
    ),
    "ties away from zero": (whole_numbers(20, 64), lambda x: floor(x, round_=_away), {}),
    "no tiles": (of_sizes(128, 128), floor, TILES),
    "tiles twice": (
        of_sizes(128, 128),
        lambda x: in_tiles(Quantised(floor(x).values, in_tiles(floor(x)).scales.reshape(128, 4))), TILES,
    ),
    "a block's scale without that of all": (of_sizes(20, 88), lambda x: nvfp4(x, whole=True, divided=False), NV),
    "nibbles swapped": (of_sizes(20, 64), lambda x: nvfp4(x, whole=True, swapped=True), NV),
    "the largest number of another format": (MANY, lambda x: _row_wise(x, lambda y: _largest(y) / 240), ROWS),
    "the standard deviation": (MANY, lambda x: _row_wise(x, lambda y: y.std(1, keepdims=True) / 64), ROWS),
    "a reciprocal in bfloat16": (MANY, lambda x: _row_wise(x, lambda y: _largest(y) / 448, narrow=True), ROWS),
}  # fmt: skip


def test_the_same_without_their_faults_are_none() -> None:
    assert outcomes(MANY, floor(MANY)) == ("", "")
    assert outcomes(MANY, _row_wise(MANY, lambda y: _largest(y) / 448), **ROWS) == ("", "")
    assert outcomes(of_sizes(20, 64), nvfp4(of_sizes(20, 64), whole=True), **NV) == ("", "")
    assert outcomes(of_sizes(128, 128), in_tiles(floor(of_sizes(128, 128))), **TILES) == ("", "")


@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_quantiser_is_an_error(name: str) -> None:
    x, quantise, how = FAULTY[name]
    assert any(outcomes(x, quantise(x), **how))


def by_chance(x: np.ndarray, seed: int, power: float = 1.0) -> Quantised:
    rng = np.random.default_rng(seed)

    def drawn(scaled: np.ndarray) -> np.ndarray:
        step = 2.0 ** (np.floor(np.log2(np.maximum(np.minimum(np.abs(scaled), 448), 2.0**-6))) - 3)
        chance = np.where(scaled == 0, 0.0, rng.random(scaled.shape) ** power)
        return np.clip(np.floor(scaled / step + chance) * step, -448, 448)

    return mx(x, E4M3, "ceil", round_=drawn)


def test_stochastic_rounding_is_judged_as_a_distribution() -> None:
    wanted = Wanted(RECIPES["BlockWise1x32"], "grid", rounding="stochastic")
    for seed in range(SEEDS):
        x = data(seed)
        _, elements = judge(x, [by_chance(x, 1000 * seed + draw) for draw in range(32)], wanted)
        assert (elements.reason, seed) == ("", seed)
    x = data(9)
    _, moved = judge(x, [by_chance(x, draw, 0.9) for draw in range(32)], wanted)
    assert "elements are not rounded by chance: " in moved.reason
    _, fixed = judge(x, [mx(x, E4M3, "ceil")] * 32, wanted)
    assert "elements are not rounded by chance: " in fixed.reason
    _, stray = judge(x, [mx(x, E4M3, "ceil", round_=lambda scaled: np.clip(scaled * 1.3, -448, 448))] * 32, wanted)
    assert "none of the two neighbours" in stray.reason


def test_outputs_of_another_shape_are_refused() -> None:
    x, found = data(10), mx(data(10), E4M3, "floor")
    with pytest.raises(BrokenCall, match=r"values of shape \[31, 256\], 7,936 numbers, expected 8,192 in rows of 256"):
        outcomes(x, Quantised(found.values[1:], found.scales))
    # Pairs of an odd number of columns have one number too many, or too few.
    odd = mx(x, FLOAT4, "floor")
    with pytest.raises(BrokenCall, match=r"values of shape \[32, 127\], 8,128 numbers, expected 8,160 in rows of 255"):
        outcomes(x[:, :255], Quantised(odd.values[:, :127], odd.scales))
    with pytest.raises(BrokenCall, match="a grid of 32 x 8"):
        outcomes(x, Quantised(found.values, found.scales[:, :7]))
