"""The reference of a case: of the calls that it may be, the one whose run in float64 is like the record."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe import frameworks, inputs
from pytest_probe.check.borders_agree import check_outputs_of_borders
from pytest_probe.check.both_sides import FLOAT64, NO_CALL, Candidate, Reference
from pytest_probe.check.large.cuts import Corner, corner_of, is_large
from pytest_probe.check.prepare import (
    default_dtype,
    has_inexact_floats,
    narrow_dtype,
    python_numbers,
    sizes_by_float,
    with_rounded_floats,
)
from pytest_probe.check.reference_cache import CachedResult, CachedResults, Keep, Made, kept_run, taken_run
from pytest_probe.check.reference_device import has_several_results, note_of
from pytest_probe.check.resolve import Resolved
from pytest_probe.check.structure import (
    check_wide,
    described,
    outputs_agree,
    recorded,
    shapes_fit,
    widened_dtypes_fit,
)
from pytest_probe.errors import (
    HookFailed,
    NoKernel,
    NoReference,
    ReplayDiffers,
    TooLarge,
    Unsupported,
    UnsupportedDtype,
)
from pytest_probe.frameworks.base import Calls, Framework
from pytest_probe.model.run import Device, Run, Wanted, Way, floats_of, on_device, with_leaves
from pytest_probe.numerics.arrays import equal_in_float64, is_reference_array, same_bytes
from pytest_probe.numerics.dtypes import numpy_dtype
from pytest_probe.standards.tables import classes_of, details
from pytest_probe.user_errors import allowing_refusal, exception_line, first_line, message_of, no_reference

# Classes of APIs whose results depend on a generator, on memory, or on no tensor, or whose arguments have no parts.
NEVER_CUT = frozenset(("random", "uninitialised", "factory", "scaled_products"))


class ReferenceRuns(Struct, frozen=True):
    """Runs the calls that a case may be, in a way. memory is the bytes that may be taken, cached what earlier runs kept
    of the case. cuts: of a large call that can be cut only a corner is run. device_framework runs the device, where
    that is another one. elsewhere: float64 runs on another device than the CPU."""

    framework: Framework
    way: Way = FLOAT64
    memory: int = 1 << 62
    cached: CachedResults | None = None
    cuts: bool = False
    device_framework: Calls | None = None
    elsewhere: bool = False

    def of(self, resolved: Resolved, device: Device) -> Reference:
        """The reference of a case. device is asked what it says where the reference raises. Raises Unsupported or
        HookFailed; NoReference where a function that another one is compared with raises, TooLarge before a run that
        would take too much memory."""
        if self.elsewhere and has_several_results(resolved.candidates[0].name):
            return replace(self, way=FLOAT64, elsewhere=False).of(resolved, device)
        corner = self._corner(resolved)
        if corner is not None:
            candidate = resolved.candidates[0]
            placed = self.framework.placed(self.way.place) if self.elsewhere else None
            return self._made(resolved, candidate, corner.run, corner.wanted, corner=corner, casts=(), placed=placed)
        if self.cuts and resolved.contraction is None:
            inputs.check_size(resolved.call, resolved.dtype, self.memory)
        if resolved.call is NO_CALL:
            return self._of_pair(resolved)
        # Which function the record is, the corner of a large call tells as well.
        candidate, run, wanted = self._fitting(resolved.corner(), device)
        leaves = resolved.candidates[0].arguments.tensors
        if resolved.contraction is not None:
            candidate = replace(candidate, arguments=with_leaves(candidate.arguments, leaves))
        if run.outputs and all(isinstance(value, str) for value in run.outputs.values()):
            raise Unsupported(f"{candidate.path} returns text, which has no dtype to be judged in", "no numbers")
        return self._made(resolved, candidate, run, wanted, contraction=resolved.contraction, cached=self.cached)

    def _made(
        self, resolved: Resolved, candidate: Candidate, run: Run, wanted: Wanted | None, **further: Any
    ) -> Reference:
        """With what a user's own reference says of itself."""
        widened, leaves = candidate.widened, resolved.candidates[0].arguments.tensors
        notes = (*resolved.notes, *candidate.notes, *(() if widened is None else widened.notes))
        casts = () if widened is None else tuple(widened.casts)
        notes = (*notes, *((note_of(self.way),) if self.elsewhere else ()))
        given = {"way": self.way, "notes": notes, "demands": resolved.demands, "casts": casts, **further}
        return Reference(self.framework, candidate, resolved.call, leaves, run, wanted, **given)

    def whole(self, reference: Reference) -> Reference:
        """Of a call that was cut the reference in full. Raises TooLarge before a run that would take too much memory,
        and NoReference."""
        inputs.check_size(reference.call, None, self.memory)
        inputs.check_run(self._bytes_inside(reference.candidate), self.memory)
        with no_reference("float64 on the CPU", NoReference, UnsupportedDtype):
            return replace(reference, corner=None, cached=self.cached).ran()

    def _corner(self, resolved: Resolved) -> Corner | None:
        """A corner of a large call that can be cut; None where it is no such call, or may be several."""
        candidate, call = resolved.candidates[0], resolved.call
        shapes = [spec.shape for spec in call.output_specs()]
        if not self.cuts or resolved.contraction is not None or not is_large(candidate.arguments.tensors, shapes):
            return None
        several = any(other.path != candidate.path for other in resolved.candidates)
        strides = resolved.demands is not None and resolved.demands.strides
        if several or strides or candidate.borders is not None or not classes_of(candidate.name).isdisjoint(NEVER_CUT):
            return None
        found = corner_of(self.framework, candidate, self.way, lambda item: self._run(item, resolved.backward))
        return found if found is None or found.fits(call.returned()) else None

    def _of_pair(self, resolved: Resolved) -> Reference:
        (candidate,) = resolved.candidates
        drawn = self.framework.random_state()
        try:
            run, wanted = self._run(candidate, resolved.backward)
            if drawn != self.framework.random_state():
                # Unless its API is one that draws: each perturbed run would move everything, and any result pass.
                random = "random" in classes_of(candidate.name)
                if not random and not outputs_agree(run, self._run(candidate, False)[0], same_bytes):
                    advice = "draw them before, and pass them as inputs"
                    raise NoReference(f"the reference draws random numbers and gives others in each run; {advice}")
        except (MemoryError, NoReference, UnsupportedDtype):
            raise
        except Exception as error:
            advice = "; it gets floating tensors as float64: pass the tensors that it closes over as inputs, too"
            advice = advice if "dtype" in message_of(error) else ""
            raise NoReference(f"the reference raised {exception_line(error)}{advice}") from error
        check_wide(run)
        # Further runs are float64's, whatever a feature puts in the place of the first one.
        found = self._made(resolved, candidate, run, wanted, way=replace(FLOAT64, place=self.way.place))
        if not run.outputs and not found.changed:
            raise NoReference("the reference returns nothing and changes no argument: there is nothing to judge")
        check_outputs_of_borders(found)
        return found

    def _fitting(self, resolved: Resolved, device: Device) -> tuple[Candidate, Run, Wanted | None]:
        """The candidate whose reference run is like the record. Raises where none is, or several that differ."""
        troubles: list[Exception] = []
        misfits: list[str] = []
        fitting: list[tuple[Candidate, Run, Wanted | None]] = []
        call, check_dtypes = resolved.call, resolved.as_recorded and not resolved.autocast
        for candidate in resolved.candidates:
            # The same function on other readings of the arguments, lists or tuples: one that fits is enough.
            if any(item.path == candidate.path for item, _, _ in fitting):
                continue
            try:
                if not resolved.registered:  # what a project registered is trusted
                    inputs.check_run(self._bytes_inside(candidate), self.memory)
                run, wanted = self._kept_run(candidate, with_gradient=resolved.backward)
                tensor = any(isinstance(value, np.ndarray) for value in run.outputs.values())
                if resolved.registered and call.output_specs() and not tensor:
                    found = f"gave {described(run)}, recorded: {recorded(call)}"
                    raise HookFailed(f"the reference registered for {candidate.api} {found}")
            except MemoryError:
                raise
            except Exception as error:
                troubles.append(error)
                continue
            if shapes_fit(run, call) and (not check_dtypes or widened_dtypes_fit(run, call)):
                fitting.append((candidate, run, wanted))
            else:
                misfits.append(f"{candidate.path} gives {described(run)}")
        if not fitting:
            raise self._nothing_fits(resolved, device, troubles, misfits)
        # Several functions may fit the record and give the same: which one it was does not matter then.
        if any(not outputs_agree(fitting[0][1], other, equal_in_float64) for _, other, _ in fitting[1:]):
            paths = " and ".join(candidate.path for candidate, _, _ in fitting)
            raise ReplayDiffers(f"{resolved.record} may be {paths}: the record fits both", "ambiguous name")
        return fitting[0]

    def _bytes_inside(self, candidate: Candidate) -> int:
        """Bytes that a run holds at a time, or what an earlier run kept of that: where a bound does not tell, torch
        imports its compiler to count them."""
        limit, call = inputs.bytes_of_run(self.memory), (candidate.name, candidate.reference, candidate.arguments)
        counted = functools.partial(self.framework.bytes_inside, *call, self.way, limit)
        # 0 depends on the memory that is left here, as what is beyond the limit may.
        return self._kept(
            candidate,
            ("bytes inside",),
            counted,
            lambda made: CachedResult({}, made) if 0 < made <= limit else None,
            lambda found: int(found.other),
        )

    def _nothing_fits(
        self, resolved: Resolved, device: Device, troubles: Sequence[Exception], misfits: Sequence[str]
    ) -> Exception:
        candidate, call = resolved.candidates[0], resolved.call
        # What a project added is named first: the record itself may be right.
        named = (trouble for kind in (HookFailed, TooLarge) for trouble in troubles if isinstance(trouble, kind))
        first = next(named, None)
        if first is not None:
            return first
        if misfits:
            return ReplayDiffers(f"{'; '.join(misfits)}; recorded: {recorded(call)}")
        trouble = troubles[0]
        if isinstance(trouble, Unsupported):
            return trouble
        words, text = exception_line(trouble), message_of(trouble).lower()
        of_index = isinstance(trouble, IndexError) or "out of bounds" in text or "out of range" in text
        if device.name != "cpu" and of_index:
            # An accelerator's kernel does not raise for it: it ends every later case of the process.
            return Unsupported(
                f"the reference raised {words}; {device.name} did not run it, because "
                "an index out of range may end the process",
                "index out of range",
            )
        tested: Calls = self.device_framework or self.framework
        try:
            arguments = candidate.arguments
            # A record that the device refuses as well is a wrong record, and no fault of the reference.
            way = Way(device=device, default=default_dtype(call), state="recorded")
            with on_device():
                tested.run(candidate.on_device, arguments, way, None)
        except MemoryError:
            raise
        except Unsupported as error:
            return error
        except Exception as error:
            if tested.has_no_kernel(error):
                return NoKernel(f"{device.name}: {first_line(error)}")
            return Unsupported(
                f"{device.name} raised {exception_line(error)}; the reference raised {words}",
                "device and reference both raise",
            )
        return NoReference(f"float64 on the CPU raised {words}")

    def _kept_run(self, candidate: Candidate, *, with_gradient: bool) -> tuple[Run, Wanted | None]:
        """`_run`, or what an earlier run kept of it."""
        leaves = candidate.arguments.tensors
        return self._kept(
            candidate,
            ("record", with_gradient, candidate.constant),
            lambda: self._run(candidate, with_gradient),
            lambda made: kept_run(made[0], leaves, made[1]),
            lambda found: taken_run(found, leaves),
        )

    def _kept(
        self,
        candidate: Candidate,
        what: tuple[Any, ...],
        compute: Callable[[], Made],
        keep: Keep[Made],
        take: Callable[[CachedResult], Made],
    ) -> Made:
        key = None if self.cached is None else candidate.key(self.cached, candidate.arguments.tensors, self.way)
        return compute() if self.cached is None or key is None else self.cached.of(key, what, compute, keep, take)

    def _run(self, candidate: Candidate, with_gradient: bool) -> tuple[Run, Wanted | None]:
        """A reference run, able to give gradients of as many arguments as the framework can differentiate."""
        arguments = candidate.arguments
        leaves = arguments.tensors
        every = frozenset(floats_of(leaves)) - candidate.constant
        with_gradient = with_gradient and bool(every)
        if with_gradient:
            run = self._differentiable(candidate, [Wanted(every, candidate.in_place), Wanted(every, True)])
            if run is not None:
                return run
        plain = self.framework.run(candidate.reference, arguments, self.way, None)
        if not with_gradient:
            return plain, None
        # Running statistics and the like, which the call updates, have no gradient.
        kept = frozenset(name for name in every if is_reference_array(plain.after(name), leaves[name].array))
        marked = frozenset(name for name in every if leaves[name].requires_grad)
        # Every try asks for less, since a call may refuse all gradients for the sake of one.
        tries = [
            Wanted(kept, True),
            Wanted(marked, True),
            Wanted(kept - running_statistics(self.framework, candidate), True),
        ]
        return self._differentiable(candidate, tries) or (plain, None)

    def _differentiable(self, candidate: Candidate, tries: Sequence[Wanted]) -> tuple[Run, Wanted] | None:
        """The first run that can give gradients."""
        arguments = candidate.arguments
        for wanted in dict.fromkeys(tries):
            try:
                run = self.framework.run(candidate.reference, arguments, self.way, wanted)
            except (RuntimeError, ValueError):
                continue
            except HookFailed as error:
                if not isinstance(error.__cause__, Exception):
                    raise
                continue
            if run.differentiable:
                return run, wanted
        return None


