"""The tool's api_precision_compare on details files that we wrote, beside `pytest-probe compare`."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TypeAlias

from pytest_probe.cli import main
from pytest_probe.export.details import DEVICE, MESSAGE, NAME, SHAPE
from tests.conformance.agreement import Agreement
from tests.conformance.live.tool import Tool, pytest_probe
from tests.support.dumps import unpack

DUMPS = ("msprobe-1.0.4/cnn", "msprobe-1.0.4/cplx", "msprobe-1.0.4/gpt", "msprobe-26.2.0/amp_bf16")
CONFTEST = """
from tests.conformance.live.noisy import Noisy

def pytest_probe_register(registry):
    registry.devices["noisy"] = Noisy
"""
DETAILS, RESULT = "api_precision_compare_details_*.csv", "api_precision_compare_result_*.csv"
Row: TypeAlias = Mapping[str, str]
Table: TypeAlias = Mapping[str, Row]
WIDE = ("torch.float64", "torch.complex64", "torch.complex128")
UNDECIDED = "the tool skips calls with float64, complex or empty outputs as a whole, or names the outputs as if calls"
EMPTY = "26 skips empty outputs of shape (0,) and passes others by the ratios of blank cells; we skip them all"
BLANK_VERDICT = "to 8.3.3 the tool leaves the cell of the ULP verdict blank where a mean is NaN or inf on one side only"


def check(tool: Tool) -> Mapping[str, Agreement]:
    outputs, calls = compared(tool, list(_pairs(tool)))
    return {"compare on our files, outputs": outputs, "compare on our files, API calls": calls}


def compared(tool: Tool, pairs: Sequence[tuple[Path, Path, Path]]) -> tuple[Agreement, Agreement]:
    """Rows of outputs and of API calls: a device's details, a benchmark's, and a folder for what the tool writes."""
    outputs, calls = Agreement(), Agreement()
    tool.run("peer_compare.py", *(path for pair in pairs for path in pair))
    for device, benchmark, folder in pairs:
        mine = folder.with_name(f"{folder.name}-ours")
        with redirect_stdout(io.StringIO()):
            main(["compare", str(device), str(benchmark), "-o", str(mine), f"--standard={tool.standard}"])
        undecided, empty = _undecided(device), _empty(device)
        for pattern, found in ((DETAILS, outputs), (RESULT, calls)):
            for name, differs in _unlike(_table(folder, pattern), _table(mine, pattern)):
                skipped = pattern == RESULT and f"{name}.".startswith(undecided)
                slip = UNDECIDED if skipped else _slip(tool, name in empty, differs)
                found.add(f"{folder.name} {name}", "; ".join(differs), slip)
    return outputs, calls


def _pairs(tool: Tool) -> Iterator[tuple[Path, Path, Path]]:
    """Details files of two devices, and a folder for what is found."""
    for name in ("device", "benchmark"):
        _run(tool, name)
    for index, path in enumerate(sorted((tool.folder / "device").rglob("accuracy_checking_details_*.csv"))):
        beside = tool.folder / "benchmark" / path.parent.relative_to(tool.folder / "device")
        yield path, next(beside.glob("accuracy_checking_details_*.csv")), tool.folder / f"compared-{index}"


def _run(tool: Tool, name: str) -> None:
    (tool.folder / "conftest.py").write_text(CONFTEST)
    seed = {"device": 1, "benchmark": 2}[name]
    dumps = [f"--probe-dump={unpack(dump, tool.folder)}" for dump in DUMPS]
    options = [f"--probe-device=noisy:{seed}", "--probe-dtype=recorded,float16,bfloat16", f"--probe-out={name}"]
    pytest_probe(tool.folder, *dumps, *options, f"--probe-standard={tool.standard}")


def _table(folder: Path, pattern: str) -> Table:
    (path,) = folder.glob(pattern)
    return {row[NAME]: row for row in _rows(path)}


def _rows(path: Path) -> list[Row]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def _empty(details: Path) -> set[str]:
    return {row[NAME] for row in _rows(details) if "0" in re.findall(r"\d+", row[SHAPE])}


def _undecided(details: Path) -> tuple[str, ...]:
    """Calls with an output of float64 or complex numbers, or an empty one, each with a dot behind it."""
    wide = {row[NAME] for row in _rows(details) if row[DEVICE] in WIDE}
    return tuple({name.rsplit(".", 3)[0] + "." for name in wide | _empty(details)})


def _slip(tool: Tool, empty: bool, differs: list[str]) -> str:
    if tool.standard == "msprobe-26" and empty:
        return EMPTY
    if tool.standard == "msprobe-8" and differs == ["ULP误差判定结果: 'error', the tool: ''"]:
        return BLANK_VERDICT
    return ""


def _unlike(theirs: Table, mine: Table) -> Iterator[tuple[str, list[str]]]:
    """Each row's name, and in what it differs."""
    for name in dict.fromkeys((*theirs, *mine)):
        first, second = theirs.get(name), mine.get(name)
        if first is None or second is None:
            yield name, [f"only {'ours' if first is None else 'the tool'} has it"]
        else:
            yield name, list(_unlike_cells(first, second))


def _unlike_cells(theirs: Row, mine: Row) -> Iterator[str]:
    for column in theirs:
        first, second = theirs[column].strip().lower(), mine[column].strip().lower()
        if column != MESSAGE and not _alike(first, second):
            yield f"{column}: {second!r}, the tool: {first!r}"


def _alike(first: str, second: str) -> bool:
    try:
        # Ratios of numbers that were printed with 14 decimals.
        return math.isclose(float(first), float(second), rel_tol=1e-9, abs_tol=1e-12) or first == second
    except ValueError:
        return first == second
