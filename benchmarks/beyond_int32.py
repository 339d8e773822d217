"""Tensors of more than 2^31 elements: `python benchmarks/beyond_int32.py [--log2 31] [--device cuda] [CALL ...]`.

Each call is checked on a device, or on the CPU under another device name, on one tensor of 2^31 + 2^12 elements: as it
is, and with a fault in the third element from the end, which a 32-bit index does not reach. Prints verdicts, wall time,
and the peak of memory as a multiple of the tensor's own size.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from pytest_probe.check import Checker, RunRequest  # noqa: E402
from pytest_probe.registry import Registry  # noqa: E402
from tests.support.devices import Emulated  # noqa: E402

WIDTH = 2**12
CALLS: dict[str, tuple[str, str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "add of uint8": ("Torch.add", "uint8", lambda x: torch.add(x, 1)),
    "add": ("Torch.add", "bfloat16", lambda x: torch.add(x, 1)),
    "gelu": ("Functional.gelu", "bfloat16", torch.nn.functional.gelu),
    "sum of rows": ("Torch.sum", "bfloat16", lambda x: torch.sum(x, 1)),
}


def drawn(dtype: torch.dtype, size: int) -> torch.Tensor:
    tensor = torch.empty(size // WIDTH, WIDTH, dtype=dtype)
    for rows in tensor.split(2**12):
        rows.copy_(torch.randn(rows.shape) if dtype.is_floating_point else torch.randint(200, rows.shape))
    return tensor


def check(name: str, size: int, device: str, faulty: bool) -> dict[str, object]:
    api, dtype, function = CALLS[name]
    registry = Registry.default()
    registry.devices["other"] = Emulated
    checker = Checker(RunRequest(device=device), registry)
    tensor = drawn(getattr(torch, dtype), size)

    def tested(x: torch.Tensor) -> torch.Tensor:
        found = function(x)
        if faulty and len(x) == len(tensor) and x.dtype is tensor.dtype:
            found.view(-1)[-3] += 4
        return found

    begin = time.perf_counter()
    (verdict,) = checker.compare(tested, function, [tensor], api=api, key=name)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "verdict": verdict.verdict,
        "reason": verdict.headline,
        "seconds": time.perf_counter() - begin,
        "times": peak / tensor.nbytes,
    }


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("calls", nargs="*", metavar="CALL", help=", ".join(CALLS))
    parser.add_argument("--log2", type=int, default=31, help="the tensor's size: 2^31 where it is not given")
    parser.add_argument("--device", default="other")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.calls or [*CALLS]
    if options.one:
        print(json.dumps(check(names[0], 2**options.log2 + WIDTH, options.device, options.one == "faulty")))
        return
    print("| call | as it is | with a fault | seconds | peak |\n|---|---|---|---|---|")
    for name in names:
        command = [sys.executable, __file__, name, "--log2", str(options.log2), "--device", options.device, "--one"]
        found = [
            json.loads(subprocess.run([*command, kind], check=True, capture_output=True, text=True).stdout)
            for kind in ("healthy", "faulty")
        ]
        seconds, times = (", ".join(f"{each[key]:.{digits}f}" for each in found) for key, digits in _COLUMNS)
        print(f"| {name} | {found[0]['verdict']} | {found[1]['reason']} | {seconds} | {times} |", flush=True)


_COLUMNS = (("seconds", 0), ("times", 1))

if __name__ == "__main__":
    main()
