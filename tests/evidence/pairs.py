"""Pairs of a dtype and a device for tests of many faults."""

from __future__ import annotations

import pytest

# A kernel of the CPU may be wrong as torch's own is, in 16 bit above all; another device has no such excuse.
ON_THE_CPU = {"float32": False, "bfloat16": True, "float16": False}


def each_dtype_once(*dtypes: str, other: str) -> pytest.MarkDecorator:
    """Each dtype on the CPU or on the other device; on both where there is time."""
    pairs = [
        pytest.param(dtype, device, marks=[] if ON_THE_CPU[dtype] == (device == "cpu") else pytest.mark.exhaustive)
        for dtype in dtypes
        for device in ("cpu", other)
    ]
    return pytest.mark.parametrize(("dtype", "device"), pairs)
