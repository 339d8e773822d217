"""What the standards are asked of a replay: one question an output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_probe.execution.arguments import NARROW, cast_of, floats_of, mapped, narrow_dtype, numbers
from pytest_probe.execution.likeness import widened_dtype
from pytest_probe.execution.otherwise import Otherwise
from pytest_probe.execution.perturbation import OutputRuns, Perturbation, results
from pytest_probe.execution.replay import Replay
from pytest_probe.frameworks.base import Array, Leaf
from pytest_probe.numerics.dtypes import AnyArray, float_format, is_complex, is_floating, numpy_dtype, widen
from pytest_probe.records.model import Direction
from pytest_probe.standards.facts import facts
from pytest_probe.standards.fan_in import fan_in, winograd
from pytest_probe.standards.question import Question
from pytest_probe.standards.verdict import OutputVerdict

SINGLE, DOUBLE = 2.0**-24, 2.0**-53
LABELS = "labels@"
WIDE = ("float64", "complex128")


@dataclass(frozen=True, slots=True)
class Witness:
    """The framework's own CPU kernel in the case's dtype, run when a standard asks for it."""

    replay: Replay
    direction: Direction
    name: str

    def __call__(self) -> AnyArray | None:
        try:
            cpu = self.replay.framework.device("cpu")
            run = self.replay.witness_run(cpu, self.replay.wanted if self.direction == "backward" else None)
            if self.direction == "backward":
                return self.replay.framework.gradients(run, self.replay.seeds).get(self.name)
            return results(run, self.replay.changed).get(self.name)
        except Exception:
            return None  # no kernel there either: no witness


def questions(
    api: str,
    direction: Direction,
    replay: Replay,
    actual: Mapping[str, Any],
    expected: Mapping[str, Any],
    seed: int,
) -> Iterator[Question | OutputVerdict]:
    """A question for every output that both sides have; a verdict where shapes or dtypes already differ."""
    known = facts(api)
    floats = floats_of(replay.leaves)
    made = floats or {name: value.dtype for name, value in actual.items() if _is_float(value)}
    narrowest = _narrowest(replay, made)
    together = bool(known.classes & {"ties", "kinks"})
    fixed = frozenset(kind.removeprefix(LABELS) for kind in known.classes if kind.startswith(LABELS))
    perturbations = {
        roundoff: Perturbation(
            replay,
            f"{api}\0{seed}",
            roundoff,
            narrowest,
            direction == "backward",
            together=together,
            fixed=fixed,
        )
        for roundoff in (SINGLE, DOUBLE)
    }
    otherwise = Otherwise(replay, direction, f"{api}\0{seed}", narrowest, together, fixed)
    args, kwargs = _plain(replay)
    largest = max((np.size(value) for value in replay.expected.outputs.values()), default=1)
    on_cpu = replay.device.name == "cpu"
    for name in (name for name in expected if name in actual):
        found, wanted = _as_arrays(actual[name], expected[name], floats)
        trouble = _structure(name, found, wanted)
        if trouble is not None:
            yield trouble
            continue
        precision = _precision(replay, name, found.dtype)
        roundoff = DOUBLE if precision.name in WIDE else SINGLE
        run_name = name.removeprefix("grad.")
        terms, assumed = fan_in(known, name, wanted, args, kwargs, largest)
        yield Question(
            name=name,
            api=api,
            facts=known,
            direction=direction,
            actual=found,
            expected=wanted,
            precision=precision,
            roundoff=roundoff,
            runs=OutputRuns(perturbations[roundoff], run_name, wanted.shape),
            narrow=narrowest != "float32",
            on_cpu=on_cpu,
            fan_in=terms,
            fan_in_assumed=assumed,
            winograd=winograd(known, args, kwargs),
            witness=None if on_cpu else Witness(replay, direction, run_name),
            args=args,
            kwargs=kwargs,
            forward=replay.actual.outputs,
            reference=replay.expected.outputs,
            gradients=replay.seeds,
            otherwise=otherwise,
            plain=on_cpu and replay.framework.plain_convolutions(narrowest),
        )


def _plain(replay: Replay) -> tuple[tuple[Any, ...], dict[str, Any]]:
    arguments = replay.candidate.arguments
    plain = mapped(arguments, lambda value, _: value.array if isinstance(value, (Leaf, Array)) else value)
    return plain.args, plain.kwargs


def _narrowest(replay: Replay, floats: Mapping[str, np.dtype[Any]]) -> str:
    """The 16-bit (or narrower) dtype that the case's tensors pass between kernels; float32 without one."""
    cast = replay.autocast or cast_of(replay.candidate.path, replay.candidate.arguments)
    if cast in NARROW:
        return cast
    real = [dtype for dtype in floats.values() if not is_complex(dtype)]
    narrowest = min(real, key=lambda dtype: float_format(dtype).precision, default=np.dtype(np.float32))
    return narrowest.name if float_format(narrowest).precision < 24 else "float32"


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and is_floating(value.dtype)


def _as_arrays(actual: Any, expected: Any, floats: Mapping[str, np.dtype[Any]]) -> tuple[AnyArray, AnyArray]:
    """Both sides as arrays; Python floats in the widest floating dtype of the arguments, strings as they are."""
    if isinstance(actual, np.ndarray) or isinstance(expected, np.ndarray):
        reference = np.asarray(expected)
        return np.asarray(actual), widen(reference) if is_floating(reference.dtype) else reference
    if type(actual) is float and type(expected) is float:
        dtype = max(floats.values(), key=lambda item: item.itemsize, default=np.dtype(np.float64))
        return np.asarray(actual).astype(dtype), np.asarray(expected)
    same = type(actual) is type(expected) and actual == expected
    return np.asarray(same), np.asarray(True)


def _structure(name: str, actual: AnyArray, expected: AnyArray) -> OutputVerdict | None:
    shape, dtype = actual.shape, actual.dtype.name
    if shape != expected.shape:
        reason = f"shape {list(shape)}, the reference has {list(expected.shape)}"
        return OutputVerdict(name, shape, dtype, "error", "structure", reason)
    if widened_dtype(actual.dtype) != widened_dtype(expected.dtype):
        reason = f"dtype {dtype}, the reference has {expected.dtype.name}"
        return OutputVerdict(name, shape, dtype, "error", "structure", reason)
    return None


def _precision(replay: Replay, name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """In whose half ulp an output may be rounded: autocast computes the gradients of wider arguments in 16 bit, and
    some outputs that are wide again; a call that casts, those gradients in its dtype; and one of 16-bit tensors the
    gradient of a wider number that stands beside them."""
    gradient = name.startswith("grad.")
    narrow = narrow_dtype(replay.leaves)
    if narrow is not None and name.removeprefix("grad.") in numbers(replay.candidate.arguments, narrow):
        return narrow if gradient else dtype
    autocast = replay.autocast if replay.inside or (gradient and replay.narrow) else ""
    cast = autocast or (cast_of(replay.candidate.path, replay.candidate.arguments) if gradient else "")
    if not is_floating(dtype) or not cast:
        return dtype
    return min(dtype, numpy_dtype(cast), key=lambda item: float_format(item).precision)
