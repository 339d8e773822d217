"""Files of named tensors, written by hand: well, or not."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

_NAMES = {"float32": "F32", "float64": "F64", "float16": "F16", "int64": "I64", "uint8": "U8", "bool": "BOOL"}


def with_header(header: object, content: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file of this header, a text as it is; length is what it says of the header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + content


def safetensors(**arrays: np.ndarray[Any, Any]) -> bytes:
    """A safetensors file of these arrays, in this order."""
    header, content = {}, b""
    for name, array in arrays.items():
        begin = len(content)
        content += array.tobytes()
        dtype = _NAMES.get(array.dtype.name, array.dtype.name.upper())
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [begin, len(content)]}
    return with_header(header, content)


def torch_zip(path: Path, pickled: bytes, storages: Mapping[str, bytes] | None = None, **more: bytes) -> Path:
    """A zip as torch.save writes it, of this pickle."""
    content = BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr("a/data.pkl", pickled)
        for name, data in {**(storages or {}), **more}.items():
            file.writestr(f"a/{name}" if name in more else f"a/data/{name}", data)
    path.write_bytes(content.getvalue())
    return path
