"""Which call a record is: the function that its name leads to, on arguments that float64 takes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe import frameworks, inputs
from pytest_probe.check.borders import check_outputs_of_borders
from pytest_probe.check.kept import Kept, KeptResults
from pytest_probe.check.kept_runs import kept_run, taken_run
from pytest_probe.check.large.contractions import Contraction, contraction, cut
from pytest_probe.check.prepare import (
    as_tuples,
    cast_first,
    default_dtype,
    has_inexact_floats,
    narrow_dtype,
    prepared,
    python_numbers,
    sizes_by_float,
    with_float32,
    with_rounded_floats,
    within_float32,
)
from pytest_probe.check.replay import FLOAT64, NO_CALL, Candidate, Reference
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
from pytest_probe.frameworks.base import LookedUp
from pytest_probe.model import running_side
from pytest_probe.model.arguments import Arguments, BoundCall, floats_of, with_leaves
from pytest_probe.model.case import Pair
from pytest_probe.model.dump import Call, Record
from pytest_probe.model.run import Device, Run, Wanted, Way
from pytest_probe.numerics.closeness import equal_in_float64, reference_array, same_bytes
from pytest_probe.numerics.dtypes import float_format, numpy_dtype
from pytest_probe.standards.api_class import classes_of, details
from pytest_probe.user_errors import exception_line, first_line, guarded, said

if TYPE_CHECKING:
    from pytest_probe.frameworks.base import Framework

# Places of each index in the corner of a large contraction, which tells what the record is as well as the whole does.
CORNER = 2


class Resolver(Struct, frozen=True):
    """Finds the calls of records. calls and references are the functions that a project registered, by API; namespaces
    those that it allows; budget is the FLOP of a contraction from which on only samples of it are computed; memory the
    bytes that may be taken; cached what earlier runs kept of the case."""

    framework: Framework
    calls: Mapping[str, Callable[..., Any]]
    references: Mapping[str, Callable[..., Any]]
    namespaces: Mapping[str, str]
    way: Way = FLOAT64
    budget: float = math.inf
    memory: int = 1 << 62
    cached: KeptResults | None = None

    def record(
        self, record: Record, call: Call, arguments: Arguments, device: Device, *, check_dtypes: bool
    ) -> Reference:
        """The reference of a record's call. check_dtypes: the reference has the recorded dtypes, floats taken as
        float64. device is asked what it says where the reference raises. Raises Unsupported or HookFailed; where a
        kernel would not check its arguments, or take too much memory, before anything runs.
        """
        api = f"{record.namespace}.{record.api}"
        arguments, notes = prepared(self._bound(api, arguments), call, arguments)
        notes = (*call.notes, *notes)
        bound = self._bound(api, arguments)
        if api not in self.references:  # what a project registered is trusted
            self.framework.check_arguments(bound)
        large = self._large(contraction(bound), call, arguments)
        # Which function the record is, the corner of a large call tells as well.
        shown = (arguments, call) if large is None else _corner(large, arguments, call)
        candidates = self._candidates(record, shown[0], listed=call.surroundings is not None)
        candidate, run, wanted = self._fitting(candidates, shown[1], record, device, check_dtypes)
        if large is not None:
            candidate = replace(candidate, arguments=with_leaves(candidate.arguments, arguments.tensors))
        if run.outputs and all(isinstance(value, str) for value in run.outputs.values()):
            raise Unsupported(f"{candidate.path} returns text, which has no dtype to be judged in", "no numbers")
        of_reference = () if candidate.widened is None else candidate.widened.notes
        leaves, notes = arguments.tensors, (*notes, *candidate.notes, *of_reference)
        return Reference(
            self.framework, candidate, call, leaves, run, wanted, self.way, notes, contraction=large, cached=self.cached
        )

    def candidates(self, record: Record, call: Call, arguments: Arguments) -> list[Candidate]:
        """All that a record may be, likeliest first, where nothing runs in float64 to tell which it is. Raises
        Unsupported."""
        api = f"{record.namespace}.{record.api}"
        arguments, _ = prepared(self._bound(api, arguments), call, arguments)
        if api not in self.references:
            self.framework.check_arguments(self._bound(api, arguments))
        return self._candidates(record, arguments, listed=call.surroundings is not None)

    def _bound(self, api: str, arguments: Arguments) -> BoundCall:
        return arguments.bound(api, frameworks.signatures(self.framework.name).bind)

    def pair(self, pair: Pair, api: str, label: str) -> Reference:
        """The reference of a function that another one is compared with; api is the one that says whose judge decides,
        "" for none, label names the function. Raises NoReference where the reference raises."""
        name = frameworks.signatures(self.framework.name).canonical(api) if api else ""
        arguments = cast_first(name, pair.arguments if sizes_by_float(name) else with_float32(pair.arguments))
        widened = self.framework.widened(pair.reference)
        reference = self._reference_of(name, widened, arguments)
        candidate = Candidate(api, name, api or label, pair.function, reference, arguments, False, widened=widened)
        candidate = replace(candidate, constant=pair.constant, borders=self._borders(pair, name, arguments))
        drawn = self.framework.random_state()
        try:
            run, wanted = self._run(candidate, pair.with_gradient)
            if drawn != self.framework.random_state():
                self._check_repeats(candidate, run)
        except (MemoryError, NoReference, UnsupportedDtype):
            raise
        except Exception as error:
            advice = "; it gets floating tensors as float64: pass those that it closes over as inputs, too"
            advice = advice if "dtype" in said(error) else ""
            raise NoReference(f"the reference raised {exception_line(error)}{advice}") from error
        check_wide(run)
        notes = widened.notes
        found = Reference(
            self.framework, candidate, NO_CALL, arguments.tensors, run, wanted, notes=notes, demands=pair.demands
        )
        if not run.outputs and not found.changed:
            raise NoReference("the reference returns nothing and changes no argument: there is nothing to judge")
        check_outputs_of_borders(found)
        return found

    def _borders(self, pair: Pair, name: str, arguments: Arguments) -> Callable[..., Any] | None:
        if pair.borders is None:
            return None
        return self._reference_of(name, self.framework.widened(pair.borders), arguments)

    def _check_repeats(self, candidate: Candidate, run: Run) -> None:
        """Raises NoReference where a reference that draws random numbers gives others in a second run, unless its API
        is one that does: each perturbed run would move everything, and any result pass."""
        if "random" in classes_of(candidate.name):
            return
        again, _ = self._run(candidate, with_gradient=False)
        if not outputs_agree(run, again, same_bytes):
            advice = "draw them before, and pass them as inputs"
            raise NoReference(f"the reference draws random numbers and gives others in each run; {advice}")

    def _large(self, found: Contraction | None, call: Call, arguments: Arguments) -> Contraction | None:
        """The contraction that the record is, where it is above the budget."""
        # A tensor that the contraction does not know of would not be cut with the others.
        if found is None or found.flops <= self.budget or found.tensors != arguments.tensors.keys():
            return None
        specs = call.output_specs()
        return found if not specs or (len(specs) == 1 and found.fits(specs[0].shape)) else None

    def _candidates(self, record: Record, arguments: Arguments, listed: bool) -> list[Candidate]:
        """What the record may be; listed: what looks like a list is one, and no tuple."""
        key = f"{record.namespace}.{record.api}"
        name = frameworks.signatures(self.framework.name).canonical(key)
        call, reference = self.calls.get(key), guarded("the reference", self.references, key)
        replaced = "" if call is None else _qualified_name(call)
        widened = None if reference is None else self.framework.widened(reference)
        if call is not None and reference is not None:
            wide = self._reference_of(name, widened or reference, arguments)
            return [Candidate(key, name, key, call, wide, arguments, False, replaced, widened=widened)]
        # Names that a capture shortened may mean several functions; the record tells which fits.
        made = []
        for api in self.framework.candidates(record.namespace, record.api, self.namespaces):
            function = LookedUp(api.lookup)
            wide = self._reference_of(name, widened or function, arguments)
            notes = (f"taken as {api.path}",) if api.elsewhere else ()
            under_test, lookup = call or function, api.lookup if reference is None else None
            made.append(
                Candidate(
                    key,
                    name,
                    api.path,
                    under_test,
                    wide,
                    arguments,
                    api.in_place,
                    replaced,
                    notes,
                    lookup=lookup,
                    widened=widened,
                )
            )
        lists = not listed and any(isinstance(value, list) for value in (*arguments.args, *arguments.kwargs.values()))
        return made + [replace(item, arguments=as_tuples(item.arguments)) for item in made] if lists else made

    def _reference_of(self, name: str, reference: Callable[..., Any], arguments: Arguments) -> Callable[..., Any]:
        """The device takes what it is not given from its own dtype: so must float64, there."""
        if not within_float32(arguments):
            return reference
        floats = arguments.dtypes.values()
        return self.framework.as_single(reference, max(float_format(dtype).max for dtype in floats), name)

    def _fitting(
        self, candidates: Sequence[Candidate], call: Call, record: Record, device: Device, check_dtypes: bool
    ) -> tuple[Candidate, Run, Wanted | None]:
        """The candidate whose reference run is like the record. Raises where none is, or several that differ."""
        troubles: list[Exception] = []
        misfits: list[str] = []
        fitting: list[tuple[Candidate, Run, Wanted | None]] = []
        for candidate in candidates:
            # The same function on other readings of the arguments, lists or tuples: one that fits is enough.
            if any(item.path == candidate.path for item, _, _ in fitting):
                continue
            try:
                self._check_memory(record, candidate)
                run, wanted = self._kept_run(candidate, with_gradient=record.backward is not None)
                self._check_registered(record, call, run)
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
            raise self._nothing_fits(candidates[0], call, device, troubles, misfits)
        # Several functions may fit the record and give the same: which one it was does not matter then.
        if any(not outputs_agree(fitting[0][1], other, equal_in_float64) for _, other, _ in fitting[1:]):
            paths = " and ".join(candidate.path for candidate, _, _ in fitting)
            raise ReplayDiffers(f"{record.name} may be {paths}: the record fits both", "ambiguous name")
        return fitting[0]

    def _check_memory(self, record: Record, candidate: Candidate) -> None:
        """Raises TooLarge. What a project registered is trusted."""
        if f"{record.namespace}.{record.api}" in self.references:
            return
        inputs.check_run(self._bytes_inside(candidate), self.memory)

    def _bytes_inside(self, candidate: Candidate) -> int:
        """Bytes that a run holds at a time, or what an earlier run kept of that: where a bound does not tell, torch
        imports its compiler to count them."""
        arguments, limit = candidate.arguments, inputs.bytes_of_run(self.memory)
        call = candidate.reference, arguments.args, arguments.kwargs
        counted = functools.partial(self.framework.bytes_inside, candidate.name, *call, self.way, limit)
        key = None if self.cached is None else candidate.key(self.cached, arguments.tensors, self.way)
        if self.cached is None or key is None:
            return counted()
        # 0 hangs on the memory that is left here, as what is beyond the limit may.
        return self.cached.of(
            key,
            ("bytes inside",),
            counted,
            lambda made: Kept({}, made) if 0 < made <= limit else None,
            lambda found: int(found.told),
        )

    def _check_registered(self, record: Record, call: Call, run: Run) -> None:
        """Raises HookFailed where a registered reference gave no tensor and the record has one."""
        key = f"{record.namespace}.{record.api}"
        if key not in self.references or not call.output_specs():
            return
        if not any(isinstance(value, np.ndarray) for value in run.outputs.values()):
            raise HookFailed(f"the reference registered for {key} gave {described(run)}, recorded: {recorded(call)}")

    def _nothing_fits(
        self, candidate: Candidate, call: Call, device: Device, troubles: Sequence[Exception], misfits: Sequence[str]
    ) -> Exception:
        # What a project added is named first: the record itself may be right.
        hook = next((trouble for trouble in troubles if isinstance(trouble, HookFailed)), None)
        if hook is not None:
            return hook
        too_large = next((trouble for trouble in troubles if isinstance(trouble, TooLarge)), None)
        if too_large is not None:
            return too_large
        if misfits:
            return ReplayDiffers(f"{'; '.join(misfits)}; recorded: {recorded(call)}")
        trouble = troubles[0]
        if isinstance(trouble, Unsupported):
            return trouble
        said = exception_line(trouble)
        if device.name != "cpu" and _is_index(trouble):
            # An accelerator's kernel does not raise for it: it ends every later case of the process.
            return Unsupported(
                f"the reference raised {said}; {device.name} did not run it, because "
                "an index out of range may end the process",
                "index out of range",
            )
        try:
            arguments = candidate.arguments
            # A record that the device refuses as well is a wrong record, and no fault of the reference.
            way = Way(device=device, default=default_dtype(call), state="recorded")
            with running_side.device():
                self.framework.run(candidate.on_device, arguments.args, arguments.kwargs, way, None)
        except MemoryError:
            raise
        except Exception as error:
            if self.framework.has_no_kernel(error):
                return NoKernel(f"{device.name}: {first_line(error)}")
            return Unsupported(
                f"{device.name} raised {exception_line(error)}; the reference raised {said}",
                "device and reference both raise",
            )
        return NoReference(f"float64 on the CPU raised {said}")

    def _kept_run(self, candidate: Candidate, *, with_gradient: bool) -> tuple[Run, Wanted | None]:
        """`_run`, or what an earlier run kept of it."""
        leaves = candidate.arguments.tensors
        key = None if self.cached is None else candidate.key(self.cached, leaves, self.way)
        if self.cached is None or key is None:
            return self._run(candidate, with_gradient)
        return self.cached.of(
            key,
            ("record", with_gradient, candidate.constant),
            lambda: self._run(candidate, with_gradient),
            lambda made: kept_run(made[0], leaves, made[1]),
            lambda found: taken_run(found, leaves),
        )

    def _run(self, candidate: Candidate, with_gradient: bool) -> tuple[Run, Wanted | None]:
        """A reference run, able to give gradients of as many arguments as the framework can differentiate."""
        arguments = candidate.arguments
        leaves = arguments.tensors
        every = frozenset(floats_of(leaves)) - candidate.constant
        if with_gradient:
            run = self._differentiable(candidate, [Wanted(every, candidate.in_place), Wanted(every, True)])
            if run is not None:
                return run
        plain = self.framework.run(candidate.reference, arguments.args, arguments.kwargs, self.way, None)
        if not with_gradient:
            return plain, None
        # Running statistics and the like, which the call updates, have no gradient.
        kept = frozenset(name for name in every if same_bytes(plain.after(name), reference_array(leaves[name].array)))
        marked = frozenset(name for name in every if leaves[name].requires_grad)
        # Every try asks for less, since a call may refuse all gradients for the sake of one.
        tries = [Wanted(kept, True), Wanted(marked, True), Wanted(kept - self.running_statistics(candidate), True)]
        return self._differentiable(candidate, tries) or (plain, None)

    def running_statistics(self, candidate: Candidate) -> frozenset[str]:
        """Running statistics: in evaluation nothing changes them, and a call that is asked for their gradient
        refuses."""
        bound = self._bound(candidate.api, candidate.arguments)
        named = details(classes_of(candidate.name), "running_statistics")
        return frozenset(bound.paths[name] for name in named if name in bound.paths)

    def _differentiable(self, candidate: Candidate, tries: Sequence[Wanted]) -> tuple[Run, Wanted] | None:
        """The first run that can give gradients."""
        arguments = candidate.arguments
        for wanted in tries:
            try:
                run = self.framework.run(candidate.reference, arguments.args, arguments.kwargs, self.way, wanted)
            except (RuntimeError, ValueError):
                continue
            except HookFailed as error:
                if not isinstance(error.__cause__, Exception):
                    raise
                continue
            if run.differentiable:
                return run, wanted
        return None


def _is_index(error: Exception) -> bool:
    """Does a framework say that an index names no element?"""
    text = said(error).lower()
    return isinstance(error, IndexError) or "out of bounds" in text or "out of range" in text


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
    try:
        return replace(reference, candidate=reading, notes=notes).ran()
    except MemoryError:
        raise
    except Exception:
        return None  # beyond the call's domain there (a probability that rounds to 1)


def _corner(large: Contraction, arguments: Arguments, call: Call) -> tuple[Arguments, Call]:
    """The call on the first places of each index."""
    places = {index: np.arange(min(extent, CORNER)) for index, extent in large.extents.items()}
    leaves = {
        name: replace(leaf, array=cut(leaf.array, large.indices(name), places), strides=None, offset=0)
        for name, leaf in arguments.tensors.items()
    }
    specs = [
        replace(spec, shape=np.shape(cut(np.broadcast_to(0, spec.shape), large.output, places)))
        for spec in call.output_specs()
    ]
    return with_leaves(arguments, leaves), replace(call, outputs=tuple(specs) or None)


def _qualified_name(function: Callable[..., Any]) -> str:
    """Where a function comes from, "my_kernels.gelu"; of an object without a name its type."""
    while isinstance(function, functools.partial):
        function = function.func
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"
