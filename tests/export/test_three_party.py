from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_probe.export.details import Row
from pytest_probe.export.three_party import MSPROBE, ComparedRow, compare, compared_files
from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.reports.results_file import write_rows
from tests.support import csv_cells

STAMP = "20261121093000"


def write_compared(folder: Path, stamp: str, found: Sequence[ComparedRow]) -> None:
    for name, lines in compared_files(stamp, found).items():
        write_rows(folder / name, lines)


NAN = math.nan
FINE: dict[str, Any] = {
    "small_value_error_ratio": 0.0, "rmse": 1e-7, "max_rel_error": 1e-6, "mean_rel_error": 1e-7, "error_balance": 0.1,
    "inf_nan_error_ratio": 0.0, "rel_error_ratio": 0.0, "abs_error_ratio": 0.0, "ulp_mean": 0.5, "ulp_over_ratio": 0.0,
    "thousandth_ratio": 1.0, "binary_mismatch_ratio": 0.0,
}  # fmt: skip


def row(entry: str, dtype: str = "float32", key: str = "", **changed: Any) -> Row:
    api = entry.rsplit(".", 2)[0]
    return Row(key or f"{entry}.output.0", entry, api, dtype, "pass", "", Measures(100, **{**FINE, **changed}))


def rows(*made: Row) -> dict[str, Row]:
    return {item.key: item for item in made}


def details(folder: Path) -> list[dict[str, str]]:
    found = csv_cells.rows(folder, f"api_precision_compare_details_{STAMP}")
    assert not found or tuple(found[0]) == MSPROBE.header
    return found


def results(folder: Path) -> list[list[str]]:
    return csv_cells.lines(folder, f"api_precision_compare_result_{STAMP}")[1:]


def filled(cells: dict[str, str]) -> dict[str, str]:
    return {name: cell for name, cell in cells.items() if cell.strip()}


@pytest.mark.parametrize(("rmse", "ratio"), [(3e-7, "3.00"), (NAN, "nan")])
def test_a_ratio_of_errors_above_its_limit_is_an_error(tmp_path: Path, rmse: float, ratio: str) -> None:
    found = compare(rows(row("Torch.exp.0.forward", rmse=rmse)), rows(row("Torch.exp.0.forward")), "msprobe")
    assert [item.status for item in found] == ["error"]
    write_compared(tmp_path, STAMP, found)
    (cells,) = map(filled, details(tmp_path))
    assert (cells["均方根误差比值"][:4], cells["均方根误差判定结果"]) == (ratio, "error")
    assert (cells["小值域错误比值"][:4], cells["小值域判定结果"]) == ("1.00", "pass")
    assert (cells["比对结果"], cells["比对算法"]) == ("error", "标杆比对法")
    assert "ULP误差平均值" not in cells


def test_each_rule_fills_its_cells(tmp_path: Path) -> None:
    entries = {
        "Functional.linear.0.forward": ("ULP误差判定结果", "ULP误差比对法"),
        "Functional.conv2d.0.forward": ("双千指标判定结果", "双千指标法"),
        "Torch.add.0.forward": ("绝对误差判定结果", "绝对阈值法"),
        "Functional.relu.0.forward": ("二进制一致错误率判定结果", "二进制一致法"),
    }
    both = rows(*map(row, entries))
    found = compare(both, both, "msprobe")
    write_compared(tmp_path, STAMP, found)
    for cells, (result, algorithm) in zip(details(tmp_path), entries.values(), strict=True):
        assert (cells[result], cells["比对结果"], cells["比对算法"]) == ("pass", "pass", algorithm)


