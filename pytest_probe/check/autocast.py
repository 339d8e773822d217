"""The autocast that a recorded call ran under: what a dump tells of it, else what its dtypes suggest."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from pytest_probe.check.prepare import rounded_leaves
from pytest_probe.check.replay import Reference
from pytest_probe.check.structure import described, dtypes_fit, outputs_agree, recorded
from pytest_probe.errors import DeviceRaised, ReplayDiffers, Unsupported
from pytest_probe.model.arguments import Arguments, with_leaves
from pytest_probe.model.dump import Call
from pytest_probe.model.run import Run
from pytest_probe.numerics.closeness import near
from pytest_probe.numerics.dtypes import NARROW_DTYPES, dtype_name, is_floating
from pytest_probe.standards.api_class import classes_of

Runs = Callable[[Reference], Run]


def possible_autocast(call: Call, arguments: Arguments, device: str) -> str:
    """The 16-bit dtype of the autocast that the call may have run under, "" for none: as recorded for this kind of
    device, else for the one that the capture had; where a dump does not say, where the recorded floating dtypes are
    mixed."""
    if call.surroundings is None:
        return _suggested(call, arguments)
    known = call.surroundings.autocast
    # A dump of an accelerator may be replayed on the CPU: its autocast is meant then, before the host's.
    others = [dtype for kind, dtype in known.items() if kind != "cpu"]
    found = known.get(device.split(":", 1)[0], (others or [*known.values(), ""])[0])
    return found if found in NARROW_DTYPES else ""


def _suggested(call: Call, arguments: Arguments) -> str:
    names = {dtype_name(dtype) for dtype in arguments.dtypes.values()}
    names |= {spec.dtype for spec in call.output_specs() if is_floating(spec.dtype)}
    narrow = [name for name in NARROW_DTYPES if name in names]
    return narrow[0] if narrow and len(names) > 1 else ""


def with_autocast(reference: Reference, autocast: str, run: Runs, *, as_recorded: bool) -> tuple[Reference, Run]:
    """The reference, and what `run` gives for it: plain, or under the possible autocast where only that gives the
    recorded dtypes, or where it is known and makes a difference.

    Raises DeviceRaised where a run without a possible autocast gives other dtypes than recorded, ReplayDiffers where
    the autocast does not give them either, and what `run` raises.
    """
    fits = False
    try:
        actual = run(reference)
        fits = not as_recorded or dtypes_fit(actual, reference.call)
        # Dtypes fit both ways where the call casts inside: numbers tell then.
        same = _unchanged_by_autocast(reference, actual, autocast, run) if fits else None
        if same is not None:
            return reference, same
        if not autocast:
            raise DeviceRaised(f"the device gave {described(actual)}, recorded: {recorded(reference.call)}")
    except (Unsupported, DeviceRaised):
        if not autocast:
            raise
    cast = _cast(reference, autocast, inside=fits)
    actual = run(cast)
    if not dtypes_fit(actual, cast.call):
        gave = f"{cast.candidate.path} gave {described(actual)} under autocast"
        raise ReplayDiffers(f"{gave}, recorded: {recorded(cast.call)}")
    return cast, actual


def _unchanged_by_autocast(reference: Reference, actual: Run, autocast: str, run: Runs) -> Run | None:
    """The run to take, where the autocast that a dump tells of changes nothing beyond what two runs of a device may
    differ by; None where it does."""
    candidate = reference.candidate
    if reference.call.surroundings is None or not autocast or "random" in classes_of(candidate.name):
        return actual
    under = run(replace(reference, autocast=autocast))
    same = actual.outputs.keys() == under.outputs.keys() and outputs_agree(actual, under, near)
    return under if same else None


def _cast(reference: Reference, autocast: str, *, inside: bool) -> Reference:
    """The reference of the call under autocast. Where that rounds wider inputs inside they are rounded before, so that
    both sides see the same values."""
    narrow = inside or any(spec.dtype == autocast for spec in reference.call.output_specs())
    notes = (*reference.notes, f"under autocast to {autocast}")
    cast = replace(reference, autocast=autocast, inside=inside, narrow=narrow, notes=notes)
    if not narrow:
        return cast
    leaves = rounded_leaves(reference.leaves, autocast)
    candidate = replace(cast.candidate, arguments=with_leaves(cast.candidate.arguments, leaves))
    cast = replace(cast, leaves=leaves, candidate=candidate)
    # A large call's reference is run by its sampler.
    if cast.contraction is not None:
        return cast
    return cast.ran()
