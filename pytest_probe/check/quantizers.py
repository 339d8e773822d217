"""A quantiser, run on the device and judged by what it was given; and what scaled values stand for, of anybody's arrays
and tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from pytest_probe import frameworks
from pytest_probe.check.check import Checker
from pytest_probe.check.outcome import Checked, undecided
from pytest_probe.errors import BrokenCall, DeviceRaised, NoKernel, Unsupported
from pytest_probe.model.case import Case
from pytest_probe.model.run import Leaf, Way, on_device
from pytest_probe.model.verdict import Verdict, conclusion
from pytest_probe.numerics import scaled
from pytest_probe.numerics.dtypes import PACKED, AnyArray, Float64Array, dtype_name, numpy_dtype, widen
from pytest_probe.standards.quantisers import quantiser
from pytest_probe.standards.quantisers.quantiser import Quantised, Wanted
from pytest_probe.user_errors import exception_line, first_line

# Runs of a quantiser that rounds by chance: of 4,096 elements they tell a bias of half a percent.
DRAWS = 32


def check_quantizer(checker: Checker, case: Case, wanted: Wanted) -> Checked:
    """The verdict on a quantiser, the function of a case, whose only tensor is what it quantises: on its scales and its
    elements. A function that raises, or gives something else, is an error."""
    assert case.pair is not None
    with checker.making_calls(case) as setup:
        try:
            draws = [_drawn(checker, case) for _ in range(DRAWS if wanted.rounding == "stochastic" else 1)]
            (leaf,) = case.pair.arguments.tensors.values()
            outputs = quantiser.judge(leaf.array, draws, wanted)
        except (DeviceRaised, Unsupported) as error:
            if isinstance(error, BrokenCall):
                return Checked(case, Verdict("error", quantiser.NAME, f"the quantiser gave {error}"), cause=error)
            return undecided(setup, case, error)
    outcome, reason = conclusion(outputs)
    return Checked(case, Verdict(outcome, quantiser.NAME, reason, "", dtype_name(leaf.array.dtype), outputs))


def _drawn(checker: Checker, case: Case) -> Quantised:
    """What one call gives. Raises DeviceRaised or Unsupported."""
    setup, pair = checker.setup, case.pair
    assert pair is not None
    try:
        with on_device():
            way = Way(setup.device, state="users")
            run = setup.framework.run(pair.function, pair.arguments.args, pair.arguments.kwargs, way, None)
    except (MemoryError, Unsupported):
        raise
    except Exception as error:
        if setup.framework.has_no_kernel(error):
            raise NoKernel(f"{setup.device.name}: {first_line(error)}") from error
        raise DeviceRaised(f"{setup.device.name} raised {exception_line(error)}") from error
    arrays = [value for value in run.outputs.values() if isinstance(value, np.ndarray)]
    if len(arrays) not in (2, 3) or len(arrays) != len(run.outputs):
        found = [type(value).__name__ for value in run.outputs.values()]
        raise BrokenCall(f"{len(found)} outputs ({', '.join(found)}), expected values, scales, and the scale of all")
    values, scales, *further = arrays
    whole = float(widen(further[0]).reshape(-1)[0]) if further else 1.0
    return Quantised(_as(values, PACKED), _as(scales, "float8_e8m0fnu"), whole)


def _as(array: AnyArray, dtype: str) -> AnyArray:
    """Bytes, which programs that know no narrower dtype have, as this one."""
    return array.view(numpy_dtype(dtype)) if array.dtype == np.uint8 else array


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
