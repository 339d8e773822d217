"""The dumps of PaddleAPEX, of Paddle 2 and 3.

In: forward_rank*.json and the files of tensors in the same folder. Out: a `Dump` of undecoded records, and each as a
`Call`. And what the formats of Paddle share: how they name dtypes, and which of their APIs have no gradient.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from pytest_probe.errors import LostArgument
from pytest_probe.model.dump import Argument, Call, DeviceSpec, DtypeSpec, Dump, Number, Record, TensorSpec, no_frames
from pytest_probe.numerics.dtypes import float_format, is_complex, is_floating, is_inexact, numpy_dtype
from pytest_probe.records import raw_json
from pytest_probe.records.fields import (
    DUMP_DTYPES,
    MAX_ENTRY,
    PLAIN,
    UNNAMED,
    ArgumentFields,
    Fields,
    LeafReader,
    limited_depth,
    quoted,
)
from pytest_probe.system.process import paused_gc
from pytest_probe.system.text import printable_line

# Paddle 2 has short names (FP32) where Paddle 3 has NumPy's (FLOAT32).
_SHORT = re.compile(r"(b?)fp(\d+)")
_LONG = {"bf16": "bfloat16"}


def bare_dtype(text: str) -> str:
    """The name of a dtype as NumPy and ml_dtypes have it, where there is one: float32 of FP32, FLOAT32,
    paddle.float32 and VarType.FP32."""
    name = text.rpartition(".")[2].lower().rstrip("_")  # NumPy writes bool_
    return _LONG.get(name) or _SHORT.sub(r"\1float\2", name)


def text_or_dtype(text: str) -> str | DtypeSpec:
    """A text argument; as a dtype where it names one, since Paddle accepts names for dtypes."""
    name = text.removeprefix("paddle.")
    return DtypeSpec(name) if name in DUMP_DTYPES else text


# Paddle's tools record no outputs, which would show it: APIs whose results are booleans, integers, shapes, Python
# numbers or constants, by the last part of the name. APIs that are missing here are run, and fail at the backward.
_NO_GRADIENT = frozenset(
    "equal not_equal less less_than less_equal greater greater_than greater_equal equal_all allclose isclose "
    "logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_invert "
    "isnan isinf isfinite isneginf isposinf isreal isin is_empty is_tensor is_complex is_floating_point is_integer "
    "argmax argmin argsort searchsorted bucketize nonzero count_nonzero any all numel shape rank matrix_rank signbit "
    "unique unique_consecutive floor_divide __floordiv__ nextafter standard_gamma poisson binomial "
    "nms matrix_nms generate_proposals distribute_fpn_proposals histogram_bin_edges histogram histogramdd bincount "
    "item tolist numpy dim ndimension size element_size detach "
    "zeros_like ones_like full_like empty_like rand_like randn_like randint_like bernoulli multinomial "
    "__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __bool__ __nonzero__ __int__ __float__ __index__ __len__ "
    "__setitem__".split()
)
_CASTS = ("astype", "cast", "to")
# An argument that names an integer dtype; a tensor's own dtype is written differently.
_NO_FLOAT = re.compile(rb'["(.](?:u?int\d*|bool_?)["\s)]')


def has_gradient(api: str, entry: Any) -> bool:
    """May a call of this API with a floating argument have a gradient? entry is the bytes that describe the call."""
    name = api.rpartition(".")[2]
    return name not in _NO_GRADIENT and not (name in _CASTS and bool(_NO_FLOAT.search(entry)))


# What PaddleAPEX writes for Max and Min where Paddle's kernel raised.
_UNKNOWN = (1, 0)
# On Paddle 3 PaddleAPEX may read bfloat16's bits as integers and round them up to a power of ten. Integers from the
# bits of the least normal number on are such.
_RAW = "BFLOAT16"
_LEAST_RAW, _LARGEST_RAW = 128, 100_000


def tensor(fields: Fields, value: Mapping[str, Any], field: str) -> TensorSpec:
    dtype = fields.dtype(value, "dtype", field)
    top, bottom = _range(value["dtype"], dtype, fields.number(value, "Max", field), fields.number(value, "Min", field))
    return TensorSpec(
        dtype,
        fields.tensor_shape(value, field),
        max=top,
        min=bottom,
        requires_grad=not fields.need(value, "stop_gradient", field, bool, "true or false"),
        data_name=fields.file_name(value, "real_data_path", field),
    )


def _is_rounded(spec: TensorSpec) -> bool:
    """Is an integer tensor's value unknown: a range, or a power of ten that may be rounded up from another number?"""
    number = spec.max
    return number is None or number != spec.min or (abs(number) > 1 and math.log10(abs(number)).is_integer())


