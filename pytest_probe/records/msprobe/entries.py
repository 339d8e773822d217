"""One entry of an msprobe dump, decoded: what the JSON says becomes a Call, or a RecordError that names the field."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from msgspec.structs import replace

from pytest_probe.errors import NotRebuilt, NotRecorded, RecordError
from pytest_probe.model.dump import (
    Argument,
    Call,
    Communication,
    DeviceSpec,
    DtypeSpec,
    Gradients,
    GroupSpec,
    Lost,
    MemoryFormatSpec,
    Record,
    SizeSpec,
    Surroundings,
    TensorSpec,
)
from pytest_probe.numerics.scaled import SHARES, BlockStatistics
from pytest_probe.records.fields import PLAIN, ArgumentFields, Fields, LeafReader, finite, limited_depth, quoted

# The namespaces of modules: PyTorch's and MindSpore's.
MODULES = ("Module", "Cell")
_OF_PARAMETERS = "parameters_grad"


def is_of_parameters(api: str) -> bool:
    """Are the gradients of a module's parameters this record's?"""
    return api.rpartition(".")[2] == _OF_PARAMETERS


def as_written(entry: str) -> str:
    """The key of an entry in the files: a module's has its direction before the number."""
    if entry.partition(".")[0] not in MODULES:
        return entry
    name, _, direction = entry.rpartition(".")
    stem, _, number = name.rpartition(".")
    return name if is_of_parameters(stem) else f"{stem}.{direction}.{number}"


def tensor(fields: Fields, value: Mapping[str, Any], field: str) -> TensorSpec:
    high, low = (fields.number(value, f"{key}_except_inf_nan", field) for key in ("Max", "Min"))
    top, bottom = (fields.number(value, key, field) for key in ("Max", "Min"))
    # In one version of msprobe Max is of all elements, in another of the finite ones; the other one has a longer name.
    if "Max_origin" in value or "Min_origin" in value:
        high, low = top, bottom
        top = fields.number(value, "Max_origin", field)
        bottom = fields.number(value, "Min_origin", field)
    grad = False
    if value.get("requires_grad") is not None:
        grad = fields.need(value, "requires_grad", field, bool, "true or false")
    return TensorSpec(
        fields.dtype(value, "dtype", field),
        fields.tensor_shape(value, field),
        max=top,
        min=bottom,
        mean=fields.real(value, "Mean", field),
        norm=fields.real(value, "Norm", field),
        high=finite(high),
        low=finite(low),
        requires_grad=grad,
        data_name=fields.file_name(value, "data_name", field),
        # The tensor's name in its file, where that holds several: so calls arrive while a program runs.
        data_key=fields.need(value, "data_key", field, str, "the name of a tensor in the file")
        if value.get("data_key") is not None
        else "",
        checksum=fields.checksum(value, "md5", field),
        nan=fields.count(value, "NaN", field),
        inf=fields.count(value, "Inf", field),
        negative_inf=fields.count(value, "Negative_inf", field),
        true=fields.count(value, "True", field),
        **(_masses(fields, value, field) if "zeros" in value else {}),
        blocks=_blocks(fields, value, field),
        stride=_stride(fields, value, field),
        address=fields.count(value, "address", field),
        values=_values(fields, value, field),
    )


def _masses(fields: Fields, value: Mapping[str, Any], field: str) -> dict[str, Any]:
    """What the dump says of values that occur many times."""
    mode, rows = (fields.pair(value, key, field) for key in ("mode", "constant_rows"))
    if mode is not None:
        mode = (finite(mode[0]), fields.share(mode[1], f"{field}.mode.1"))
    if rows is not None:
        rows = (fields.share(rows[0], f"{field}.constant_rows.0"), rows[1])
    if mode is not None and mode[0] is None:
        raise fields.error(f"{field}.mode.0", quoted(value["mode"][0]), "a finite number")
    return {"zeros": fields.share(value["zeros"], f"{field}.zeros"), "mode": mode, "constant_rows": rows}


def _blocks(fields: Fields, value: Mapping[str, Any], field: str) -> BlockStatistics | None:
    if value.get("blocks") is None:
        return None
    found, place = fields.need(value, "blocks", field, dict, "an object of statistics"), f"{field}.blocks"
    blocks, not_finite = (fields.count(found, name, place) for name in ("blocks", "not_finite"))
    binades = finite(fields.real(found, "binades", place))
    if blocks is None or not_finite is None or binades is None:
        raise fields.error(place, quoted(found), "the numbers blocks, binades and not_finite")
    return BlockStatistics(
        blocks, binades, not_finite, *(fields.share(found.get(name), f"{place}.{name}") for name in SHARES)
    )


