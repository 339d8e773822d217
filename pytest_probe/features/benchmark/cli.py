"""`pytest-probe compare`: a device's results, or its times, against a benchmark's, afterwards."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pytest_probe.errors import MissingSetting, SettingsError
from pytest_probe.export import measured as logs
from pytest_probe.export.compare_outputs import DIRECT_RULES, ComparedCall, compare_folders, direct_files
from pytest_probe.export.details import check_same_dump, early_end, read_rows
from pytest_probe.export.measured import MEMORY, SUMMARY, TIMES
from pytest_probe.export.output_folders import output_folder
from pytest_probe.export.three_party import ComparedRow, compare, compared_files, is_paddleapex
from pytest_probe.features.benchmark import times
from pytest_probe.model.verdict import PASS_SELF
from pytest_probe.reports.results_file import refused, write_rows
from pytest_probe.reports.terminal import count
from pytest_probe.standards.tools import COMPARES, DEFAULT
from pytest_probe.system.text import check_name, printable, printable_line

_SHOWN = 20
_COUNTED = ("pass", PASS_SELF, "warning", "error", "SKIP")
_FAILED = 1


def add_parser(commands: Any) -> None:
    """Register the command with argparse."""
    parser = commands.add_parser(
        "compare",
        help="judge a device's results against another device's, both against the same reference",
        description="Judge each output of a device by its errors and those of a benchmark, another device that ran the "
        "same cases: folders of --probe-out, or accuracy_checking_details files, ours, msprobe's or, with "
        "--standard=paddleapex, PaddleAPEX's. Writes api_precision_compare_result_*.csv and "
        "api_precision_compare_details_*.csv in msprobe's columns, or in PaddleAPEX's. --time "
        "compares the times of two runs instead, and writes times_compared.csv and, in "
        "PaddleAPEX's columns, prof_checking_result.csv; --memory writes memory_checking_result.csv. "
        "--direct compares the outputs themselves, without a reference, and writes accuracy_checking_*.csv in "
        "PaddleAPEX's columns.",
        epilog="exit status: 0, 1 where an output is an error, or none can be compared, 2 where an argument is wrong",
    )
    parser.add_argument("device", metavar="DEVICE", type=Path, help="results of the device under test")
    parser.add_argument("benchmark", metavar="BENCHMARK", type=Path, help="results of the device to compare with")
    parser.add_argument(
        "--direct",
        action="store_true",
        help="compare the outputs themselves, without a reference: folders that PaddleAPEX's run_paddle.py wrote, or "
        f"of --probe-out with --probe-save=all. --standard is one of {', '.join(DIRECT_RULES)}",
    )
    parser.add_argument(
        "--dtype", metavar="T", help="with --direct: the runs in this dtype, of a folder that has several"
    )
    parser.add_argument("-o", "--out", metavar="DIR", type=Path, help="folder for the files; --time needs none")
    parser.add_argument(
        "--standard",
        metavar="NAME",
        help=f"one of {', '.join(COMPARES)} (default: {DEFAULT})",
    )
    parser.add_argument(
        "--time",
        action="store_true",
        help="compare times by API and direction, the largest loss first: folders that `pytest-probe time -o` or "
        "--probe-mode=time wrote, or PaddleAPEX's with profile_analyze*.log",
    )
    parser.add_argument(
        "--memory",
        action="store_true",
        help="compare peaks of memory: folders of --probe-mode=mem, or PaddleAPEX's with memory_analyze*.log",
    )
    parser.add_argument(
        "--summary",
        metavar="RESULT",
        type=Path,
        help="with --time: write prof_summary.csv as well, with the verdicts of this accuracy_checking_result or "
        "api_precision_compare_result file",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """The exit status. Raises SettingsError."""
    _check_together(arguments)
    if arguments.time or arguments.memory:
        return _of_measurements(arguments)
    known = DIRECT_RULES if arguments.direct else COMPARES
    standard = check_name("--standard", arguments.standard or DEFAULT, known)
    stamp, paths = datetime.now().strftime("%Y%m%d%H%M%S"), (arguments.device, arguments.benchmark)
    if arguments.direct:
        ours, theirs = (output_folder(path, arguments.dtype) for path in paths)
        early = list(map(early_end, paths))
        calls = list(compare_folders(ours, theirs, DIRECT_RULES[standard]))
        files, lines = direct_files(stamp, calls), _direct_lines(calls, standard)
        failed = any("error" in call.statuses for call in calls)
    else:
        early = list(map(early_end, paths))
        device, benchmark = (read_rows(path, without_ulp=is_paddleapex(standard)) for path in paths)
        if is_paddleapex(standard) or not device.keys() & benchmark.keys():
            check_same_dump("compare", device.keys(), benchmark.keys(), "outputs")
        found = compare(device, benchmark, standard)
        files, lines = compared_files(stamp, found, standard), _lines(found, standard)
        # Where nothing could be compared, nothing is right.
        failed = any(item.status == "error" for item in found) or all(item.status == "SKIP" for item in found)
    written = _written(arguments.out, files)
    warnings = [printable(f"warning: {path}: {words}") for path, words in zip(paths, early, strict=True) if words]
    print("\n".join([*warnings, printable("\n".join(lines)), *(f"written: {path}" for path in written)]))
    return _FAILED if failed else 0


def _check_together(arguments: argparse.Namespace) -> None:
    """Raises SettingsError for options of different comparisons, and where the folder for files is missing."""
    measured = next((f"--{name}" for name in ("time", "memory") if getattr(arguments, name)), "")
    if measured and arguments.direct:
        raise SettingsError("--direct", measured, "one compares outputs, the other what was measured; give one of them")
    if measured and arguments.standard is not None:
        raise SettingsError("--standard", arguments.standard, f"{measured} judges nothing; leave it out")
    if arguments.summary and not arguments.time:
        raise SettingsError("--summary", str(arguments.summary), "it joins times and verdicts: add --time")
    if arguments.dtype is not None and not arguments.direct:
        raise SettingsError("--dtype", arguments.dtype, "it chooses a folder of outputs: add --direct")
    if not arguments.direct and arguments.standard in DIRECT_RULES.keys() - COMPARES.keys():
        raise SettingsError("--standard", arguments.standard, "it compares outputs without a reference: add --direct")
    needs_files = arguments.memory or arguments.summary or not arguments.time
    if arguments.out is None and needs_files:
        raise MissingSetting("--out", "give a folder for the files")


def _written(folder: Path, files: Mapping[str, Iterable[Sequence[object]]]) -> list[Path]:
    """The files that were written. Raises SettingsError, also where one is there."""
    with refused("--out", folder, "it cannot be written to: {error.strerror}"):
        folder.mkdir(parents=True, exist_ok=True)
        for name in files:
            if (folder / name).exists():
                raise SettingsError("--out", str(folder), f"it holds {name} already; give another folder")
        return [write_rows(folder / name, rows) for name, rows in files.items()]


def _of_measurements(arguments: argparse.Namespace) -> int:
    """--time and --memory."""
    files: dict[str, Iterable[Sequence[object]]] = {}
    shown: list[str] = []
    if arguments.time:
        here, there = times.read_times(arguments.device), times.read_times(arguments.benchmark)
        found = times.compare(here, there)
        shown += times.lines(found, here, there)
        files |= times.file_of(found)
        if here.kind == "cases":
            device, benchmark = _logs(arguments, logs.read_times)
            rows = logs.time_rows(device, benchmark)
            files[TIMES] = logs.TIME_TABLE.lines(rows)
            if arguments.summary is not None:
                files[SUMMARY] = logs.SUMMARY_TABLE.lines(logs.judged(rows, arguments.summary))
            shown += logs.without_ratio(rows)
    if arguments.memory:
        device, benchmark = _logs(arguments, logs.read_memory)
        rows = logs.memory_rows(device, benchmark)
        files[MEMORY] = logs.MEMORY_TABLE.lines(rows)
        shown.append(logs.memory_line(rows))
    written = [] if arguments.out is None else _written(arguments.out, files)
    print(printable("\n".join((*shown, *(f"written: {path}" for path in written)))))
    return _FAILED if arguments.time and not found else 0


def _logs(arguments: argparse.Namespace, read: Callable[[Path], logs.Log]) -> tuple[logs.Log, logs.Log]:
    found = read(arguments.device), read(arguments.benchmark)
    for log in found:
        if log.unread:
            more = f", and {len(log.unread) - 1:,} more lines" if len(log.unread) > 1 else ""
            print(printable(f"warning: {log.file}: line {log.unread[0]}{more}: not as PaddleAPEX writes it"))
    logs.check_common(*found)
    return found


def _counts(statuses: Iterable[str]) -> str:
    counts = Counter(statuses)
    found = ", ".join(f"{counts[status]:,} {status}" for status in _COUNTED if counts[status])
    return found or "nothing to compare"


def _lines(found: Sequence[ComparedRow], standard: str) -> Iterator[str]:
    both = sum(item.device is not None and item.benchmark is not None for item in found)
    yield f"{both:,} outputs on both sides, judged by {standard}: {_counts(item.status for item in found)}"
    yield from _listed("only in the device's results", [item.key for item in found if item.benchmark is None])
    yield from _listed("only in the benchmark's results", [item.key for item in found if item.device is None])
    for status in ("error", "warning"):
        yield from _listed(status, [f"{x.key}: {x.decision.ruling.reason}" for x in found if x.status == status])


def _direct_lines(found: Sequence[ComparedCall], standard: str) -> Iterator[str]:
    lines = [line for call in found for line in call.judged()]
    counts = _counts(status for status, _, _ in lines)
    yield f"{count(len(found), 'call')}, judged by {standard}, output by output: {counts}"
    for listed in ("error", "warning", "SKIP"):
        yield from _listed(listed, [f"{name}: {reason}" for status, name, reason in lines if status == listed])


def _listed(title: str, lines: Sequence[str]) -> Iterator[str]:
    if not lines:
        return
    yield f"{title}: {len(lines):,}"
    yield from (f"  {printable_line(line)}" for line in lines[:_SHOWN])
    if len(lines) > _SHOWN:
        yield f"  and {len(lines) - _SHOWN:,} more"
