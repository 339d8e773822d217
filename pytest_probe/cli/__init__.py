"""`pytest-probe`: what is not a test run. One file a command.

In: a command line. Out: text and an exit code.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from pytest_probe.cli import capture, compare, show
from pytest_probe.cli.show import USAGE_ERROR
from pytest_probe.core.printable import printable
from pytest_probe.errors import ProbeError


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 0, or 2 where an argument or a dump cannot be used."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except ProbeError as error:
        print(printable(f"pytest-probe: error: {error}"), file=sys.stderr)
        return USAGE_ERROR
    except BrokenPipeError:
        # The reader has left, as `| head` does; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pytest-probe", description="Look at dumps, and compare results, without a test run."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in (show, compare, capture):
        command.add_parser(commands)
    return parser
