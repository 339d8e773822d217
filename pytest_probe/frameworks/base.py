"""What a framework and a device must be able to do, and how the reference that a user gives is run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from msgspec import Struct, field

from pytest_probe.errors import ProbeError
from pytest_probe.frameworks.compilers import Compile, PythonCompiler
from pytest_probe.model.comparison import Choice, Comparison, KnownFinding
from pytest_probe.model.device_arrays import Placed
from pytest_probe.model.dump import Argument
from pytest_probe.model.measurement import Clock
from pytest_probe.model.run import (
    Arguments,
    BoundCall,
    Device,
    Kernel,
    MeasuredCall,
    MemoryUse,
    Returned,
    Run,
    State,
    Wanted,
    Way,
)

# Gives the call on a set of tensors.
Prepare: TypeAlias = Callable[[Any], Callable[[], object]]


class Cast(Struct, frozen=True):
    """A cast, or a factory, in a user's reference: to which dtype, and where it is written ("test_x.py:12")."""

    dtype: str
    place: str


# A framework's context in which casts and factories of narrower dtypes give this one; the list gets an item for each.
Widening: TypeAlias = Callable[[str, list[Cast]], AbstractContextManager[object]]


class _Running(threading.local):
    dtype = ""
    border = ""


_running = _Running()


@contextmanager
def reference_run(way: Way) -> Iterator[None]:
    """A reference runs in here, in this way."""
    before = _running.dtype, _running.border
    _running.dtype, _running.border = way.dtype, way.border
    try:
        yield
    finally:
        _running.dtype, _running.border = before


def border_dtype() -> str:
    """What a border rounds to in the run that is under way; "" where it changes nothing."""
    return _running.border


class Widened:
    """A user's reference. Where it runs in float64, what it casts to a narrower floating dtype, or makes in one, is
    float64 too, and float32 in a run of that: a last cast to 16 bit would hide there what the run shows. Integers, bool
    and 8-bit formats stay. In the case's own dtypes it runs as it is written."""

    def __init__(self, function: Callable[..., Any], widening: Widening) -> None:
        self.function = function
        self._widening = widening
        self.casts: list[Cast] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not _running.dtype:
            return self.function(*args, **kwargs)
        self.casts = []
        with self._widening(_running.dtype, self.casts):
            return self.function(*args, **kwargs)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the last run in float64 says of itself."""
        count = len(self.casts)
        return (f"reference widened at {count} {'cast' if count == 1 else 'casts'}",) if count else ()


class API(Struct, frozen=True):
    """A call that the allow-list admits, by the path it was found under ("torch.linalg.svd").

    `lookup` finds the function anew at every call, so that what a user patches is what runs. in_place says that its
    name says that it writes to its first argument, elsewhere that it was found in another module than the name says,
    since a capture lost the submodule. on_device finds what a device under test is given, where that is another
    function. replaced says what a user has put in the function's place on the device ("conftest.py:3"), shared what
    stands there for references as well ("Functional.gelu is conftest.py:3's, on both sides"); "" for nothing.
    """

    path: str
    lookup: Callable[[], Callable[..., Any]]
    in_place: bool = False
    elsewhere: bool = False
    on_device: Callable[[], Callable[..., Any]] | None = None
    replaced: str = ""
    shared: str = ""


class LookedUp(Struct, frozen=True):
    """A function that is looked up at every call."""

    lookup: Callable[[], Callable[..., Any]]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.lookup()(*args, **kwargs)


def looked_up(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, where one is given that looks it up at every call."""
    return function.lookup() if isinstance(function, LookedUp) else function


class Functions(Struct, frozen=True):
    """A function and its reference, both to be called with these tensors as further keyword arguments; constant names
    those ("kwargs.module.running_mean") that no gradient is asked of."""

    function: Callable[..., Any]
    reference: Callable[..., Any]
    tensors: Mapping[str, Any] = field(default_factory=dict)
    constant: frozenset[str] = frozenset()


