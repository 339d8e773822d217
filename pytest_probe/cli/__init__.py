"""`pytest-probe`: what is not a test run. One file a command.

In: a command line. Out: text and an exit code.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version

from pytest_probe.capture.kernel import kernel_line
from pytest_probe.cli.show import USAGE_ERROR
from pytest_probe.errors import ProbeError, SettingsError
from pytest_probe.options import COMMANDS
from pytest_probe.system.text import one_of, printable


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 0, or 2 where an argument or a dump cannot be used."""
    try:
        arguments = _arguments(list(sys.argv[1:] if argv is None else argv))
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


def _arguments(given: list[str]) -> argparse.Namespace:
    """Raises SettingsError for a command or an option that there is not; argparse does not say which was meant."""
    parser = argparse.ArgumentParser(
        prog="pytest-probe",
        description="Look at dumps, and compare results, without a test run.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    versions = f"pytest-probe {version('pytest-probe')}\n{kernel_line()}"
    parser.add_argument("--version", action="version", version=versions)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        import_module(command).add_parser(commands)
    if "_ARGCOMPLETE" in os.environ:
        # A shell asks what fits here.
        import_module("argcomplete").autocomplete(parser)
    if given and not given[0].startswith("-") and given[0] not in commands.choices:
        raise SettingsError("COMMAND", given[0], one_of(commands.choices, given[0]))
    arguments, unknown = parser.parse_known_args(given)
    if unknown:
        listed = re.findall(r"^  (-.*?)(?:  |$)", commands.choices[given[0]].format_help(), re.MULTILINE)
        flags = re.findall(r"--[a-z-]+", " ".join(listed))
        raise SettingsError(given[0], unknown[0], one_of(dict.fromkeys(flags), unknown[0].partition("=")[0]))
    return arguments