def _stride(fields: Fields, value: Mapping[str, Any], field: str) -> tuple[int, ...] | None:
    if value.get("stride") is None:
        return None
    stride = fields.shape(value, "stride", field)
    if len(stride) != len(value["shape"]):
        raise fields.error(
            f"{field}.stride", f"{len(stride)} strides", f"one for each of {len(value['shape'])} dimensions"
        )
    return stride


def _values(fields: Fields, value: Mapping[str, Any], field: str) -> tuple[int, ...] | None:
    """The elements of an integer tensor."""
    if value.get("values") is None:
        return None
    values, dtype = fields.need(value, "values", field, list, "a list of integers"), fields.dtype(value, "dtype", field)
    count = math.prod(value["shape"])
    if len(values) != count or "int" not in dtype:
        found = f"{len(values)} values of {dtype}"
        raise fields.error(f"{field}.values", found, f"one for each of {count} elements, and an integer dtype")
    # The least and the largest number of the dtype.
    signed, bits = not dtype.startswith("u"), int(dtype.rpartition("int")[2])
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    for index, one in enumerate(values):
        if isinstance(one, bool) or not isinstance(one, int) or not low <= one <= high:
            raise fields.error(f"{field}.values.{index}", quoted(one), f"an integer that {dtype} holds")
    return tuple(values)


_MEMORY_FORMATS = ("preserve_format", "contiguous_format", "channels_last", "channels_last_3d")


def _memory_format(fields: Fields, value: Mapping[str, Any], field: str) -> MemoryFormatSpec:
    key = "format" if "format" in value else "value"
    text = fields.need(value, key, field, str, "the name of a memory format")
    name = text.removeprefix("torch.")
    if name not in _MEMORY_FORMATS:
        raise fields.error(f"{field}.{key}", quoted(text), f"one of {', '.join(_MEMORY_FORMATS)}")
    return MemoryFormatSpec(name)


def _layout(fields: Fields, value: Mapping[str, Any], field: str) -> None:
    """Raises for other layouts than the usual one, whose tensors no dump holds."""
    name = fields.need(value, "layout", field, str, "the name of a layout")
    if name != "torch.strided":
        raise fields.no_place(f"{field}.layout", f"the layout {name}")


def _device(fields: Fields, value: Mapping[str, Any], field: str) -> DeviceSpec:
    text: str = fields.need(value, "value", field, str, "the name of a device")
    return DeviceSpec(text.removesuffix(":None"))


def _ranks(fields: Fields, value: Mapping[str, Any], key: str, field: str) -> tuple[int, ...]:
    found: list[Any] = fields.need(value, key, field, list, "a list of ranks")
    if not all(type(each) is int and 0 <= each <= _MOST_RANKS for each in found) or len(set(found)) < len(found):
        raise fields.error(f"{field}.{key}", quoted(found), "numbers of ranks, each once")
    return tuple(found)


def _message(fields: Fields, value: Mapping[str, Any], field: str) -> dict[str, Any]:
    """One of the messages of a batch."""
    given = fields.need(value, "tensor", field, dict, "a tensor")
    return {
        "tensor": tensor(fields, given, f"{field}.tensor"),
        "op": fields.need(value, "op", field, str, "isend or irecv"),
        "peer": fields.need(value, "peer", field, int, "the number of a rank"),
        "group": str(value.get("group_id", "")),
    }


# More ranks than any run has.
_MOST_RANKS = 1 << 24


# What reads a leaf, by the name of its type.
LEAVES: Mapping[str, LeafReader] = {
    **PLAIN,
    "dict": lambda fields, value, field: {},
    "torch._C.Generator": lambda fields, value, field: None,  # only the distribution of its numbers is known
    "torch.Size": lambda fields, value, field: SizeSpec(fields.shape(value, "value", field, -1)),  # what is left
    "torch.dtype": lambda fields, value, field: DtypeSpec(fields.dtype(value, "value", field)),
    "torch.device": _device,
    "paddle.dtype": lambda fields, value, field: DtypeSpec(fields.dtype(value, "value", field)),
    "paddle.Place": _device,
    "torch.layout": _layout,
    "torch.memory_format": _memory_format,
    "torch.ProcessGroup": lambda fields, value, field: GroupSpec(
        _ranks(fields, value, "group_ranks", field), str(value.get("group_id", ""))
    ),
    "torch.distributed.ReduceOp": PLAIN["str"],
    "torch.distributed.P2POp": _message,
    "ndarray": lambda fields, value, field: replace(tensor(fields, value, field), ndarray=True),
}


