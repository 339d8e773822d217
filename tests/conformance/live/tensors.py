"""Metrics and statuses of the same tensors: those that the tool's checker prints, and ours."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.numerics.tool_metrics import Convention, measure
from pytest_probe.standards import STANDARDS
from tests.conformance.agreement import Agreement
from tests.conformance.live.tool import Tool
from tests.conformance.make_pairs import write
from tests.conformance.test_metrics import OVERFLOWING, OVERFLOWS, differences, rule_for, side

# Of the tensors, as in pairs.npz: other numbers in each.
SEEDS = (4, 1004, 2004)
FLOAT32_OVERFLOWS = "the tool's float32 arithmetic on bfloat16 overflows, and so do its metrics"


def check(tool: Tool) -> Mapping[str, Agreement]:
    metrics, statuses = Agreement(), Agreement()
    for seed in SEEDS:
        pairs = tool.folder / f"pairs-{seed}.npz"
        write(pairs, seed)
        tool.run("peer_rows.py", pairs)
        arrays = np.load(pairs)
        printed = json.loads((tool.folder / f"msprobe-{tool.release}.json").read_text())["rows"]
        for name, api, cells in _rows(printed):
            both = side(arrays, f"{name}/device", name), side(arrays, f"{name}/benchmark", name)
            _compare(f"{name} as {api}, seed {seed}", tool, api, cells, both, (metrics, statuses))
    return {"metrics of the same tensors": metrics, "statuses of the same tensors": statuses}


def _rows(printed: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, str]]]:
    for name, rows in printed.items():
        for api, cells in rows.items():
            yield name, api, cells


def _compare(
    row: str,
    tool: Tool,
    api: str,
    cells: dict[str, str],
    both: tuple[AnyArray, AnyArray],
    found: tuple[Agreement, Agreement],
) -> None:
    """Cells that the tool fills, and its Status by our metrics."""
    metrics, statuses = found
    name, dtype = row.partition(" ")[0], both[0].dtype
    exact = dtype.kind in "ib"
    ours = measure(*both, Convention() if exact else rule_for(tool.standard, *both, api))
    filled = {"binary": cells["binary"]} if exact else cells
    unlike = differences("", filled, ours)
    overflows = name in OVERFLOWS and all(text.partition(":")[0] in OVERFLOWING for text in unlike)
    metrics.add(row, "; ".join(unlike), FLOAT32_OVERFLOWS if overflows else "")
    status = STANDARDS[tool.standard].status(dtype.name, ours)  # type: ignore[attr-defined]
    said = cells["status"].lower()
    statuses.add(row, "" if status.verdict == said else f"{status.verdict} ({status.reason}), the tool: {said}")
