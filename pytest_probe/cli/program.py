"""The user's program, run inside a command of ours as Python runs it."""

from __future__ import annotations

import os
import runpy
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path

from pytest_probe.errors import SettingsError


def check(command: Sequence[str], module: bool) -> None:
    """Raises SettingsError where no program is named, or its file is not there."""
    if not command:
        raise SettingsError("PROGRAM", "", "give the program to run, with its arguments")
    if not module and not Path(command[0]).is_file():
        raise SettingsError("PROGRAM", command[0], "there is no such file")
    _check_compiles(command[0], module)


def _check_compiles(program: str, module: bool) -> None:
    """Raises SettingsError where Python finds or compiles no such program: nothing of an earlier run is removed for
    it."""
    try:
        if module:
            _check_module(program)
        elif not zipfile.is_zipfile(program) and not program.endswith(".pyc"):
            compile(Path(program).read_bytes(), program, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise SettingsError("PROGRAM", program, f"Python cannot compile it: {error}") from None


def _check_module(name: str) -> None:
    """Is it there, and can it be compiled? A package is run by its __main__. Its parents are imported when it runs."""
    path = [str(Path.cwd()), *sys.path]
    found = None
    for part in name.split("."):
        found = PathFinder.find_spec(part, path)
        if found is None:
            return
        path = list(found.submodule_search_locations or ())
    if found is not None and path:
        found = PathFinder.find_spec("__main__", path)
    if found is not None and isinstance(found.loader, SourceFileLoader):
        compile(found.loader.get_data(found.loader.path), found.loader.path, "exec", dont_inherit=True)


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