def _range(
    dtype_text: str, dtype: str, top: Number | None, bottom: Number | None
) -> tuple[Number | None, Number | None]:
    """Max and Min, clipped to the dtype's range, since they are rounded outward; None for both where unknown."""
    if top is None or bottom is None or (top, bottom) == _UNKNOWN or is_complex(dtype):
        return None, None
    raw = dtype_text == _RAW and 0 <= bottom <= top <= _LARGEST_RAW and top >= _LEAST_RAW
    if raw and float(top).is_integer() and float(bottom).is_integer():
        return None, None
    if is_floating(dtype):
        largest = float_format(numpy_dtype(dtype)).max
        return _within(top, largest), _within(bottom, largest)
    return top, bottom


def _within(number: Number, largest: float) -> Number:
    return min(max(number, -largest), largest) if math.isfinite(number) else number


_TENSOR = "paddle.Tensor"
# Paddle's own dtypes are bare strings.
_DTYPE = "paddle."
# PaddleAPEX writes this for an incoming gradient that did not come.
_FAILED = "Failed"
_WANTED = re.compile(rb'"stop_gradient"\s*:\s*false')
# Keywords whose values are places where they are no text: PaddleAPEX writes those as null.
_PLACES = ("place", "device")
_NOT_WRITTEN = "null, which PaddleAPEX writes for what it has no form for (an array, a place, a group, a layer)"


def decode(path: Path, record: Record) -> Call:
    """The call that a record of the dump at path describes.

    Raises RecordError for whatever cannot be understood, LostArgument where PaddleAPEX did not write an argument.
    """
    with limited_depth(path, record.name):
        entry = _EntryFields(path, f"{record.name}.forward")
        return entry.call(entry.object(record.forward), backward=record.backward is not None)


def _has_backward(api: str, raw: Any) -> bool:
    """May the API have a gradient, and is there a floating tensor among the arguments of an entry that wants one?"""
    view = memoryview(raw)
    if view.nbytes > MAX_ENTRY or not _WANTED.search(view) or not has_gradient(api, view):
        return False
    try:
        body = msgspec.json.decode(raw)
        found = _tensor_objects([body.get("args"), body.get("kwargs")] if isinstance(body, dict) else [])
        wanting = (bare_dtype(str(tensor.get("dtype"))) for tensor in found if tensor.get("stop_gradient") is False)
        return any(dtype in DUMP_DTYPES and is_inexact(dtype) for dtype in wanting)
    except (ValueError, RecursionError):
        return False


def _tensor_objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict) and value.get("type") == _TENSOR:
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensor_objects(item)


class _EntryFields(ArgumentFields):
    leaves: ClassVar[Mapping[str, LeafReader]] = {
        **PLAIN,
        _TENSOR: tensor,
        "NoneType": lambda fields, value, field: None,
    }

    @staticmethod
    def bare(text: str) -> str:
        return bare_dtype(text)

    def call(self, body: Mapping[str, Any], backward: bool) -> Call:
        """backward: the record has one."""
        args = self.items(self.need(body, "args", "", list, "a list of arguments"), "args")
        kwargs = self.optional(body, "kwargs", "", dict, "an object of arguments")
        # The replay replaces any device by its own.
        named = {
            key: DeviceSpec("cpu") if value is None and key in _PLACES else self.argument(value, f"kwargs.{key}")
            for key, value in kwargs.items()
        }
        gradients = self.gradients(self.optional(body, "dout_list", "", list, "a list of gradients"))
        return Call(tuple(args), named, None, gradients if backward else None)

    def gradients(self, values: list[Any]) -> tuple[TensorSpec | None, ...]:
        """The incoming gradients, in the order in which they came; none where not all came."""
        if _FAILED in values:
            return ()
        return self.tensors(values, "dout_list", f'a tensor, null or "{_FAILED}"')

    def argument(self, value: Any, field: str) -> Argument:
        if value is None:
            raise LostArgument(self.path, self.name, field, _NOT_WRITTEN, "the argument")
        if isinstance(value, str) and value.startswith(_DTYPE):
            return DtypeSpec(self.dtype_named(value, field))
        if isinstance(value, list):
            return self.sizes(self.items(value, field), field)
        if not isinstance(value, dict):
            raise self.error(field, quoted(value), "an object, a list or the name of a dtype")
        return self.typed(value, value.get("type"), field)

    def leaf(self, kind: str, value: Mapping[str, Any], field: str) -> Argument:
        found = super().leaf(kind, value, field)
        return text_or_dtype(found) if isinstance(found, str) else found

    def sizes(self, values: list[Argument], field: str) -> list[Argument]:
        """A list of integers and tensors gives sizes, so that such a tensor's value must be known."""
        if any(type(value) is int for value in values):
            for index, value in enumerate(values):
                if isinstance(value, TensorSpec) and value.data_name is None and _is_rounded(value):
                    found = "a tensor whose value was not stored, and whose range is rounded"
                    raise LostArgument(self.path, self.name, f"{field}.{index}", found, "its value, which is a size")
        return values