class LiteralCall(Struct, frozen=True):
    """A call for a script of its own: path is the function's ("torch.nn.functional.linear"), arguments hold its values,
    wanted the arguments whose gradients are compared (none: the outputs are), seeds the incoming gradients by output.
    actual is what another function gave, which a project registered instead of this one.
    """

    title: str
    device: str
    path: str
    arguments: Arguments
    wanted: Sequence[str]
    seeds: Mapping[str, np.ndarray]
    actual: Sequence[np.ndarray] = ()


class Bound(Protocol):
    """Arguments as the framework takes them: new tensors, on the device."""

    args: list[Any]
    kwargs: dict[str, Any]


class Repeated:
    """A call whose tensors lie on its device in several sets, ready to be made. made gives the call on a set; of one
    that writes to its arguments, on fresh copies. nothing gives that of a function that does nothing."""

    def __init__(self, sets: Collection[Any], made: Prepare, nothing: Prepare) -> None:
        self._sets, self._made, self._nothing = cycle(sets), made, nothing

    def ready(self, number: int) -> Sequence[Callable[[], object]]:
        """So many calls, each on the next set."""
        return [self._made(each) for each in islice(self._sets, number)]

    def empty(self, number: int) -> Sequence[Callable[[], object]]:
        """The same of a function that does nothing."""
        return [self._nothing(each) for each in islice(self._sets, number)]


class Process(Protocol):
    """What a process has set, and what it is made of."""

    def describe(self) -> dict[str, str]:
        """Version, threads and flags that change numerics, and as "state" what the process has set to something
        else than the framework's own default."""

    def fixed_state(self) -> AbstractContextManager[None]:
        """The framework as it is without anybody's doing, whatever the process has set: default dtype and device,
        autocast, modes, flags, generators. What the user had is put back afterwards."""

    def users_state(self, state: State) -> AbstractContextManager[None]:
        """Inside a fixed state, what the user had set; nothing anywhere else."""

    def random_state(self) -> bytes:
        """The state of the host's random numbers; another one where some were drawn in between."""

    def registered_kernels(self, place: str) -> tuple[str, ...] | None:
        """What the framework's operators run on this device, apart from its version: kernels that replace
        its own. None where one has no name that only it has."""

    def share_threads(self, workers: int) -> None:
        """Leave the other workers of this machine their cores."""


class Devices(Protocol):
    """The devices that a framework finds, and their memory."""

    def default_device(self) -> str:
        """The accelerator that the framework finds, else "cpu"."""

    def device(self, name: str, option: str = "--probe-device") -> Device:
        """The framework's own device of that name. Raises SettingsError, of the option that named it, without
        one."""

    def host(self) -> Device:
        """The CPU, on which evidence is computed."""

    def all_devices(self, name: str) -> tuple[str, ...]:
        """The devices of this kind that the framework sees, where the name is without a number ("cuda") and there are
        several; else the name alone."""

    def select(self, device: Device) -> None:
        """Make it this process's current device, which kernels take where nothing else is said."""

    def is_lost(self, device: Device) -> bool:
        """Does every further call on it fail in this process, as after an illegal address on a GPU?"""

    def emulating(self, name: str) -> Device:
        """The framework's own device of that name, with 16 bit computed in float32 and rounded. Raises SettingsError
        for a device that has kernels of 16 bit."""

    def hardware(self, device: str, /) -> Mapping[str, str]:
        """What the device of this name is made of, and its driver, as far as the framework knows: "hardware", "driver",
        ... Empty for a device that is not the framework's."""

    def allowed(self, device: str) -> tuple[str, ...]:
        """The device modes that the framework's flags allow on a device: "tf32", "tf32 in convolution"."""

    def memory_left(self, device: Device) -> int | None:
        """Bytes that nobody has taken of a device's own memory; None for the host's, and where it is unknown."""

    def release_memory(self, device: Device) -> None:
        """Give back to the device what the framework keeps of its memory for later calls."""

    def is_device_memory(self, error: BaseException) -> bool:
        """Does this error say that a device's own memory ran out, and not the host's?"""


