"""Makes replays: which call a record is, on which arguments, and what both sides give."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pytest_probe.blame import frames, guarded, said
from pytest_probe.errors import DeviceRaised, HookFailed, NoKernel, NoReference, ProbeError, ReplayDiffers, Unsupported
from pytest_probe.execution.arguments import (
    NARROW,
    autocast_of,
    cast_first,
    default_dtype,
    floats_of,
    has_inexact_floats,
    named_leaves,
    narrow_dtype,
    numbers,
    prepared,
    rounded_leaves,
    sizes_by_float,
    tuples,
    with_float32,
    with_leaves,
    with_rounded_floats,
    within_float32,
)
from pytest_probe.execution.likeness import (
    alike,
    check_wide,
    described,
    dtypes_fit,
    first_line,
    output_specs,
    recorded,
    reference_array,
    same_bytes,
    same_results,
    shapes_fit,
    widened_dtypes_fit,
)
from pytest_probe.execution.products import Product, cut, product
from pytest_probe.execution.replay import NO_CALL, REFERENCE, Candidate, Origin, Replay
from pytest_probe.frameworks.base import Device, Framework, Run, Wanted, Way
from pytest_probe.inputs import Arguments
from pytest_probe.numerics.dtypes import float_format, numpy_dtype
from pytest_probe.records.model import Call, Record
from pytest_probe.standards.facts import facts

CORNER = 2
RUNNING = frozenset({"input.1", "input.2", "kwargs.running_mean", "kwargs.running_var"})


class Replayer:
    """Makes replays of records on one device. budget: FLOP of a product from which on only samples of it are computed
    in the reference."""

    def __init__(
        self,
        framework: Framework,
        device: Device,
        calls: Mapping[str, Callable[..., Any]],
        references: Mapping[str, Callable[..., Any]],
        namespaces: Mapping[str, str],
        reference: Way = REFERENCE,
        budget: float = math.inf,
    ) -> None:
        self.framework = framework
        self.device = device
        self.calls = calls
        self.references = references
        self.namespaces = namespaces
        self.reference = reference
        self.budget = budget

    def replay(self, record: Record, call: Call, arguments: Arguments, *, as_recorded: bool) -> Replay:
        """Run both sides. Raises Unsupported for what cannot be decided, DeviceRaised where only the device raises."""
        replayed, autocast = self._with_reference(record, call, arguments, as_recorded)
        self._run_device(replayed, call, as_recorded, autocast)
        replayed.rounded = self.rounded(replayed)
        return replayed

    def expect(self, record: Record, call: Call, arguments: Arguments, *, as_recorded: bool, origin: Origin) -> Replay:
        """Run the reference alone, for a device side that comes from elsewhere. Raises Unsupported.

        Only where the recorded dtypes are mixed the call is made on the CPU, to see whether it ran under autocast.
        """
        replayed, autocast = self._with_reference(record, call, arguments, as_recorded)
        if autocast:
            self._run_on_cpu(replayed, call, autocast)
        replayed.origin = origin
        replayed.rounded = self.rounded(replayed)
        return replayed

    def _run_on_cpu(self, replayed: Replay, call: Call, autocast: str) -> None:
        on_device = replayed.candidate.on_device
        replayed.device = self.framework.device("cpu")
        replayed.candidate = replace(replayed.candidate, on_device=replayed.candidate.reference)
        try:
            self._run_device(replayed, call, True, autocast)
        except DeviceRaised as error:
            raise Unsupported(f"whether it ran under autocast cannot be seen: {error}") from error
        replayed.device = self.device
        replayed.candidate = replace(replayed.candidate, on_device=on_device)

    def pair(
        self,
        name: str,
        function: Callable[..., Any],
        reference: Callable[..., Any],
        arguments: Arguments,
        *,
        with_gradient: bool,
    ) -> Replay:
        """Run a function on the device and another as its reference. Raises NoReference where that one raises."""
        arguments = cast_first(name, arguments if sizes_by_float(name) else with_float32(arguments))
        candidate = Candidate(name, function, self._reference_of(reference, arguments), arguments, False)
        try:
            expected, wanted = self._reference(candidate, with_gradient)
        except Exception as error:
            raise NoReference(f"the reference raised {type(error).__name__}: {first_line(error)}") from error
        check_wide(expected)
        leaves = named_leaves(candidate.arguments)
        replayed = Replay(self.framework, self.device, candidate, NO_CALL, leaves, expected, expected, wanted)
        if not expected.outputs and not replayed.changed:
            raise NoReference("the reference returns nothing and changes no argument: there is nothing to judge")
        replayed.actual = self.again(replayed)
        replayed.rounded = self.rounded(replayed)
        return replayed

    def _with_reference(
        self, record: Record, call: Call, arguments: Arguments, as_recorded: bool
    ) -> tuple[Replay, str]:
        """A replay with the reference's side, and the dtype of an autocast that it may have run under."""
        arguments, notes = prepared(record, call, arguments)
        large = self._large(record, call, arguments)
        shown = (arguments, call) if large is None else _corner(large, arguments, call)
        autocast = self._autocast(call, arguments) if as_recorded else ""
        candidates = self._candidates(record, shown[0], listed=call.surroundings is not None)
        candidate, expected, wanted = self._fitting(candidates, shown[1], record, as_recorded and not autocast)
        candidate = replace(candidate, arguments=with_leaves(candidate.arguments, named_leaves(arguments)))
        if expected.outputs and all(isinstance(value, str) for value in expected.outputs.values()):
            raise Unsupported(f"{candidate.path} returns text, which no dtype can be judged by", "no numbers")
        replayed = Replay(
            self.framework, self.device, candidate, call, named_leaves(arguments), expected, expected, wanted,
            notes=(*notes, *candidate.notes), reference=self.reference, product=large,
            _changed=None if large is None else frozenset(),
        )  # fmt: skip
        return replayed, autocast

    def _autocast(self, call: Call, arguments: Arguments) -> str:
        """The dtype of the autocast that the call ran under: as recorded for this kind of device, else for the one
        that the capture had; where a dump does not say, what its dtypes suggest."""
        if call.surroundings is None:
            return autocast_of(call, arguments)
        known = call.surroundings.autocast
        others = [dtype for kind, dtype in known.items() if kind != "cpu"]
        found = known.get(self.device.name.split(":", 1)[0], (others or [*known.values(), ""])[0])
        return found if found in NARROW else ""

    def _large(self, record: Record, call: Call, arguments: Arguments) -> Product | None:
        """The product that the record is, where it is above the budget."""
        found = product(f"{record.namespace}.{record.api}", arguments.args, arguments.kwargs)
        if found is None or found.flops <= self.budget or found.tensors != named_leaves(arguments).keys():
            return None
        specs = output_specs(call)
        return found if not specs or (len(specs) == 1 and found.fits(specs[0].shape)) else None

    def _run_device(self, replayed: Replay, call: Call, as_recorded: bool, autocast: str) -> None:
        """Fill in the device's side: plain, or under autocast where only that gives the recorded dtypes, or where it is
        known and makes a difference."""
        fits = False
        try:
            replayed.actual = self.again(replayed)
            fits = not as_recorded or dtypes_fit(replayed.actual, call)
            if fits and not self._casts(replayed, call, autocast):
                return
        except (Unsupported, DeviceRaised):
            if not autocast:
                raise
        if not autocast:
            raise DeviceRaised(f"the device gave {described(replayed.actual)}, recorded: {recorded(call)}")
        replayed.autocast = autocast
        replayed.inside = fits
        replayed.narrow = fits or any(spec.dtype == autocast for spec in output_specs(call))
        replayed.notes += (f"under autocast to {autocast}",)
        if replayed.narrow:
            self._round_inputs(replayed, numpy_dtype(autocast))
        replayed.actual = self.again(replayed)
        if not dtypes_fit(replayed.actual, call):
            gave = f"{replayed.candidate.path} gave {described(replayed.actual)} under autocast"
            raise ReplayDiffers(f"{gave}, recorded: {recorded(call)}")

    def _casts(self, replayed: Replay, call: Call, autocast: str) -> bool:
        """Does the autocast that a dump tells of change the results, beyond what two runs of a device may differ by?"""
        if call.surroundings is None or not autocast or "random" in facts(replayed.candidate.path).classes:
            return False
        under = self.again(replace(replayed, autocast=autocast))
        if not alike(replayed.actual, under):
            return True
        replayed.actual = under
        return False

    def _round_inputs(self, replayed: Replay, dtype: np.dtype[Any]) -> None:
        """Autocast rounds wider inputs inside: round them before, so that both sides see the same values."""
        replayed.leaves = rounded_leaves(replayed.leaves, dtype)
        replayed.candidate = replace(
            replayed.candidate, arguments=with_leaves(replayed.candidate.arguments, replayed.leaves)
        )
        if replayed.product is None:
            replayed.expected = replayed.reference_run(replayed.leaves, self.reference, replayed.wanted)

    def rounded(self, replayed: Replay) -> tuple[Candidate, Run] | None:
        """The reference with Python floats, and tensors that are such numbers, rounded to the tensors' 16-bit dtype,
        or to that of an autocast; None where that changes nothing."""
        candidate = replayed.candidate
        narrow = numpy_dtype(replayed.autocast) if replayed.narrow else narrow_dtype(replayed.leaves)
        if replayed.product is not None or narrow is None or sizes_by_float(candidate.path):
            return None
        arguments, tensors = candidate.arguments, numbers(candidate.arguments, narrow)
        if not tensors and not has_inexact_floats(arguments, narrow):
            return None
        read = functools.partial(self.framework.rounded, dtype=narrow.name)
        rounding = functools.partial(with_rounded_floats, candidate.reference, narrow, tensors, read)
        try:
            run = self.framework.run(rounding, arguments.args, arguments.kwargs, self.reference, replayed.wanted)
        except Exception:
            return None  # beyond the call's domain there (a probability that rounds to 1)
        return replace(candidate, reference=rounding), run

    def again(self, replayed: Replay) -> Run:
        """The device's run. Raises NoKernel, or DeviceRaised, whose cause is the device's error."""
        try:
            return replayed.device_run(replayed.device, replayed.wanted)
        except Exception as error:
            raise self.device_trouble(error) from error

    def device_trouble(self, error: Exception) -> ProbeError:
        """What an error of the device means: it has no kernel, or it is wrong."""
        if isinstance(error, ProbeError):
            return error
        if self.framework.has_no_kernel(error):
            return NoKernel(f"{self.device.name}: {first_line(error)}")
        return DeviceRaised("\n".join([f"{self.device.name} raised {said(error)}", *frames(error)[-1:]]))

    def _candidates(self, record: Record, arguments: Arguments, listed: bool) -> list[Candidate]:
        """What the record may be; listed: what looks like a list is one, and no tuple."""
        key = f"{record.namespace}.{record.api}"
        call, reference = self.calls.get(key), guarded("the reference", self.references, key)
        if call is not None and reference is not None:
            return [Candidate(key, call, self._reference_of(reference, arguments), arguments, False)]
        apis = self.framework.candidates(record.namespace, record.api, self.namespaces)
        made = []
        for api in apis:
            function = functools.partial(_call_anew, api.lookup)
            made.append(
                Candidate(
                    api.path,
                    call or function,
                    self._reference_of(reference or function, arguments),
                    arguments,
                    api.inplace,
                    _renamed(record, api.path),
                )
            )
        lists = not listed and any(isinstance(value, list) for value in (*arguments.args, *arguments.kwargs.values()))
        return made + [replace(item, arguments=tuples(item.arguments)) for item in made] if lists else made

    def _reference_of(self, reference: Callable[..., Any], arguments: Arguments) -> Callable[..., Any]:
        """The device takes what it is not given from its own dtype: so must float64, there."""
        if not within_float32(arguments):
            return reference
        floats = floats_of(named_leaves(arguments)).values()
        return self.framework.as_single(reference, max(float_format(dtype).max for dtype in floats))

    def _fitting(
        self, candidates: Sequence[Candidate], call: Call, record: Record, check_dtypes: bool
    ) -> tuple[Candidate, Run, Wanted | None]:
        """The candidate whose reference run is like the record. Raises where none is, or several that differ."""
        troubles: list[Exception] = []
        misfits: list[str] = []
        fitting: list[tuple[Candidate, Run, Wanted | None]] = []
        for candidate in candidates:
            if any(item.path == candidate.path for item, _, _ in fitting):
                continue
            try:
                run, wanted = self._reference(candidate, with_gradient=record.backward is not None)
                self._check_registered(record, call, run)
            except Exception as error:
                troubles.append(error)
                continue
            if shapes_fit(run, call) and (not check_dtypes or widened_dtypes_fit(run, call)):
                fitting.append((candidate, run, wanted))
            else:
                misfits.append(f"{candidate.path} gives {described(run)}")
        if not fitting:
            raise self._nothing_fits(candidates[0], call, troubles, misfits)
        if any(not same_results(fitting[0][1], other) for _, other, _ in fitting[1:]):
            paths = " and ".join(candidate.path for candidate, _, _ in fitting)
            raise ReplayDiffers(f"{record.name} may be {paths}: the record fits both", "ambiguous name")
        return fitting[0]

    def _check_registered(self, record: Record, call: Call, run: Run) -> None:
        """Raises HookFailed where a registered reference gave no tensor and the record has one."""
        key = f"{record.namespace}.{record.api}"
        if key not in self.references or not output_specs(call):
            return
        if not any(isinstance(value, np.ndarray) for value in run.outputs.values()):
            raise HookFailed(f"the reference registered for {key} gave {described(run)}, recorded: {recorded(call)}")

    def _nothing_fits(
        self, candidate: Candidate, call: Call, troubles: Sequence[Exception], misfits: Sequence[str]
    ) -> Exception:
        hook = next((trouble for trouble in troubles if isinstance(trouble, HookFailed)), None)
        if hook is not None:
            return hook
        if misfits:
            return ReplayDiffers(f"{'; '.join(misfits)}; recorded: {recorded(call)}")
        trouble = troubles[0]
        if isinstance(trouble, Unsupported):
            return trouble
        said = f"{type(trouble).__name__}: {first_line(trouble)}"
        try:
            arguments = candidate.arguments
            way = Way(device=self.device, default=default_dtype(call))
            self.framework.run(candidate.on_device, arguments.args, arguments.kwargs, way, None)
        except Exception as error:
            return Unsupported(
                f"{self.device.name} raised {type(error).__name__}: {first_line(error)}; the reference raised {said}",
                "device and reference both raise",
            )
        return NoReference(f"float64 on the CPU raised {said}")

    def _reference(self, candidate: Candidate, with_gradient: bool) -> tuple[Run, Wanted | None]:
        """A reference run, able to give gradients of as many arguments as the framework can differentiate."""
        arguments = candidate.arguments
        leaves = named_leaves(arguments)
        every = frozenset(floats_of(leaves))
        if with_gradient:
            run = self._differentiable(candidate, [Wanted(every, candidate.inplace), Wanted(every, True)])
            if run is not None:
                return run
        plain = self.framework.run(candidate.reference, arguments.args, arguments.kwargs, self.reference, None)
        if not with_gradient:
            return plain, None
        # Running statistics and the like, which the call updates, have no gradient.
        kept = frozenset(name for name in every if same_bytes(plain.after(name), reference_array(leaves[name])))
        marked = frozenset(name for name in every if leaves[name].requires_grad)
        every_but = kept - _running(candidate)
        tries = [Wanted(kept, True), Wanted(marked, True), Wanted(every_but, True)]
        return self._differentiable(candidate, tries) or (plain, None)

    def _differentiable(self, candidate: Candidate, tries: Sequence[Wanted]) -> tuple[Run, Wanted] | None:
        """The first run that can give gradients."""
        arguments = candidate.arguments
        for wanted in tries:
            try:
                run = self.framework.run(candidate.reference, arguments.args, arguments.kwargs, self.reference, wanted)
            except (RuntimeError, ValueError, HookFailed):
                continue
            if run.differentiable:
                return run, wanted
        return None


