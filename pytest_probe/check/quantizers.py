"""A quantiser, run on the device and judged by what it was given, without a reference: what `probe.check_quantizer` is
asked for, and recorded calls of functions that a project names as quantisers (`registry.quantizers`). And what scaled
values stand for, of anybody's arrays and tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_probe import frameworks
from pytest_probe.check.device_call import DeviceSource
from pytest_probe.check.outcome import CaseOutcome, undecided
from pytest_probe.check.stored_outputs import StoredOutputs
from pytest_probe.errors import BrokenCall, DeviceRaised, SettingsError, Unsupported
from pytest_probe.model.case import Case
from pytest_probe.model.dump import TensorSpec
from pytest_probe.model.run import Arguments, Leaf, Way
from pytest_probe.model.verdict import Verdict, conclusion
from pytest_probe.numerics import scaled
from pytest_probe.numerics.dtypes import PACKED, AnyArray, Float64Array, dtype_name, is_floating, numpy_dtype, widen
from pytest_probe.numerics.scaled import Order, is_swizzled, recipe_named
from pytest_probe.standards import quantisers
from pytest_probe.standards.quantisers import DRAWS, POWERS, Quantised, Wanted

if TYPE_CHECKING:
    from pytest_probe.check.check import Checker
    from pytest_probe.check.runner import CaseRunner

# The kind of skips of what is not judged of a record.
_KIND = "quantiser"


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


def check_quantizer(checker: Checker, case: Case, wanted: Wanted) -> CaseOutcome:
    """The verdict on a quantiser, the function of a case, whose only tensor is what it quantises: on its scales and its
    elements. A function that raises, or gives something else, is an error."""
    assert case.pair is not None
    (leaf,) = case.pair.arguments.tensors.values()
    with checker.making_calls(case) as engines:
        draws = _draws(DeviceSource(engines.framework, engines.device), case.pair.function, case.pair.arguments, wanted)
        try:
            return _concluded(case, leaf.array, draws, wanted)
        except (DeviceRaised, Unsupported) as error:
            return undecided(engines, case, error)


def recorded_quantizer(case: Case, runner: CaseRunner) -> CaseOutcome:
    """The verdict on a record whose API the project named as a quantiser. Raises what `CaseRunner` does, and
    Unsupported for its backward."""
    registry = runner.engines.registry
    wanted = registry.quantizers[case.api]
    if case.direction == "backward":
        raise Unsupported(f"{case.api} is a quantiser, whose gradient follows no rule", _KIND)
    call = case.dump.decode(case.record)
    source, arguments = runner.source(case, call), runner.arguments(case, call)
    # What was quantised is the first floating tensor of at least one dimension.
    arrays = (leaf.array for leaf in arguments.tensors.values())
    numbers = next((array for array in arrays if array.ndim and is_floating(array.dtype)), None)
    if numbers is None:
        raise Unsupported(f"{case.api}: no argument is a floating tensor, which a quantiser is given", _KIND)
    draws: Iterable[Sequence[object]]
    if isinstance(source, StoredOutputs):
        entry, returned = f"{source.record.name}.forward", source.call.returned()
        draws = [[source.files.array(spec, entry, name) for name, spec in returned if isinstance(spec, TensorSpec)]]
    else:
        function = registry.calls.get(case.api)
        if function is None:
            found = source.framework.candidates(case.record.namespace, case.record.api, registry.namespaces)
            function = (found[0].on_device or found[0].lookup)()
        made = _draws(source, function, arguments, wanted)
        draws = ([value for value in outputs if isinstance(value, np.ndarray)] for outputs in made)
    return _concluded(case, numbers, draws, wanted)


def _draws(
    source: DeviceSource, function: Callable[..., Any], arguments: Arguments, wanted: Wanted
) -> Iterator[Sequence[object]]:
    """The outputs of one call on the device, or of as many as stochastic rounding asks. Raises DeviceRaised or
    Unsupported."""
    way = Way(source.device, state="users")
    for _ in range(DRAWS if wanted.rounding == "stochastic" else 1):
        with source.running():
            run = source.framework.run(function, arguments, way, None)
        yield list(run.outputs.values())


def _concluded(case: Case, numbers: AnyArray, draws: Iterable[Sequence[object]], wanted: Wanted) -> CaseOutcome:
    """The verdict on what a quantiser made of numbers, the outputs of each of its calls; an error where they are no
    values and scales of its recipe."""
    try:
        outputs = quantisers.judge(numbers, [_quantised(each, wanted) for each in draws], wanted)
    except BrokenCall as error:
        return CaseOutcome(case, Verdict("error", quantisers.NAME, f"the quantiser gave {error}"), cause=error)
    outcome, reason = conclusion(outputs)
    return CaseOutcome(case, Verdict(outcome, quantisers.NAME, reason, "", dtype_name(numbers.dtype), outputs))


def _quantised(outputs: Sequence[object], wanted: Wanted) -> Quantised:
    """The outputs of one call, in their order. Bytes, which programs that know no narrower dtype have, are float4 pairs
    as values, and E8M0 as scales. Raises BrokenCall where they are no values and scales."""
    arrays = [value for value in outputs if isinstance(value, np.ndarray)]
    if len(arrays) not in (2, 3) or len(arrays) != len(outputs):
        found = [type(value).__name__ for value in outputs]
        raise BrokenCall(f"{len(found)} outputs ({', '.join(found)}), expected values, scales, and the scale of all")
    values, scales = (arrays[1], arrays[0]) if wanted.scales_first else arrays[:2]
    whole = float(widen(arrays[2]).reshape(-1)[0]) if len(arrays) > 2 else 1.0
    return Quantised(_as(values, PACKED), _as(scales, "float8_e8m0fnu"), whole)


def _as(array: AnyArray, dtype: str) -> AnyArray:
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
