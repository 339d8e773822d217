"""The steps from a case to both sides: its call, its arguments, what it may be, its reference, the results to judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct
from msgspec.structs import replace

from pytest_probe import frameworks, inputs
from pytest_probe.check.both_sides import Reference
from pytest_probe.check.device_call import DeviceSource, possible_autocast
from pytest_probe.check.engines import Engines
from pytest_probe.check.lost_arguments import Completing
from pytest_probe.check.reference import ReferenceRuns
from pytest_probe.check.reference_cache import CachedResults
from pytest_probe.check.resolve import Resolved, Resolver
from pytest_probe.check.stored_outputs import AFTER_THE_CALL, StoredOutputs, check_stored
from pytest_probe.errors import NoKernel, UnknownAPI, Unsupported
from pytest_probe.inputs import StoredTensors
from pytest_probe.model.case import Case
from pytest_probe.model.dump import Call, Lost, leaves
from pytest_probe.model.run import Arguments, floats_of
from pytest_probe.model.verdict import EMULATED
from pytest_probe.numerics.dtypes import NARROW_DTYPES
from pytest_probe.standards.tables import adds_products, classes_of

AdjustInputs = Callable[[Case, Arguments], Arguments | None]


class CaseRunner(Struct, frozen=True):
    """Makes the steps of cases as a run's request says; adjust_inputs is the project's, cached what earlier runs kept
    of the case. Each step raises Unsupported, RecordError or HookFailed."""

    engines: Engines
    adjust_inputs: AdjustInputs | None = None
    cached: CachedResults | None = None

    def decoded(self, case: Case) -> Call:
        """The record's call, completed; of two functions that are compared NO_CALL."""
        return self.completed(case, case.dump.decode(case.record))

    def completed(self, case: Case, call: Call) -> Call:
        """The call with the arguments that its dump lacks where the stored outputs tell them."""
        if not call.partial:
            return call
        inputs.check_size(call, None, self._memory)
        device, request = self.engines.framework.host(), self.engines.request
        files, stored = StoredTensors.of(case.dump), request.judges_stored
        return Completing(self.resolver, self._references, device, files, request.seed, stored).completed(case, call)

    def source(self, case: Case, recorded: Call) -> DeviceSource | StoredOutputs:
        """Where the results to judge come from. recorded is the call as it was decoded: a completed one does not tell
        of all its outputs."""
        if case.pair is not None or not self.engines.request.judges_stored:
            return self.device
        check_stored(recorded)
        return StoredOutputs(case.record, recorded, StoredTensors.of(case.dump))

    def arguments(self, case: Case, call: Call) -> Arguments:
        """The arguments of a call, within the memory that may be taken."""
        if case.pair is not None:
            return case.pair.arguments
        # Before it runs in full that is asked again.
        inputs.check_size(call, case.dtype, self._memory, in_pieces=self.engines.request.judges_parts)
        self.engines.memory.check(lambda: inputs.arguments_on_device(call, case.dtype))
        # Exact ones are for sums of products alone; others are generated then.
        kind = self.engines.request.inputs
        name = frameworks.signatures(case.dump.framework).canonical(case.api)
        arguments = case.arguments or inputs.build(
            call,
            bound=frameworks.signatures(case.dump.framework).bind(case.api, call.args, call.kwargs),
            record=case.record.name,
            dtype=case.dtype,
            seed=self.engines.request.seed,
            kind="generated" if kind == "exact" and not adds_products(classes_of(name)) else kind,
            files=StoredTensors.of(case.dump),
        )
        adjusted = self.adjust_inputs(case, arguments) if self.adjust_inputs is not None else None
        return arguments if adjusted is None else adjusted

    def resolved(self, case: Case, call: Call, arguments: Arguments) -> Resolved:
        """The functions that the case may be on these arguments."""
        if case.pair is not None:
            return self.resolver.pair(case.pair, case.api if case.record.api else "", case.record.name)
        as_recorded = case.dtype is None
        # No autocast changes what it does.
        plain = "scaled_products" in classes_of(frameworks.signatures(case.dump.framework).canonical(case.api))
        asked = as_recorded and not plain
        autocast = possible_autocast(call, arguments, self.engines.device.name) if asked else ""
        found = self.resolver.record(case.record, call, arguments, as_recorded=as_recorded, autocast=autocast)
        return replace(found, demands=case.demands, dtype=case.dtype)

    def reference(self, resolved: Resolved) -> Reference:
        """The one whose run in float64 is like the record; of a large call that can be cut, of a corner."""
        reference = self._references.of(resolved, self.engines.device)
        if not self.engines.request.emulate:
            return reference
        sixteen = {dtype.name for dtype in floats_of(reference.leaves).values()} & set(NARROW_DTYPES)
        if not sixteen:
            return reference
        if "own_dtype" in classes_of(reference.candidate.name):
            raise NoKernel(f"{reference.candidate.path} is defined by its dtype, which is emulated")
        note = f"{EMULATED}{', '.join(sorted(sixteen))} computed in float32 and rounded"
        return replace(reference, notes=(*reference.notes, note))

    def whole(self, reference: Reference) -> Reference:
        """The reference in full of a call that was cut."""
        return self._references.whole(reference)

    @property
    def device(self) -> DeviceSource:
        return DeviceSource(self.engines.framework, self.engines.device)

    @property
    def resolver(self) -> Resolver:
        engines, registry = self.engines, self.engines.registry
        functions = registry.calls, registry.references, registry.namespaces
        return Resolver(engines.framework, *functions, engines.request.flops, engines.reference_framework)

    @property
    def _references(self) -> ReferenceRuns:
        engines = self.engines
        return ReferenceRuns(
            engines.reference_framework,
            engines.reference,
            self._memory,
            self.cached,
            engines.request.judges_parts,
            engines.framework,
            engines.float64_elsewhere,
        )

    @property
    def _memory(self) -> int:
        """Bytes that may be taken."""
        return inputs.available_memory(self.engines.request.workers)


@contextmanager
def naming_lost_arguments(call: Call) -> Iterator[None]:
    """Where the dump lost an argument and the call does not work out, that is the reason."""
    try:
        yield
    except Unsupported as error:
        trees = (("input_args", call.args), ("input_kwargs", call.kwargs))
        lost = [path for root, tree in trees for path, value in leaves(tree, root) if isinstance(value, Lost)]
        # These have nothing to do with the arguments.
        if not lost or isinstance(error, (UnknownAPI, NoKernel)) or error.kind == AFTER_THE_CALL:
            raise
        found = f"{', '.join(lost)}: found {{}}, which does not say what the argument was, expected its value"
        raise Unsupported(
            f"{found}; with the recorded output's dtype in its place: {error}", "lost argument"
        ) from error