def _running(candidate: Candidate) -> frozenset[str]:
    """Running statistics: in evaluation nothing changes them, and a call that is asked for their gradient refuses."""
    return RUNNING if candidate.path.endswith(("batch_norm", "instance_norm")) else frozenset()


def _corner(large: Product, arguments: Arguments, call: Call) -> tuple[Arguments, Call]:
    """The call on the first places of each index, which tells what the record is as well as the whole does."""
    places = {index: np.arange(min(extent, CORNER)) for index, extent in large.extents.items()}
    leaves = {
        name: replace(leaf, array=cut(leaf.array, large.indices(name), places), strides=None)
        for name, leaf in named_leaves(arguments).items()
    }
    specs = [
        replace(spec, shape=np.shape(cut(np.broadcast_to(0, spec.shape), large.output, places)))
        for spec in output_specs(call)
    ]
    return with_leaves(arguments, leaves), replace(call, outputs=tuple(specs) or None)


def _call_anew(lookup: Callable[[], Callable[..., Any]], *args: Any, **kwargs: Any) -> Any:
    return lookup()(*args, **kwargs)


def _renamed(record: Record, path: str) -> tuple[str, ...]:
    """A note where a capture lost the submodule and another one was found."""
    return (f"taken as {path}",) if record.namespace == "Torch" and path != f"torch.{record.api}" else ()