# The types of tensors: of msprobe, and of our own capture of Paddle.
_TENSOR_TYPES = ("torch.Tensor", "torch.nn.parameter.Parameter", "paddle.Tensor")
# Functions to whose result a NumPy scalar gives its dtype, and the kinds of such scalars.
_CONSTRUCTORS = (["Torch", "tensor"], ["Torch", "as_tensor"], ["Torch", "asarray"])
# The dtypes that torch takes for its default.
_DEFAULTS = ("float64", "float32", "bfloat16", "float16")
_NUMPY = frozenset(
    "float16 float32 float64 complex64 complex128 int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
)


class Entry(ArgumentFields):
    """Decodes one entry, of PyTorch's or our own capture's. Raises NotRecorded where it holds no call."""

    leaves: ClassVar[Mapping[str, LeafReader]] = {**LEAVES, **dict.fromkeys(_TENSOR_TYPES, tensor)}

    def __init__(self, path: Path, name: str, raw: Any) -> None:
        super().__init__(path, name)
        self.body = self.object(raw)
        self.probe = self.optional(self.body, "probe", "", dict, "an object of what the capture knows")
        if "failed" in self.probe:
            reason = self.need(self.probe, "failed", "probe", str, "the reason why the call was not recorded")
            raise NotRecorded(path, name, "", f"that the capture could not record it ({reason})", "what was called")
        tuples = self.optional(self.probe, "tuples", "probe", list, "a list of places")
        self._tuples = frozenset(
            f"input_{'args' if root == 'input' else root}.{rest}"
            for root, _, rest in (str(place).partition(".") for place in tuples)
        )

    def call(self) -> Call:
        body = self.body
        args = tuple(self.items(self.need(body, "input_args", "", list, "a list of arguments"), "input_args"))
        kwargs = self.optional(body, "input_kwargs", "", dict, "an object of arguments")
        named = {key: self.argument(value, f"input_kwargs.{key}") for key, value in kwargs.items()}
        # Strings that name devices: `x.to("cuda:0")`, `device="cuda"`.
        if self.name.startswith("Tensor.to."):
            args = tuple(DeviceSpec(value) if isinstance(value, str) else value for value in args)
        if isinstance(named.get("device"), str):
            named["device"] = DeviceSpec(named["device"])
        if body.get("output") is None:
            return Call(args, named, None, None)
        outputs = tuple(self.items(self.need(body, "output", "", list, "a list of outputs"), "output"))
        return Call(args, self.with_scalar_dtype(named, outputs), outputs, None)

    def with_scalar_dtype(self, named: dict[str, Argument], outputs: tuple[Argument, ...]) -> dict[str, Argument]:
        """The arguments of `torch.tensor` and similar functions, with the dtype that NumPy's scalars gave the result: a
        decoded scalar is a plain number, which would give the default dtype."""
        if self.name.split(".")[:2] not in _CONSTRUCTORS or named.get("dtype") is not None:
            return named
        scalars = not _NUMPY.isdisjoint(_kinds(self.body["input_args"]))
        dtype = next((spec.dtype for spec in outputs if isinstance(spec, TensorSpec)), None)
        return {**named, "dtype": DtypeSpec(dtype)} if scalars and dtype is not None else named

    def surroundings(self, modes: tuple[str, ...]) -> Surroundings:
        autocast = self.optional(self.probe, "autocast", "probe", dict, "an object of dtypes by kind of device")
        dtypes = {kind: self.dtype(autocast, kind, "probe.autocast") for kind in autocast}
        grad = self.need(self.probe, "grad", "probe", bool, "true or false") if "grad" in self.probe else True
        # Where it was not float32.
        default = "" if self.probe.get("default_dtype") is None else self.dtype(self.probe, "default_dtype", "probe")
        if default and default not in _DEFAULTS:
            raise self.error("probe.default_dtype", quoted(default), f"one of {', '.join(_DEFAULTS)}")
        return Surroundings(dtypes, default, grad, modes)

    def communication(self) -> Communication | None:
        """What the capture knows of a collective; None of any other call."""
        if "collective" not in self.probe:
            return None
        field = "probe.collective"
        known = self.optional(self.probe, "collective", "probe", dict, "an object of what the capture knows")
        ranks = _ranks(self, known, "ranks", field) if "ranks" in known else ()
        rank, order = (self.need(known, key, field, int, "a number") for key in ("rank", "order"))
        waited = known.get("waited", True)
        if waited is not None:
            self.need({"waited": waited}, "waited", field, bool, "true, false or null")
        return Communication(ranks, rank, order, waited, str(known.get("backend", "")))

    def gradients(self, key: str) -> tuple[TensorSpec | None, ...]:
        """The gradients of one half; none where the capture left them out."""
        if key not in self.body:
            return ()
        return self.tensors(self.need(self.body, key, "", list, "a list of gradients"), key)

    def assigned(self, call: Call) -> Call:
        """The call with the gradients of this backward entry, where it says to which tensors they belong."""
        gradients = self.gradients("input")
        # msprobe's gradients belong to the last autograd node: nobody knows which tensors they belong to.
        if "inputs" not in self.probe:
            return replace(call, gradients=gradients)
        seeded = self.places("outputs", gradients) if gradients else None
        outgoing = self.gradients("output")
        named = dict(zip(self.places("inputs", outgoing), outgoing, strict=True)) if outgoing else None
        return replace(call, gradients=gradients, seeded=seeded, outgoing=named)

    def parameters(self) -> dict[str, Argument]:
        """A module's parameters, as one more keyword argument."""
        given = self.optional(self.body, "parameters", "", dict, "an object of tensors")
        found = {name: self.argument(each, f"parameters.{name}") for name, each in given.items()}
        return {"parameters": found} if found else {}

    def parameter_gradients(self) -> dict[str, TensorSpec | None]:
        """The gradients of a module's parameters by name; the second one of a name is "weight.1"."""
        found = ((name, self.gradients(name)) for name in self.body)
        return {f"{name}.{i}" if i else name: each for name, specs in found for i, each in enumerate(specs)}

    def gradient(self, value: Any, field: str) -> Argument:
        """None for that of an argument which no dump holds, as a sparse one: the replay makes its own."""
        try:
            return self.argument(value, field)
        except NotRebuilt:
            if field.rpartition(".")[0] != "output":
                raise
            return None

    def places(self, key: str, gradients: tuple[TensorSpec | None, ...]) -> tuple[str, ...]:
        """The names of what the gradients of one half belong to."""
        names = self.need(self.probe, key, "probe", list, "a list of places")
        if len(names) != len(gradients) or not all(isinstance(name, str) for name in names):
            raise self.error(f"probe.{key}", quoted(names), f"as many places as there are gradients, {len(gradients)}")
        return tuple(names)

    def argument(self, value: Any, field: str) -> Argument:
        if value is None:
            return None
        if isinstance(value, list):
            items = self.items(value, field)
            return tuple(items) if field in self._tuples else items
        if not isinstance(value, dict):
            raise self.error(field, quoted(value), "an object, a list or null")
        # msprobe writes an empty object for what it cannot describe.
        if not value:
            return Lost()
        return self.typed(value, value.get("type", value.get("class_type")), field)


