"""What checking a case leaves, also where an error is in the way of a verdict; a call made ready for a caller; and what
a run may ask of a case besides its verdict, time and memory, which the feature `timing` measures.

The item's owner keeps a `CaseOutcome`, and nobody else keeps anything of a case. So peak memory is that of the largest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.check.both_sides import BothSides, Reference
from pytest_probe.check.engines import Engines
from pytest_probe.check.structure import OutputPairs, PairedOutputs
from pytest_probe.errors import (
    CompilerFailed,
    DeviceRaised,
    HookFailed,
    NoKernel,
    ProbeError,
    RecordError,
    SettingsError,
    TooLargeForDevice,
    Unsupported,
)
from pytest_probe.inputs.memory import recorded_layouts
from pytest_probe.model.case import Case, floating_dtypes
from pytest_probe.model.measurement import CaseMemory, CaseTime
from pytest_probe.model.run import Leaf, floats_of
from pytest_probe.model.verdict import Verdict
from pytest_probe.numerics.arrays import laid_out
from pytest_probe.numerics.dtypes import NARROW_DTYPES
from pytest_probe.system.machine import out_of_memory
from pytest_probe.user_errors import ends_run, message_of, raised

if TYPE_CHECKING:
    from pytest_probe.check.runner import CaseRunner
    from pytest_probe.frameworks.base import Bound


class MeasurableCall(Protocol):
    """The call of a case as the device makes it."""

    @property
    def leaves(self) -> Mapping[str, Leaf]:
        """Its tensor arguments by name."""

    def time(self) -> CaseTime | None:
        """Its time, measured on new copies of its inputs; None where no time is asked for."""

    def memory(self) -> CaseMemory | None:
        """Its memory; None where none is asked for."""


class Measuring(Protocol):
    """What finds the call of a case to measure."""

    def of_replay(self, case: Case, replay: BothSides, engines: Engines) -> MeasurableCall:
        """That of a case whose record ran, for its results to be judged. Raises DeviceRaised where it has no
        gradients."""

    def alone(self, case: Case, runner: CaseRunner) -> MeasurableCall:
        """That of a case of which nothing runs but the device. Raises Unsupported or RecordError."""


# Tensors whose layouts an error names.
_LISTED = 4
# What kernels say of how a tensor must lie; of a misaligned address the hardware speaks, after a kernel went wrong.
_OF_LAYOUT = re.compile(r"(?<!mis)align|\bstride|contiguous|memory.format|\blayout|storage.offset", re.IGNORECASE)
# What ends a check without a verdict on outputs; of memory that is the process's, since a device's is tried again.
UNDECIDED = (Unsupported, RecordError, DeviceRaised, HookFailed, MemoryError)


class Question(Protocol):
    """How a case is run for its item, in place of the plain check. CaseRuns asks the plain question.

    device made the results, "" for the device under test, which then runs. placed: do all results have the place of
    their record? suffix stands behind the names of its items, where a run asks several questions of each case. options:
    what the command that runs an item again has in place of the run's options, by their names, where it asks this
    question alone.
    """

    device: str = ""
    placed: bool = False
    suffix: str = ""
    options: Mapping[str, str] = {}

    def run(self, case: Case) -> CaseOutcome:
        """The verdict, and what else the run leaves. What a forward leaves may serve its backward, which comes next."""


class CaseOutcome(Struct, frozen=True):
    """What checking a case leaves, for whoever keeps it until the next case.

    forward is the run of the record that its backward case shares, or the reason for its absence; None where it is used
    up. worst holds both sides of the worst output, which `save` writes; cause is the error of the function, or of the
    reference, that the verdict speaks of. subject is the call that was measured, where the run measures; compared has
    all outputs, where the request keeps them. remarks are notes that stand behind those of all who judge the case.
    """

    case: Case
    verdict: Verdict
    forward: BothSides | ProbeError | None = None
    worst: OutputPairs | None = None
    cause: BaseException | None = None
    subject: MeasurableCall | None = None
    compared: PairedOutputs | None = None
    remarks: Sequence[str] = ()

    def serves(self, case: Case) -> bool:
        """Is the run that it keeps that of another case, too: the same record in the same dtype, the other direction?

        A case that is run again shall run.
        """
        own = self.case
        same = own.dump is case.dump and own.record.name == case.record.name and own.dtype == case.dtype
        return same and own.direction != case.direction and self.forward is not None

    def without_run(self) -> CaseOutcome:
        """It without the run for its sibling, whose tensors the device has back."""
        for replay in (self.forward, None if self.worst is None else self.worst.replay):
            if isinstance(replay, BothSides):
                replay.actual.release()
        return replace(self, forward=None)

    def save(self, path: Path) -> None:
        """Write inputs, outputs and gradients of both sides, numbers as arrays without dimensions; inputs and incoming
        gradients as they lay. Raises OSError."""
        if self.worst is None:
            return
        replay = self.worst.replay
        arrays = {
            name: laid_out(leaf.array, leaf.array.dtype, leaf.strides, leaf.offset)
            for name, leaf in replay.reference.leaves.items()
        }
        arrays |= {f"seed.{name}": array for name, array in replay.incoming.items()}
        for side, values in (("actual", self.worst.actual), ("expected", self.worst.expected)):
            for name, value in values.items():
                # Numbers that the framework's tensors hold.
                held = -(2**63) <= value < 2**63 if isinstance(value, int) else isinstance(value, (float, complex))
                if held or isinstance(value, np.ndarray):
                    arrays[f"{side}.{name}"] = np.asarray(value, order="C")
        framework = replay.reference.framework
        with framework.fixed_state():
            framework.save(path, arrays)

    def script(self, name: str) -> str:
        """The text of a script of that name that makes the call on what `save` wrote again; "" without tensors."""
        if self.worst is None:
            return ""
        reference = self.worst.replay.reference
        candidate, sampled = reference.candidate, self.worst.sample is not None
        path = "" if sampled or candidate.replaced or self.case.pair is not None else candidate.path
        wanted = sorted(name.removeprefix("grad.") for name in self.worst.expected if name.startswith("grad."))
        return reference.framework.script(self.case.id, name, path, candidate.arguments, wanted)


class PreparedCall(Struct, frozen=True):
    """A record's arguments on the device, for a call that a test makes: tensors of its own, which it may write to."""

    case: Case
    reference: Reference
    bound: Bound


