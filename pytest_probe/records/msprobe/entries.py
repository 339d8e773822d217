"""One entry of an msprobe dump, decoded: what the JSON says becomes a Call, or a RecordError that names the field."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import msgspec

from pytest_probe.core.dump import (
    Argument,
    Call,
    DeviceSpec,
    DtypeSpec,
    Lost,
    MemoryFormatSpec,
    Number,
    Record,
    SizeSpec,
    Surroundings,
    TensorSpec,
)
from pytest_probe.errors import NotRebuilt, NotRecorded, RecordError
from pytest_probe.records.lazy_json import TOKENS

# What torch has and NumPy, with ml_dtypes, can hold.
DUMP_DTYPES = (
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "bool"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
)
MEMORY_FORMATS = ("preserve_format", "contiguous_format", "channels_last", "channels_last_3d")
# msprobe's words for a tensor; a parameter is one here.
TENSOR_TYPES = ("torch.Tensor", "torch.nn.parameter.Parameter")

# torch's dtypes that NumPy and ml_dtypes have no place for: quantized, bits, narrow integers, pairs.
_ODD = re.compile(r"q?u?int\d+(x\d)?|bits\d.*|complex32|float4.*")
# For the message about anything else.
_REBUILT = "a tensor, an array, a number, text, a dtype, a range or slice, or lists, tuples and dicts of them"
# Words for what is not finite: quoted in place by us, or as strings by some versions of msprobe.
_FLOATS: Mapping[str, float] = {**TOKENS, "NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_MAX_RANK = 64  # of torch and of NumPy
# torch's sizes are int64.
_MAX_EXTENT = 2**63
_MAX_BESIDE_ZERO = 2**59  # elements of the widest dtype, complex128, whose bytes NumPy can count
# Bytes of a file's name on usual file systems.
_MAX_NAME = 255
# What an untrusted record may hold. Bytes of an entry: 20,000 tensors in one call; an entry takes ten times as much
# memory once it is decoded. Characters of a text. Numbers of a range, which an index makes a list of.
_MAX_ENTRY, _MAX_TEXT, _MAX_RANGE = 1 << 24, 1 << 16, 1 << 20
# No argument of torch's is wider; uint64 has the largest.
_LEAST, _LARGEST = -(2**63), 2**64 - 1


def decode(path: Path, record: Record, ours: bool = False) -> Call:
    """The call that a record of the dump at path describes; ours: written by our own capture, which says more.

    Raises RecordError for whatever cannot be understood, NotRecorded where the capture could not record the call.
    """
    if record.forward is None:
        raise RecordError(path, f"{record.name}.backward", "", "no forward entry", "the forward entry of the same call")
    try:
        forward = _Entry(path, f"{record.name}.forward", record.forward)
        call = forward.call()
        call = replace(call, surroundings=forward.surroundings()) if ours else call
        return call if record.backward is None else _with_gradients(path, record, call)
    except RecursionError:
        raise RecordError(path, record.name, "", "values nested too deep", "fewer than about 500 levels") from None


def _with_gradients(path: Path, record: Record, call: Call) -> Call:
    """A backward that could not be recorded leaves the forward as it is."""
    try:
        backward = _Entry(path, f"{record.name}.backward", record.backward)
    except NotRecorded as error:
        return replace(call, gradients=(), unrecorded=str(error))
    gradients = backward.gradients("input")
    # msprobe's gradients are those of the last autograd node: whose they are is not known.
    if "inputs" not in backward.probe:
        return replace(call, gradients=gradients)
    seeded = backward.places("outputs", gradients) if gradients else None
    outgoing = backward.gradients("output")
    named = dict(zip(backward.places("inputs", outgoing), outgoing, strict=True)) if outgoing else None
    return replace(call, gradients=gradients, seeded=seeded, outgoing=named)


class _Entry:
    """Decodes one entry; `field` is always the dotted path inside it. Raises NotRecorded where it holds no call."""

    def __init__(self, path: Path, name: str, raw: Any) -> None:
        self.path = path
        self.name = name
        self.body = self._object(raw)
        self.probe = self.optional(self.body, "probe", "", dict, "an object of what the capture knows")
        if "failed" in self.probe:
            reason = self.need(self.probe, "failed", "probe", str, "the reason why the call was not recorded")
            raise NotRecorded(path, name, "", f"that the capture could not record it ({reason})", "what was called")
        tuples = self.optional(self.probe, "tuples", "probe", list, "a list of places")
        self._tuples = frozenset(
            f"input_{'args' if root == 'input' else root}.{rest}" for root, rest in map(_split, tuples)
        )

    def error(self, field: str, found: str, wanted: str) -> RecordError:
        return RecordError(self.path, self.name, field, found, wanted)

    def _object(self, raw: Any) -> dict[str, Any]:
        size = memoryview(raw).nbytes
        if size > _MAX_ENTRY:
            raise self.error("", f"an entry of {size:,} bytes", f"at most {_MAX_ENTRY:,}")
        try:
            body = msgspec.json.decode(raw)
        except ValueError as error:
            raise self.error("", f"a value that cannot be decoded ({error})", "plain JSON in UTF-8") from None
        if not isinstance(body, dict):
            raise self.error("", quoted(body), "an object")
        return body

    def call(self) -> Call:
        body = self.body
        args = self.arguments(self.need(body, "input_args", "", list, "a list of arguments"), "input_args")
        kwargs = self.optional(body, "input_kwargs", "", dict, "an object of arguments")
        named = {key: self.argument(value, f"input_kwargs.{key}") for key, value in kwargs.items()}
        args, named = self.devices(args, named)
        if body.get("output") is None:
            return Call(args, named, None, None)
        outputs = self.arguments(self.need(body, "output", "", list, "a list of outputs"), "output")
        return Call(args, self.made(named, outputs), outputs, None)

    def devices(self, args: tuple[Argument, ...], named: dict[str, Argument]) -> tuple[tuple[Argument, ...], Any]:
        """The arguments with devices that were given as strings as what they are: `x.to("cuda:0")`, `device="cuda"`."""
        if self.name.startswith("Tensor.to."):
            args = tuple(DeviceSpec(value) if isinstance(value, str) else value for value in args)
        if isinstance(named.get("device"), str):
            named = {**named, "device": DeviceSpec(named["device"])}
        return args, named

    def made(self, named: dict[str, Argument], outputs: tuple[Argument, ...]) -> dict[str, Argument]:
        """The arguments of `torch.tensor` and its like with the dtype that NumPy's scalars gave; here those are plain
        numbers."""
        if self.name.split(".")[:2] not in _MAKING or named.get("dtype") is not None:
            return named
        # A NumPy float32 gave the tensor its dtype; as a Python number it would give the default one.
        scalars = not _NUMPY.isdisjoint(_kinds(self.body["input_args"]))
        made = next((spec.dtype for spec in outputs if isinstance(spec, TensorSpec)), None)
        return {**named, "dtype": DtypeSpec(made)} if scalars and made is not None else named

    def surroundings(self) -> Surroundings:
        autocast = self.optional(self.probe, "autocast", "probe", dict, "an object of dtypes by kind of device")
        return Surroundings({kind: self.dtype(autocast, kind, "probe.autocast") for kind in autocast}, self.default())

    def default(self) -> str:
        """The default dtype, where it was not float32."""
        if self.probe.get("default_dtype") is None:
            return ""
        name = self.dtype(self.probe, "default_dtype", "probe")
        if name not in _DEFAULTS:
            raise self.error("probe.default_dtype", quoted(name), f"one of {', '.join(_DEFAULTS)}")
        return name

    def gradients(self, key: str) -> tuple[TensorSpec | None, ...]:
        """The gradients of one half; none where the capture was told to leave them out."""
        if key not in self.body:
            return ()
        given = self.need(self.body, key, "", list, "a list of gradients")
        read = self.left if key == "output" else self.argument
        items = tuple(read(value, f"{key}.{index}") for index, value in enumerate(given))
        for index, item in enumerate(items):
            if not isinstance(item, TensorSpec | None):
                raise self.error(f"{key}.{index}", quoted(self.body[key][index]), "a tensor or null")
        return items

    def left(self, value: Any, field: str) -> Argument:
        """A gradient that an argument got: one that no dump holds, as a sparse one, is none to a replay, which makes
        its own."""
        try:
            return self.argument(value, field)
        except NotRebuilt:
            return None

    def places(self, key: str, gradients: tuple[TensorSpec | None, ...]) -> tuple[str, ...]:
        """The names of what the gradients of one half belong to."""
        names = self.need(self.probe, key, "probe", list, "a list of places")
        if len(names) != len(gradients) or not all(isinstance(name, str) for name in names):
            raise self.error(f"probe.{key}", quoted(names), f"as many places as there are gradients, {len(gradients)}")
        return tuple(names)

    def optional(self, body: Mapping[str, Any], key: str, field: str, kind: type, wanted: str) -> Any:
        """The value of a key, of this kind; an empty one where there is none."""
        return self.need(body, key, field, kind, wanted) if key in body else kind()

    def need(self, body: Mapping[str, Any], key: str, field: str, kind: type | tuple[type, ...], wanted: str) -> Any:
        """The value of a key, of this kind; a bool is no int here."""
        place = f"{field}.{key}" if field else key
        if key not in body:
            raise self.error(place, "nothing", wanted)
        value = body[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.error(place, quoted(value), wanted)
        return value

    def arguments(self, values: list[Any], field: str) -> tuple[Argument, ...]:
        return tuple(self.argument(value, f"{field}.{index}") for index, value in enumerate(values))

    def argument(self, value: Any, field: str) -> Argument:
        if value is None:
            return None
        if isinstance(value, list):
            items = self.arguments(value, field)
            return items if field in self._tuples else list(items)
        if not isinstance(value, dict):
            raise self.error(field, quoted(value), "an object, a list or null")
        # msprobe writes an empty object for what it cannot describe.
        if not value:
            return Lost()
        kind = value.get("type", value.get("class_type"))
        if isinstance(kind, str):
            return self.leaf(kind, value, field)
        if kind is not None and not isinstance(kind, dict | list):
            raise self.error(f"{field}.type", quoted(kind), "the name of a type")
        return {key: self.argument(item, f"{field}.{key}") for key, item in value.items()}

    def leaf(self, kind: str, value: Mapping[str, Any], field: str) -> Argument:
        if kind in TENSOR_TYPES:
            return self.tensor(value, field)
        read = _LEAVES.get(kind.removeprefix("numpy."))
        if read is None:
            raise self.no_place(f"{field}.type", quoted(kind))
        return read(self, value, field)

    def no_place(self, field: str, found: str) -> NotRebuilt:
        return NotRebuilt(self.path, self.name, field, found, _REBUILT)

    def tensor(self, value: Mapping[str, Any], field: str) -> TensorSpec:
        high, low = (self.number(value, f"{key}_except_inf_nan", field) for key in ("Max", "Min"))
        top, bottom = (self.number(value, key, field) for key in ("Max", "Min"))
        # Two versions of msprobe: Max may be of all elements or of the finite ones, and the other has the longer name.
        if "Max_origin" in value or "Min_origin" in value:
            high, low = top, bottom
            top = self.number(value, "Max_origin", field)
            bottom = self.number(value, "Min_origin", field)
        grad = False
        if value.get("requires_grad") is not None:
            grad = self.need(value, "requires_grad", field, bool, "true or false")
        return TensorSpec(
            self.dtype(value, "dtype", field),
            self.tensor_shape(value, field),
            max=top,
            min=bottom,
            mean=self.real(value, "Mean", field),
            norm=self.real(value, "Norm", field),
            high=_finite(high),
            low=_finite(low),
            requires_grad=grad,
            data_name=self.data_name(value, field),
            nan=self.count(value, "NaN", field),
            inf=self.count(value, "Inf", field),
            negative_inf=self.count(value, "Negative_inf", field),
            true=self.count(value, "True", field),
            **(self.masses(value, field) if "zeros" in value else {}),
            stride=self.stride(value, field),
            address=self.count(value, "address", field),
            values=self.values(value, field),
        )

    def dtype(self, value: Mapping[str, Any], key: str, field: str) -> str:
        text: str = self.need(value, key, field, str, "the name of a dtype")
        name = text.removeprefix("torch.")
        if name not in DUMP_DTYPES:
            if _ODD.fullmatch(name):
                raise self.no_place(f"{field}.{key}", f"the dtype {name}, which NumPy has not")
            raise self.error(f"{field}.{key}", f"the unknown dtype {quoted(text)}", f"one of {', '.join(DUMP_DTYPES)}")
        return name

    def count(self, value: Mapping[str, Any], key: str, field: str) -> int | None:
        if value.get(key) is None:
            return None
        count: int = self.need(value, key, field, int, "a number of elements")
        if count < 0:
            raise self.error(f"{field}.{key}", quoted(count), "a number of elements, 0 or more")
        return count

    def masses(self, value: Mapping[str, Any], field: str) -> dict[str, Any]:
        """What the dump tells of values that stand many times."""
        mode, rows = (self.pair(value, key, field) for key in ("mode", "constant_rows"))
        if mode is not None:
            mode = (_finite(mode[0]), self.share(mode[1], f"{field}.mode.1"))
        if rows is not None:
            rows = (self.share(rows[0], f"{field}.constant_rows.0"), rows[1])
        if mode is not None and mode[0] is None:
            raise self.error(f"{field}.mode.0", quoted(value["mode"][0]), "a finite number")
        return {"zeros": self.share(value["zeros"], f"{field}.zeros"), "mode": mode, "constant_rows": rows}

    def pair(self, value: Mapping[str, Any], key: str, field: str) -> tuple[Any, Any] | None:
        """Two numbers, of which the second may be null; None where there are none."""
        if value.get(key) is None:
            return None
        pair = self.need(value, key, field, list, "a list of two numbers")
        if len(pair) != 2:
            raise self.error(f"{field}.{key}", quoted(pair), "a list of two numbers")
        first, second = (self.real({"0": one}, "0", f"{field}.{key}") for one in pair)
        return first, second

    def share(self, share: Any, field: str) -> float:
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise self.error(field, quoted(share), "a share, from 0 to 1")
        return float(share)

    def stride(self, value: Mapping[str, Any], field: str) -> tuple[int, ...] | None:
        if value.get("stride") is None:
            return None
        stride = self.shape(value, "stride", field)
        if len(stride) != len(value["shape"]):
            raise self.error(
                f"{field}.stride", f"{len(stride)} strides", f"one for each of {len(value['shape'])} dimensions"
            )
        return stride

    def values(self, value: Mapping[str, Any], field: str) -> tuple[int, ...] | None:
        """The elements of an integer tensor."""
        if value.get("values") is None:
            return None
        values, dtype = self.need(value, "values", field, list, "a list of integers"), self.dtype(value, "dtype", field)
        count = math.prod(value["shape"])
        if len(values) != count or "int" not in dtype:
            found = f"{len(values)} values of {dtype}"
            raise self.error(f"{field}.values", found, f"one for each of {count} elements, and an integer dtype")
        low, high = _limits(dtype)
        for index, one in enumerate(values):
            if isinstance(one, bool) or not isinstance(one, int) or not low <= one <= high:
                raise self.error(f"{field}.values.{index}", quoted(one), f"an integer that {dtype} holds")
        return tuple(values)

    def shape(self, value: Mapping[str, Any], key: str, field: str, least: int = 0) -> tuple[int, ...]:
        shape = self.need(value, key, field, list, "a list of sizes")
        if len(shape) > _MAX_RANK:
            raise self.error(f"{field}.{key}", f"{len(shape)} dimensions", f"at most {_MAX_RANK}")
        for index, extent in enumerate(shape):
            if isinstance(extent, bool) or not isinstance(extent, int) or not least <= extent < _MAX_EXTENT:
                raise self.error(f"{field}.{key}.{index}", quoted(extent), f"an integer from {least} on, below 2**63")
        return tuple(shape)

    def tensor_shape(self, value: Mapping[str, Any], field: str) -> tuple[int, ...]:
        """A tensor's. NumPy refuses an empty array whose other sizes would overflow; others are bounded by memory."""
        shape = self.shape(value, "shape", field)
        if 0 in shape and math.prod(filter(None, shape)) >= _MAX_BESIDE_ZERO:
            found = f"the sizes {', '.join(map(str, shape))}"
            raise self.error(f"{field}.shape", found, "sizes whose product, zeros left out, is below 2**59")
        return shape

    def number(self, value: Mapping[str, Any], key: str, field: str) -> Number | None:
        """A statistic: a number that float64 holds, true or false, null, or a word for one that is not finite."""
        number = value.get(key)
        if isinstance(number, int):
            self._check_magnitude(number, f"{field}.{key}")
        if number is None or isinstance(number, int | float):
            return number
        if isinstance(number, str) and number in _FLOATS:
            return _FLOATS[number]
        raise self.error(f"{field}.{key}", quoted(number), "a number, true, false or null")

    def real(self, value: Mapping[str, Any], key: str, field: str) -> float | None:
        number = self.number(value, key, field)
        return None if number is None else float(number)

    def _check_magnitude(self, number: int, field: str) -> None:
        """JSON's integers may have any number of digits."""
        try:
            float(number)
        except OverflowError:
            raise self.error(field, quoted(number), "a number that float64 holds") from None

    def data_name(self, value: Mapping[str, Any], field: str) -> str | None:
        if value.get("data_name") is None:
            return None
        name: str = self.need(value, "data_name", field, str, "the name of a file")
        bare = PurePosixPath(name).name == name == PureWindowsPath(name).name and "\0" not in name
        if not bare or name in ("", ".", "..") or len(name) > _MAX_NAME:
            raise self.error(f"{field}.data_name", quoted(name), "the bare name of a file, without a folder")
        return name

    def floating(self, value: Mapping[str, Any], field: str) -> float:
        number = None if isinstance(value.get("value"), bool) else self.real(value, "value", field)
        if number is None:
            found = quoted(value["value"]) if "value" in value else "nothing"
            raise self.error(f"{field}.value", found, "a number")
        return number

    def complex(self, value: Mapping[str, Any], field: str) -> complex:
        parts = self.need(value, "value", field, list, "a list of real and imaginary part")
        if len(parts) != 2:
            raise self.error(f"{field}.value", quoted(parts), "two numbers: real and imaginary part")
        return complex(*(self.floating({"value": part}, field) for part in parts))

    def memory_format(self, value: Mapping[str, Any], field: str) -> MemoryFormatSpec:
        key = "format" if "format" in value else "value"
        text = self.need(value, key, field, str, "the name of a memory format")
        name = text.removeprefix("torch.")
        if name not in MEMORY_FORMATS:
            raise self.error(f"{field}.{key}", quoted(text), f"one of {', '.join(MEMORY_FORMATS)}")
        return MemoryFormatSpec(name)

    def layout(self, value: Mapping[str, Any], field: str) -> None:
        """None stands for the usual one, and no dump holds tensors of others."""
        name = self.need(value, "layout", field, str, "the name of a layout")
        if name != "torch.strided":
            raise self.no_place(f"{field}.layout", f"the layout {name}")

    def range(self, value: Mapping[str, Any], field: str) -> range:
        parts = self.need(value, "value", field, list, "a list of start, stop and step")
        if len(parts) != 3 or not all(type(part) is int for part in parts) or not parts[2]:
            raise self.error(f"{field}.value", quoted(parts), "three integers: start, stop, and a step that is not 0")
        if not all(map(_is_held, parts)) or len(range(*parts)) > _MAX_RANGE:
            raise self.error(f"{field}.value", quoted(f"range{tuple(parts)}"), f"at most {_MAX_RANGE:,} numbers")
        return range(*parts)

    def slice(self, value: Mapping[str, Any], field: str) -> slice:
        parts = self.need(value, "value", field, list, "a list of start, stop and step")
        whole = all(part is None or (isinstance(part, int) and not isinstance(part, bool)) for part in parts)
        if len(parts) != 3 or not whole:
            raise self.error(f"{field}.value", quoted(parts), "three integers or nulls: start, stop and step")
        for index, part in enumerate(parts):
            if part is not None and not _is_held(part):
                raise self.error(f"{field}.value.{index}", quoted(part), _HELD)
        return slice(*parts)

    def integer(self, value: Mapping[str, Any], field: str) -> int:
        number: int = self.need(value, "value", field, int, "an integer")
        if not _is_held(number):
            raise self.error(f"{field}.value", quoted(number), _HELD)
        return number

    def text(self, value: Mapping[str, Any], field: str) -> str:
        text: str = self.need(value, "value", field, str, "a string")
        if len(text) > _MAX_TEXT:
            raise self.error(f"{field}.value", f"a text of {len(text):,} characters", f"at most {_MAX_TEXT:,}")
        return text


