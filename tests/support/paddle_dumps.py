"""Dumps of Paddle's tools for tests: real ones, packed under tests/data/paddleapex, and ones that tests write.

The real ones are one training step on a CPU, by PaddleAPEX with Paddle 3.3.1 (gpt_paddle262_random: 2.6.2); lines.txt
holds public lines, tracer.txt what Paddle 3.3.1's own tracer wrote.
"""

from __future__ import annotations

import gzip
import json
import pickle
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent.parent / "data" / "paddleapex"
STATISTICS = sorted(path.name.removesuffix(".json.gz") for path in DATA.glob("*.json.gz"))
LINES, TRACER = DATA / "lines.txt", DATA / "tracer.txt"


def unpack(name: str, folder: Path) -> Path:
    """Unpack a dump of STATISTICS, as PaddleAPEX calls it, in a folder."""
    path = folder / "forward_rank0_all.json"
    path.write_bytes(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
    return path


def unpack_real(folder: Path) -> Path:
    """Unpack the dump that holds tensors; beside it lie its parts."""
    with tarfile.open(DATA / "edge_real_data.tgz") as archive:
        if sys.version_info >= (3, 12):
            archive.extractall(folder, filter="data")
        else:
            archive.extractall(folder)
    return folder / "rank0_step0" / "forward_rank0_all.json"


def tensor(dtype: str = "FLOAT32", shape: Sequence[int] = (2, 3), high: Any = 2.5, low: Any = -1.5, **more: Any) -> Any:
    """A tensor as PaddleAPEX writes it."""
    row = {"type": "paddle.Tensor", "dtype": dtype, "shape": list(shape)}
    return row | {"Max": high, "Max_origin": high, "Min": low, "Min_origin": low, "stop_gradient": False} | more


def value(content: Any) -> Any:
    """A number, text or None as PaddleAPEX writes it."""
    return {"type": type(content).__name__, "value": content}


def entry(*args: Any, gradients: Sequence[Any] = ("Failed",), **kwargs: Any) -> dict[str, Any]:
    return {"args": list(args), "kwargs": kwargs, "dout_list": list(gradients)}


def write(folder: Path, entries: Mapping[str, Any], name: str = "forward_rank0_all.json") -> Path:
    """A dump with these entries ("paddle.add*0")."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(entries, indent=2))
    return path


def write_tensor(path: Path, array: np.ndarray) -> Path:
    """A file of a tensor as paddle.save writes it."""
    path.write_bytes(pickle.dumps(("generated_tensor_0", array), protocol=4))
    return path


def unpack_outputs(folder: Path) -> Path:
    """Unpack what PaddleAPEX's run_paddle.py left of gpt (`bench`), the same with planted errors (`device`), both
    rounded (`*_bf16`), and what its comparisons print (`compare_*`)."""
    return _unpacked("gpt_outputs.txz", folder) / "gpt"


def unpack_times(folder: Path) -> Path:
    """Unpack the logs of run_paddle.py's times in `float32` and `bfloat16`, and what prof_cmp.py and
    summary_generator.py make of them and of a result file."""
    return _unpacked("gpt_times.txz", folder) / "gpt_times"


def _unpacked(name: str, folder: Path) -> Path:
    with tarfile.open(DATA / name) as archive:
        archive.extractall(folder, filter="data")
    return folder


def write_outputs(folder: Path, call: str, outputs: Any, *, flag: bool = False, backward: bool = False) -> Path:
    """A file of a call's outputs as run_paddle.py writes it: an array, a list of arrays, or what Python has."""
    path = folder / ("output_backward" if backward else "output") / call
    path.parent.mkdir(parents=True, exist_ok=True)
    found = [_named(each) for each in outputs] if isinstance(outputs, list) else _named(outputs)
    path.write_bytes(pickle.dumps([flag, found], protocol=4))
    return path


def _named(value: Any) -> Any:
    return ("eager_tmp_0", value) if isinstance(value, np.ndarray) else value
