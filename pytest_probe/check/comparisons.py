"""What the standards are asked of a replay: one comparison an output, with the evidence that they may ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from msgspec.structs import replace

from pytest_probe.check.alternatives import Alternatives, computed, with_arguments
from pytest_probe.check.both_sides import BothSides, Reference, results
from pytest_probe.check.dependence import Dependence
from pytest_probe.check.large.cuts import is_large
from pytest_probe.check.large.pieces import Sampled
from pytest_probe.check.perturbed import OutputRuns, Perturbation, PerturbedRuns
from pytest_probe.check.prepare import cast_of, default_dtype, narrow_dtype, python_numbers
from pytest_probe.check.structure import OutputPairs, structure_error
from pytest_probe.model.comparison import Assumption, Choice, ComparedCase, Comparison, KernelsInside, OwnResult
from pytest_probe.model.dump import Direction
from pytest_probe.model.run import RECORDED, Array, BoundCall, Leaf, Way, floats_of
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.arrays import same_bytes, widened_dtype
from pytest_probe.numerics.dtypes import (
    NARROW_DTYPES,
    WIDE_DTYPES,
    AnyArray,
    float_format,
    is_complex,
    is_floating,
    is_packed,
    numpy_dtype,
    widen,
)
from pytest_probe.standards.tables import classes_of, details
from pytest_probe.user_errors import allowing_refusal

# u_c, the roundoff of the arithmetic inside: float32 for it and everything narrower, else float64.
SINGLE, DOUBLE = 2.0**-24, 2.0**-53
# Places that messages name.
_CASTS = 3


class CaseEvidence(OutputRuns, frozen=True):
    """Runs of one output of a replay, its alternatives, and the CPU's own result where that is another device."""

    replay: BothSides
    direction: Direction
    alternatives: Alternatives
    dependence: Dependence
    seed: int
    by_class: bool
    # What the reference's function gives by the CPU's kernels, for the whole call.
    on_cpu: Callable[[], Mapping[str, AnyArray]]
    sample: Sampled | None = None

    def terms(self) -> int | None:
        return self.dependence.terms(self.name)

    def alternative(self, comparison: Comparison, assumption: Assumption) -> Comparison | None:
        return self.alternatives.of(comparison, assumption)

    def with_arguments(self, values: Mapping[str, Any]) -> AnyArray | None:
        return with_arguments(self.replay, self.direction, values).get(self.name)

    def choices(self) -> tuple[Sequence[Choice], ...]:
        reference = self.replay.reference
        cpu = reference.framework.host()
        ways = (reference.way, Way(device=cpu, autocast=reference.autocast, default=default_dtype(reference.call)))
        found = tuple(list[Choice]() for _ in ways)
        for way, noted in zip(ways, found, strict=True):
            function = reference.framework.noting_choices(reference.candidate.reference, noted)
            candidate = replace(reference.candidate, reference=function)
            try:
                replace(reference, candidate=candidate).again(reference.leaves, way, None)
            except MemoryError:
                raise
            except Exception:
                noted.clear()  # no kernel of these dtypes
        return found

    def chosen_otherwise(self, count: int) -> list[AnyArray]:
        reference, found = self.replay.reference, list[AnyArray]()
        for seed in range(0 if reference.is_partial else count):
            function = reference.framework.choosing_otherwise(reference.candidate.reference, seed)
            changed = replace(reference, candidate=replace(reference.candidate, reference=function))
            with allowing_refusal():
                run = computed(changed, self.direction, reference.way, self.replay.incoming, like=reference)
                found += [widen(run[self.name])] if self.name in run else []
        return found

    def cpu_result(self) -> AnyArray | None:
        return None if self.replay.source.name == "cpu" else self.reference_on_cpu()

    def own_result(self) -> OwnResult | None:
        reference = self.replay.reference
        own = self.replay.source.name == "cpu" and reference.is_own
        values = self.reference_on_cpu() if own else None
        return None if values is None else OwnResult(reference.framework.package, values)

    def reference_on_cpu(self) -> AnyArray | None:
        values = self.on_cpu().get(self.name)
        return None if values is None else self._of_whole(values)

    def is_of_cpu(self, whole: AnyArray) -> bool:
        """Has the whole output the bits that the CPU's kernels give?"""
        values = self.on_cpu().get(self.name)
        return values is not None and same_bytes(values, whole)

    def _of_whole(self, values: AnyArray) -> AnyArray:
        return values if self.sample is None else self.sample.of_whole(self.name, values)

    def narrow_kernels(self) -> Sequence[str]:
        reference = self.replay.reference
        with allowing_refusal():
            device = reference.composing(self.replay.source.name)
            replace(reference, autocast="", wanted=None).in_own_dtypes(device)
            return tuple(device.narrow)
        return ()

    def kernels_inside(self) -> KernelsInside | None:
        whole = self.replay if self.sample is None else self.sample.whole
        reference, framework = whole.reference, whole.reference.framework
        if self.replay.source.name != "cpu" or reference.is_own or framework.registered_kernels("cpu") is None:
            return None
        on_device = replace(reference.candidate, reference=reference.candidate.on_device)
        called = replace(whole, reference=replace(reference, candidate=on_device))
        with allowing_refusal():
            with framework.rounding_once() as found:
                once = _on_cpu(called, self.direction).get(self.name)
            values = _on_cpu(called, self.direction).get(self.name) if found() else None
            if once is not None and values is not None:
                return KernelsInside(framework.package, self._of_whole(values), self._of_whole(once))
        return None