# "paddle.nn.functional.linear*3": the API's own name, and the number of its call. Bounded: any other text may be
# long.
_KEY = r'"[^"\\*\s.]{1,100}\.[^"\\*\s]{1,300}\*\d{1,18}"\s*:\s*'
_FIRST = re.compile(rb"\s*\{\s*" + _KEY.encode())
_ENTRY = re.compile(_KEY + r"\{")
_WITH_ARGUMENTS = re.compile(_KEY.encode() + rb'\{\s*"args"')
# 19 digits may be more than an int64; a zero before them would make one name of two keys.
_NUMBER = re.compile(r"0|[1-9]\d{0,17}", re.ASCII)
# A file with a part of a rank's records, by their dtype; `_all` has all of them.
_PART = re.compile(r"(forward_rank\d+)_(?:half|other)(\.json(?:\.gz)?)")


class PaddleApexReader:
    """Reads what PaddleAPEX writes, with Paddle 2 or 3. Entries stay raw until they are decoded."""

    name = "paddleapex"

    def sniff(self, path: Path, head: bytes) -> bool:
        """Is this a JSON object with keys as "paddle.add*0"?"""
        text = raw_json.without_mark(head)
        return bool(_FIRST.match(text)) or (text.lstrip().startswith(b"{") and bool(_WITH_ARGUMENTS.search(text)))

    def read(self, path: Path) -> Dump:
        """Read the dump. Raises DumpError where no entry can be found in it."""
        content = raw_json.read_bytes(path)
        stored = b'"real_data_path"' in content
        loaded = raw_json.load(path, _ENTRY, content=content)
        skipped: Counter[str] = Counter()
        with paused_gc():
            records = tuple(_records(loaded.entries, skipped))
        return Dump(
            path=path,
            framework="paddle",
            task="tensor" if stored else "statistics",
            level="",
            records=records,
            decode=partial(decode, path),
            stack=no_frames,
            data_dirs=(path.parent,),
            fields={"input": "args", "kwargs": "kwargs", "grad": "dout_list"},
            notes=loaded.notes,
            damage=loaded.damage,
            skipped=dict(skipped),
        )


def without_parts(files: Iterable[Path]) -> list[Path]:
    """The files without those whose records another one holds too: `_half` and `_other` of an `_all`."""
    files = list(files)
    found = set(files)
    return [file for file in files if whole_of(file) not in found]


def whole_of(file: Path) -> Path | None:
    """The `_all` file of a `_half` or `_other` file; None for others."""
    part = _PART.fullmatch(file.name)
    return file.with_name(f"{part[1]}_all{part[2]}") if part else None


def _records(entries: Mapping[str, msgspec.Raw], skipped: Counter[str]) -> Iterator[Record]:
    for key, raw in entries.items():
        api, star, number = key.rpartition("*")
        namespace, dot, name = api.partition(".")
        if not (star and dot and namespace and name and _NUMBER.fullmatch(number)):
            skipped[UNNAMED] += 1
            continue
        full, namespace, name = map(printable_line, (f"{api}.{number}", namespace, name))
        backward = raw if _has_backward(name, raw) else None
        yield Record(full, sys.intern(namespace), sys.intern(name), int(number), raw, backward)
