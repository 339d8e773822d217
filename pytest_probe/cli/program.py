"""The user's program, run inside a command of ours as Python runs it."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pytest_probe.errors import SettingsError


def check(command: Sequence[str], module: bool) -> None:
    """Raises SettingsError where no program is named, or its file is not there."""
    if not command:
        raise SettingsError("PROGRAM", "", "give the program to run, with its arguments")
    if not module and not Path(command[0]).is_file():
        raise SettingsError("PROGRAM", command[0], "there is no such file")


def execute(command: Sequence[str], module: bool) -> None:
    """Run a program with its arguments; module: the program is the name of a module. Raises whatever it raises, but for
    the SystemExit of one that ends well by itself."""
    program, *given = command
    with _as_main(program, given, module):
        try:
            _run(program, module)
        except SystemExit as error:
            if error.code not in (None, 0):
                raise


def _run(program: str, module: bool) -> None:
    if module:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        # As Python names a program's file, whatever folder it goes to later.
        runpy.run_path(os.path.abspath(program), run_name="__main__")


@contextmanager
def _as_main(program: str, given: list[str], module: bool) -> Iterator[None]:
    """What a program finds in sys when Python itself runs it."""
    argv, path = sys.argv, sys.path[:]
    sys.argv = [program, *given]
    sys.path[0:0] = [str(Path.cwd() if module else Path(program).resolve().parent)]
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path