def _kept_on_cpu(replay: BothSides, direction: Direction) -> Mapping[str, AnyArray]:
    """What the reference's function gives by the CPU's kernels; nothing if these refuse the call."""
    reference, incoming = replay.reference, replay.incoming
    with allowing_refusal():
        return reference.kept_arrays(
            lambda: ("cpu", direction, incoming, reference.state), partial(_on_cpu, replay, direction)
        )
    return {}


def _on_cpu(replay: BothSides, direction: Direction) -> dict[str, AnyArray]:
    reference = replay.reference
    cpu = reference.framework.host()
    if direction == "backward":
        return dict(reference.framework.gradients(reference.in_own_dtypes(cpu), replay.incoming))
    return dict(results(replace(reference, wanted=None).in_own_dtypes(cpu), reference.changed))


def comparisons(
    sides: OutputPairs, direction: Direction, seed: int, *, by_class: bool
) -> Iterator[Comparison | OutputVerdict]:
    """A comparison for every output that both sides have; a verdict where shapes or dtypes already differ.

    by_class: the API's own judge is asked for, and not the noise standard alone.
    """
    replay, reference = sides.replay, sides.replay.reference
    call = reference.bound.mapped(lambda value: value.array if isinstance(value, (Leaf, Array)) else value)
    if not by_class:  # as one of a function that nothing is known of
        call = replace(call, api="", name="", defaults={})
    classes = classes_of(call.name)
    floats = floats_of(reference.leaves)
    arrays = ((name, value.dtype) for name, value in sides.actual.items() if isinstance(value, np.ndarray))
    made = floats or {name: dtype for name, dtype in arrays if is_floating(dtype)}
    narrowest = _narrowest(reference, made)
    # A choice among equal values must stay the same in perturbed runs, so equal values move together there.
    together = bool(classes & {"ties", "kinks"})
    fixed = frozenset(call.paths[name] for name in details(classes, "labels") if name in call.paths)
    cast, rounds = _narrowing(reference, made)
    how = Perturbation(
        f"{call.api}\0{seed}",
        direction,
        SINGLE,
        cast or narrowest,
        None,
        together,
        fixed,
        "attention" in classes,
        written=bool(cast),
        by_matrix="backward_stable" in classes,
    )

    @cache
    def runs(roundoff: float) -> PerturbedRuns:
        """Those of the case: outputs of one call may be of both kinds."""
        return PerturbedRuns(replay, how if how.roundoff == roundoff else replace(how, roundoff=roundoff))

    sample = sides.sample if isinstance(sides.sample, Sampled) else None
    few = replay if sample is None else sample.of_few(replay)
    alternatives, dependence = Alternatives(replay, how), Dependence(few, direction)
    case = _compared_case(replay, call, direction, floats, narrowest, rounds)
    case = replace(case, compared=sides.expected)

    @cache
    def on_cpu() -> Mapping[str, AnyArray]:
        """Of the whole call: kernels cut tensors into vectors, and a part into others."""
        return _kept_on_cpu(replay if sample is None else sample.whole, direction)

    shared = replay, direction, alternatives, dependence, seed, by_class, on_cpu, sample
    told = {verdict.name for verdict in sides.structural}
    precision_of, large_arguments = _precisions(reference), is_large(reference.leaves, [])
    for name in (name for name in sides.expected if name in sides.actual and name not in told):
        actual, expected = _as_arrays(sides.actual[name], sides.expected[name], floats)
        trouble = _structure(name, actual, expected)
        if trouble is not None:
            yield trouble
            continue
        precision = precision_of(name, actual.dtype)
        roundoff = DOUBLE if precision in WIDE_DTYPES else SINGLE
        of_output = name.removeprefix("grad."), expected.shape, actual.dtype, *shared
        evidence = CaseEvidence(runs(roundoff), *of_output)
        mixed = roundoff == DOUBLE and any(dtype not in WIDE_DTYPES for dtype in floats.values())
        single = CaseEvidence(runs(SINGLE), *of_output) if mixed else None
        sampled = sides.sample is not None
        weights = None if sample is None else sample.weights(name, expected.shape)
        large = not sampled and (large_arguments or is_large({}, [expected.shape]))
        yield Comparison(
            name,
            case,
            actual,
            expected,
            precision,
            roundoff,
            evidence,
            single=single,
            sampled=sampled,
            weights=weights,
            large=large,
        )


