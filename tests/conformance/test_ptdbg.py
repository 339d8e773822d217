"""Our metrics against what ptdbg_ascend 4.0's compare() printed for the same tensors (make_ptdbg.py)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pytest_probe.numerics.tool_metrics import measure
from pytest_probe.standards.tools.release import packaged_release

HERE = Path(__file__).parent
ROWS: dict[str, dict[str, str]] = json.loads((HERE / "ptdbg.json").read_text())


@pytest.mark.parametrize("name", ROWS)
def test_equal_what_ptdbg_printed(name: str) -> None:
    arrays, row = np.load(HERE / "ptdbg.npz"), {column: float(text) for column, text in ROWS[name].items()}
    device, benchmark = arrays[f"{name}/device"], arrays[f"{name}/benchmark"]
    found = measure(device, benchmark, packaged_release("ptdbg").convention_of(device.dtype, benchmark.dtype))
    printed = {
        "MaxAbsErr": found.max_abs_error,
        "MaxRelativeErr": found.max_rel_error,
        "One Thousandth Err Ratio": found.thousandth_ratio,
        "Five Thousandths Err Ratio": found.five_thousandth_ratio,
    }
    assert printed == {column: pytest.approx(row[column], rel=1e-6, abs=1e-12) for column in printed}
    if found.cosine_distance is None:
        assert row["Cosine"] == 1.0  # both sides are zero
    else:
        cosine = 1 - found.cosine_distance
        assert row["Cosine"] == pytest.approx(1.0 if cosine > 0.99999 else cosine, abs=1e-12, rel=0)