def decode(
    path: Path,
    record: Record,
    ours: bool = False,
    entries: type[Entry] = Entry,
    modes: tuple[str, ...] = (),
) -> Call:
    """The call that a record of the dump at path describes, read as entries of this class are; ours: our own capture
    wrote it, which records more; modes: what the dump allows.

    Raises RecordError for whatever cannot be understood, NotRecorded where the capture could not record the call.
    """
    module = record.namespace in MODULES
    if record.forward is None and not module:
        raise RecordError(path, f"{record.name}.backward", "", "no forward entry", "the forward entry of the same call")
    with limited_depth(path, record.name):
        call = Call((), {}, None, None)
        if record.forward is not None:
            forward = entries(path, as_written(f"{record.name}.forward"), record.forward)
            call = forward.call()
            if ours:
                call = replace(call, surroundings=forward.surroundings(modes), communication=forward.communication())
            call = replace(call, kwargs={**call.kwargs, **forward.parameters()}) if module else call
        if record.backward is None:
            return call
        try:
            backward = entries(path, as_written(f"{record.name}.backward"), record.backward)
        except NotRecorded as error:
            return replace(call, gradients=(), unrecorded=str(error))
        if _is_of_parameters(record):
            return replace(call, gradients=(), outgoing=backward.parameter_gradients())
        return backward.assigned(call)


def gradients(path: Path, record: Record, entries: type[Entry] = Entry) -> Gradients:
    """All gradients of a record's backward entry, by their names there. Raises RecordError."""
    if record.backward is None:
        return {}
    with limited_depth(path, record.name):
        backward = entries(path, as_written(f"{record.name}.backward"), record.backward)
        if _is_of_parameters(record):
            return {f"output.{name}": spec for name, spec in backward.parameter_gradients().items()}
        halves = {key: backward.gradients(key) for key in ("input", "output")}
    return {f"{key}.{index}": spec for key, specs in halves.items() for index, spec in enumerate(specs)}


def _is_of_parameters(record: Record) -> bool:
    return record.namespace in MODULES and is_of_parameters(record.api)


def _kinds(value: Any) -> Iterator[str]:
    """The kinds of all leaves of an argument."""
    if isinstance(value, list):
        for item in value:
            yield from _kinds(item)
    elif isinstance(value, dict) and isinstance(value.get("type"), str):
        yield value["type"].removeprefix("numpy.")
