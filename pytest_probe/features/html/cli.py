"""`pytest-probe report`: the page of a run, made afterwards."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_probe.errors import SettingsError
from pytest_probe.features.html.collected import Collected
from pytest_probe.features.html.other_runs import Comparison, OtherCase, OtherRun, sparklines
from pytest_probe.features.html.run_folder import RunFolder
from pytest_probe.option_types import missing_extra
from pytest_probe.system.text import printable

_COMMAND = "report"


def add_parser(commands: Any) -> None:
    """Register the command with argparse."""
    parser = commands.add_parser(
        _COMMAND,
        help="write a page about a run, to open in a browser",
        description="Write one HTML file about the run in a folder of --probe-out, as --probe-html does: of merged and "
        "of resumed runs, too. With a second folder the page shows what moved between the two runs.",
        epilog="exit status: 0, 2 where an argument cannot be used",
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="results of the run")
    parser.add_argument("other", metavar="DIR2", type=Path, nargs="?", help="results of the run to compare with")
    parser.add_argument("-o", "--out", metavar="FILE", type=Path, required=True, help="the page")
    parser.add_argument(
        "--history", metavar="FILE", type=Path, help="the file of --probe-history that has earlier runs"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """The exit status. Raises SettingsError."""
    if missing := missing_extra("jinja2", "report"):
        raise SettingsError(_COMMAND, str(arguments.out), missing)
    from pytest_probe.features.html.page import Page

    shown = RunFolder.read("DIR", arguments.folder)
    other = None if arguments.other is None else RunFolder.read("DIR2", arguments.other)
    for folder in (shown, other):
        early = "" if folder is None else folder.check()
        if folder is not None and early:
            print(printable(f"warning: {folder.path}: {early}"))
    comparison = None if other is None else Comparison(_other(shown, other))
    collected = Collected()
    for result in shown.results():
        row = collected.add(result)
        if comparison is not None:
            comparison.add(row, result)
    lines = sparklines(arguments.history, collected.ids)
    try:
        Page(shown.run, collected, comparison, lines).write(arguments.out)
    except OSError as error:
        raise SettingsError("--out", str(arguments.out), f"it cannot be written: {error.strerror}") from None
    print(f"written: {arguments.out}")
    return 0


def _other(shown: RunFolder, other: RunFolder) -> OtherRun:
    cases = {result.id: OtherCase.of(result) for result in other.results()}
    notes = tuple(_differences(shown, other))
    common = shown.run.digests.keys() & other.run.digests.keys()
    alike = all(shown.run.digests[label] == other.run.digests[label] for label in common) and bool(common)
    if not alike:
        notes = ("The two runs are of other dumps: their cases are listed, and not compared.", *notes)
    return OtherRun(str(other.path), "run", cases, notes, alike)


def _differences(shown: RunFolder, other: RunFolder) -> Iterator[str]:
    """What makes the inputs of the two runs differ."""
    for name in ("seed", "inputs"):
        here, there = (run.run.settings.get(name) for run in (shown, other))
        if here != there:
            yield f"The {name} differs: {here} here, {there} there, so the inputs are others."
