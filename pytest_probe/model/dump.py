"""What a dump says, as plain data: dumps, entries, records and the arguments of a call.

What no item replays is in the dump all the same: `Record.node` has gradients of the last autograd node,
`Dump.gradients` gives all that a record has, for `show` and for comparisons of dumps, and `Dump.compare_only` has what
such comparisons alone can use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct, field

from pytest_probe.errors import RecordError
from pytest_probe.numerics.scaled import BlockStatistics

Direction: TypeAlias = Literal["forward", "backward"]
Number: TypeAlias = "float | int | bool"

# What msprobe's dumps call the fields of an argument, a named argument, and an incoming gradient.
FIELDS: Mapping[str, str] = {"input": "input_args", "kwargs": "input_kwargs", "grad": "input"}
# The folder of tensors next to a dump, which is no dump itself.
TENSOR_FOLDER = "dump_tensor_data"


class TensorSpec(Struct, frozen=True):
    """A tensor as a dump describes it.

    dtype is the bare NumPy-like name ("float32", "bfloat16", "complex64", "int64", "bool", "float8_e4m3fn").
    max, min, mean and norm (2-norm) are of the tensor's values, of their absolute value where it is complex, None
    where the dump has none; low and high are the finite extremes, where the dump has them as well as NaN or inf.
    nan, inf and true count elements (inf: of both signs, negative_inf: of one), None where the dump has none.
    zeros is the share of elements that are zero, mode the most frequent other finite value and its share,
    constant_rows the share of rows (along the last dimension) whose elements are equal, and the value where those
    rows have the same one. zeros is None where the dump tells none of the three; otherwise None means that it has no
    such value. blocks are there for numbers whose scales stand next to them in the call. stride is in elements, None
    where they lie in order; address is where the first one lay: views of the same memory have the same one. values are
    the elements in their order, where the dump has them in addition to the statistics, as of few integers. data_name is
    the file that holds the values, as a bare name; None where only statistics were kept. data_key is the tensor's name
    in a file that holds many, "" for a file of its own. checksum is the dump's text for the bytes of the values, ""
    where it has none: equal bytes have equal ones, if one release of one tool wrote both. ndarray: it was no tensor,
    but an array of NumPy's. place is where the dump tells of it ("line 7"), "" where its path in the entry says that.
    """

    dtype: str
    shape: tuple[int, ...]
    max: Number | None = None
    min: Number | None = None
    mean: float | None = None
    norm: float | None = None
    high: float | None = None
    low: float | None = None
    requires_grad: bool = False
    data_name: str | None = None
    data_key: str = ""
    checksum: str = ""
    nan: int | None = None
    inf: int | None = None
    negative_inf: int | None = None
    true: int | None = None
    zeros: float | None = None
    mode: tuple[float, float] | None = None
    constant_rows: tuple[float, float | None] | None = None
    blocks: BlockStatistics | None = None
    stride: tuple[int, ...] | None = None
    address: int | None = None
    values: tuple[int, ...] | None = None
    ndarray: bool = False
    place: str = ""

    @property
    def size(self) -> int:
        """Number of elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def span(self) -> int:
        """Number of elements from the first to the last in memory, as strides lay them out."""
        if self.stride is None or not self.size:
            return self.size
        return 1 + sum((extent - 1) * stride for extent, stride in zip(self.shape, self.stride, strict=True))


class DtypeSpec(Struct, frozen=True):
    """A dtype that was passed as an argument, by its bare name."""

    name: str


class DeviceSpec(Struct, frozen=True):
    """A device that was passed as an argument; the replay puts the device under test in its place."""

    name: str


class MemoryFormatSpec(Struct, frozen=True):
    """A memory format that was passed as an argument, as "channels_last"."""

    name: str


class SizeSpec(Struct, frozen=True):
    """A torch.Size that was passed as an argument."""

    shape: tuple[int, ...]


class GroupSpec(Struct, frozen=True):
    """A group of ranks that was passed as an argument; name is what the dump calls it."""

    ranks: tuple[int, ...]
    name: str = ""