@pytest.mark.parametrize(("balance", "verdict"), [(2.0**-14, "pass"), (2.0**-13, "error"), (NAN, "error")])
def test_the_balance_of_accumulative_errors_is_the_devices_own(tmp_path: Path, balance: float, verdict: str) -> None:
    device, benchmark = row("Torch.test_api.0.forward", error_balance=balance), row("Torch.test_api.0.forward")
    write_compared(tmp_path, STAMP, compare(rows(device), rows(benchmark), "msprobe-8"))
    (cells,) = map(filled, details(tmp_path))
    assert (cells["误差均衡性比值"], cells["误差均衡性判定结果"]) == (f"{balance:.14f}", verdict)
    assert (cells["比对结果"], cells["比对算法"]) == (verdict, "累积误差比对法")
    assert cells["绝对误差判定结果"] == "pass"


@pytest.mark.parametrize("standard", ["msprobe-1.0", "msprobe-8", "msprobe-26"])
@pytest.mark.parametrize("name", ["exp", "linear", "relu", "mul"])
def test_the_tools_compare_no_empty_outputs(standard: str, name: str) -> None:
    entry = f"Torch.{name}.0.forward"
    empty = rows(Row(f"{entry}.output.0", entry, f"Torch.{name}", "float32", "pass", "", Measures(0)))
    assert [item.status for item in compare(empty, empty, standard)] == ["SKIP"]
    assert [item.status for item in compare(empty, empty, "msprobe")] == ["pass"]


def test_integers_are_compared_bit_for_bit() -> None:
    wrong = rows(row("Torch.cumsum.0.forward", "int64", binary_mismatch_ratio=0.5))
    assert [item.status for item in compare(wrong, wrong, "msprobe-26")] == ["error"]


def test_what_is_on_one_side_only_is_listed(tmp_path: Path) -> None:
    found = compare(rows(row("Torch.exp.0.forward")), rows(row("Torch.sin.0.forward")), "msprobe")
    write_compared(tmp_path, STAMP, found)
    assert [(cells["API Name"], cells["比对结果"], cells["Message"]) for cells in details(tmp_path)] == [
        ("Torch.exp.0.forward.output.0", "SKIP", "only in the device's results"),
        ("Torch.sin.0.forward.output.0", "SKIP", "only in the benchmark's results"),
    ]


def test_compared_results_have_a_row_for_each_call(tmp_path: Path) -> None:
    forward, backward = "Torch.exp.0.forward", "Torch.exp.0.backward"
    both = rows(row(forward), row(forward, key=f"{forward}.output.1", rmse=1.0), row(backward))
    write_compared(tmp_path, STAMP, compare(both, rows(row(forward), *list(both.values())[2:]), "msprobe"))
    assert results(tmp_path) == [["Torch.exp.0", "pass", "pass", "only in the device's results"]]
    benchmark = rows(row(forward), row(forward, key=f"{forward}.output.1"), row(backward))
    write_compared(tmp_path, STAMP, compare(both, benchmark, "msprobe"))
    assert results(tmp_path) == [["Torch.exp.0", "error", "pass", ""]]


@pytest.mark.parametrize("names", [["rank0/d.json::Torch.exp.0", "rank1/d.json::Torch.exp.0"],
                                   ["Torch.exp.0", "Torch.exp.0[bfloat16]"]], ids=["dumps", "dtypes"])  # fmt: skip
def test_several_dumps_and_dtypes_are_several_calls(tmp_path: Path, names: list[str]) -> None:
    keys = [name.replace("exp.0", "exp.0.forward") + ".output.0" for name in names]
    both = rows(*(row("Torch.exp.0.forward", key=key) for key in keys))
    write_compared(tmp_path, STAMP, compare(both, both, "msprobe"))
    assert [line[0] for line in results(tmp_path)] == names


def test_an_output_that_is_not_there() -> None:
    missing = Row("a.0.forward.output.0", "a.0.forward", "a", "", "SKIP", "no kernel", Measures(0))
    (found,) = compare(rows(missing), rows(row("a.0.forward")), "msprobe")
    assert (found.status, found.decision.ruling.reason) == ("SKIP", "no kernel")
    (found,) = compare(rows(row("a.0.forward")), rows(missing), "msprobe")
    assert found.decision.ruling.reason == "the benchmark has no output: no kernel"
