"""What an H200 gave (torch 2.11), as `benchmarks/gpu_outputs.py` recorded it: a dump for each kind of calls and
precision."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import torch

ARCHIVE = Path(__file__).parent.parent.parent / "cases" / "h200.zip"
DUMPS = sorted({name.partition("/")[0] for name in zipfile.ZipFile(ARCHIVE).namelist()})


def stored(dump: str, name: str) -> torch.Tensor:
    """A tensor of a dump, as "Torch.cumsum.0.forward.output.0"."""
    content = zipfile.ZipFile(ARCHIVE).read(f"{dump}/dump_tensor_data/{name}.pt")
    found: torch.Tensor = torch.load(io.BytesIO(content))
    return found.detach()
