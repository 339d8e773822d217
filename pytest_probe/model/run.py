"""The arguments of a call as frameworks take them, the way in which it runs, and what the run left: plain data, NumPy's
arrays in the place of tensors.

Arguments are walked once: `Arguments` keeps its leaves, tensors and dtypes by name, since a dozen rooms ask for them.
Which side of a case runs at this moment is said to one listener, since native code may end the process.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Any, Literal, ParamSpec, Protocol, TypeAlias, TypeVar

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_probe.model.device_arrays import DeviceArray
from pytest_probe.model.device_modes import Mode
from pytest_probe.model.dump import ATOMS, TREES, leaves
from pytest_probe.numerics.dtypes import is_inexact
from pytest_probe.numerics.float32_sums import Order


class Leaf(Struct, frozen=True):
    """A tensor argument on its way to the framework: its values, already in the case's dtype.

    strides, in elements, lay it out as a test's own tensor was, or a recorded one; None: in order. offset is how many
    elements after an aligned address it begins, as a view may. there has the same values on a device, for one run.
    """

    array: np.ndarray
    requires_grad: bool = False
    strides: tuple[int, ...] | None = None
    offset: int = 0
    there: DeviceArray | None = None


class Array(Struct, frozen=True):
    """An argument that is an array of NumPy's, and stays one: each run gets a copy, on the host, with floats as wide as
    those of the reference's tensors."""

    array: np.ndarray


class Arguments(Struct, frozen=True, dict=True):
    """The arguments of a call with a Leaf for each tensor, an Array for each of NumPy's, everything else as recorded.

    gradients are the incoming gradients of the outputs; None where the record has no backward entry.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    gradients: tuple[Leaf | None, ...] | None

    @cached_property
    def named(self) -> tuple[tuple[str, Any], ...]:
        """All leaves of the tree, tensors or not, by name."""
        return (*leaves(self.args, "input"), *leaves(self.kwargs, "kwargs"))

    @cached_property
    def tensors(self) -> Mapping[str, Leaf]:
        """All tensor arguments by name."""
        return {name: value for name, value in self.named if isinstance(value, Leaf)}

    @cached_property
    def dtypes(self) -> Mapping[str, np.dtype[Any]]:
        """The dtypes of the tensors that hold real or complex numbers, by name."""
        return floats_of(self.tensors)

    def bound(self, api: str, bind: Bind) -> BoundCall:
        """The arguments by the names of an API's parameters, as its framework binds them; bound once."""
        if api not in self._bound:
            self._bound[api] = bind(api, self.args, self.kwargs)
        return self._bound[api]

    @cached_property
    def _bound(self) -> dict[str, BoundCall]:
        return {}


Bind: TypeAlias = "Callable[[str, tuple[Any, ...], dict[str, Any]], BoundCall]"


class BoundCall(Struct, frozen=True):
    """A call whose arguments have the names of its API's parameters, as the framework's signature binds them.

    api is the name that a dump gives it ("Functional.linear"); name is the canonical one, which all spellings of the
    API share ("linear"), "" where nothing is known of the function; in_place tells that its name says that it writes to
    its first argument, native that the framework itself has it and no module that a user added. given holds the
    arguments by parameter, those without one by their place ("input.3"), with whatever represents tensors; defaults are
    those of the signature; paths says where each stood in the call ("input.1", "kwargs.weight").
    """

    api: str
    name: str
    in_place: bool
    native: bool
    given: Mapping[str, Any]
    paths: Mapping[str, str]
    defaults: Mapping[str, Any]

    def argument(self, name: str) -> Any:
        """The value of a parameter: as given, else its default; None where the API has no such parameter."""
        return self.given[name] if name in self.given else self.defaults.get(name)

    def array(self, name: str) -> np.ndarray | None:
        """The tensor that an argument is, None for anything else."""
        value = self.argument(name)
        return value.array if isinstance(value, Leaf) else None

    def at(self, path: str) -> Any:
        """The argument at a place of the call ("input.1"); None without one."""
        return next(
            (self.given[name] for name, place in self.paths.items() if place == path and name in self.given), None
        )

    @property
    def arrays(self) -> list[np.ndarray]:
        """The arguments that are arrays, but for those inside lists, in the order of the call. What a parameter takes
        in any number (the operands of einsum) is in no list."""
        values = itertools.chain.from_iterable(
            value if f"{name}.0" in self.paths else (value,) for name, value in self.given.items()
        )
        return [value for value in values if isinstance(value, np.ndarray)]

    @property
    def all_arrays(self) -> list[np.ndarray]:
        """The arrays of the arguments, those inside lists as well."""
        found: list[np.ndarray] = []

        def note(leaf: Any) -> Any:
            if isinstance(leaf, np.ndarray):
                found.append(leaf)
            return leaf

        self.mapped(note)
        return found

    def mapped(self, change: Callable[[Any], Any]) -> BoundCall:
        """The call with every leaf of its arguments replaced by change(leaf)."""
        given = {name: map_tree(value, "", lambda leaf, _: change(leaf)) for name, value in self.given.items()}
        return replace(self, given=given)


_LEAVES = ATOMS | {Leaf, Array}


