"""A record made runnable: its reference, and what the source under test gave.

The recorded state chooses the kernel: `Reference.recorded_state` has the arguments that required grad, and the gradient
mode. Other gradients come from a run of their own, because asking for them could change which kernel is judged. If
float64 raises in a state, the recorded state was another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.check.prepare import default_dtype
from pytest_probe.check.reference_cache import CachedResult, CachedResults, Keep, Made, kept_run, taken_run
from pytest_probe.frameworks.base import Cast, LookedUp, Widened, looked_up
from pytest_probe.model.case import Demands
from pytest_probe.model.device_arrays import DeviceArray, Outputs, Placed, lying
from pytest_probe.model.dump import Call, Direction
from pytest_probe.model.run import (
    Arguments,
    BoundCall,
    Device,
    Leaf,
    Returned,
    Run,
    State,
    Wanted,
    Way,
    floats_of,
    with_leaves,
)
from pytest_probe.model.verdict import EMULATED
from pytest_probe.numerics.arrays import is_reference_array, reference_array, same_bytes
from pytest_probe.numerics.dtypes import AnyArray, is_floating
from pytest_probe.user_errors import allowing_refusal

if TYPE_CHECKING:
    from pytest_probe.check.large.contractions import Contraction
    from pytest_probe.check.large.cuts import Corner
    from pytest_probe.frameworks.base import Calls, Framework

# By what an argument is moved to see whether the call writes to it: far more than a roundoff.
ANOTHER = 2.0**-10
# How a reference runs, but for its device.
FLOAT64 = Way(dtype="float64")
# Two functions that are compared were recorded by nobody.
NO_CALL = Call((), {}, None, None)


class Candidate(Struct, frozen=True):
    """One reading of a record: a function for each side, and the arguments, lists as tuples or not.

    api is the recorded API ("Functional.linear"), "" for a function of no known one; name its canonical name; path
    where the function was found ("torch.nn.functional.linear"). replaced names what the project registered for
    it, constant arguments that no gradient is asked of. lookup gives the function that the path leads to, where
    that is the reference; reading says in what another reading differs. widened is the reference itself where the
    user wrote it, borders the reference with the borders that the user named. composed: it is a formula of the steps of
    a fused kernel, which no kernel of the framework's own computes. shared says that the same function of the user's
    stands on both sides, "" where none does. inferred: api is that of the reference, and nobody has named it.
    """

    api: str
    name: str
    path: str
    on_device: Callable[..., Any]
    reference: Callable[..., Any]
    arguments: Arguments
    in_place: bool
    replaced: str = ""
    notes: tuple[str, ...] = ()
    constant: frozenset[str] = frozenset()
    lookup: Callable[[], Callable[..., Any]] | None = None
    reading: str = ""
    widened: Widened | None = None
    borders: Callable[..., Any] | None = None
    composed: bool = False
    shared: str = ""
    inferred: bool = False

    def key(self, cached: CachedResults, leaves: Mapping[str, Leaf], way: Way, *further: str | bool) -> bytes | None:
        """What its reference's numbers depend on; None where its function is not the framework's own."""
        function = None if self.lookup is None else cached.description(self.lookup())
        if function is None:
            return None
        arguments = with_leaves(self.arguments, leaves)
        of_call = self.api, self.name, self.path, function, self.in_place, self.reading
        return cached.key((of_call, arguments.args, arguments.kwargs, way, further))


class Reference(Struct, frozen=True, dict=True):
    """A call in float64: what every further run of it needs.

    leaves holds the arguments' arrays by name ("input.0", "kwargs.weight"); way is how it runs, run what it gave.
    autocast is the dtype of the autocast that the recorded dtypes call for, "" for none; narrow tells that it rounds
    wider inputs, inside that no output's dtype shows it. contraction, corner: too large for a reference in full;
    run is that of a corner. demands: what is asked of results besides, None where they are a record's own. cached: what
    earlier runs kept of this case, None without a cache. casts are the user's own in it. placed: copies of arguments on
    the device where float64 runs, None where it is the CPU.
    """

    framework: Framework
    candidate: Candidate
    call: Call
    leaves: Mapping[str, Leaf]
    run: Run
    wanted: Wanted | None
    way: Way = FLOAT64
    notes: tuple[str, ...] = ()
    autocast: str = ""
    narrow: bool = False
    inside: bool = False
    contraction: Contraction | None = None
    corner: Corner | None = None
    demands: Demands | None = None
    cached: CachedResults | None = None
    casts: tuple[Cast, ...] = ()
    placed: Placed | None = None

    @cached_property
    def _key(self) -> bytes | None:
        if self.cached is None:
            return None
        return self.candidate.key(self.cached, self.leaves, self.way, self.autocast, self.narrow, self.inside)

    @property
    def is_own(self) -> bool:
        """Is its function the framework's, with nothing of the user's in its place on the device, and are its
        kernels?"""
        return self._is_own_on("cpu")

    @property
    def of_user(self) -> bool:
        """Is the function on the device the user's: compared or registered, and none of the framework's? What is found
        under the framework's name is its call, whatever a project has put around it: a tracer's wrapper calls torch."""
        function = self.candidate.on_device
        while isinstance(function, partial):
            function = function.func
        return not isinstance(function, LookedUp) and not frameworks.belongs_to(function, self.framework.package)

    def own_kernels(self, device: str) -> str:
        """The kind of a device ("cuda") where the framework's own function runs its own kernels; "" where another
        function or library may run."""
        own = self._is_own_on(device) and self._is_own_function(looked_up(self.candidate.on_device))
        return device.partition(":")[0] if own else ""

    def _is_own_on(self, place: str) -> bool:
        found = self.candidate
        function = found.widened.function if found.widened is not None else found.lookup and found.lookup()
        own = function is not None and self._is_own_function(function)
        return own and not found.replaced and self.framework.registered_kernels(place) is not None

    def _is_own_function(self, function: Callable[..., Any]) -> bool:
        while isinstance(function, partial):
            function = function.func
        return frameworks.belongs_to(function, self.framework.package)

    def composing(self, device: str) -> Any:
        """The CPU, where an autocast casts inside the call as it does on the recorded kind of device. Raises
        NotImplementedError where there is no autocast, or it casts for the call itself."""
        kind = self.recorded_kind or device.partition(":")[0]
        if not self.autocast or self.framework.casts(self.candidate.path, kind):
            raise NotImplementedError(f"no autocast casts inside {self.candidate.path} on {kind}")
        return self.framework.composing(kind, self.autocast)

    @property
    def recorded_kind(self) -> str:
        """The kind of device that the recorded autocast was of; "" for none, and for the CPU."""
        known = {} if self.call.surroundings is None else self.call.surroundings.autocast
        return next((name for name in known if name != "cpu"), "")

    @cached_property
    def state(self) -> tuple[Any, ...]:
        """What runs of the call in its own dtypes depend on besides."""
        return self.wanted, self.changed, self.recorded_state, default_dtype(self.call)

    def kept(
        self,
        what: Callable[[], tuple[Any, ...]],
        compute: Callable[[], Made],
        keep: Keep[Made],
        take: Callable[[CachedResult], Made],
    ) -> Made:
        """What an earlier run kept of a computation on this call, else what it gives now. what tells it from every
        other one on the same call; it is asked with a cache only."""
        if self.cached is None or self._key is None:
            return compute()
        return self.cached.of(self._key, what(), compute, keep, take)

    def kept_arrays(
        self, what: Callable[[], tuple[Any, ...]], compute: Callable[[], dict[str, AnyArray]]
    ) -> dict[str, AnyArray]:
        """The same for arrays by name."""
        return self.kept(what, compute, CachedResult, lambda found: dict(found.values))

    def ran(self) -> Reference:
        """It with the run of its own call."""
        run = self.kept(
            lambda: ("run", self.wanted),
            lambda: self.again(self.leaves, self.way, self.wanted),
            lambda run: kept_run(run, self.leaves, None),
            lambda found: taken_run(found, self.leaves)[0],
        )
        return replace(self, run=run)

    @property
    def is_partial(self) -> bool:
        """Is its run that of a corner, since the whole is too large?"""
        return self.contraction is not None or self.corner is not None

    @cached_property
    def bound(self) -> BoundCall:
        """The call's arguments by name."""
        arguments = self.candidate.arguments
        return arguments.bound(self.candidate.api, frameworks.signatures(self.framework.name).bind)

    @property
    def is_emulated(self) -> bool:
        """Does the device compute 16 bit in float32?"""
        return any(note.startswith(EMULATED) for note in self.notes)

    @cached_property
    def recorded_state(self) -> Wanted | None:
        """Which arguments required grad in the program, as far as the reference can give their gradients, and whether
        it recorded gradients: kernels are chosen by both. None: none of it. What two functions are compared with, or
        was recorded without any such argument, is as the gradients need it."""
        floats = floats_of(self.leaves).keys()
        marked = frozenset(name for name in floats if self.leaves[name].requires_grad)
        if self.wanted is not None:
            marked &= self.wanted.names
            return self.wanted if self.call is NO_CALL or not marked else replace(self.wanted, names=marked)
        grad = self.call is not NO_CALL and _recorded_gradients(self.call, in_place=self.candidate.in_place)
        if not (grad or marked) or self.call is NO_CALL:
            return None
        return Wanted(marked, grad and (self.candidate.in_place or not marked.isdisjoint(self.changed)), grad)

    def runs(self, wanted: Wanted | None) -> bool:
        """Does the reference run where these arguments require grad?"""
        with allowing_refusal():
            self.again(self.leaves, self.way, wanted)
            return True
        return False

    def asked(self, names: frozenset[str], marked: frozenset[str] = frozenset()) -> Reference:
        """The reference that is asked for these gradients alone, as far as it can give them; marked: arguments that
        require grad besides."""
        assert self.wanted is not None
        asked = replace(self, wanted=replace(self.wanted, names=names, marked=marked))
        # Of a large call the corner stands for it.
        return asked if self.is_partial else asked.ran()

    @cached_property
    def changed(self) -> frozenset[str]:
        """The arguments that the reference changed."""
        if self.contraction is not None:
            return frozenset()
        if self.run.handle is None:  # kept by an earlier run, which has compared them
            return self.run.changed
        return changed_by(self.run, self.leaves if self.corner is None else self.corner.leaves)

    def writes(self, name: str) -> bool:
        """Does the call write to an argument that is as it was? A running mean does not change if the batch has the
        same mean; another value shows what the call does."""
        leaf = self.leaves[name]
        if self.is_partial or not is_floating(leaf.array.dtype):
            return False
        values = reference_array(leaf.array)
        other = np.where(values == 0, ANOTHER, values * (1 + ANOTHER))
        with allowing_refusal():  # beyond the call's domain
            run = self.again({**self.leaves, name: replace(leaf, array=other)}, self.way, None)
            return not same_bytes(run.after(name), other)
        return False

    def with_leaves(self, leaves: Mapping[str, Leaf], **further: Any) -> Reference:
        """It on other values of the same arguments, with its own run."""
        candidate = replace(self.candidate, arguments=with_leaves(self.candidate.arguments, leaves))
        return replace(self, candidate=candidate, leaves=leaves, **further)

    def again(self, leaves: Mapping[str, Leaf], way: Way, wanted: Wanted | None) -> Run:
        """The reference's call on other values of the same arguments."""
        arguments = with_leaves(self.candidate.arguments, leaves)
        return self.framework.run(self.candidate.reference, arguments, way, wanted)

    def with_borders(self) -> Reference | None:
        """The reference that rounds at the borders which the user named; None where none is."""
        borders = self.candidate.borders
        return None if borders is None else replace(self, candidate=replace(self.candidate, reference=borders))

    def in_own_dtypes(self, device: Device) -> Run:
        """A call of the reference's function, which leaves out what users put in the device's place, in the case's own
        dtypes and the recorded state; one in which the reference raises as well was another."""
        way = Way(device=device, autocast=self.autocast, default=default_dtype(self.call))
        found, state = self.candidate, self.recorded_state
        try:
            return self.framework.run(found.reference, found.arguments, way, state)
        except MemoryError:
            raise
        except Exception:
            if state == self.wanted or self.runs(state):
                raise
        return self.framework.run(found.reference, found.arguments, way, self.wanted)

    def under_test(self, calls: Calls, device: Device, wanted: Wanted | None) -> Run:
        """The call on the device under test, which its framework runs; it meets what the user has set."""
        arguments, way = self.candidate.arguments, self.way_under_test(device)
        if self.placed is not None and way.stays and device.name == self.way.place:
            arguments = with_leaves(arguments, self.leaves_there)
        return calls.run(self.candidate.on_device, arguments, way, wanted)

    @property
    def leaves_there(self) -> Mapping[str, Leaf]:
        """The arguments, with their copies on the device where float64 runs."""
        placed = self.placed
        if placed is None:
            return self.leaves
        return {name: replace(leaf, there=placed.of(leaf.array)) for name, leaf in self.leaves.items()}

    def way_under_test(self, device: Device) -> Way:
        """How the device under test runs."""
        state: State = "users" if self.call is NO_CALL else "recorded"
        stays = self.corner is not None and self.way.place != "cpu" and self.framework.keeps(device)
        return Way(device=device, autocast=self.autocast, default=default_dtype(self.call), state=state, stays=stays)

    def returned(self, device: Device, *, computed: bool) -> Returned:
        """What the reference's function returns in the case's own dtypes, in what the user has set. Raises whatever it
        raises."""
        way = self.way_under_test(device)
        function = looked_up(self.candidate.reference)  # here, where no user's stands in its place
        return self.framework.would_return(function, self.candidate.arguments, way, computed=computed)

    def gradients(self, incoming: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
        """The gradients of the wanted arguments, once; arguments without one are left out."""
        return self.kept_arrays(lambda: ("gradients", self.wanted, incoming), lambda: self._gradients(incoming))

    def _gradients(self, incoming: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
        if self.run.handle is None or self.corner is not None:  # a run that was kept has no graph
            return self.gradients_of(self.leaves, self.way, incoming)
        return dict(self.framework.gradients(self.run, incoming))

    def gradients_of(
        self, leaves: Mapping[str, Leaf], way: Way, incoming: Mapping[str, AnyArray]
    ) -> dict[str, AnyArray]:
        """The gradients of the wanted arguments in a further run; where that is made of pieces, of those arguments that
        are not cut."""
        if self.corner is None:
            return dict(self.framework.gradients(self.again(leaves, way, self.wanted), incoming))
        if not _sums_exactly(way):
            return replace(self, corner=None).gradients_of(leaves, way, incoming)
        cut, way = self.corner.cut, replace(way, stays=way.place != "cpu")

        def piece(window: slice) -> Mapping[str, AnyArray]:
            run = self.again(cut.leaves_at(leaves, window), way, self.wanted)
            return self.framework.gradients(run, cut.incoming_at(incoming, window))

        return cut.joined(leaves, piece)

    def results_of(self, leaves: Mapping[str, Leaf], way: Way) -> dict[str, AnyArray]:
        """Outputs and changed arguments in a further run; where that is made of pieces, the outputs that they add up
        to."""
        if self.corner is None or not _sums_exactly(way):
            return dict(results(self.again(leaves, way, None), self.changed))
        cut = self.corner.cut
        way = replace(way, stays=way.place != "cpu")
        return cut.joined(
            leaves, lambda window: results(self.again(cut.leaves_at(leaves, window), way, None), self.changed)
        )


def _recorded_gradients(call: Call, *, in_place: bool) -> bool:
    """Did the program record gradients?"""
    if call.gradients is not None or call.surroundings is not None:
        return call.gradients is not None or (call.surroundings is not None and call.surroundings.grad)
    # What is written to in place requires grad as it did before, whatever the mode.
    return not in_place and any(spec.requires_grad for spec in call.output_specs())


def _sums_exactly(way: Way) -> bool:
    """Are sums in such a run those of float64, which may be made of pieces? What rounds them depends on their order."""
    return way.dtype == "float64" and way.steps is None


def changed_by(run: Run, leaves: Mapping[str, Leaf]) -> frozenset[str]:
    """The arguments that a reference's run changed: not every kernel that writes to one says so."""
    silent = (
        name
        for name, leaf in leaves.items()
        if name not in run.changed and not is_reference_array(run.after(name), leaf.array)
    )
    return run.changed.union(silent)


def results(run: Run, changed: frozenset[str]) -> Mapping[str, AnyArray]:
    """Arrays among the return values, and the arguments that the call changes, by name."""
    found = {
        name: np.asarray(value) if isinstance(value, float) else value
        for name, value in lying(run.outputs).items()
        if isinstance(value, (np.ndarray, float, DeviceArray))
    }
    found.update({name: run.argument(name) for name in changed})
    return Outputs(found)


def reference_results(replay: BothSides, direction: Direction) -> Mapping[str, AnyArray]:
    """What a reference gives in a direction: outputs and changed arguments, or gradients by argument."""
    reference = replay.reference
    if direction == "forward":
        return results(reference.run, reference.changed)
    run = reference.again(reference.leaves, reference.way, reference.wanted)
    return reference.framework.gradients(run, replay.incoming)


class Source(Protocol):
    """Where the results under test come from: a device, a dump's stored outputs, a caller."""

    @property
    def name(self) -> str:
        """The device's name, for messages."""

    @property
    def runs_again(self) -> bool:
        """Can it be run several times?"""

    @property
    def tells_changes(self) -> bool:
        """Does it hold what the call left in its arguments?"""

    def forward(self, reference: Reference) -> Run:
        """What it gives for the reference's arguments. Raises Unsupported, RecordError or DeviceRaised."""

    def backward(self, replay: BothSides) -> Iterator[BothSides]:
        """The replay for those gradients that this source has, or several: one run has not all where some arguments
        did not require grad. Raises Unsupported where it has none, and what forward raises."""

    def gradients(self, replay: BothSides) -> Mapping[str, AnyArray]:
        """The gradients that such a replay's reference is asked for. Raises what forward raises."""


class BothSides(Struct, frozen=True):
    """Both sides of a record's call. rounded is another reading of it: some kernels round a Python float to the 16-bit
    dtype of the tensors (x > 0.1 on a CPU), others don't. incoming holds the incoming gradients by output."""

    reference: Reference
    source: Source
    actual: Run
    rounded: Reference | None = None
    incoming: Mapping[str, AnyArray] = field(default_factory=dict)

    def with_cached(self, cached: CachedResults | None) -> BothSides:
        """The same with what earlier runs kept of another case: of the record's backward."""
        rounded = None if self.rounded is None else replace(self.rounded, cached=cached)
        return replace(self, reference=replace(self.reference, cached=cached), rounded=rounded)

    def noted(self, words: str) -> BothSides:
        """The same with one more note."""
        return replace(self, reference=replace(self.reference, notes=(*self.reference.notes, words)))

    def readings(self) -> Iterator[BothSides]:
        """Itself, and the other reading. The device's results tell which one it is, in each direction."""
        yield self
        if self.rounded is not None:
            yield replace(self, reference=self.rounded, rounded=self.reference)