def _compared_case(
    replay: BothSides,
    call: BoundCall,
    direction: Direction,
    floats: Mapping[str, np.dtype[Any]],
    narrowest: str,
    rounds: str,
) -> ComparedCase:
    """What the comparisons of a case share. floats: the dtypes of its floating arguments; narrowest and rounds as
    _narrowest and _narrowing give them."""
    reference = replay.reference
    on_cpu = replay.source.name == "cpu"
    # Are all floating tensors narrower than float32, and is nothing cast to 16 bit?
    narrow = all(not is_complex(dtype) and float_format(dtype).precision < 24 for dtype in floats.values())
    return ComparedCase(
        call=call,
        classes=classes_of(call.name),
        direction=direction,
        narrow="" if narrowest == "float32" else narrowest,
        narrow_alone=narrow and bool(floats) and _cast(reference) not in NARROW_DTYPES,
        on_cpu=on_cpu,
        computes_narrow=on_cpu and not reference.is_emulated and reference.framework.computes_narrow(narrowest),
        plain_convolutions=on_cpu and reference.framework.plain_convolutions(narrowest),
        of_user=reference.of_user,
        inferred=reference.of_user and reference.candidate.inferred,
        modes=_recorded_modes(replay),
        rounds=rounds,
        own_kernels="" if on_cpu or narrowest == "float32" else reference.own_kernels(replay.source.name),
        forward=replay.actual.outputs,
        reference=reference.run.outputs,
        incoming=replay.incoming,
    )


def _recorded_modes(replay: BothSides) -> tuple[str, ...]:
    surroundings = replay.reference.call.surroundings
    return surroundings.modes if replay.source.name == RECORDED and surroundings is not None else ()


def _cast(reference: Reference) -> str:
    """The dtype that a call casts its tensors to: by autocast, or by an argument."""
    return reference.autocast or cast_of(reference.candidate.name, reference.candidate.arguments)