def mapped(arguments: Arguments, change: Callable[[Any, str], Any]) -> Arguments:
    """The arguments with every leaf of the tree (tensor or not) replaced by change(leaf, name)."""
    args, kwargs = map_tree(arguments.args, "input", change), map_tree(arguments.kwargs, "kwargs", change)
    return Arguments(args, kwargs, arguments.gradients)


def map_tree(tree: Any, path: str, change: Callable[[Any, str], Any]) -> Any:
    """A tree of lists, tuples and dicts with every leaf replaced by change(leaf, path); a path is "input.1.0"."""
    if isinstance(tree, (list, tuple)):
        return type(tree)([_mapped(value, f"{path}.{index}", change) for index, value in enumerate(tree)])
    if isinstance(tree, TREES):
        return {key: _mapped(value, f"{path}.{key}", change) for key, value in tree.items()}
    return change(tree, path)


def _mapped(value: Any, path: str, change: Callable[[Any, str], Any]) -> Any:
    return change(value, path) if type(value) in _LEAVES else map_tree(value, path, change)


def with_value(arguments: Arguments, path: str, value: Any) -> Arguments:
    """The arguments with another value at the place of one of them ("input.4", "kwargs.eps"), or with one more."""
    kind, _, name = path.partition(".")
    if kind == "kwargs":
        return replace(arguments, kwargs={**arguments.kwargs, name: value})
    place = int(name)
    return replace(arguments, args=(*arguments.args[:place], value, *arguments.args[place + 1 :]))


def with_leaves(arguments: Arguments, leaves: Mapping[str, Leaf]) -> Arguments:
    return mapped(arguments, lambda value, name: leaves[name] if isinstance(value, Leaf) else value)


def floats_of(leaves: Mapping[str, Leaf]) -> dict[str, np.dtype[Any]]:
    found = ((name, leaf.array.dtype) for name, leaf in leaves.items())
    return {name: dtype for name, dtype in found if is_inexact(dtype)}


class Device(Protocol):
    """A device under test: how tensors get there, how a call is made there, how they come back.

    Tensors are the framework's own, on the CPU on either side of put and get.
    """

    name: str

    def put(self, tensor: Any) -> Any:
        """Copy a CPU tensor to the device."""

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Make the call on the device."""

    def get(self, tensor: Any) -> Any:
        """Bring a tensor back to the CPU; waits for the device."""


# --probe-device=recorded: the outputs that a dump stored are judged, and no device runs.
RECORDED = "recorded"
# What of a process's settings (flags, modes) a run meets: none of what the user has set; that but for what
# belongs to the call (default dtype, default device, autocast), which its record tells; or all of it. Gradients are on
# where a run is asked for them, in each.
State: TypeAlias = Literal["fixed", "recorded", "users"]
# Its name, whether it computes in float32 what is 16 bit, and whether all numbers that it takes are of 16 bit.
Kernel: TypeAlias = tuple[str, bool, bool]


# What kernels of an accelerator a call is made of: each rounds once; attention's as well, which is not fused; or the
# framework's own that compute in 16 bit inside; or kernels that an autocast of the recorded kind of device casts for.
Composition: TypeAlias = Literal["composed", "separate", "stepwise", "cast"]
# In how many orders such a kernel may multiply three factors.
PRODUCTS = 3


class Steps(Struct, frozen=True):
    """Round what passes from step to step inside a call to dtype; fine splits kernels into their decompositions, whose
    library functions are off by what seed draws. wide names the arguments that are wider than dtype themselves. own:
    the call runs in its own dtypes, as under an autocast inside it, each kernel's results being float64's, rounded
    once; elsewhere: its kernels are an accelerator's, and which, seed their order of factors and of atomic additions,
    atomic: with such sums by an index; products: of 16-bit operands, also where the CPU has those in float32. kernels
    run in the call's own dtypes; what they compute in float32 is not rounded to dtype, but when one that takes 16 bit
    alone takes it. by_chance: a value between two numbers of dtype becomes either neighbour. computed: what is rounded
    was computed in float32, and is off by what seed draws. overflows: fine steps may lead beyond the dtype's range.
    order: sums are added in float32 in that order, and functions are rounded correctly. places: only results of these
    numbers are rounded, counted from 0 as the call makes them; None: all."""

    dtype: str
    fine: bool
    seed: int = 0
    wide: frozenset[str] = frozenset()
    own: bool = False
    elsewhere: Composition | None = None
    atomic: bool = True
    products: bool = False
    by_chance: bool = False
    computed: bool = False
    overflows: bool = False
    kernels: tuple[Kernel, ...] = ()
    order: Order | None = None
    places: frozenset[int] | None = None


class Jitter(Struct, frozen=True):
    """Move the results of kernels, and the operands of products, by `size` of themselves. What a mode rounds is off by
    as much as its rounding, to either side: equal numbers alike, by the seed."""

    size: float
    seed: int = 0


class Way(Struct, frozen=True):
    """How a run is made: on `device` in the arguments' own dtypes, or as a reference with all floats as `dtype`, there
    as under a device mode, with jitter where runs shall tell what rounding does under it; `place` is a reference's
    device. default is the framework's default dtype on a device, "" as it is under `state`. border is the dtype that a
    reference's borders round to, "" for none. placing is given each tensor argument of the framework's, with its name,
    and gives the tensor that the call gets: where shall it lie? inside gives a context for the call, and for that of
    its gradients, when all arguments are there; None: nothing. stays: tensors that it gives stay on their device, where
    the framework has such arrays."""

    device: Device | None = None
    dtype: str = ""
    autocast: str = ""
    default: str = ""
    steps: Steps | None = None
    mode: Mode | None = None
    jitter: Jitter | None = None
    place: str = "cpu"
    state: State = "fixed"
    border: str = ""
    placing: Callable[[str, Any], Any] | None = None
    inside: Callable[[], AbstractContextManager[Any]] | None = None
    stays: bool = False

    def entered(self) -> AbstractContextManager[Any]:
        """What the call is made in."""
        return nullcontext() if self.inside is None else self.inside()


class Wanted(Struct, frozen=True):
    """Which arguments of a run require grad, by name: those are what it can give gradients of. `copies` where the call
    works in place; grad: the mode in which gradients are recorded is on; marked require grad as well, and their
    gradients are not asked for."""

    names: frozenset[str] = frozenset()
    copies: bool = False
    grad: bool = True
    marked: frozenset[str] = frozenset()


class MeasuredCall(Struct, frozen=True):
    """A call that is made again and again: on its way's device, on so many copies of the arguments (sets) in turn.
    wanted is what it records gradients for, writes names the arguments that it writes to. With incoming gradients, by
    output, the gradients of what is wanted are the call."""

    function: Callable[..., Any]
    arguments: Arguments
    way: Way
    wanted: Wanted | None = None
    writes: frozenset[str] = frozenset()
    sets: int = 1
    incoming: Mapping[str, np.ndarray] | None = None


class MemoryUse(Struct, frozen=True):
    """Bytes that a call held at its peak beyond what was there before it, and the bytes that are left while its result
    is; source says what counted them."""

    peak: int
    growth: int
    source: str


class Run(Struct):
    """What a run left.

    outputs holds every return value by name ("output.0", "output.1.0"): an array, or a Python scalar as itself.
    changed names the arguments that the call wrote to; after(name) gives an argument's value after the call.
    returned maps an output to the argument that it is ("output.0": "input.0" of an in-place call). left gives such an
    argument as it lies, on its device where it stays there; None where none does.
    """

    outputs: Mapping[str, Any]
    changed: frozenset[str]
    after: Callable[[str], np.ndarray]
    returned: dict[str, str] = field(default_factory=dict)
    differentiable: tuple[str, ...] = ()
    handle: Any = None
    left: Callable[[str], DeviceArray] | None = None

    def argument(self, name: str) -> np.ndarray | DeviceArray:
        """What an argument is after the call, as it lies."""
        return self.after(name) if self.left is None else self.left(name)

    def release(self) -> None:
        """Let go of the framework's tensors: gradients and what is in arguments can be asked for no more."""
        self.handle, self.left, self.after = None, None, _released