class CompilerRun(Protocol):
    """What may compile a call."""

    def compilers(self) -> tuple[str, ...]:
        """Their names."""

    def compiler(self, name: str, compile: Compile | None, *, dynamic: bool) -> PythonCompiler:
        """The compiler of that name, or the user's one. dynamic: what it makes serves other sizes as well. Raises
        SettingsError where it cannot work here."""

    def compiler_environment(self, folder: Path, workers: int) -> Mapping[str, str]:
        """Environment variables by which compilers keep what they make in a folder, and leave the other workers of this
        machine their cores."""

    def compiler_error(self, error: BaseException) -> ProbeError | None:
        """NotCompilable or CompilerFailed for an error of a compiler; None for another one."""


class Names(Protocol):
    """What a dump calls: the functions of its names, and arguments that it lost."""

    def candidates(self, namespace: str, api: str, namespaces: Mapping[str, str]) -> tuple[API, ...]:
        """What the recorded name may mean, likeliest first. Raises UnknownAPI where the allow-list has nothing."""

    def completions(self, api: API, args: Sequence[Argument], dtype: str | None) -> Iterable[tuple[str, Any]]:
        """One value for one argument that a dump may not have recorded, after the other, each with its place ("input.2"
        for a gap, "kwargs.dim"). args are the recorded positional arguments, with Lost in gaps, dtype is that of the
        first recorded output."""
        return ()

    def solved(self, api: API, args: Sequence[Any], output: np.ndarray) -> Iterable[Mapping[str, Any]]:
        """What lost arguments may have been, as the first stored output shows: values by their places. args have arrays
        for tensors."""
        return ()

    def apis(self) -> Iterable[str]:
        """All that a recorded name may mean, as dumps call it ("Functional.gelu")."""

    def known(self, function: Callable[..., Any]) -> tuple[str, Callable[..., Any]]:
        """What a dump calls a function of the framework's, and the framework's own where a user has put this one in its
        place; "" and the function itself for any other."""
        return "", function


