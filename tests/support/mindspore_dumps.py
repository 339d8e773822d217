"""Dumps of MindSpore that msprobe wrote, packed under tests/data/mindspore, and a defect of MindSpore's as a dump.

Each zip is one training step on a CPU with MindSpore 2.10.0; edge.zip was written by hand. Paths inside were rewritten
to /workspace.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.support.dumps import DATA

FOLDER = DATA / "mindspore"
DUMPS = sorted(path.stem for path in FOLDER.glob("*.zip"))


def packed(name: str) -> Path:
    return FOLDER / f"{name}.zip"


def unpack(name: str, folder: Path) -> Path:
    """Unpack a dump of DUMPS into a folder of its name; returns the path of its dump.json."""
    with zipfile.ZipFile(packed(name)) as archive:
        archive.extractall(folder / name)
    return folder / name / "dump.json"


def write(folder: Path, entries: Mapping[str, Mapping[str, Any]]) -> Path:
    """A dump with tensors, as msprobe writes it for MindSpore: arrays in the entries become files of the folder."""
    files = folder / "dump_tensor_data"
    files.mkdir(parents=True)

    def written(value: Any, name: str) -> Any:
        if isinstance(value, np.ndarray):
            np.save(files / f"{name}.npy", value)
            dtype = value.dtype.name.capitalize()
            return {"type": "mindspore.Tensor", "dtype": dtype, "shape": list(value.shape), "data_name": f"{name}.npy"}
        if isinstance(value, list):
            return [written(item, f"{name}.{place}") for place, item in enumerate(value)]
        return value if value is None else {"type": type(value).__name__, "value": value}

    data = {
        name: {
            field: {key: written(item, f"{name}.kwargs.{key}") for key, item in value.items()}
            if isinstance(value, dict)
            else written(value, f"{name}.{field.removesuffix('_args')}")
            for field, value in entry.items()
        }
        for name, entry in entries.items()
    }
    header = {"task": "tensor", "level": "L1", "framework": "mindspore", "dump_data_dir": "/workspace/dump_tensor_data"}
    (folder / "dump.json").write_text(json.dumps({**header, "data": data}))
    return folder / "dump.json"


def split_of_three(*, strides_ignored: bool) -> dict[str, dict[str, Any]]:
    """A split of the last dimension in three. The gradient that comes into the middle chunk is a permuted view: the
    program reshaped, permuted and transposed it, and multiplied it by a constant.

    strides_ignored: the recorded gradient is that of MindSpore 2.10.0 on the CPU, bit for bit, which reads such a view
    in the order of memory.
    """
    rng = np.random.default_rng(0)
    x, constant = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 4, 24), (2, 2, 4, 4)))
    given = torch.tensor(x, requires_grad=True)
    chunks = torch.split(given, 8, dim=-1)
    for chunk in chunks:
        chunk.retain_grad()
    middle = chunks[1].reshape(2, 4, 2, 4).permute(0, 2, 1, 3).transpose(-2, -1)
    (chunks[0].sum() + (middle * torch.tensor(constant)).sum() + chunks[2].mean()).backward()
    assert given.grad is not None
    gradient = given.grad.numpy().copy()
    if strides_ignored:
        gradient[..., 8:16] = constant.reshape(2, 4, 8)
    outputs = [chunk.detach().numpy().copy() for chunk in chunks]
    arguments = {"input_args": [x, 8], "input_kwargs": {"dim": -1}, "output": outputs}
    incoming = [chunk.grad.numpy().copy() for chunk in chunks if chunk.grad is not None]
    return {"Mint.split.0.forward": arguments, "Mint.split.0.backward": {"input": incoming, "output": [gradient]}}
