"""Files that hold many tensors, each by a name: of safetensors, and as torch.save writes a dictionary.

In: a file on the disk. Out: where each tensor lies in it, after every size was checked; no tensor is read. A file is
untrusted.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from pytest_probe.system import files
from pytest_probe.system.tensor_files import safetensors, torch_zip
from pytest_probe.system.tensor_files.base import NamedTensors, StoredTensor, itemsize

__all__ = ["NamedTensors", "StoredTensor", "itemsize", "stored_tensors"]

# Files whose headers are kept: those of several ranks on two sides.
_KEPT = 16


def stored_tensors(path: Path) -> NamedTensors:
    """The tensors of a file. Raises OSError, or ValueError where nothing in it can be read."""
    state = path.stat()
    return _stored_tensors(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=_KEPT)
def _stored_tensors(path: Path, _changed: int, size: int) -> NamedTensors:
    with files.open_regular(path) as file:
        head = file.peek(4)[:4]  # type: ignore[attr-defined]
        return torch_zip.read(file, size) if head == torch_zip.HEADER else safetensors.read(file, size)
