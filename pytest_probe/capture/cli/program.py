"""The user's program, run inside a command of ours as Python runs it."""

from __future__ import annotations

import builtins
import io
import logging
import os
import runpy
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import FileLoader
from importlib.machinery import PathFinder, SourceFileLoader, SourcelessFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, TracebackType

from pytest_probe.capture.frames import below_the_program, without_our_frames
from pytest_probe.errors import NotStarted, SettingsError


def check(command: Sequence[str], module: bool) -> None:
    """Raises SettingsError where no program is named, or its file is not there."""
    if not command:
        raise SettingsError("PROGRAM", "", "give the program to run, with its arguments")
    if not module and not Path(command[0]).exists():
        raise SettingsError("PROGRAM", command[0], "there is no such file")
    if not module and Path(command[0]).is_dir() and not Path(command[0], "__main__.py").is_file():
        raise SettingsError("PROGRAM", command[0], "there is no __main__.py in this folder")
    _check_compiles(command[0], module)


def _check_compiles(program: str, module: bool) -> None:
    """Raises SettingsError where Python finds or compiles no such program: nothing of an earlier run is removed for
    it."""
    try:
        if module:
            _check_module(program)
        elif os.path.isdir(program):
            file = os.path.join(program, "__main__.py")
            compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)
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
            if part == name and find_spec(part) is None:
                raise SystemExit(f"{sys.executable}: No module named {name}")  # as Python says it
            return
        path = list(found.submodule_search_locations or ())
    if found is not None and path:
        found = PathFinder.find_spec("__main__", path)
    if found is not None and isinstance(found.loader, SourceFileLoader):
        compile(found.loader.get_data(found.loader.path), found.loader.path, "exec", dont_inherit=True)


def execute(command: Sequence[str], module: bool) -> None:
    """Run a program with its arguments; module: the program is the name of a module. Raises whatever it raises, but for
    the SystemExit of one that ends well by itself; Python then shows the program's own frames."""
    program, *given = command
    with _as_main(program, given, module):
        try:
            _run(program, module)
        except SystemExit as error:
            if error.code not in (None, 0):
                raise
        except BaseException as error:
            _show_own_frames(error)
            raise


def _run(program: str, module: bool) -> None:
    if module:
        _run_module(program)
    elif _holds_main(program):
        # sys.path begins with it.
        runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
    else:
        _run_file(_file(program))


def _run_module(name: str) -> None:
    """Raises NotStarted where Python does not find it, and else whatever it raises."""
    try:
        runpy._run_module_as_main(name)  # type: ignore[attr-defined]
    except SystemExit as error:
        last = error.__traceback__
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        if last is not None and last.tb_frame.f_globals is vars(runpy):
            raise NotStarted(error.code) from None
        raise


def _run_file(path: str) -> None:
    loader: FileLoader
    if path.endswith(".pyc"):
        loader = SourcelessFileLoader("__main__", path)
        code = loader.get_code("__main__")
    else:
        loader = SourceFileLoader("__main__", path)
        with io.open_code(path) as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
    own = vars(sys.modules["__main__"])
    own.update(__file__=path, __cached__=None, __loader__=loader)
    below_the_program(exec, code, own)


def _holds_main(program: str) -> bool:
    """Is it a folder, or a zip file, whose __main__ Python runs?"""
    return os.path.isdir(program) or zipfile.is_zipfile(program)


def _file(program: str) -> str:
    """A program's file as Python names it, whatever folder the program changes to later."""
    return os.path.abspath(program) if os.name == "nt" else os.path.join(os.getcwd(), program)


def _show_own_frames(error: BaseException) -> None:
    """Have Python show an error that nobody catches as it does without us: our frames, above the program's and inside
    the calls that it made, are none of its own."""
    shown, show = without_our_frames(error).__traceback__, sys.excepthook

    def own(kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        whole = value is not error
        show(kind, value, traceback) if whole else show(kind, value.with_traceback(shown), shown)

    sys.excepthook = own


@contextmanager
def _as_main(program: str, given: list[str], module: bool) -> Iterator[None]:
    """What a program finds in sys when Python itself runs it."""
    argv, path, main = sys.argv, sys.path[:], sys.modules["__main__"]
    sys.argv = ["-m" if module else program, *given]
    sys.path[0:0] = [_first_path(program, module)]
    sys.modules["__main__"] = ModuleType("__main__")
    own = vars(sys.modules["__main__"])
    if sys.version_info < (3, 14):
        own["__annotations__"] = {}
    own["__builtins__"] = builtins
    try:
        yield
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = argv, path, main


def _first_path(program: str, module: bool) -> str:
    if module:
        return os.getcwd()
    return _file(program) if _holds_main(program) else str(Path(program).resolve().parent)


@contextmanager
def logging_apart() -> Iterator[None]:
    """What we log goes to stderr, and not where the program sends its own log."""
    log, handler = logging.getLogger("pytest_probe"), logging.StreamHandler()
    log.addHandler(handler)
    propagates, log.propagate = log.propagate, False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagates
