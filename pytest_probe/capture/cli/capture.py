"""`pytest-probe capture`: run a program as it is, and record what it calls."""

from __future__ import annotations

import argparse
from typing import Any

from pytest_probe.capture.cli.program import check, execute, logging_apart
from pytest_probe.capture.config import TASKS, names_folder
from pytest_probe.capture.folder import FolderTaken, check_usable
from pytest_probe.capture.program import ProgramCapture


def add_parser(commands: Any) -> None:
    """Register the command with argparse."""
    parser = commands.add_parser(
        "capture",
        help="run a program, and record the API calls that it makes as a dump",
        description="Run a Python program with its arguments, unchanged, and record the API calls of its training "
        "steps. A step ends with each step of the optimizer that steps first; a program without one is one step.",
        usage="pytest-probe capture [options] PROGRAM [ARGUMENTS...]\n       "
        "pytest-probe capture [options] -m MODULE [ARGUMENTS...]",
        epilog="exit status: that of the program, 1 where it is 0 and nothing was recorded, or 2 where an argument "
        "cannot be used",
    )
    parser.add_argument("-o", "--out", metavar="DIR", help="where the dump goes (default: dumps, or the file's)")
    parser.add_argument("--overwrite", action="store_true", help="remove the dump that an earlier run left there")
    parser.add_argument("--config", metavar="FILE", help="a configuration file, as msprobe's config.json")
    parser.add_argument("--task", metavar="TASK", help=f"one of {', '.join(TASKS)} (default: statistics)")
    parser.add_argument(
        "--step", metavar="N[,N-N...]", help="the steps to record, from 0 on, or all (default: 0, or the file's)"
    )
    parser.add_argument("-m", dest="module", action="store_true", help="PROGRAM is the name of a module")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM [ARGUMENTS...]")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """The exit status. Raises SettingsError, and whatever the program raises."""
    check(arguments.program, arguments.module)
    capture = _capture(arguments)
    with logging_apart(), capture.running():
        execute(arguments.program, arguments.module)
    return 1 if capture.missing else 0


def _capture(arguments: argparse.Namespace) -> ProgramCapture:
    folder = _folder(arguments)
    if folder is not None:
        check_usable("-o", folder)
    try:
        return ProgramCapture(
            arguments.config,
            task=arguments.task,
            dump_path=folder,
            step=_steps(arguments),
            # None: as the file says.
            overwrite=arguments.overwrite or None,
        )
    except FolderTaken as error:
        raise FolderTaken("-o", error.folder, error.found, "replace it with --overwrite") from None


def _folder(arguments: argparse.Namespace) -> str | None:
    if arguments.out is None and arguments.config is not None and names_folder(arguments.config):
        return None
    return arguments.out or "dumps"


def _steps(arguments: argparse.Namespace) -> list[str] | None:
    if arguments.step is None:
        return None if arguments.config else ["0"]
    return [] if arguments.step == "all" else arguments.step.split(",")
