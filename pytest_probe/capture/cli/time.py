"""`pytest-probe time`: run a program as it is, and report which API calls took the time."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from pytest_probe import frameworks
from pytest_probe.capture.cli.program import check, execute, logging_apart
from pytest_probe.capture.profiling import report
from pytest_probe.capture.profiling.stopwatch import Stopwatch
from pytest_probe.capture.timing import running
from pytest_probe.errors import NotStarted, SettingsError
from pytest_probe.system.text import printable


def add_parser(commands: Any) -> None:
    """Register the command with argparse."""
    parser = commands.add_parser(
        "time",
        help="run a program, and tell how long each API call takes",
        description="Run a Python program with its arguments, unchanged, and tell how long its API calls take. Names "
        "are those of a capture's records. Sections of the program, between pytest_probe.start_analysis(NAME) and "
        "end_analysis(), get tables of their own.",
        usage="pytest-probe time [options] PROGRAM [ARGUMENTS...]\n       "
        "pytest-probe time [options] -m MODULE [ARGUMENTS...]",
        epilog="exit status: that of the program, or 2 where an argument cannot be used",
    )
    parser.add_argument("-o", "--out", metavar="DIR", help="write time.jsonl, and trace.json for Perfetto, there")
    parser.add_argument("--nested", action="store_true", help="calls inside calls get rows of their own")
    parser.add_argument("--async", dest="asynchronous", action="store_true", help="wait for the device at the end only")
    parser.add_argument("--backward", action="store_true", help="the gradients of calls get rows of their own")
    parser.add_argument("--by-shape", action="store_true", help="each API's dtypes and shapes get rows, too")
    parser.add_argument(
        "--framework", metavar="NAME", help=f"time calls of one framework only: {', '.join(frameworks.MODULES)}"
    )
    parser.add_argument("-m", dest="module", action="store_true", help="PROGRAM is the name of a module")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM [ARGUMENTS...]")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """The exit status. Raises SettingsError, and whatever the program raises."""
    check(arguments.program, arguments.module)
    if arguments.framework not in (None, *frameworks.MODULES):
        raise SettingsError("--framework", arguments.framework, f"give one of {', '.join(frameworks.MODULES)}")
    folder = None if arguments.out is None else report.take(arguments.out)
    stopwatch = Stopwatch(
        arguments.nested, arguments.asynchronous, arguments.backward, arguments.by_shape, traced=folder is not None
    )
    started = True
    try:
        with logging_apart(), running(stopwatch, arguments.framework):
            execute(arguments.program, arguments.module)
    except NotStarted:
        started = False
        raise
    finally:
        if started:
            sys.stdout.write(printable(report.text(stopwatch)) + "\n")
            if folder is not None:
                report.write(stopwatch, folder)
                print(f"written: {folder / report.ROWS}, {folder / report.TRACE}")
    return 0