def running_statistics(calls: Calls, candidate: Candidate) -> frozenset[str]:
    """Running statistics: in evaluation nothing changes them, and a call that is asked for their gradient refuses."""
    bound = candidate.arguments.bound(candidate.api, frameworks.signatures(calls.name).bind)
    named = details(classes_of(candidate.name), "running_statistics")
    return frozenset(bound.paths[name] for name in named if name in bound.paths)


def other_reading(reference: Reference) -> Reference | None:
    """The reference with Python floats, and tensors that are such numbers, rounded to the tensors' 16-bit dtype, or to
    that of an autocast; None where that changes nothing."""
    candidate = reference.candidate
    narrow = numpy_dtype(reference.autocast) if reference.narrow else narrow_dtype(reference.leaves)
    if reference.contraction is not None or narrow is None or sizes_by_float(candidate.name):
        return None
    arguments, tensors = candidate.arguments, python_numbers(candidate.arguments, narrow)
    if not tensors and not has_inexact_floats(arguments, narrow):
        return None
    # Rounded inside the function, so that gradients still reach the tensors themselves.
    read = functools.partial(reference.framework.rounded, dtype=narrow.name)
    rounding = functools.partial(with_rounded_floats, candidate.reference, narrow, tensors, read)
    reading = replace(candidate, reference=rounding, reading=f"{narrow.name} {sorted(tensors)}")
    notes = (*reference.notes, "Python floats rounded to the tensors' dtype, as the device does")
    found = replace(reference, candidate=reading, notes=notes)
    if reference.corner is not None:
        return found
    with allowing_refusal():  # beyond the call's domain there (a probability that rounds to 1)
        return found.ran()
    return None