class Communication(Struct, frozen=True):
    """What a capture of ours knows of a collective in addition to its arguments.

    ranks took part, () where it does not say, rank is this one; order is the place of the call among those of the rank.
    waited: had the program waited when the results were recorded? None where that is not known. backend made the call.
    """

    ranks: tuple[int, ...] = ()
    rank: int | None = None
    order: int | None = None
    waited: bool | None = True
    backend: str = ""


class Lost(Struct, frozen=True):
    """An argument that the dump does not hold: `{}`, as positional dtypes and devices are written, or a gap."""


# An argument: a leaf above; None, bool, int, float, complex, str, slice or Ellipsis as themselves; a list, tuple or
# dict of arguments.
Argument: TypeAlias = Any
# Gradients by name; None where there was none.
Gradients: TypeAlias = "Mapping[str, TensorSpec | None]"


class Surroundings(Struct, frozen=True):
    """What a capture of ours knows of a call in addition to its arguments, where others leave it to be guessed.

    autocast is the dtype that each kind of device was under ("cpu": "bfloat16"); it has no entry for a device without
    one. default is what the program had made torch's default dtype, "" where that was as ever. grad tells whether
    gradients were recorded, as they are not under no_grad. modes are allowed by the framework's flags on the
    program's accelerator ("tf32 in convolution").
    """

    autocast: Mapping[str, str] = field(default_factory=dict)
    default: str = ""
    grad: bool = True
    modes: tuple[str, ...] = ()


class Call(Struct, frozen=True):
    """A decoded record: the arguments of one call, what it returned, and the gradients that came back to it.

    outputs is None where the dump kept none. gradients holds the incoming gradients of the outputs, in their order
    (None for an output without one); it is None where the record has no backward entry. seeded names the outputs that
    they belong to ("output.0"), None where the dump does not say; outgoing are the gradients that the arguments got, by
    name ("kwargs.weight"), None where the dump has none. unrecorded says why a capture could not record the backward.
    surroundings are None where the dump tells neither tuples from lists nor autocast. partial: keyword arguments, and
    some positional ones, were never recorded, so that only the stored outputs tell whether these are all; notes say
    what was put in their place. communication is there for a collective that a capture of ours recorded.
    """

    args: tuple[Argument, ...]
    kwargs: Mapping[str, Argument]
    outputs: tuple[Argument, ...] | None
    gradients: tuple[TensorSpec | None, ...] | None
    seeded: tuple[str, ...] | None = None
    outgoing: Mapping[str, TensorSpec | None] | None = None
    unrecorded: str = ""
    surroundings: Surroundings | None = None
    partial: bool = False
    notes: tuple[str, ...] = ()
    communication: Communication | None = None

    def tensors(self) -> list[tuple[str, TensorSpec]]:
        """Those among the arguments, by their places ("input.0", "kwargs.weight")."""
        return [*named_tensors(self.args, "input"), *named_tensors(self.kwargs, "kwargs")]

    def returned(self) -> list[tuple[str, Argument]]:
        """The recorded outputs by name ("output.0"), but for None."""
        return [(name, value) for name, value in leaves(self.outputs, "output") if value is not None]

    def output_specs(self) -> list[TensorSpec]:
        """The recorded outputs that are tensors."""
        return [value for _, value in self.returned() if isinstance(value, TensorSpec)]


class Record(Struct, frozen=True):
    """One captured call of one API: its forward entry, and its backward entry where there is one.

    name is the entry name without direction ("Functional.linear.0"), namespace its first part ("Functional"), api
    what lies between ("linear", "linalg.norm"), number the call number. forward and backward are the raw entries. node
    is the raw backward entry of a dump that has the gradients of the last autograd node only: no item replays those.
    """

    name: str
    namespace: str
    api: str
    number: int
    forward: Any
    backward: Any = None
    node: Any = None

    @property
    def directions(self) -> tuple[Direction, ...]:
        if self.forward is None:
            return () if self.backward is None else ("backward",)
        return ("forward",) if self.backward is None else ("forward", "backward")


class Frame(Struct, frozen=True):
    """One stack frame: file, line number (from 1), function and source line."""

    file: str
    line: int
    function: str
    code: str

    @property
    def description(self) -> str:
        """Where that is, and what is written there."""
        return f"{self.file}:{self.line} in {self.function}: {self.code.strip()}"


