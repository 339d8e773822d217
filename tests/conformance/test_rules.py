"""Decision rules against what the tools decided, row by row, from the tools' own metric columns.

Same verdict; where one of our standards mends a slip of its tool on purpose, the row names it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.standards.tools import COMPARES as COMPARE
from pytest_probe.standards.tools import TOOLS
from pytest_probe.standards.tools.release import RuleVerdict, accuracy_reached
from pytest_probe.standards.tools.tool import Compare, ComparedMetric
from pytest_probe.standards.tools.tool import status as status_by
from tests.conformance.agreement import Agreement
from tests.conformance.peer_tables import PeerRow, read_rows
from tests.support.dumps import DATA

Status: TypeAlias = Callable[[str, Measures], RuleVerdict]
PEERS = DATA / "peers"
HERE = Path(__file__).parent
NO_ULP_OF_FLOAT32 = "1.0.4 never finds the ULP rule of float32: it compares the dtype's text with a dtype"
METRICS = {
    "small_value_error_ratio": "小值域",
    "rmse": "均方根误差",
    "max_rel_error": "相对误差最大值",
    "mean_rel_error": "相对误差平均值",
    "error_balance": "误差均衡性",
}


def older_ptdbg(_: str, measures: Measures) -> RuleVerdict:
    """Version 2.3 fails only where both are beyond their limits."""
    limits = {**TOOLS["ptdbg"].release.status.limits, "worst_cosine": -math.inf, "worst_max_abs_error": math.inf}
    distance = 0.0 if measures.cosine_distance is None else measures.cosine_distance
    return accuracy_reached(Measures(2, cosine_distance=distance, max_abs_error=measures.max_abs_error or 0.0), limits)


STATUSES: Mapping[str, Status] = {
    "mindspore": TOOLS["mindspore"].status,
    "msprobe-1.0.4": TOOLS["msprobe-1.0"].status,
    "msprobe-8.3.3": TOOLS["msprobe-8"].status,
    "msprobe-26.2.0": TOOLS["msprobe-26"].status,
    "paddleapex": TOOLS["paddleapex"].status,
    "ptdbg/v2.3": older_ptdbg,
    "ptdbg/v4.0.T2": TOOLS["ptdbg"].status,
    "ptdbg/api_accuracy_checker": partial(status_by, TOOLS["msprobe"].release.status),
}
COMPARES: Mapping[str, tuple[Compare, ...]] = {
    "msprobe-1.0.4": (COMPARE["msprobe-1.0"], COMPARE["msprobe"]),
    "msprobe-26.2.0": (COMPARE["msprobe-26"],),
    "paddleapex": (COMPARE["paddleapex"],),
}


def _tool(path: Path, known: Mapping[str, Any]) -> str:
    """Which tool wrote the file; the path below which folder does not matter."""
    return next((tool for tool in known if f"/{tool}" in path.as_posix()), "")


def files(folder: Path, words: str) -> list[Path]:
    return sorted(path for path in folder.rglob("*.csv*") if words in path.name)


def checked(path: Path) -> Agreement:
    """Every row of a two-party file."""
    agreement, status = Agreement(), STATUSES[_tool(path, STATUSES)]
    for row in read_rows(path):
        if row.verdict in ("skip", "Unmatched", "") or not row.dtype:
            agreement.undecided += 1
        else:
            _add(agreement, row, status(row.dtype, row.measures))
    return agreement


def _details(path: Path, side: str) -> Path:
    """The file that a three-party comparison took for a side, "noise" or "clean"."""
    suffix = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    name = "expected_accuracy_checking_details" + ("_noise1e-3" if side == "noise" else "")
    return path.with_name(name + suffix)


def sides(path: Path) -> tuple[list[PeerRow], list[PeerRow]]:
    if "paddleapex" in path.as_posix():
        found = [
            file for file in files(path.parent, "checking_details") if "real_data/direct_cmp_fp32_vs_bf16" in str(file)
        ]
        return read_rows(found[0]), read_rows(found[0])
    device = path.name.rpartition("details_")[2].partition("-")[0]
    return read_rows(_details(path, device)), read_rows(_details(path, "clean"))


def compared(path: Path, compare: Compare) -> Agreement:
    """Every row of a three-party file, each ratio's own verdict included."""
    agreement = Agreement()
    devices, benchmarks = ({row.name: row for row in rows} for rows in sides(path))
    for row in read_rows(path):
        device, benchmark = devices[row.name], benchmarks[row.name]
        if row.verdict == "skip":
            agreement.undecided += 1
            continue
        decision = compare(device.api, device.dtype, device.measures, benchmark.measures)
        wide_ulp = decision.rule == "ulp" and device.dtype == "float32" and compare is COMPARE["msprobe"]
        _add(agreement, row, decision.ruling, NO_ULP_OF_FLOAT32 if wide_ulp else "")
        agreement.unlike += [f"{row.name} {words}" for words in _unlike_ratios(row, decision.compared)]
    return agreement


