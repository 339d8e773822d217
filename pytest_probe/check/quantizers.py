"""A quantiser, run on the device and judged by what it was given; and what scaled values stand for, of anybody's arrays
and tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from pytest_probe import frameworks
from pytest_probe.check.check import Checker
from pytest_probe.check.outcome import Checked, undecided
from pytest_probe.check.quantised import concluded, quantised
from pytest_probe.check.sources import DeviceSource
from pytest_probe.errors import BrokenCall, DeviceRaised, SettingsError, Unsupported
from pytest_probe.model.case import Case
from pytest_probe.model.run import Leaf, Way
from pytest_probe.numerics import scaled
from pytest_probe.numerics.dtypes import AnyArray, Float64Array
from pytest_probe.numerics.scaled import Order, is_swizzled, recipe_named
from pytest_probe.standards.quantisers.quantiser import DRAWS, Quantised, Wanted
from pytest_probe.standards.quantisers.scales import POWERS


def quantizer(
    recipe: object,
    *,
    rule: str | None = None,
    rounding: str = "nearest",
    saturate: bool = True,
    swizzle: object = None,
    scales_first: bool = False,
) -> Wanted:
    """What a quantiser states, for `registry.quantizers`; the arguments are those of `probe.check_quantizer`.
    scales_first: it returns scales before values. Raises BrokenCall or SettingsError for what cannot be used."""
    known = (*POWERS, "nearest", "up", "down")
    if rule is not None and rule not in known:
        raise SettingsError("quantizer: rule", rule, f"give one of {', '.join(known)}")
    if rounding not in ("nearest", "stochastic"):
        raise SettingsError("quantizer: rounding", rounding, 'give "nearest" or "stochastic"')
    order: Order = "swizzled" if is_swizzled(swizzle) else "grid"
    return Wanted(recipe_named(recipe), order, rule or "", saturate, rounding, scales_first)


def check_quantizer(checker: Checker, case: Case, wanted: Wanted) -> Checked:
    """The verdict on a quantiser, the function of a case, whose only tensor is what it quantises: on its scales and its
    elements. A function that raises, or gives something else, is an error."""
    assert case.pair is not None
    (leaf,) = case.pair.arguments.tensors.values()
    with checker.making_calls(case) as setup:
        try:
            count = DRAWS if wanted.rounding == "stochastic" else 1
            return concluded(case, leaf.array, [_drawn(checker, case, wanted) for _ in range(count)], wanted)
        except BrokenCall as error:
            return concluded(case, leaf.array, error, wanted)
        except (DeviceRaised, Unsupported) as error:
            return undecided(setup, case, error)


def _drawn(checker: Checker, case: Case, wanted: Wanted) -> Quantised:
    """What one call gives. Raises DeviceRaised or Unsupported."""
    setup, pair = checker.setup, case.pair
    assert pair is not None
    with DeviceSource(setup.framework, setup.device).running():
        way = Way(setup.device, state="users")
        run = setup.framework.run(pair.function, pair.arguments.args, pair.arguments.kwargs, way, None)
    return quantised(list(run.outputs.values()), wanted)


def dequantize(
    values: Any, scales: Any, recipe: object, *, swizzle: object = None, columns_first: bool = False
) -> Float64Array:
    """The numbers that scaled values stand for, each times its scale, in float64 and exact: for tests of your own.

    values, scales: NumPy arrays, with dtypes of ml_dtypes, or torch tensors on any device.

    - values: shape (..., rows, columns), the last dimension being the one that a product adds up; any float8 dtype,
      bfloat16, float16 or float32, or float4_e2m1fn_x2, which has half as many bytes as columns
    - scales: by recipe, with rows of all leading dimensions counted together: TensorWise one, RowWise (rows),
      BlockWise1x16 (rows, ceil(columns / 16)) of float8_e4m3fn, BlockWise1x32 (rows, ceil(columns / 32)) of
      float8_e8m0fnu, BlockWise1x128 (rows, ceil(columns / 128)), BlockWise128x128 (ceil(rows / 128),
      ceil(columns / 128)); float32 where no dtype is said. "mxfp8" and "mxfp4" mean BlockWise1x32, "nvfp4"
      BlockWise1x16
    - recipe: a name, or torch's ScalingType; a list of them, ["BlockWise1x16", "TensorWise"], has a list of scales,
      which are multiplied
    - swizzle: "SWIZZLE_32_4_4", or torch's SwizzleType, where the first scales are padded to tiles of 128 x 4 and lie
      as cuBLAS wants them; columns_first: they are transposed, as those of 128 x 128 blocks of torch's `scaled_mm`

    Returns float64 of the shape of the numbers. Raises BrokenCall, a ProbeError, which says what the recipe asks.
    """
    listed = [_array(each) for each in scales] if isinstance(scales, (list, tuple)) else _array(scales)
    return scaled.dequantized(_array(values), listed, recipe, swizzle=swizzle, columns_first=columns_first)


def _array(value: Any) -> AnyArray:
    """An array, or a framework's tensor, whose framework is imported already."""
    if isinstance(value, np.ndarray):
        return value
    framework = frameworks.load(frameworks.DEFAULT)
    taken = framework.take(value, framework.host())
    return taken.array if isinstance(taken, Leaf) else np.asarray(taken)