def place_lines(frame: Frame | None, library: Frame | None, module: str) -> Iterator[str]:
    """Where a call was made: the user's own line, that of a library, and the module; each where it is known."""
    for words, found in (("called at", frame), ("through", library)):
        if found is not None:
            yield f"{words} {found.description}"
    if module:
        yield f"of the module {module}"


def no_modules(entry: str) -> tuple[str, ...]:
    """Most formats tell of none."""
    return ()


def no_frames(entry: str) -> tuple[Frame, ...]:
    """The same of a format without stacks."""
    return ()


class Dump(Struct, frozen=True):
    """A dump that was read; its records are raw until `decode` is asked.

    compare_only are records that another dump's are compared with and that nothing replays, as those of modules: decode
    gives what their entries have, where there is no forward entry the gradients alone.
    notes are remarks for the header (unknown keys, duplicate entries), damage is what makes the dump fail as a whole,
    in addition to its good records, skipped names the entries that are no API calls, by kind ("Module entries": 12).
    data_dirs are the folders in which `data_name` is looked up, in order; links in them lead nowhere outside the dump's
    folder, unless anywhere says that the user chose them. gradient_dirs are those of the files of gradients, where a
    format keeps them apart. fields says what the format calls the places of tensors. observed gives all gradients
    that a record has, by the names in its backward entry ("input.0" came in, "output.1" went out), and raises as decode
    does; modules the modules that an entry's call was made in, innermost first.
    """

    path: Path
    framework: str
    task: str
    level: str
    records: tuple[Record, ...]
    decode: Callable[[Record], Call]
    stack: Callable[[str], tuple[Frame, ...]]
    data_dirs: tuple[Path, ...] = ()
    gradient_dirs: tuple[Path, ...] = ()
    anywhere: bool = False
    compare_only: tuple[Record, ...] = ()
    notes: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=lambda: FIELDS)
    observed: Callable[[Record], Gradients] | None = None
    modules: Callable[[str], tuple[str, ...]] = no_modules

    def readable(self, record: Record) -> Call | None:
        """The call of a record; None where that is broken, as its item says."""
        try:
            return self.decode(record)
        except RecordError:
            return None

    def gradients(self, record: Record) -> Gradients:
        """All gradients that the dump has of a record, by their names in its backward entry. Raises RecordError."""
        if self.observed is not None:
            return self.observed(record)
        call = self.decode(record)
        incoming = {f"input.{index}": spec for index, spec in enumerate(call.gradients or ())}
        outgoing = {f"output.{name}": spec for name, spec in (call.outgoing or {}).items()}
        return {**incoming, **outgoing}


class Reader(Protocol):
    """A dump format. Recognises files by their content, never by their name."""

    name: str

    def sniff(self, path: Path, head: bytes) -> bool:
        """Is this file such a dump? head is its beginning, at most 64 KiB."""

    def read(self, path: Path) -> Dump:
        """Read the dump. Raises DumpError where nothing in it can be used; anything less ends in `Dump.damage`."""


# To ask an abstract class costs as much as all else that is done with a leaf. Most are known by their types.
TREES = (dict, Mapping)
_NESTED = (list, tuple, *TREES)
ATOMS: frozenset[type] = frozenset((int, float, bool, str, type(None), TensorSpec))


def leaves(tree: Argument, path: str = "") -> Iterator[tuple[str, Argument]]:
    """All leaves of an argument tree, each with its dotted path ("0", "1.0", "mask")."""
    if isinstance(tree, (list, tuple)):
        items: Iterable[tuple[Any, Argument]] = enumerate(tree)
    elif isinstance(tree, TREES):
        items = tree.items()
    else:
        yield path, tree
        return
    for key, value in items:
        place = f"{path}.{key}" if path else str(key)
        if type(value) in ATOMS or not isinstance(value, _NESTED):
            yield place, value
        else:
            yield from leaves(value, place)


def named_tensors(tree: Argument, path: str = "") -> Iterator[tuple[str, TensorSpec]]:
    """All tensors of an argument tree, each with its dotted path."""
    return ((place, leaf) for place, leaf in leaves(tree, path) if isinstance(leaf, TensorSpec))