class Calls(Protocol):
    """One call, forward and backward, from arrays to arrays. name is what dumps call the framework whose records they
    are, package the module whose functions are called. translates: are the records another framework's, whose calls a
    map leads to?"""

    name: str
    package: str
    translates: bool

    def writes_to(self, target: Any, tensor: Any) -> Any:
        """Put a tensor of the framework's into another one, as an API that works in place does; the latter. Raises
        Unsupported for one of another shape."""

    def check_arguments(self, call: BoundCall, /) -> None:
        """Raises UnsafeArguments where a kernel of the call would not notice that they are wrong, and may end the
        process."""

    def bytes_inside(self, name: str, function: Callable[..., Any], arguments: Arguments, way: Way, limit: int) -> int:
        """Bytes of tensors that the reference's run of a call holds at a time, its arguments apart, found before any
        are taken; 0 where they are certain to be below the limit. name is the API's canonical one."""

    def run(self, function: Callable[..., Any], arguments: Arguments, way: Way, wanted: Wanted | None = None) -> Run:
        """Make a call. Raises whatever the call raises."""

    def bind(self, arguments: Arguments, way: Way, wanted: Wanted | None) -> Bound:
        """The arguments of a call that somebody else makes; what it returns goes to `left`."""

    def left(self, bound: Bound, result: Any) -> Run:
        """What such a call left. Raises Unsupported for a tensor that has no place in NumPy."""

    def take(self, value: Any, device: Device) -> Any:
        """An argument tree of the framework's own values with a Leaf for each tensor, and specs, as `run` takes it.
        Raises Unsupported for a tensor that has no place in NumPy."""

    def returned(self, run: Run) -> Returned:
        """How the outputs of a run lie on its device."""

    def would_return(self, function: Callable[..., Any], arguments: Arguments, way: Way, *, computed: bool) -> Returned:
        """What a call returns in its own dtypes on the way's device; not computed: found from shapes and dtypes alone.
        Raises whatever the call raises, and where it asks for values that are not there."""

    def gradients(self, run: Run, seeds: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Gradients of the wanted arguments, given those of the outputs. Arguments without one are left out."""

    def keeps(self, device: Device) -> bool:
        """Can the tensors of runs on a device stay there?"""
        return False

    def placed(self, where: str) -> Placed | None:
        """Copies of arguments on the device of that name, which runs may use; None where arguments are copied for each
        run."""
        return None

    def threads(self, count: int, way: Way) -> AbstractContextManager[Executor | None]:
        """Threads in which several runs may be made at the same time, each kernel in one thread; None where only one
        run may be made at a time."""
        return nullcontext()

    def has_no_kernel(self, error: BaseException) -> bool:
        """Does this error of a device say that it has no kernel for the call?"""


class References(Protocol):
    """How a function becomes its own reference, or another one is called."""

    def reference(self, api: str, bound: BoundCall) -> Callable[..., Any] | None:
        """The formula of a recorded API ("NPU.npu_swiglu") that the framework itself has no float64 function of; None
        for any other. bound: the arguments, in their own dtypes. Raises NoReference for a known reason, BrokenCall
        where the API does not take these arguments."""
        return None

    def as_single(self, function: Callable[..., Any], largest: float, name: str) -> Callable[..., Any]:
        """The function with defaults that its API takes from the dtype of its tensors: an eps as for float32, in the
        place of inf the largest number. name is the API's canonical one, "" where that is not known."""

    def rounded(self, tensor: Any, dtype: str) -> Any:
        """A tensor of the framework's with the values that a dtype has, in its own; gradients pass as they
        are."""

    def border(self, tensor: Any) -> Any:
        """A tensor of the framework's as it passes a border between two kernels: itself, but in runs that round there,
        which round the values and their gradient."""

    def widened(self, reference: Callable[..., Any]) -> Widened:
        """A user's reference, of which float64 runs see no narrower floating dtype."""

    def functions(self, function: Callable[..., Any], reference: Callable[..., Any]) -> Functions:
        """A function and its reference, where a Module is a function of its parameters and buffers: the function's own,
        which the reference is given as well. Raises SettingsError where two Modules have others."""


class Kernels(Protocol):
    """What is known of the kernels that a call runs."""

    def kernels(self, run: Callable[[], object]) -> tuple[Kernel, ...]:
        """The kernels that run, in their order; none where nobody sees them."""
        return ()

    def noting_choices(self, function: Callable[..., Any], noted: list[Choice]) -> Callable[..., Any]:
        """The function, which adds to `noted` each choice among elements that it makes, in their order."""

    def choosing_otherwise(self, function: Callable[..., Any], seed: int) -> Callable[..., Any]:
        """The function, whose choices fall on others of equal elements: on the last one for seed 0, else on any."""
        return function

    def rounding_once(self) -> AbstractContextManager[Callable[[], bool]]:
        """In here, on the framework's CPU, operators of the framework's own that round to 16 bit inside round once.
        What it gives says at the end whether there was one."""
        return nullcontext(lambda: False)

    def casts(self, path: str, kind: str = "cpu") -> bool:
        """Does an autocast, of a kind of device, cast the arguments of this function itself, rather than those of calls
        inside it?"""
        return False

    def composing(self, kind: str, dtype: str) -> Any:
        """The CPU as a device, where calls are made of others as under an autocast of another kind of device. Its
        `narrow` has the names of the kernels that gave 16 bit. Raises NotImplementedError where that is not known."""

    def all_bits(self) -> AbstractContextManager[None]:
        """Products and convolutions of float32 on an accelerator keep all bits in here, whatever its flags allow."""
        return nullcontext()

    def plain_convolutions(self, dtype: str) -> bool:
        """Are the CPU's convolutions of a 16-bit dtype the framework's own, and no library's?"""
        return False

    def computes_narrow(self, dtype: str) -> bool:
        """Do the CPU's kernels of a 16-bit dtype round to it inside, in unknown steps?"""
        return False

    def known_findings(self, comparison: Comparison) -> Iterable[KnownFinding]:
        """What the installed release is known to compute wrongly on the CPU, of what this output shows."""
        return ()


class Measuring(Protocol):
    """How long a call takes, and how much memory."""

    def clock(self, device: Device) -> Clock:
        """The device's time: by events on its stream where the framework has them, else the host's around what the
        device does."""

    def repeated(self, call: MeasuredCall) -> AbstractContextManager[Repeated]:
        """The call as it is made again and again in here. Raises whatever its first run raises."""

    def memory_use(self, device: Device, call: Callable[[], object]) -> MemoryUse | None:
        """What a call takes of a device's memory; None where nothing counts it."""

    def last_level_cache(self, device: Device) -> int:
        """Bytes of the last cache before a device's memory; 0 where it is unknown."""

    def yardsticks(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """The framework's copy of its first tensor into its second, and its product of two matrices."""


class Zones(Protocol):
    """A tensor inside a larger memory of its own: what lies before and behind it no call may read or write."""

    tensor: Any

    def fill(self, number: float) -> None:
        """Write that number all around the tensor, NaN or a large one, as its dtype has it; of integers 0 or 1."""

    def damage(self) -> str:
        """Where something was written since: "1 element behind its last"; "" where nothing was."""


class Memory(Protocol):
    """Where tensors lie, and what shows that a call touches memory that is not its own. What a framework cannot do of
    that is None, or does nothing."""

    def zones(self, tensor: Any, elements: int) -> Zones | None:
        """The tensor's copy, laid out and aligned alike, with zones of so many elements around it; None for one whose
        elements share memory."""
        return None

    def at_page_end(self, tensor: Any) -> Any | None:
        """The tensor's copy on the CPU, laid out alike, which ends at the end of a page, but for its alignment; the
        page behind it ends the process that touches it."""
        return None

    def refilled(self, tensor: Any, values: Any) -> Any:
        """A tensor on the memory of the first, with the values of the second written to it."""

    def fill(self, tensor: Any, number: float) -> None:
        """Write a number to each element: of integers 0 for NaN, 1 for another one."""

    def allocations(self, change: Callable[[Any], Any]) -> AbstractContextManager[Any]:
        """What Python code in here allocates without writing to it is what change makes of it."""
        return nullcontext()

    def unwritten(self, device: Device, like: Sequence[np.ndarray], number: float) -> AbstractContextManager[bool]:
        """In here memory of these sizes is full of the number, NaN or a large one, until it is written to: on the CPU,
        whose memory gets bytes, of a large negative one for NaN. Gives whether the device's allocator does that."""

    def side_stream(self, device: Device, busy: int = 1) -> AbstractContextManager[Callable[[], bool]] | None:
        """A second stream of the device's, on which everything in here runs; None where it has no streams. busy: the
        milliseconds of work that the process's own stream gets first, about. It gives whether that work still runs."""
        return None


class Files(Protocol):
    """Saved tensors, and scripts that make a call again."""

    def save(self, path: Path, arrays: Mapping[str, np.ndarray]) -> None:
        """Write named arrays as the framework's own tensors."""

    def script(self, title: str, name: str, path: str, arguments: Arguments, wanted: Sequence[str]) -> str:
        """The text of a script `name` next to saved arrays, which makes the call at a path again, or shows both sides
        where it has none, and prints actual, expected and error."""

    def literal_script(self, found: LiteralCall) -> str:
        """The text of a script that makes a call with its values written out, on a device and in float64, and prints
        actual, expected and error; "" where the call cannot be written down."""


class Framework(Process, Devices, CompilerRun, Names, Calls, References, Kernels, Measuring, Memory, Files, Protocol):
    """One framework, as the execution needs it. What most frameworks have nothing for says so itself: those with a
    Python API inherit it."""


class Signatures(Protocol):
    """What a framework's APIs and their parameters are called elsewhere."""

    def canonical(self, api: str) -> str:
        """The API's canonical name, without namespace and in-place mark: "linear" of "Functional.linear"."""

    def bind(self, api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> BoundCall:
        """The arguments of a call by the canonical names of its API's parameters."""

    def call(self, api: str, given: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and keyword arguments by which an API takes values that are given by canonical names."""

    def spelled(self, glob: str) -> str:
        """A glob with the framework's own spelling of an API replaced by the dump's."""

    def written(self, dtype: str) -> tuple[str, str, str]:
        """What a dump calls the type of a tensor, that of a dtype, and the dtype of this name."""
