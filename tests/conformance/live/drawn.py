"""Details files of drawn numbers: an API of every list and level, in every dtype, near every limit, NaN and inf too."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from pytest_probe.export.details import MEASURED
from pytest_probe.export.files import write_files
from pytest_probe.model.result import PortableId, Result
from pytest_probe.model.verdict import OutputVerdict, Verdict
from pytest_probe.reports.results_file import RESULTS
from tests.conformance.agreement import Agreement
from tests.conformance.live.comparisons import compared
from tests.conformance.live.tool import Tool

APIS = "linear mul relu conv2d softmax histc test_api embedding layer_norm scatter_ sum __truediv__".split()
DTYPES = (*("float32", "float16", "bfloat16") * 5, "float64", "complex64", "int64", "bool")
SHAPES = (*([4, 5],) * 38, [0], [0, 3])
# Limits of a rule, of a ratio, or the least that a benchmark's error counts as.
NEAR = (0.0, 0.0, 2.0**-20, 2.0**-14, 2.0**-11, 0.001, 2.0**-8, 2.0**-7, 0.05, 0.999, 1.0, 64.0, "nan", "inf")
RATIOS = (0.0, 0.9, 1.0, 1.0, 1.1, 1.2, 1.3, 1.5, 1.6, 2.0, 2.1, 5.0, 5.1, 10.0, 10.1)
Measured: TypeAlias = Mapping[str, "float | str"]
ROWS = 3000


def check(tool: Tool) -> Mapping[str, Agreement]:
    draw = random.Random(3)
    rows = [_row(draw, number) for number in range(ROWS)]
    device = _written(tool, "drawn-device", [_result(tool, *row, one) for row, one, _ in rows])
    benchmark = _written(tool, "drawn-benchmark", [_result(tool, *row, other) for row, _, other in rows])
    outputs, calls = compared(tool, [(device, benchmark, tool.folder / "compared-drawn")])
    return {"compare on drawn files, outputs": outputs, "compare on drawn files, API calls": calls}


def _row(draw: random.Random, number: int) -> tuple[tuple[str, str, list[int]], Measured, Measured]:
    """Entry, dtype and shape; and measures of both devices."""
    shape, dtype, api = draw.choice(SHAPES), draw.choice(DTYPES), draw.choice(APIS)
    names = list(MEASURED.values()) if 0 not in shape else []
    if dtype in ("int64", "bool"):
        api = "relu" if api == "conv2d" else api  # no convolution gives integers
        names = [name for name in names if name == "binary_mismatch_ratio"]
    device = {name: _value(draw, name) for name in names}
    return (f"Torch.{api}.{number}.forward", dtype, shape), device, _beside(draw, device)


def _value(draw: random.Random, name: str) -> float | str:
    is_share = name.endswith(("_ratio", "_balance"))
    near = draw.choice(NEAR[:-2] if is_share else NEAR)
    return near if isinstance(near, str) or draw.random() < 0.5 else near * draw.choice(RATIOS)


def _beside(draw: random.Random, device: Mapping[str, float | str]) -> dict[str, float | str]:
    """Mostly as many times better or worse as a limit is."""
    ratio, alike = draw.choice(RATIOS), draw.random() < 0.8

    def beside(name: str, value: float | str) -> float | str:
        if not alike:
            return _value(draw, name)
        return value / ratio if ratio and isinstance(value, float) else value

    return {name: beside(name, value) for name, value in device.items()}


def _result(tool: Tool, entry: str, dtype: str, shape: list[int], measures: Mapping[str, Any]) -> Result:
    output = OutputVerdict("output.0", tuple(shape), dtype, "pass", tool.standard, measures=measures)
    identity = PortableId("dump.json", entry)
    return Result.of(
        Verdict("pass", tool.standard, dtype=dtype, outputs=(output,)),
        identity,
        api=identity.api,
        direction=identity.direction,
        dtype=dtype,
        device="",
        duration=0.0,
    )


def _written(tool: Tool, name: str, results: list[Result]) -> Path:
    folder = tool.folder / name
    folder.mkdir()
    (folder / RESULTS).write_bytes(b"".join(msgspec.json.encode(result) + b"\n" for result in results))
    return write_files(folder, {"mode": ["acc"], "listen": None, "relations": []})[1]
