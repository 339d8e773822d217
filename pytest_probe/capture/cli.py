"""`pytest-probe capture` and `pytest-probe time`: run a program as it is, and record what it calls, or report which API
calls took the time."""

from __future__ import annotations

import argparse
import builtins
import io
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
from tempfile import TemporaryDirectory
from types import ModuleType, TracebackType
from typing import Any

from pytest_probe import frameworks
from pytest_probe.capture.config import TASKS, content_of
from pytest_probe.capture.folder import FolderTaken, check_usable
from pytest_probe.capture.frames import below_the_program, without_our_frames
from pytest_probe.capture.profiling import report
from pytest_probe.capture.profiling.stopwatch import Stopwatch
from pytest_probe.capture.program import EstimatingCapture, MainCapture, logging_apart
from pytest_probe.capture.timing import running
from pytest_probe.errors import NotStarted, SettingsError
from pytest_probe.system.text import printable


def _check(command: Sequence[str], module: bool) -> None:
    """Raises SettingsError where no program is named, its file is not there, or Python cannot compile it: nothing of an
    earlier run is removed for it."""
    if not command:
        raise SettingsError("PROGRAM", "", "give the program to run, with its arguments")
    program = command[0]
    if not module and not os.path.exists(program):
        raise SettingsError("PROGRAM", program, "there is no such file")
    folder = not module and os.path.isdir(program)
    file = os.path.join(program, "__main__.py") if folder else program
    if folder and not os.path.isfile(file):
        raise SettingsError("PROGRAM", program, "there is no __main__.py in this folder")
    try:
        if module:
            _check_module(program)
        elif folder or not (zipfile.is_zipfile(program) or program.endswith(".pyc")):
            compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)
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
            if module:
                _run_module(program)
            elif _holds_main(program):
                # sys.path begins with it.
                runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
            else:
                _run_file(_program_file(program))
        except SystemExit as error:
            if error.code not in (None, 0):
                raise
        except BaseException as error:
            _show_own_frames(error)
            raise


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


def _program_file(program: str) -> str:
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
    if module:
        first = os.getcwd()
    else:
        first = _program_file(program) if _holds_main(program) else str(Path(program).resolve().parent)
    sys.path[0:0] = [first]
    sys.modules["__main__"] = ModuleType("__main__")
    own = vars(sys.modules["__main__"])
    if sys.version_info < (3, 14):
        own["__annotations__"] = {}
    own["__builtins__"] = builtins
    try:
        yield
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = argv, path, main


# `pytest-probe capture`: run a program as it is, and record what it calls.


def add_parser(commands: Any) -> None:
    """Register both commands with argparse."""
    _add_capture(commands)
    _add_time(commands)


def _add_capture(commands: Any) -> None:
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
    parser.add_argument("--level", metavar="LEVEL", help="L1: API calls (default), L0: modules, mix: both")
    parser.add_argument("--stop", action="store_true", help="end the program after the last of these steps")
    parser.add_argument("--task", metavar="TASK", help=f"one of {', '.join(TASKS)} (default: statistics)")
    parser.add_argument(
        "--step", metavar="N[,N-N...]", help="the steps to record, from 0 on, or all (default: 0, or the file's)"
    )
    parser.add_argument(
        "--compiled",
        metavar="MODE",
        help="how compiled functions run while recorded: as-is (default), and nothing in them is seen, or eager",
    )
    parser.add_argument(
        "--estimate",
        action="store_true",
        help="record nothing that stays: say what a step would take as structure, statistics and tensor",
    )
    parser.add_argument("-m", dest="module", action="store_true", help="PROGRAM is the name of a module")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM [ARGUMENTS...]")
    parser.set_defaults(run=_run_capture)


def _run_capture(arguments: argparse.Namespace) -> int:
    """The exit status. Raises SettingsError, and whatever the program raises."""
    _check(arguments.program, arguments.module)
    if arguments.estimate:
        return _run_estimate(arguments)
    capture = _program_capture(arguments)
    with logging_apart(), capture.running():
        execute(arguments.program, arguments.module)
    return 1 if capture.missing else 0


def _run_estimate(arguments: argparse.Namespace) -> int:
    """The exit status. Raises as `_run_capture` does."""
    if arguments.task is not None:
        words = "--estimate says what a step takes by each of structure, statistics and tensor; leave it out"
        raise SettingsError("--task", arguments.task, words)
    step = "0" if arguments.step is None else arguments.step
    if not step.isdecimal():
        raise SettingsError("--step", arguments.step, "--estimate records one step; give its number")
    goes_to = Path(arguments.out or "dumps").absolute()
    check_usable("-o", str(goes_to))
    there = next(each for each in (goes_to, *goes_to.parents) if each.is_dir())
    # On the disk that a dump would go to, whose speed is asked for.
    with TemporaryDirectory(prefix="pytest-probe-estimate-", dir=there) as folder:
        options = {"task": "structure", "dump_path": folder, "step": [step], "compiled": arguments.compiled}
        capture = EstimatingCapture(arguments.config, goes_to, **options)
        with logging_apart(), capture.running():
            execute(arguments.program, arguments.module)
        return 1 if capture.missing else 0


def _program_capture(arguments: argparse.Namespace) -> MainCapture:
    named = arguments.out is None and arguments.config and content_of(Path(arguments.config)).get("dump_path")
    folder = None if named else arguments.out or "dumps"
    step = None if arguments.config else ["0"]
    if arguments.step is not None:
        step = [] if arguments.step == "all" else arguments.step.split(",")
    if folder is not None:
        check_usable("-o", folder)
    try:
        return MainCapture(
            arguments.config,
            stop=arguments.stop,
            task=arguments.task,
            level=arguments.level,
            dump_path=folder,
            step=step,
            # None: as the file says.
            overwrite=arguments.overwrite or None,
            compiled=arguments.compiled,
        )
    except FolderTaken as error:
        raise FolderTaken("-o", error.folder, error.found, "replace it with --overwrite") from None


# `pytest-probe time`: run a program as it is, and report which API calls took the time.


def _add_time(commands: Any) -> None:
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
        "--framework", metavar="NAME", help=f"time calls of one framework only: {', '.join(frameworks.RECORDED)}"
    )
    parser.add_argument("-m", dest="module", action="store_true", help="PROGRAM is the name of a module")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM [ARGUMENTS...]")
    parser.set_defaults(run=_run_time)


def _run_time(arguments: argparse.Namespace) -> int:
    """The exit status. Raises SettingsError, and whatever the program raises."""
    _check(arguments.program, arguments.module)
    if arguments.framework not in (None, *frameworks.RECORDED):
        raise SettingsError("--framework", arguments.framework, f"give one of {', '.join(frameworks.RECORDED)}")
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
