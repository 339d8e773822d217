"""Both sides of a case: its arguments, its reference, and the source of the results under test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct
from msgspec.structs import replace

from pytest_probe import frameworks, inputs
from pytest_probe.check.autocast import possible_autocast
from pytest_probe.check.completion import Completing
from pytest_probe.check.conditions import Setup
from pytest_probe.check.kept import KeptResults
from pytest_probe.check.replay import Reference, Replay
from pytest_probe.check.resolve import Resolver
from pytest_probe.check.run import DeviceSource, replayed, run_on_device, settled_on_cpu
from pytest_probe.check.stored_outputs import StoredOutputs, check_stored
from pytest_probe.errors import NoKernel, UnknownAPI, Unsupported
from pytest_probe.inputs import StoredTensors
from pytest_probe.model.arguments import Arguments, floats_of
from pytest_probe.model.case import Case, Pair
from pytest_probe.model.dump import Call, Dump, Lost, leaves
from pytest_probe.model.verdict import EMULATED
from pytest_probe.numerics.dtypes import NARROW_DTYPES
from pytest_probe.standards.api_class import classes_of

AdjustInputs = Callable[[Case, Arguments], Arguments | None]


class Replays(Struct, frozen=True):
    """Runs cases as a run's conditions say; adjust_inputs is the project's, cached what earlier runs kept of the
    case."""

    setup: Setup
    adjust_inputs: AdjustInputs | None = None
    cached: KeptResults | None = None

    def of(self, case: Case) -> Replay:
        """The case's run. Raises Unsupported, RecordError, DeviceRaised or HookFailed."""
        if case.pair is not None:
            return replayed(self._pair(case, case.pair), self.device)
        call = self.call(case)
        if not self.setup.conditions.judges_stored:
            with _naming_lost_arguments(call):
                reference, autocast = self.reference(case, call)
                return run_on_device(reference, autocast, self.device, as_recorded=case.dtype is None)
        recorded = case.dump.decode(case.record)  # a call that was completed does not tell of all its outputs
        check_stored(recorded)
        with _naming_lost_arguments(call):
            reference, autocast = self.reference(case, call)
            reference = _as_stored(settled_on_cpu(reference, autocast), recorded)
        return replayed(reference, StoredOutputs(case.record, recorded, self._files(case.dump)))

    def call(self, case: Case) -> Call:
        """The record's call, with the arguments that its dump lacks where the stored outputs tell them. Raises
        Unsupported or RecordError."""
        call = case.dump.decode(case.record)
        if not call.partial:
            return call
        inputs.check_size(call, None, self._memory)
        framework = self.setup.framework
        files, conditions = self._files(case.dump), self.setup.conditions
        device, stored = framework.device("cpu"), conditions.judges_stored
        return Completing(framework, self.resolver, device, files, conditions.seed, stored).completed(case, call)

    @property
    def device(self) -> DeviceSource:
        return DeviceSource(self.setup.framework, self.setup.device)

    @property
    def resolver(self) -> Resolver:
        registry = self.setup.registry
        return Resolver(
            self.setup.framework,
            registry.calls,
            registry.references,
            registry.namespaces,
            self.setup.reference,
            self.setup.conditions.flops,
            self._memory,
            self.cached,
        )

    @property
    def _memory(self) -> int:
        """Bytes that may be taken."""
        return inputs.available_memory(self.setup.conditions.workers)

    def reference(self, case: Case, call: Call) -> tuple[Reference, str]:
        """The reference of a record's call, and the dtype of an autocast that it may have run under."""
        arguments = self.arguments(case, call)
        as_recorded = case.dtype is None
        device = self.setup.device
        autocast = possible_autocast(call, arguments, device.name) if as_recorded else ""
        check_dtypes = as_recorded and not autocast
        reference = self.resolver.record(case.record, call, arguments, device, check_dtypes=check_dtypes)
        reference = self._emulated(reference)
        return reference if reference.demands is case.demands else replace(reference, demands=case.demands), autocast

    def _emulated(self, reference: Reference) -> Reference:
        """The reference, with a note where the device computes 16 bit in float32."""
        if not self.setup.conditions.emulate:
            return reference
        sixteen = {dtype.name for dtype in floats_of(reference.leaves).values()} & set(NARROW_DTYPES)
        if not sixteen:
            return reference
        if "own_dtype" in classes_of(reference.candidate.name):
            raise NoKernel(f"{reference.candidate.path} is defined by its dtype, which is emulated")
        note = f"{EMULATED}{', '.join(sorted(sixteen))} computed in float32 and rounded"
        return replace(reference, notes=(*reference.notes, note))

    def _pair(self, case: Case, pair: Pair) -> Reference:
        return self._emulated(self.resolver.pair(pair, case.api if case.record.api else "", case.record.name))

    def _files(self, dump: Dump) -> StoredTensors:
        load = self.setup.framework.load
        return StoredTensors(dump.path, dump.data_dirs, load, dump.anywhere, dump.fields, dump.gradient_dirs)

    def arguments(self, case: Case, call: Call) -> Arguments:
        """The arguments of a record's call, within the memory that may be taken. Raises Unsupported or RecordError."""
        inputs.check_size(call, case.dtype, self._memory)
        self.setup.memory.check(lambda: inputs.arguments_on_device(call, case.dtype))
        arguments = case.arguments or inputs.build(
            call,
            bound=frameworks.signatures(case.dump.framework).bind(case.api, call.args, call.kwargs),
            record=case.record.name,
            dtype=case.dtype,
            seed=self.setup.conditions.seed,
            kind=self.setup.conditions.inputs,
            files=self._files(case.dump),
        )
        adjusted = self.adjust_inputs(case, arguments) if self.adjust_inputs is not None else None
        return arguments if adjusted is None else adjusted


def _as_stored(reference: Reference, call: Call) -> Reference:
    """The reference with those outputs only that the dump has, where it never had all."""
    stored = dict(call.returned())
    missing = sorted(reference.run.outputs.keys() - stored.keys())
    if not call.partial or not missing:
        return reference
    outputs = {name: value for name, value in reference.run.outputs.items() if name in stored}
    note = f"not judged, because the dump does not have it: {', '.join(missing)}"
    return replace(reference, run=replace(reference.run, outputs=outputs), notes=(*reference.notes, note))


@contextmanager
def _naming_lost_arguments(call: Call) -> Iterator[None]:
    """Where the dump lost an argument and the call does not work out, that is the reason."""
    try:
        yield
    except Unsupported as error:
        trees = (("input_args", call.args), ("input_kwargs", call.kwargs))
        lost = [path for root, tree in trees for path, value in leaves(tree, root) if isinstance(value, Lost)]
        # These have nothing to do with the arguments.
        if not lost or isinstance(error, (UnknownAPI, NoKernel)):
            raise
        found = f"{', '.join(lost)}: found {{}}, which does not say what the argument was, expected its value"
        raise Unsupported(
            f"{found}; with the recorded output's dtype in its place: {error}", "lost argument"
        ) from error
