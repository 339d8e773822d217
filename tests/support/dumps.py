"""Real dumps for tests, packed under tests/data: statistics of every version and model, and one with tensors.

Each is one training step on a CPU, written by that version of msprobe; paths inside were rewritten to /workspace.
"""

from __future__ import annotations

import gzip
import sys
import tarfile
from pathlib import Path

DATA = Path(__file__).parent.parent / "data"

STATISTICS = sorted(path.parent.relative_to(DATA).as_posix() for path in DATA.glob("*/*/dump.json.gz"))
TENSORS = sorted(path.relative_to(DATA).as_posix().removesuffix(".tar.gz") for path in DATA.glob("*/*.tar.gz"))
DUMPS = [*STATISTICS, *TENSORS]


def unpack(name: str, folder: Path) -> Path:
    """Unpack a dump of DUMPS ("msprobe-26.2.0/gpt") below a folder; returns the path of its dump.json."""
    target = folder / name
    target.mkdir(parents=True, exist_ok=True)
    if name in TENSORS:
        with tarfile.open(DATA / f"{name}.tar.gz") as archive:
            if sys.version_info >= (3, 12):
                archive.extractall(target, filter="data")
            else:
                archive.extractall(target)
    else:
        for packed in (DATA / name).glob("*.json.gz"):
            (target / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
    return target / "dump.json"