_HELD = "an integer of at most 64 bits"


def _is_held(number: int) -> bool:
    return _LEAST <= number <= _LARGEST


def _plain(kind: type, wanted: str) -> Callable[[_Entry, Mapping[str, Any], str], Argument]:
    return lambda entry, value, field: entry.need(value, "value", field, kind, wanted)


def _device(entry: _Entry, value: Mapping[str, Any], field: str) -> DeviceSpec:
    text: str = entry.need(value, "value", field, str, "the name of a device")
    return DeviceSpec(text.removesuffix(":None"))


# What NumPy's scalars give a dtype to, and the kinds of them that stand in a dump.
_MAKING = (["Torch", "tensor"], ["Torch", "as_tensor"], ["Torch", "asarray"])
# The dtypes that torch takes for its default.
_DEFAULTS = ("float64", "float32", "bfloat16", "float16")
_NUMPY = frozenset(
    "float16 float32 float64 complex64 complex128 int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
)


def _kinds(value: Any) -> Iterator[str]:
    """The kinds of all leaves of an argument."""
    if isinstance(value, list):
        for item in value:
            yield from _kinds(item)
    elif isinstance(value, dict) and isinstance(value.get("type"), str):
        yield value["type"].removeprefix("numpy.")


_BOOL = _plain(bool, "true or false")
# By the type that a dump names: what reads such a leaf. Others are said to have no place here.
_LEAVES: Mapping[str, Callable[[_Entry, Mapping[str, Any], str], Argument]] = {
    "bool": _BOOL,
    "int": _Entry.integer,
    "float": _Entry.floating,
    "str": _Entry.text,
    "complex": _Entry.complex,
    "dict": lambda entry, value, field: {},
    "torch._C.Generator": lambda entry, value, field: None,  # what a generator draws is known by its law only
    "slice": _Entry.slice,
    "range": _Entry.range,
    "ellipsis": lambda entry, value, field: ...,
    "torch.Size": lambda entry, value, field: SizeSpec(entry.shape(value, "value", field, -1)),  # what is left
    "torch.dtype": lambda entry, value, field: DtypeSpec(entry.dtype(value, "value", field)),
    "torch.device": _device,
    "torch.layout": _Entry.layout,
    "torch.memory_format": _Entry.memory_format,
    "ndarray": lambda entry, value, field: replace(entry.tensor(value, field), ndarray=True),
    "bool_": _BOOL,
    "str_": _Entry.text,
    **dict.fromkeys(("float16", "float32", "float64"), _Entry.floating),
    **dict.fromkeys(("complex64", "complex128"), _Entry.complex),
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"), _Entry.integer),
}


def _split(place: object) -> tuple[str, str]:
    """Root and rest of a place ("input", "1.0")."""
    root, _, rest = str(place).partition(".")
    return root, rest


def _limits(dtype: str) -> tuple[int, int]:
    """The least and the largest number of an integer dtype."""
    kind, _, bits = dtype.rpartition("int")
    return (0, 2 ** int(bits) - 1) if kind else (-(2 ** (int(bits) - 1)), 2 ** (int(bits) - 1) - 1)


def _finite(number: Number | None) -> float | None:
    try:
        return float(number) if number is not None and math.isfinite(number) else None
    except OverflowError:
        return None


def quoted(value: Any) -> str:
    """A value for a message: short, and as JSON says it."""
    if isinstance(value, dict):
        return f"an object with the keys {', '.join(map(str, value))}"[:80] if value else "an empty object"
    if isinstance(value, list):
        return f"a list of {len(value)}" if value else "an empty list"
    if isinstance(value, str) and value in TOKENS:
        return str(TOKENS[value])
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