def _released(name: str) -> np.ndarray:
    raise LookupError(f"{name}: the tensors of this run were let go")


class Layout(Struct, frozen=True):
    """A tensor that a call returned, but for its values: place is what the framework calls the device that it lies on,
    there tells that it is the one the call was made on; strides are in elements."""

    dtype: str
    place: str
    there: bool
    strides: tuple[int, ...]


class Returned(Struct, frozen=True):
    """What a call returned, but for the values: structure ("(tensor, tensor)", "{a: tensor}"), which is the same for
    lists and tuples, the layouts of the tensors by output, and the types of those outputs of which nothing can be
    compared."""

    structure: str
    layouts: Mapping[str, Layout]
    unknown: Mapping[str, str]


# "" is code of ours or of the project's, which is neither side's.
Side: TypeAlias = Literal["", "device", "reference"]
Listener: TypeAlias = Callable[[Side], None]
Given = ParamSpec("Given")
Found = TypeVar("Found")


class _Sides:
    current: Side = ""
    listener: Listener | None = None


@contextmanager
def side_listener(listener: Listener) -> Iterator[None]:
    """In here the listener is called before each side runs, and after it."""
    before, _Sides.listener = _Sides.listener, listener
    try:
        yield
    finally:
        _Sides.listener = before


class on_device:
    """The device under test runs in here."""

    def __enter__(self) -> None:
        self._before = _Sides.current
        _set("device")

    def __exit__(self, *raised: object) -> None:
        _set(self._before)


def on_reference(function: Callable[Given, Found]) -> Callable[Given, Found]:
    """The reference runs in this function, or a run of evidence; inside `on_device` it is that one's."""

    @functools.wraps(function)
    def running(*args: Given.args, **kwargs: Given.kwargs) -> Found:
        before = _Sides.current
        _set(before or "reference")
        try:
            return function(*args, **kwargs)
        finally:
            _set(before)

    return running


def _set(side: Side) -> None:
    before, _Sides.current = _Sides.current, side
    if side != before and _Sides.listener is not None:
        _Sides.listener(side)
