"""What a release of msprobe prints for the pairs of make_pairs.py; under a Python that has it (and its torch).

    PYTHON tests/conformance/peer_rows.py [PAIRS]        # writes msprobe-VERSION.json beside it

Every pair is compared as the output of one API of each of the tool's lists, so that every metric is computed. Cells are
written as the tool writes them to its details file: 14 decimals where a number is a float. ULP of float8, which the
tool's checker cannot be handed from a CPU, are its own function's, of float32 values.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msprobe.pytorch.api_accuracy_checker.compare import algorithm
from msprobe.pytorch.api_accuracy_checker.compare.compare import Comparator

PAIRS = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).with_name("pairs.npz")
APIS = ("softmax", "mul", "relu", "linear", "conv2d", "test_api")
COLUMNS = (
    "bench_dtype device_dtype shape cosine max_abs_error hundredth thousandth ten_thousandth binary error_balance rmse "
    "small_value_error max_rel_error mean_rel_error inf_nan_error rel_error abs_error ulp_max ulp_mean ulp_over "
    "status message"
).split()
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")


def pairs() -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    arrays = np.load(PAIRS)
    for name in sorted({key.rpartition("/")[0] for key in arrays}):
        device, benchmark = (torch.from_numpy(np.array(arrays[f"{name}/{side}"])) for side in ("device", "benchmark"))
        if name.endswith(".bfloat16"):
            device = device.view(torch.bfloat16)
        yield name, device, benchmark


def row(comparator: Comparator, api: str, device: torch.Tensor, benchmark: torch.Tensor) -> dict[str, str]:
    compare = comparator._compare_core_wrapper
    flags = (False,) if "is_fp8" in signature(compare).parameters else ()
    _, (cells,) = compare(api, benchmark, device, *flags)
    printed = [f"{cell:.14f}" if isinstance(cell, float) else str(cell) for cell in cells]
    return {name: text for name, text in zip(COLUMNS, printed, strict=True) if text.strip() and name != "message"}


def float8(name: str) -> dict[str, Any]:
    random = torch.Generator().manual_seed(7)
    dtype = getattr(torch, name)
    truth = torch.randn(400, generator=random) * torch.exp2(torch.randint(-20, 6, (400,), generator=random).float())
    device = truth.to(dtype).to(torch.float32).numpy()
    units = algorithm.get_ulp_err(truth.numpy(), device, dtype)
    numbers = {"ulp_max": units.max(), "ulp_mean": units.mean(), "ulp_over": (units > 1).mean()}
    return {
        "dtype": name,
        "device": device.tolist(),
        "benchmark": truth.tolist(),
        **{key: float(number) for key, number in numbers.items()},
    }


def main() -> None:
    release = version("mindstudio-probe")
    comparator = Comparator.__new__(Comparator)
    if hasattr(comparator, "_register_compare_func"):
        comparator.registry = comparator._register_compare_func()
    rows = {name: {api: row(comparator, api, device, benchmark) for api in APIS} for name, device, benchmark in pairs()}
    found: dict[str, Any] = {"release": release, "rows": rows}
    if hasattr(algorithm, "calc_ulp_err_fp8"):
        found["float8"] = [float8(name) for name in FLOAT8]
    path = PAIRS.with_name(f"msprobe-{release}.json")
    path.write_text(json.dumps(found, indent=0, ensure_ascii=False) + "\n")
    print(f"{path.name}: {sum(map(len, rows.values()))} rows, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