def _narrowest(reference: Reference, floats: Mapping[str, np.dtype[Any]]) -> str:
    """The 16-bit (or narrower) dtype that the case's tensors pass between kernels; float32 without one."""
    cast = _cast(reference)
    if cast in NARROW_DTYPES:
        return cast
    real = [dtype for dtype in floats.values() if not is_complex(dtype)]
    narrowest = min(real, key=lambda dtype: float_format(dtype).precision, default=np.dtype(np.float32))
    return narrowest.name if float_format(narrowest).precision < 24 else "float32"


def _narrowing(reference: Reference, floats: Mapping[str, np.dtype[Any]]) -> tuple[str, str]:
    """The narrowest dtype that a user's reference rounds to though no argument is so narrow, and all such dtypes with
    their places, in words; "" without one."""
    least = min((float_format(dtype).precision for dtype in floats.values() if not is_complex(dtype)), default=0)
    real = (cast for cast in reference.casts if not is_complex(numpy_dtype(cast.dtype)))
    casts = [cast for cast in real if float_format(cast.dtype).precision < least]
    words = dict.fromkeys(f"{cast.dtype} at {cast.place}" if cast.place else cast.dtype for cast in casts)
    narrowest = min((cast.dtype for cast in casts), key=lambda dtype: float_format(dtype).precision, default="")
    return narrowest, ", ".join([*words][:_CASTS])


def _as_arrays(actual: Any, expected: Any, floats: Mapping[str, np.dtype[Any]]) -> tuple[AnyArray, AnyArray]:
    """Both sides as arrays; Python floats in the widest floating dtype of the arguments, strings as they are. Packed
    numbers are compared as bytes: no call computes them."""
    if isinstance(actual, np.ndarray) or isinstance(expected, np.ndarray):
        actual, wide = np.asarray(actual), np.asarray(expected)
        if is_packed(actual) and is_packed(wide):
            return actual.view(np.uint8), wide.view(np.uint8)
        return actual, widen(wide) if is_floating(wide.dtype) else wide
    # A float that a call returns (`item`) was a number of its tensors' dtype.
    if type(actual) is float and type(expected) is float:
        dtype = max(floats.values(), key=lambda item: item.itemsize, default=np.dtype(np.float64))
        return np.asarray(actual).astype(dtype), np.asarray(expected)
    # Truth values, or integers that an array holds.
    sides = actual, expected
    if all(type(side) is type(actual) and isinstance(side, int) and -(2**63) <= side < 2**63 for side in sides):
        return np.asarray(actual), np.asarray(expected)
    same = type(actual) is type(expected) and actual == expected
    return np.asarray(same), np.asarray(True)


def _structure(name: str, actual: AnyArray, expected: AnyArray) -> OutputVerdict | None:
    if actual.shape != expected.shape:
        reason = f"shape {list(actual.shape)}, the reference has {list(expected.shape)}"
    elif widened_dtype(actual.dtype) != widened_dtype(expected.dtype):
        reason = f"dtype {actual.dtype.name}, the reference has {expected.dtype.name}"
    else:
        return None
    return structure_error(name, actual, reason)


def _precisions(reference: Reference) -> Callable[[str, np.dtype[Any]], np.dtype[Any]]:
    """Gives, by the name and dtype of an output, in whose half ulp it may be rounded: autocast computes gradients of
    wider arguments in 16 bit, and some outputs that are wide again; a call that casts, those gradients in its dtype;
    and a call of 16-bit tensors the gradient of a wider number that stands next to them."""
    arguments, narrow = reference.candidate.arguments, narrow_dtype(reference.leaves)
    # The dtypes that both are computed in, "" where that is their own.
    outputs = reference.autocast if reference.inside else ""
    gradients = outputs or (reference.autocast if reference.narrow else "")
    gradients = gradients or cast_of(reference.candidate.name, arguments)
    numbers = frozenset[str]() if narrow is None else python_numbers(arguments, narrow)

    def of(name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
        gradient = name.startswith("grad.")
        if narrow is not None and name.removeprefix("grad.") in numbers:
            return narrow if gradient else dtype
        cast = gradients if gradient else outputs
        if not is_floating(dtype) or not cast:
            return dtype
        return min(dtype, numpy_dtype(cast), key=lambda item: float_format(item).precision)

    return of