def _add(agreement: Agreement, row: PeerRow, found: RuleVerdict, slip: str = "") -> None:
    differs = f"{found.verdict} ({found.reason}), the tool: {row.verdict}" if found.verdict != row.verdict else ""
    agreement.add(f"{row.name} {row.dtype}", differs, slip)


def _unlike_ratios(row: PeerRow, found: tuple[ComparedMetric, ...]) -> Iterator[str]:
    for item in found:
        words = METRICS[item.metric]
        printed = float(row.cells.get(f"{words}比值") or row.cells[f"{words}错误比值"])
        said = row.cells.get(f"{words}判定结果", "").lower()
        # Ratios of numbers that were printed with 14 decimals.
        if not math.isclose(item.value, printed, rel_tol=1e-4, abs_tol=1e-6) or said != item.ruling.verdict:
            yield f"{item.metric}: {item.value} {item.ruling.verdict}, the tool: {printed} {said}"


def _id(path: Path) -> str:
    return "/".join(path.relative_to(PEERS).parts)


@pytest.mark.parametrize("path", files(PEERS, "checking_details") + files(PEERS, "compare_result"), ids=_id)
def test_two_party_verdicts_are_the_tools(path: Path) -> None:
    agreement = checked(path)
    assert not agreement.unlike
    assert agreement.alike > 0


@pytest.mark.parametrize("path", files(PEERS, "precision_compare_details"), ids=_id)
def test_three_party_verdicts_are_the_tools(path: Path) -> None:
    for compare in COMPARES[_tool(path, COMPARES)]:
        agreement = compared(path, compare)
        assert not agreement.unlike
        assert agreement.alike > 0


def test_the_mended_slip_is_there() -> None:
    path = next(file for file in files(PEERS / "msprobe-1.0.4", "precision_compare_details") if "clean-vs" in file.name)
    assert compared(path, COMPARE["msprobe"]).slips == {NO_ULP_OF_FLOAT32: 1}
    assert not compared(path, COMPARE["msprobe-1.0"]).slips


@pytest.mark.parametrize(
    ("release", "tool"), [("1.0.4", "msprobe-1.0"), ("8.3.3", "msprobe-8"), ("26.2.0", "msprobe-26")]
)
def test_statuses_on_arrays_with_every_kind_of_trouble(release: str, tool: str) -> None:
    rows = json.loads((HERE / f"msprobe-{release}.json").read_text())["rows"]
    unlike = []
    for name, by_api in rows.items():
        for api, cells in by_api.items():
            found = TOOLS[tool].status(cells["device_dtype"].rpartition(".")[2], _measures(name, cells))
            if found.verdict != cells["status"].lower():
                unlike.append((name, api, found, cells))
    assert not unlike


def _measures(name: str, cells: Mapping[str, str]) -> Measures:
    """zero-sided arrays have no cosine, and the row does not tell which side is zero."""
    columns = {"binary": "binary_mismatch_ratio", "hundredth": "hundredth_ratio", "thousandth": "thousandth_ratio"}
    columns |= {"ten_thousandth": "ten_thousandth_ratio", "max_abs_error": "max_abs_error"}
    found: dict[str, Any] = {ours: float(cells[theirs]) for theirs, ours in columns.items() if theirs in cells}
    if "cosine" in cells:
        found["cosine_distance"] = 1 - float(cells["cosine"])
    elif "max_abs_error" not in cells and "float" in cells["device_dtype"]:
        found |= {"actual_magnitude": 0.0, "expected_magnitude": 1.0}
    return Measures(1 if name.startswith("one.") else 1200, **found)
