"""Where results under test come from: a device that runs the call, or what a caller made of its arguments; and the
autocast that a recorded call ran under: what a dump tells of it, else what its dtypes suggest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.check.both_sides import BothSides, Reference, Source
from pytest_probe.check.device_memory import noting_device_memory
from pytest_probe.check.prepare import rounded_leaves
from pytest_probe.check.reference import other_reading
from pytest_probe.check.resolve import Resolved
from pytest_probe.check.structure import described, dtypes_fit, outputs_agree, recorded
from pytest_probe.errors import DeviceRaised, HookFailed, NoKernel, ProbeError, ReplayDiffers, Unsupported
from pytest_probe.frameworks.base import Bound, Framework
from pytest_probe.model.dump import Call
from pytest_probe.model.run import Arguments, Device, Run, on_device
from pytest_probe.numerics.arrays import near
from pytest_probe.numerics.dtypes import NARROW_DTYPES, AnyArray, dtype_name, is_floating
from pytest_probe.standards.tables import classes_of
from pytest_probe.user_errors import allowing_refusal, ends_run, first_line, raised


class DeviceSource(Struct, frozen=True):
    """A device, which makes the call."""

    framework: Framework
    device: Device
    runs_again: bool = True
    tells_changes: bool = True

    @property
    def name(self) -> str:
        return self.device.name

    def replay(self, reference: Reference, resolved: Resolved) -> BothSides:
        """Both sides, under the possible autocast where only that gives what was recorded. Raises what forward raises,
        and ReplayDiffers."""
        reference, actual = with_autocast(reference, resolved.autocast, self.forward, as_recorded=resolved.as_recorded)
        return BothSides(reference, self, actual, other_reading(reference))

    def forward(self, reference: Reference) -> Run:
        """The call in the state that was recorded; one in which the reference raises as well was another."""
        state = reference.recorded_state
        try:
            with self.running():
                return reference.under_test(self.framework, self.device, state)
        except (DeviceRaised, NoKernel):
            if state == reference.wanted or reference.is_partial or reference.runs(state):
                raise
        with self.running():
            return reference.under_test(self.framework, self.device, reference.wanted)

    def backward(self, replay: BothSides) -> Iterator[BothSides]:
        """The gradients of what required grad in the program come of the run that is judged; those of other arguments
        of a second one, lest they decide which kernel runs in the first: all require grad there, as in a program that
        trains these as well."""
        reference, state = replay.reference, replay.reference.recorded_state
        if state is None or reference.wanted is None or state == reference.wanted:
            yield replay
            return
        recorded = _asked(reference, state.names)
        if recorded is None:
            # The record does not tell which arguments required grad.
            leaves = {name: replace(leaf, requires_grad=False) for name, leaf in reference.leaves.items()}
            yield replayed(replace(reference, leaves=leaves), self)
            return
        yield replace(replay, reference=recorded, rounded=replay.rounded and other_reading(recorded))
        others = _asked(reference, reference.wanted.names - state.names, state.names)
        if others is not None:
            yield replayed(others, self)

    def gradients(self, replay: BothSides) -> Mapping[str, AnyArray]:
        with self.running():
            return self.framework.gradients(replay.actual, replay.incoming)

    @contextmanager
    def running(self) -> Iterator[None]:
        """The device runs in here. Raises NoKernel, DeviceMemoryError, DeviceRaised, whose cause is the device's error,
        or HookFailed where a call should not end with that."""
        try:
            with on_device(), noting_device_memory(self.framework):
                yield
        except (ProbeError, MemoryError):
            raise
        except BaseException as error:
            if ends_run(error):
                raise
            if not isinstance(error, Exception):
                # No second try under an autocast: a time limit may have ended it, which strikes once.
                raise HookFailed(raised(self.name, error)) from error
            of_compiler = self.framework.compiler_error(error)
            if isinstance(of_compiler, Unsupported):
                raise of_compiler from error
            if self.framework.has_no_kernel(error):
                raise NoKernel(f"{self.name}: {first_line(error)}") from error
            if of_compiler is not None:
                raise of_compiler from error
            raise DeviceRaised(raised(self.name, error)) from error


def _asked(reference: Reference, names: frozenset[str], marked: frozenset[str] = frozenset()) -> Reference | None:
    """The reference that is asked for these gradients alone; None where it gives none."""
    with allowing_refusal():
        found = reference.asked(names, marked)
        return found if found.run.differentiable else None
    return None


class CallerResult(Struct, frozen=True):
    """What a test returned that was given a record's arguments on the device; its gradients are the framework's."""

    source: DeviceSource
    bound: Bound
    result: Any
    runs_again: bool = False
    tells_changes: bool = True

    @property
    def name(self) -> str:
        return self.source.name

    def forward(self, reference: Reference) -> Run:
        return self.source.framework.left(self.bound, self.result)

    def backward(self, replay: BothSides) -> Iterator[BothSides]:
        yield replay

    def gradients(self, replay: BothSides) -> Mapping[str, AnyArray]:
        return self.source.gradients(replay)


def replayed(reference: Reference, source: Source) -> BothSides:
    """Both sides, with the other reading of the call."""
    return BothSides(reference, source, source.forward(reference), other_reading(reference))


def settled_on_cpu(reference: Reference, autocast: str) -> Reference:
    """The reference for results that come from elsewhere. Only where an autocast is possible the reference's function
    is run on the CPU in the case's own dtypes, to see whether it ran under that: the autocast of the recorded kind of
    device, where its lists are known. Raises Unsupported."""
    # An autocast casts no integers.
    if not autocast or not any(is_floating(leaf.array.dtype.name) for leaf in reference.leaves.values()):
        return reference
    # What a project put in the device's place is left out: only the framework casts under an autocast.
    own = replace(reference, candidate=replace(reference.candidate, on_device=reference.candidate.reference))
    plain = DeviceSource(reference.framework, reference.framework.host())
    try:
        try:
            settled, _ = with_autocast(own, autocast, plain.forward, as_recorded=True)
        except ReplayDiffers as error:
            settled = _as_elsewhere(own, autocast, plain, error)
    except DeviceRaised as error:
        raise Unsupported(f"pytest-probe cannot see whether it ran under autocast: {error}") from error
    candidate = replace(settled.candidate, on_device=reference.candidate.on_device)
    return replace(settled, candidate=candidate)


def _as_elsewhere(reference: Reference, autocast: str, plain: DeviceSource, differs: ReplayDiffers) -> Reference:
    """The reference under an autocast with the lists of the recorded kind of device, where the CPU's give other dtypes.
    Raises differs where there is no such kind, or nothing is known of its autocast."""
    if not reference.recorded_kind:
        raise differs
    try:
        casting = replace(plain, device=reference.framework.composing(reference.recorded_kind, autocast))

        def run(asked: Reference) -> Run:
            return (casting if asked.autocast else plain).forward(asked)

        return with_autocast(reference, autocast, run, as_recorded=True)[0]
    except (NotImplementedError, Unsupported, DeviceRaised):
        raise differs from None


Runs = Callable[[Reference], Run]


def possible_autocast(call: Call, arguments: Arguments, device: str) -> str:
    """The 16-bit dtype of the autocast that the call may have run under, "" for none: as recorded for this kind of
    device, else for the one that the capture had; where a dump does not say, where the recorded floating dtypes are
    mixed."""
    if call.surroundings is None:
        names = {dtype_name(dtype) for dtype in arguments.dtypes.values()}
        names |= {spec.dtype for spec in call.output_specs() if is_floating(spec.dtype)}
        narrow = [name for name in NARROW_DTYPES if name in names]
        return narrow[0] if narrow and len(names) > 1 else ""
    known = call.surroundings.autocast
    # A dump of an accelerator may be replayed on the CPU: its autocast is meant then, before the host's.
    others = [dtype for kind, dtype in known.items() if kind != "cpu"]
    found = known.get(device.split(":", 1)[0], (others or [*known.values(), ""])[0])
    return found if found in NARROW_DTYPES else ""


def with_autocast(reference: Reference, autocast: str, run: Runs, *, as_recorded: bool) -> tuple[Reference, Run]:
    """The reference, and what `run` gives for it: plain, or under the possible autocast where only that gives the
    recorded dtypes, or where it is known and makes a difference.

    Raises DeviceRaised where a run without a possible autocast gives other dtypes than recorded, ReplayDiffers where
    the autocast does not give them either, and what `run` raises.
    """
    under = None
    try:
        actual = run(reference)
        if not as_recorded or dtypes_fit(actual, reference.call):
            # Does the dump tell of an autocast, and would another run show that it changes the numbers?
            known = reference.call.surroundings is not None and bool(autocast)
            if not known or "random" in classes_of(reference.candidate.name):
                return reference, actual
            under = run(replace(reference, autocast=autocast))
            # Dtypes fit both ways where the call casts inside: numbers tell then.
            if actual.outputs.keys() == under.outputs.keys() and outputs_agree(actual, under, near):
                return reference, under
        if not autocast:
            raise DeviceRaised(f"the device gave {described(actual)}, recorded: {recorded(reference.call)}")
    except (Unsupported, DeviceRaised):
        if not autocast:
            raise
    cast = _cast(reference, autocast, inside=under is not None and not _widens(reference, under, run))
    actual = run(cast)
    if not dtypes_fit(actual, cast.call):
        gave = f"{cast.candidate.path} gave {described(actual)} under autocast"
        raise ReplayDiffers(f"{gave}, recorded: {recorded(cast.call)}")
    return cast, actual


def _widens(reference: Reference, under: Run, run: Runs) -> bool:
    """Does the autocast, under which the call gave `under`, compute it in float32, as it does a loss? Then it rounds no
    wider input."""
    leaves = {
        name: replace(leaf, array=leaf.array.astype(np.float32)) if leaf.array.dtype.name in NARROW_DTYPES else leaf
        for name, leaf in reference.leaves.items()
    }
    with suppress(Unsupported, DeviceRaised):
        return outputs_agree(under, run(reference.with_leaves(leaves)), near)
    return False


def _cast(reference: Reference, autocast: str, *, inside: bool) -> Reference:
    """The reference of the call under autocast. Where that rounds wider inputs inside they are rounded before, so that
    both sides see the same values."""
    narrow = inside or any(spec.dtype == autocast for spec in reference.call.output_specs())
    notes = (*reference.notes, f"under autocast to {autocast}")
    cast = replace(reference, autocast=autocast, inside=inside, narrow=narrow, notes=notes)
    if not narrow:
        return cast
    cast = cast.with_leaves(rounded_leaves(reference.leaves, autocast))
    # A large call's reference runs in samples or pieces.
    return cast if cast.is_partial else cast.ran()
