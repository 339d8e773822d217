"""What one large generated tensor costs: CPU time, and memory at the peak beside the tensor's own.

    python benchmarks/large_inputs.py [--size 25] [--dtype bfloat16] [--checkout OTHER]

Each law is built in a process of its own, on as many threads as OMP_NUM_THREADS says. "own" is the tensor's memory;
"peak" what the process took at most beyond what it had before, in multiples of that. --checkout builds with the package
of another checkout.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
LAWS: dict[str, dict[str, Any]] = {
    "normal": {"max": 4.5, "min": -4.5, "mean": 0.0, "square": 1.0},
    "relu": {"max": 5.5, "min": 0.0, "mean": 0.399, "square": 0.5},
    "gelu": {"max": 5.5, "min": -0.17, "mean": 0.282, "square": 0.425},
    "softmax": {"max": 0.03, "min": 1e-6, "mean": 2.44e-4, "square": 1.6e-7},
    "range": {"max": 4.5, "min": -4.5},
    "none": {},
    "mask": {"max": 0.0, "min": -math.inf},
    "integers": {"dtype": "int64", "max": 31_999, "min": 0},
    "booleans": {"dtype": "bool", "max": True, "min": False},
}


def build_one(law: str, size: int, dtype: str) -> dict[str, float]:
    import resource
    import time

    import numpy as np

    from pytest_probe.frameworks.torch.signatures import bind
    from pytest_probe.inputs import StoredTensors, build
    from pytest_probe.model.dump import Call, TensorSpec

    def built(shape: tuple[int, ...], told: dict[str, Any]) -> np.ndarray:
        told = {"dtype": dtype, **told}
        square = told.pop("square", None)
        norm = None if square is None else math.sqrt(square * math.prod(shape))
        call = Call((TensorSpec(shape=shape, norm=norm, **told),), {}, None, None)
        bound, files = bind("Torch.exp", call.args, call.kwargs), StoredTensors(Path("benchmark"), ())
        made = build(call, bound=bound, record="Torch.exp.0", dtype=None, seed=0, kind="generated", files=files)
        array: np.ndarray = made.args[0].array
        return array

    def peak() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    built((1000, 1000), LAWS[law])
    before, start = peak(), time.process_time()
    array = built((2**size // 4096, 4096), LAWS[law])
    return {"seconds": time.process_time() - start, "peak": peak() - before, "own": array.nbytes / 2**20}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=25, help="2 to this power elements")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--checkout", type=Path, default=ROOT)
    parser.add_argument("--law", choices=LAWS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.law:
        print(json.dumps(build_one(options.law, options.size, options.dtype)))
        return
    print(f"| {options.dtype}, 2^{options.size} | CPU | own | peak |\n|---|---|---|---|")
    for law in LAWS:
        command = [sys.executable, __file__, "--law", law, "--size", str(options.size), "--dtype", options.dtype]
        environment = {**os.environ, "PYTHONPATH": str(options.checkout)}
        output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        found = json.loads(output.splitlines()[-1])
        ratio = found["peak"] / found["own"]
        print(f"| {law} | {found['seconds']:.2f} s | {found['own']:,.0f} MiB | {ratio:.2f} x |", flush=True)


if __name__ == "__main__":
    main()