class Attempt:
    """The check of a case; found is what it leaves, or what an error in its way does."""

    found: CaseOutcome


@contextmanager
def attempt(engines: Engines, case: Case) -> Iterator[Attempt]:
    """A case is checked in here: what the process has set counts for nothing, and an error that is the record's, the
    device's or the project's is what was found."""
    made = Attempt()
    try:
        with engines.settled():
            yield made
    except UNDECIDED as error:
        made.found = undecided(engines, case, error)
    except BaseException as error:
        # What no call should end with, as SystemExit: functions of the user's run as references, too, and a time limit
        # strikes anywhere.
        if isinstance(error, Exception) or ends_run(error):
            raise
        failed = HookFailed(raised(f"the check of {case.record.name}", error))
        failed.__cause__ = error
        made.found = undecided(engines, case, failed)


def undecided(engines: Engines, case: Case, error: Exception, *, in_both: bool = False) -> CaseOutcome:
    """What an error leaves; in_both: the record's other direction has no verdict for the same reason."""
    error = out_of_memory(error) if isinstance(error, MemoryError) else error
    standard = engines.request.standard
    assert isinstance(error, ProbeError)
    forward = error if in_both or isinstance(error, TooLargeForDevice) else None
    if isinstance(error, DeviceRaised):
        verdict = _refused(engines, case, error) or Verdict("error", standard, str(error), error.kind)
    elif isinstance(error, HookFailed):
        verdict = Verdict("error", standard, str(error))
    elif isinstance(error, NoKernel):
        verdict = Verdict("skip", standard, f"{error}{_emulation(engines, case)}", error.kind)
    elif isinstance(error, Unsupported):
        verdict = Verdict("skip", standard, _located(case, str(error)), error.kind)
    else:
        kind = error.kind if isinstance(error, RecordError) else RecordError.kind
        verdict = Verdict("skip", standard, str(error), kind)
    return CaseOutcome(case, verdict, forward, cause=error.__cause__)


def _refused(engines: Engines, case: Case, error: DeviceRaised) -> Verdict | None:
    """The verdict where a device refuses how the tensors of a record lie: what the program ran it must run; how they
    lay then, a dump need not say. None for any other error."""
    own = case.pair is None and case.demands is None and not isinstance(error, CompilerFailed)
    if not own or error.__cause__ is None or not _OF_LAYOUT.search(message_of(error.__cause__)):
        return None
    layouts = recorded_layouts(case.dump.decode(case.record))
    standard, (first, *frames) = engines.request.standard, str(error).split("\n")
    if layouts is None or case.dtype is not None:
        other = "the dump does not say how the tensors lay" if layouts is None else "the program had another dtype"
        return Verdict("skip", standard, _located(case, f"{first}; {other}"), "layout not recorded")
    listed = ", ".join(layouts[:_LISTED]) + (", ..." if layouts[_LISTED:] else "")
    reason = f"{first}; the program ran it with {listed or 'all tensors in order'}"
    return Verdict("error", standard, "\n".join((reason, *frames)), error.kind)


def _emulation(engines: Engines, case: Case) -> str:
    """How a device without kernels of 16 bit can run a case; "" for another reason, or another device."""
    made = engines.device_name.split(":", 1)[0] in engines.registry.devices
    if engines.request.emulate or engines.request.judges_stored or made:
        return ""
    if case.pair is not None:
        dtypes = {dtype.name for dtype in floats_of(case.pair.arguments.tensors).values()}
    else:
        dtypes = {case.dtype} if case.dtype is not None else set(floating_dtypes(case.dump.decode(case.record)))
    if dtypes.isdisjoint(NARROW_DTYPES):
        return ""
    try:
        engines.framework.emulating(engines.device_name)
    except SettingsError:
        return ""
    return "; --probe-emulate computes 16 bit in float32 there, and rounds"


def _located(case: Case, reason: str) -> str:
    """A skip's reason with its file and record, as a RecordError has them. What a device has no kernel for is said
    alike for all records, so that pytest shows it once."""
    if case.pair is not None:
        return reason
    return f"{case.dump.path}: {case.id}: {reason}"
