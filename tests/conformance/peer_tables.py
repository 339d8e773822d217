"""Rows of the tools' own CSV files, with their metric columns as Measures."""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from pytest_probe.export.details import COSINE, MEASURED
from pytest_probe.numerics.tool_metrics import Measures

# Columns of msprobe, PaddleAPEX; of msprobe for MindSpore; of ptdbg's compare(); of api_accuracy_checker, 2023.
COLUMNS: Mapping[str, str] = {
    **{column: field for column, field in MEASURED.items() if column != COSINE},
    "MaxAbsErr": "max_abs_error",
    "MaxRelativeErr": "max_rel_error",
    "One Thousandth Err Ratio": "thousandth_ratio",
    "Five Thousandths Err Ratio": "five_thousandth_ratio",
    "Max Abs Error": "max_abs_error",
    "Relative Error (dual hundredth)": "hundredth_ratio",
    "Relative Error (dual thousandth)": "thousandth_ratio",
    "Relative Error (dual ten thousandth)": "ten_thousandth_ratio",
    "Error Rate": "binary_mismatch_ratio",
}
COSINES = (COSINE, "Cosine", "Cosine Similarity")
NAMES = ("API Name", "NPU Name", "Npu Name")
DTYPES = ("DEVICE Dtype", "Tested Dtype", "NPU Tensor Dtype", "NPU Dtype")
STATUSES = ("Status", "比对结果", "Accuracy Reached or Not")
VERDICTS = {"warning": "warning", "Warning": "warning", "Yes": "pass", "No": "error", "Nan": "warning", "SKIP": "skip"}
ZERO_DEVICE, ZERO_BENCH = "All the data is zero in device", "All the data is zero in bench"
NONFINITE = "The position of inf or nan"


class PeerRow(Struct, frozen=True):
    """One output. verdict is the tool's, in our words; cells has the row as it was printed."""

    name: str
    api: str
    dtype: str
    verdict: str
    measures: Measures
    cells: Mapping[str, str]


def read_rows(path: Path) -> list[PeerRow]:
    packed = path.suffix == ".gz"
    text = (gzip.decompress(path.read_bytes()) if packed else path.read_bytes()).decode("utf-8-sig")
    return [_row(cells) for cells in csv.DictReader(io.StringIO(text))]


def _row(cells: Mapping[str, str]) -> PeerRow:
    name = _first(cells, NAMES)
    status = _first(cells, STATUSES)
    return PeerRow(name, _api(name), _dtype(cells), VERDICTS.get(status, status), _measures(cells), cells)


def _first(cells: Mapping[str, str], columns: tuple[str, ...]) -> str:
    return next((cells[column].strip() for column in columns if cells.get(column)), "")


def _api(name: str) -> str:
    """Functional.conv2d of Functional.conv2d.0.forward.output.0; paddle.add of paddle.add*0.forward.output.0."""
    return re.sub(r"[.*]\d+\.(forward|backward)\..*", "", name)


def _dtype(cells: Mapping[str, str]) -> str:
    return _first(cells, DTYPES).rpartition(".")[2].lower()


def _measures(cells: Mapping[str, str]) -> Measures:
    found: dict[str, Any] = dict(_numbers(cells))
    message = cells.get("Message") or cells.get("Err_message") or ""
    if ZERO_DEVICE in message:
        found |= {"actual_magnitude": 0.0, "expected_magnitude": 1.0}
    if ZERO_BENCH in message:
        found |= {"actual_magnitude": 1.0, "expected_magnitude": 0.0}
    if NONFINITE in message:
        found["nonfinite_mismatch"] = 1
    shape = _first(cells, ("Shape", "NPU Tensor Shape"))
    sizes = [int(size) for size in re.findall(r"\d+", shape)]
    count = 1
    for size in sizes:
        count *= size
    return Measures(count, **found)


def _numbers(cells: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    for column, text in cells.items():
        try:
            value = float(text or "")
        except ValueError:
            continue
        if column in COSINES:
            yield "cosine_distance", 1 - value
        elif column in COLUMNS:
            yield COLUMNS[column], value
