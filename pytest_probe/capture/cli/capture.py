"""`pytest-probe capture`: run a program as it is, and record what it calls."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pytest_probe import frameworks
from pytest_probe.capture import folder
from pytest_probe.capture.cli.program import check, execute, logging_apart
from pytest_probe.capture.config import TASKS, names_folder, read_config
from pytest_probe.capture.debugger import PrecisionDebugger
from pytest_probe.capture.folder import FolderTaken, check_usable
from pytest_probe.capture.framework import recording, watch_imports
from pytest_probe.capture.recorder import log
from pytest_probe.errors import NotStarted

# What starters of processes that train together say in the environment: this one's number, and how many there are.
_RANKS = (("RANK", "WORLD_SIZE"), ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"))


class ProgramCapture:
    """Records with every framework from the end of its import on. options are PrecisionDebugger's.

    The first framework writes into the folder itself, a second one into a folder inside that has its name. Raises
    SettingsError where the configuration cannot be used, and FolderTaken.
    """

    def __init__(self, config_path: str | None, **options: Any) -> None:
        config = read_config(config_path, **{key: value for key, value in options.items() if value is not None})
        self._folder = config.dump_path
        # PaddleAPEX's files hold no calls of another framework.
        self._recorded = ("paddle",) if config.layout == "paddleapex" else tuple(frameworks.MODULES)
        rank, ranks = _ranks()
        if rank is None or not config.ranks or any(rank in each for each in config.ranks):
            folder.take(config.dump_path, rank, ranks, overwrite=config.overwrite)
        self._config_path = config_path
        self._options = options
        self._debuggers: dict[str, PrecisionDebugger] = {}
        self._steps = ExitStack()
        self._imports = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """While the program runs; then what is left is written, and said."""
        names = {module: name for name, module in frameworks.MODULES.items()}
        started = True
        with self._steps, watch_imports(names, lambda module: self._imported(names[module])):
            try:
                yield
            except NotStarted:
                started = False
                raise
            finally:
                self._finish(started)

    @property
    def missing(self) -> bool:
        """Was nothing recorded, where something should have been?"""
        return all(debugger.missing for debugger in self._debuggers.values())

    def _imported(self, framework: str) -> None:
        if framework in self._debuggers or framework not in self._recorded:
            return
        self._imports += 1
        path = os.path.join(self._folder, framework) if self._debuggers else self._folder
        given = self._options | {"dump_path": path}
        debugger = PrecisionDebugger(self._config_path, framework=framework, **given)
        self._debuggers[framework] = debugger
        self._steps.enter_context(recording(framework).after_optimizer_steps(debugger.step))
        debugger.start()

    def _finish(self, started: bool) -> None:
        for debugger in self._debuggers.values():
            debugger.finish()
        if not started:
            return
        if not self._imports:
            log.warning(
                "pytest-probe: nothing was recorded: the program imported none of %s",
                ", ".join(frameworks.MODULES[name] for name in self._recorded),
            )
        # One that was imported and not used is nothing to warn of, where another one was.
        recorded = [debugger for debugger in self._debuggers.values() if not debugger.missing]
        for debugger in recorded or list(self._debuggers.values())[:1]:
            debugger.announce()


def _ranks() -> tuple[int | None, int]:
    for number, count in _RANKS:
        named, ranks = os.environ.get(number, ""), os.environ.get(count, "")
        if named.isdecimal():
            return int(named), int(ranks) if ranks.isdecimal() else 1
    return None, 1


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
