"""What numbers of the reference depend on, as a digest."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pytest_probe.numerics.dtypes import AnyArray, dtype_name

_LIBRARIES = (".so", ".dll", ".dylib", ".pyd")
PLAIN = (type(None), bool, int, float, complex, str, bytes, slice, type(Ellipsis))


class Unkeyed(TypeError):
    """A value that has no digest, as an object of the user's own."""


def digest(value: Any, of_array: Callable[[AnyArray], bytes]) -> bytes:
    """32 bytes that identify a tree of plain data, arrays, specs and settings. of_array gives the digest of
    an array. Raises Unkeyed."""
    state = hashlib.sha256()
    _feed(state.update, value, of_array)
    return state.digest()


def digest_of_array(array: AnyArray) -> bytes:
    """32 bytes that identify an array by dtype, shape and bits, wherever its elements lie."""
    state = hashlib.sha256(f"{dtype_name(array.dtype)}{array.shape}".encode())
    state.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return state.digest()


def _feed(update: Callable[[bytes], None], value: Any, of_array: Callable[[AnyArray], bytes]) -> None:
    def begin(parts: int) -> None:
        update(f"{type(value).__qualname__} {parts}(".encode())

    if isinstance(value, np.ndarray):
        update(b"array" + of_array(value))
    elif isinstance(value, PLAIN):
        text = repr(value).encode()
        update(f"{type(value).__qualname__} {len(text)}:".encode() + text)
    elif isinstance(value, (list, tuple, Mapping)):
        begin(len(value))
        for item in value.items() if isinstance(value, Mapping) else value:
            _feed(update, item, of_array)
    elif isinstance(value, AbstractSet):
        begin(len(value))
        for found in sorted(digest(item, of_array) for item in value):
            update(found)
    elif isinstance(value, msgspec.Struct):
        begin(len(value.__struct_fields__))
        for name in value.__struct_fields__:
            _feed(update, getattr(value, name), of_array)
    else:
        raise Unkeyed(f"a {type(value).__name__} has no digest")


@cache
def build_of(package: str) -> tuple[tuple[str, int, int], ...]:
    """The compiled files of an installed package, by name, size and time: many builds have one version."""
    spec = importlib.util.find_spec(package)
    roots = [Path(folder) for folder in (spec.submodule_search_locations if spec is not None else None) or ()]
    files = sorted(
        path for root in roots for path in root.rglob("*") if path.name.endswith(_LIBRARIES) or ".so." in path.name
    )
    statuses = [(path, path.stat()) for path in files]
    # Where a package is installed as others are, each installation of the same wheel has other times.
    ours = any({"site-packages", "dist-packages"}.isdisjoint(root.parts) for root in roots)
    return tuple((path.name, status.st_size, status.st_mtime_ns if ours else 0) for path, status in statuses)


@cache
def package_digest() -> bytes:
    """Digest of this package's own files: a version number does not show what a developer has changed."""
    root, state = Path(__file__).parents[2], hashlib.sha256()
    for path in sorted(path for path in root.rglob("*") if path.suffix in (".py", ".yaml")):
        content = path.read_bytes()
        state.update(f"{path.relative_to(root).as_posix()} {len(content)}:".encode() + content)
    return state.digest()
