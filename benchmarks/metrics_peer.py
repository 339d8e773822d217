"""Time msprobe's own comparison of a pair that metrics_speed.py wrote; under a Python that has msprobe.

PYTHON benchmarks/metrics_peer.py FOLDER PAIR REPEATS [ELEMENTS]
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from inspect import signature
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from msprobe.pytorch.api_accuracy_checker.compare.compare import Comparator

from benchmarks.metrics_speed import load, timed


def main() -> None:
    folder, name, repeats = sys.argv[1:4]
    count = int(sys.argv[4]) if sys.argv[4:] else None
    actual, expected = load(Path(folder), name)
    bits = actual.view("int16") if name.startswith("bfloat16") else actual
    device = torch.from_numpy(bits)[:count]
    device = device.view(torch.bfloat16) if name.startswith("bfloat16") else device
    benchmark = torch.from_numpy(expected)[:count]
    comparator = Comparator.__new__(Comparator)
    if hasattr(comparator, "_register_compare_func"):
        comparator.registry = comparator._register_compare_func()
    compare = comparator._compare_core_wrapper
    flags = (False,) if "is_fp8" in signature(compare).parameters else ()
    cost = timed(lambda: compare("softmax", benchmark, device, *flags), int(repeats), 100 if count else 1)
    print(json.dumps({**cost, "release": version("mindstudio-probe")}))


if __name__ == "__main__":
    main()
