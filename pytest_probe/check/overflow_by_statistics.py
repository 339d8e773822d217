"""Overflows of records without stored tensors: what their statistics tell, for the standard `finite`."""

from __future__ import annotations

import math
from contextlib import suppress

from pytest_probe.check.runner import CaseRunner
from pytest_probe.check.stored_outputs import check_gradients, check_stored
from pytest_probe.errors import Unsupported
from pytest_probe.model.case import Case
from pytest_probe.model.dump import Call, TensorSpec
from pytest_probe.model.verdict import OVERFLOW, OutputVerdict, Verdict
from pytest_probe.numerics.dtypes import is_inexact
from pytest_probe.standards.finite import INHERITED, Finite, is_beyond

# The kind of a skip of an output that only a device can tell of.
REPLAY = "overflow that needs a replay"


def by_statistics(case: Case, runner: CaseRunner) -> Verdict | None:
    """The verdict on the recorded outputs, or gradients, of a record whose tensors were not stored; None where they
    were. Raises Unsupported where an input was not finite, or where statistics do not tell, and RecordError."""
    call = case.dump.decode(case.record)
    if case.dump.data_dirs:
        with suppress(Unsupported):  # not the tensors that are judged in this direction
            check_stored(call) if case.direction == "forward" else check_gradients(call)
            return None
    inputs, outputs = _halves(case, call)
    found = {name: spec for name, spec in outputs.items() if is_inexact(spec.dtype)}
    if any(_is_finite(spec) is None for spec in found.values()) or not outputs:
        raise Unsupported("neither stored tensors nor statistics tell whether its outputs are finite", REPLAY)
    lost = {name: spec for name, spec in found.items() if not _is_finite(spec)}
    if lost and not all(_is_finite(spec) is not False for spec in inputs):
        raise Unsupported(f"{', '.join(lost)} is not finite, and neither is an argument", INHERITED)
    # Outputs that are beyond their dtype's range in the reference on generated arguments too.
    normal: set[str] = set()
    if lost and case.direction == "forward" and not call.partial:
        reference = runner.reference(runner.resolved(case, call, runner.arguments(case, call)))
        expected = reference.run.outputs
        normal = {name for name, spec in lost.items() if name in expected and is_beyond(expected[name], spec.dtype)}
    left = [name for name in lost if name not in normal]
    if left:
        raise Unsupported(
            f"{', '.join(left)} is not finite and its arguments are; on arguments with their statistics the reference "
            "is finite: only a replay tells, with --probe-device naming a device",
            REPLAY,
        )
    metrics = {name: {OVERFLOW: "normal"} if name in normal else {} for name in outputs}
    verdicts = tuple(
        OutputVerdict(name, spec.shape, spec.dtype, "pass", Finite.name, metrics=metrics[name])
        for name, spec in outputs.items()
    )
    note = "by the recorded statistics" + (", and the reference on arguments that have them" if normal else "")
    dtypes = "+".join(sorted({spec.dtype for spec in (*inputs, *outputs.values()) if is_inexact(spec.dtype)}))
    return Verdict("pass", Finite.name, dtype=dtypes, outputs=verdicts, notes=(note,))


def recorded_overflow(call: Call) -> tuple[str, ...]:
    """A note where a record's output was not finite, which another run on other values need not show again."""
    lost = [
        name
        for name, spec in call.returned()
        if isinstance(spec, TensorSpec) and is_inexact(spec.dtype) and _is_finite(spec) is False
    ]
    if not lost or any(spec.data_name is not None for spec in call.output_specs()):
        return ()
    return (f"recorded as not finite: {', '.join(lost)}; this run has generated arguments of the same statistics",)


def _halves(case: Case, call: Call) -> tuple[list[TensorSpec], dict[str, TensorSpec]]:
    """What came in and what went out, in the case's direction."""
    arguments = [spec for _, spec in call.tensors()]
    if case.direction == "forward":
        return arguments, {name: spec for name, spec in call.returned() if isinstance(spec, TensorSpec)}
    gradients = case.dump.gradients(case.record)
    incoming = [spec for name, spec in gradients.items() if spec is not None and name.startswith("input")]
    outgoing = {
        f"grad.{name}": spec for name, spec in gradients.items() if spec is not None and name.startswith("output")
    }
    return [*arguments, *incoming], outgoing


def _is_finite(spec: TensorSpec) -> bool | None:
    """By Max and Min, which NaN shows in too, and the counts; None where the dump has neither. Mean and Norm may have
    overflown themselves."""
    if not is_inexact(spec.dtype) or not spec.size:
        return True
    if spec.nan or spec.inf:
        return False
    if spec.max is None or spec.min is None:
        return True if spec.nan == 0 and spec.inf == 0 else None
    return math.isfinite(spec.max) and math.isfinite(spec.min)
