"""What recording statistics costs as a step's tensors grow: a GPT on more and more sequences, as a Markdown table.

    OMP_NUM_THREADS=1 python benchmarks/large_steps.py [--batches 4,16,64] [--steps 3]

Plain and recorded steps take turns; times are CPU seconds of all threads, the least of each. Bytes are those of all
tensors that the step's entries name, each time they are named, and the last column is what recording costs for each.
A batch of 64 takes about 2 GB of memory.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch

import pytest_probe
from benchmarks.overhead.pytorch import training

WORDS, D, HEADS, LAYERS, T = 512, 256, 8, 4, 128


def spent(step: Callable[[], None]) -> float:
    began = time.process_time()
    step()
    return time.process_time() - began


def recorded(step: Callable[[], None], folder: str) -> None:
    with pytest_probe.capture(folder):
        step()


def tensors(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        if "requires_grad" in tree and "shape" in tree:
            yield tree
        for each in tree.values():
            yield from tensors(each)
    elif isinstance(tree, list):
        for each in tree:
            yield from tensors(each)


def size_of(folder: str) -> int:
    (path,) = Path(folder).glob("step0/*/dump.json")
    found = tensors(json.loads(path.read_text())["data"])
    return sum(torch.Size(one["shape"]).numel() * getattr(torch, one["dtype"][6:]).itemsize for one in found)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", default="4,16,64")
    parser.add_argument("--steps", type=int, default=3)
    given = parser.parse_args()
    print("| sequences | GB of tensors | plain s | recorded s | times plain | ns a byte |\n|---|---|---|---|---|---|")
    for batch in map(int, given.batches.split(",")):
        step = training(WORDS, D, HEADS, LAYERS, T, batch)
        step()
        plain, both = [], []
        for _ in range(given.steps):
            plain.append(spent(step))
            with tempfile.TemporaryDirectory() as folder:
                both.append(spent(functools.partial(recorded, step, folder)))
                size = size_of(folder)
        alone, together = min(plain), min(both)
        each = 1e9 * (together - alone) / size
        row = (batch, f"{size / 1e9:.2f}", f"{alone:.2f}", f"{together:.2f}", f"{together / alone:.2f}", f"{each:.3f}")
        print(f"| {' | '.join(map(str, row))} |", flush=True)


if __name__ == "__main__":
    main()
