"""Our metrics against what msprobe's own releases printed for the same arrays (make_pairs.py, peer_rows.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_probe.numerics.dtypes import AnyArray, numpy_dtype
from pytest_probe.numerics.tool_metrics import Convention, Measures, measure
from pytest_probe.standards.tools.table import packaged
from pytest_probe.standards.tools.tool import limited
from tests.support.conventions import CONVENTIONS

HERE = Path(__file__).parent
RELEASES = {"1.0.4": "msprobe-1.0", "8.3.3": "msprobe-8", "26.2.0": "msprobe-26"}
METRICS = {
    "max_abs_error": "max_abs_error",
    "hundredth": "hundredth_ratio",
    "thousandth": "thousandth_ratio",
    "ten_thousandth": "ten_thousandth_ratio",
    "binary": "binary_mismatch_ratio",
    "error_balance": "error_balance",
    "rmse": "rmse",
    "small_value_error": "small_value_error_ratio",
    "max_rel_error": "max_rel_error",
    "mean_rel_error": "mean_rel_error",
    "inf_nan_error": "inf_nan_error_ratio",
    "rel_error": "rel_error_ratio",
    "abs_error": "abs_error_ratio",
    "ulp_max": "ulp_max",
    "ulp_mean": "ulp_mean",
    "ulp_over": "ulp_over_ratio",
}
# The tool's float32 overflows: squares of errors above 1e19, and 2^(7 - e) for references below 2^-120.
OVERFLOWS = {"overflow.bfloat16", "steps.bfloat16"}
OVERFLOWING = {"rmse", "ulp_max", "ulp_mean", "ulp_over_ratio"}


def side(arrays: Any, key: str, name: str) -> AnyArray:
    found = np.asarray(arrays[key])
    return found.view(numpy_dtype("bfloat16")) if key == f"{name}/device" and name.endswith("bfloat16") else found


def printed(release: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / f"msprobe-{release}.json").read_text())
    return found


def rule_for(standard: str, device: AnyArray, benchmark: AnyArray, api: str) -> Convention:
    base = CONVENTIONS[standard](device.dtype, benchmark.dtype)
    if api == "test_api" and standard == "msprobe-8":
        bounds = packaged().limits["accumulative"]
        return limited(base, bounds.get(device.dtype.name, bounds["float32"]))
    return base


def differences(name: str, cells: dict[str, str], ours: Measures) -> list[str]:
    found = []
    for column, field in METRICS.items():
        if column in cells and not (name in OVERFLOWS and field in OVERFLOWING):
            mine, theirs = getattr(ours, field), float(cells[column])
            if mine != pytest.approx(theirs, rel=1e-6, abs=1e-14, nan_ok=True):
                found.append(f"{field}: {mine} instead of {cells[column]}")
    distance, cosine = ours.cosine_distance, cells.get("cosine")
    if (distance is None) != (cosine is None):
        found.append(f"cosine: {distance} instead of {cosine}")
    elif (
        distance is not None
        and cosine is not None
        and 1 - distance != pytest.approx(float(cosine), abs=2e-14, rel=0, nan_ok=True)
    ):
        found.append(f"cosine: {1 - distance} instead of {cosine}")
    return found


@pytest.mark.parametrize("release", RELEASES)
def test_equal_what_msprobe_printed(release: str) -> None:
    arrays, compared, wrong = np.load(HERE / "pairs.npz"), 0, []
    for name, rows in printed(release)["rows"].items():
        device, benchmark = side(arrays, f"{name}/device", name), side(arrays, f"{name}/benchmark", name)
        for api, cells in rows.items():
            if device.dtype.kind in "ib":
                ours = measure(device, benchmark, Convention())
                cells = {"binary": cells["binary"]}
            else:
                ours = measure(device, benchmark, rule_for(RELEASES[release], device, benchmark, api))
            compared += len(cells.keys() & METRICS.keys())
            wrong += [f"{name} as {api}: {each}" for each in differences(name, cells, ours)]
    assert not wrong, "\n".join(wrong)
    assert compared > 1000


@pytest.mark.parametrize("index", [0, 1])
def test_ulp_of_float8_is_msprobes(index: int) -> None:
    row = printed("26.2.0")["float8"][index]
    device = np.array(row["device"]).astype(numpy_dtype(row["dtype"]))
    ours = measure(device, np.array(row["benchmark"]), CONVENTIONS["msprobe-26"](device.dtype))
    assert (ours.ulp_max, ours.ulp_mean, ours.ulp_over_ratio) == pytest.approx(
        (row["ulp_max"], row["ulp_mean"], row["ulp_over"]), rel=1e-9
    )
