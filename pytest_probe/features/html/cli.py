"""`pytest-probe report`: the page of a run, made afterwards."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pytest_probe.errors import SettingsError
from pytest_probe.features.html.collected import Collected
from pytest_probe.features.html.other_runs import Comparison, OtherCase, sparklines
from pytest_probe.option_types import missing_extra
from pytest_probe.reports.result_set import ResultSet, RunFolder
from pytest_probe.reports.results_file import RESULTS, RUN, refused
from pytest_probe.system.text import printable

_COMMAND = "report"
_NO_RUN = f"give a folder of --probe-out; {RUN} cannot be read ({{error.strerror}})"
_UNREADABLE = f"{RESULTS} cannot be read ({{error.strerror}})"


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

    shown = RunFolder.read("DIR", arguments.folder, _NO_RUN)
    other = None if arguments.other is None else RunFolder.read("DIR2", arguments.other, _NO_RUN)
    for folder in filter(None, (shown, other)):
        if early := folder.early_end():
            print(printable(f"warning: {folder.path}: {early}"))
    comparison = None if other is None else _comparison(shown, other)
    collected = Collected()
    for result in shown.results(_UNREADABLE):
        row = collected.add(result)
        if comparison is not None:
            comparison.add(row, result)
    lines = sparklines(arguments.history, collected.ids)
    with refused("--out", arguments.out, "it cannot be written: {error.strerror}"):
        Page(shown.run, collected, comparison, lines).write(arguments.out)
    print(f"written: {arguments.out}")
    return 0


def _comparison(shown: RunFolder, other: RunFolder) -> Comparison:
    notes, here, there = [], shown.run, other.run
    digests, others = ({dump.label: dump.digest for dump in run.dumps} for run in (here, there))
    common = digests.keys() & others.keys()
    alike = all(digests[label] == others[label] for label in common) and bool(common)
    if not alike:
        notes.append("The two runs are of other dumps: their cases are listed, and not compared.")
    for name in ("seed", "inputs"):
        mine, theirs = (run.settings.get(name) for run in (here, there))
        if mine != theirs:
            notes.append(f"The {name} differs: {mine} here, {theirs} there, so the inputs are others.")
    cases = {result.id: OtherCase.of(result) for result in other.results(_UNREADABLE)}
    return Comparison(ResultSet("run", str(other.path), cases), notes, alike=alike)
