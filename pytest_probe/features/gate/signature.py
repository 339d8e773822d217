"""What a call is, apart from its numbers: API, shapes, dtypes and plain arguments, in eight hexadecimal digits."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from pytest_probe.model.arguments import Array, Leaf
from pytest_probe.model.case import Case
from pytest_probe.model.dump import DeviceSpec, DtypeSpec, MemoryFormatSpec, SizeSpec, TensorSpec

_PLAIN = (type(None), bool, int, float, complex, str, slice, type(...), DtypeSpec, MemoryFormatSpec, SizeSpec)


def signature(case: Case) -> str:
    """Of a case; statistics, devices and stored values are no part of it. Raises RecordError."""
    if case.pair is not None:
        arguments = case.pair.arguments
        told = _words(list(arguments.args)), _words(dict(arguments.kwargs))
    else:
        call = case.dump.decode(case.record)
        told = _words(list(call.args)), _words(dict(call.kwargs))
    return hashlib.blake2b(f"{case.api}\0{told}".encode(errors="replace"), digest_size=4).hexdigest()


def _words(value: Any) -> str:
    if isinstance(value, TensorSpec):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, (Leaf, Array)):
        return f"{value.array.dtype.name}{list(value.array.shape)}"
    if isinstance(value, DeviceSpec):
        return "device"
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(_words, value))})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_words(value[key])}' for key in sorted(value, key=str))}}}"
    # What stands for an object elsewhere may be its address.
    return repr(value) if type(value) in _PLAIN else f"{type(value).__name__}"
