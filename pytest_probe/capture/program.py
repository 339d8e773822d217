"""A program that is recorded as it is, with each framework that it imports."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pytest_probe import frameworks
from pytest_probe.capture import folder
from pytest_probe.capture.config import configured
from pytest_probe.capture.debugger import PrecisionDebugger
from pytest_probe.capture.framework import recording
from pytest_probe.capture.imports import watched
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
        config = configured(config_path, **{key: value for key, value in options.items() if value is not None})
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
        with self._steps, watched(names, lambda module: self._imported(names[module])):
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
