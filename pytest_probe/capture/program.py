"""The capture of a whole program, which nothing in it knows of: with each framework that it imports, in each Python
process that it starts."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from pytest_probe import frameworks
from pytest_probe.capture import children, folder
from pytest_probe.capture.children import watch_imports
from pytest_probe.capture.config import read_config
from pytest_probe.capture.debugger import PrecisionDebugger, safely
from pytest_probe.capture.estimate import estimates, lines
from pytest_probe.capture.framework import recording
from pytest_probe.capture.ranks import ANY_NUMBER, keep_rank, named_rank
from pytest_probe.capture.recorder import NO_CALL, log, say
from pytest_probe.capture.writer import Outcome
from pytest_probe.errors import NotStarted, ProbeError

# Framework by module.
_NAMES = {frameworks.MODULES[name]: name for name in frameworks.RECORDED}
_NOT_FOLLOWED = (
    "; a process that it forks, or starts with another Python or another environment, has to start the capture itself, "
    "as in: torchrun --no-python pytest-probe capture train.py"
)
_SECOND, _MINUTE = 1.0, 60.0


@contextmanager
def displayed(progress: Callable[[], str]) -> Iterator[None]:
    """A line that shows that a capture lives, while the program runs: what progress says, always the newest on a
    terminal, once a minute in a log."""
    ended = threading.Event()
    terminal = sys.stderr.isatty()

    def show() -> None:
        while not ended.wait(_SECOND if terminal else _MINUTE):
            # The terminal may be gone, and what is counted is written meanwhile.
            with suppress(Exception):
                if words := progress():
                    line = f"pytest-probe: {words}"
                    # The cursor goes back, so that the program's own lines stand where this was.
                    print(f"\x1b[K{line}", end="\r", file=sys.stderr, flush=True) if terminal else say(line)

    thread = threading.Thread(target=show, name="pytest-probe progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_SECOND)
        if terminal:
            print("\x1b[K", end="", file=sys.stderr, flush=True)


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


class ProgramCapture:
    """Records one process with every framework from the end of its import on. options are PrecisionDebugger's.

    The first framework writes into the folder itself, a second one into a folder inside that has its name. Raises
    SettingsError where the configuration cannot be used.
    """

    def __init__(self, config_path: str | None, *, stop: bool = False, **options: Any) -> None:
        self._config_path, self._stop = config_path, stop
        self._options = {key: value for key, value in options.items() if value is not None}
        self._config = read_config(config_path, **self._options)
        # PaddleAPEX's files hold no calls of another framework.
        self._recorded = ("paddle",) if self._config.layout == "paddleapex" else frameworks.RECORDED
        self._debuggers: dict[str, PrecisionDebugger] = {}
        self._imports = 0
        # Called when something is there, in a process that shares the folder of the one that started it.
        self._written: Callable[[], None] | None = None
        self._steps = ExitStack()
        keep_rank()

    def imported(self, module: str) -> None:
        """Record with the framework of this module, which the program has imported."""
        framework = _NAMES[module]
        if framework in self._debuggers or framework not in self._recorded:
            return
        self._imports += 1
        path = os.path.join(self._config.dump_path, framework) if self._debuggers else self._config.dump_path
        given = self._options | {"dump_path": path}
        debugger = PrecisionDebugger(self._config_path, framework=framework, **given)
        self._debuggers[framework] = debugger
        self._steps.enter_context(recording(framework).after_optimizer_steps(partial(self._stepped, debugger)))
        if self._written is not None:
            debugger.recorder.share_folder(self._written)
        debugger.start()

    def _stepped(self, debugger: PrecisionDebugger) -> None:
        """A step ends, and the program with the last one where that was asked for."""
        debugger.step()
        if self._stop and debugger.recorder.complete:
            raise SystemExit(0)


class MainCapture(ProgramCapture):
    """Of the process that the user starts: takes the folder, and tells the others. Raises FolderTaken as well."""

    def __init__(self, config_path: str | None, **options: Any) -> None:
        super().__init__(config_path, **options)
        own = self._config.rank
        rank, ranks = named_rank() if own is None else (own, ANY_NUMBER)
        if rank is None or not self._config.ranks or any(rank in each for each in self._config.ranks):
            folder.take(self._config.dump_path, rank, ranks, overwrite=self._config.overwrite)
        self._others = 0
        self._outcome = Outcome()
        # The error that the program ended with.
        self._ended: BaseException | None = None
        self._process, self._began = os.getpid(), _time_of_others()

    @contextmanager
    def running(self) -> Iterator[None]:
        """While the program runs; then what is left is written, and said."""
        children.unfollow()
        with children.followed(self._for_children()) as others, watch_imports(_NAMES, self.imported):
            try:
                with displayed(self._progress):
                    yield
            finally:
                # A process that the program forked may come here as well.
                if os.getpid() == self._process:
                    self._others = others()
                    for debugger in self._debuggers.values():
                        self._outcome = self._outcome.with_process(debugger.finish())
                    self._ended = sys.exc_info()[1]
                    if not isinstance(self._ended, NotStarted):
                        _show_first(self._ended)
                        self._announce()
                self._steps.close()

    def _progress(self) -> str:
        return next(filter(None, (each.recorder.progress() for each in self._debuggers.values())), "")

    def _for_children(self) -> dict[str, Any]:
        """What `begin` needs, which may run in another folder."""
        path = self._config_path
        return {
            "config": path and os.path.abspath(path),
            "options": self._options | {"dump_path": os.path.abspath(self._config.dump_path)},
            "modules": list(_NAMES),
            "stop": self._stop,
        }

    @property
    def missing(self) -> bool:
        """Was nothing recorded, where something should have been?"""
        return all(debugger.recorder.missing() for debugger in self._debuggers.values()) and not self._others

    def _announce(self) -> None:
        # One that was imported and not used is nothing to warn of, where another one was.
        for debugger in self._debuggers.values():
            if not debugger.recorder.missing():
                safely(debugger.recorder.announce)
        if self._others:
            those = "1 process" if self._others == 1 else f"{self._others} processes"
            say(f"pytest-probe: recorded {those} that the program started: {self._config.dump_path}")
        elif why := self._why_nothing():
            # What the program did not do another process may have done; a compiled call, or a full disk, was seen here.
            others = why.startswith("the program ") and _time_of_others() > self._began
            hint = _NOT_FOLLOWED if others else ""
            log.warning("pytest-probe: nothing was recorded: %s%s", why, hint)

    def _why_nothing(self) -> str:
        reasons = [debugger.recorder.missing() for debugger in self._debuggers.values()]
        if _is_displayed(self._ended) and all(why.startswith(NO_CALL) for why in reasons):
            return f"the program ended with {type(self._ended).__name__} before it made a call"
        if not self._imports:
            return f"the program imported none of {', '.join(frameworks.MODULES[name] for name in self._recorded)}"
        # One that is too old for us has no debugger, and has said so.
        return reasons[0] if reasons and all(reasons) else ""


class EstimatingCapture(MainCapture):
    """Records a step as structure, and says what one would take. folder is where a dump would go."""

    def __init__(self, config_path: str | None, folder: Path, **options: Any) -> None:
        super().__init__(config_path, **options)
        self._goes_to = folder

    def _announce(self) -> None:
        if self.missing:
            super()._announce()
            return
        try:
            found = list(lines(estimates(Path(self._config.dump_path), self._outcome), self._goes_to))
        except OSError as error:
            log.warning("pytest-probe: nothing can be estimated: %s", error)
            return
        say(f"pytest-probe: {self._outcome.recorded()}, in a step like this:")
        for line in found:
            say(f"pytest-probe: {line}")


class ChildCapture(ProgramCapture):
    """Of a process that a recorded program started: its folder is the whole run's, and of it only rank 0 speaks.
    recorded is called when there is something."""

    def __init__(self, config_path: str | None, recorded: Callable[[], None], **options: Any) -> None:
        super().__init__(config_path, **options)
        self._written = recorded
        self._steps.enter_context(logging_apart())

    def end(self) -> None:
        """Write what is left."""
        for debugger in self._debuggers.values():
            debugger.close()
        self._steps.close()


def begin(settings: Mapping[str, Any], recorded: Callable[[], None]) -> ChildCapture:
    """The capture of a process that the environment tells what to record, until it ends."""
    capture = ChildCapture(settings["config"], recorded, stop=settings["stop"], **settings["options"])
    atexit.register(capture.end)
    return capture


def _is_displayed(error: BaseException | None) -> bool:
    """Does Python show this with a traceback when it ends the program? The command has words for its own."""
    return error is not None and not isinstance(error, (SystemExit, ProbeError, BrokenPipeError))


def _show_first(error: BaseException | None) -> None:
    """Show what ended the program above what is said of the capture; Python, whose turn is later, passes over it."""
    if error is None or not _is_displayed(error):
        return
    show = sys.excepthook
    safely(lambda: show(type(error), error, error.__traceback__))

    def others(kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        if value is not error:
            show(kind, value, traceback)

    sys.excepthook = others


def _time_of_others() -> float:
    """The CPU time of the processes that this one has started, and waited for."""
    times = os.times()
    return times.children_user + times.children_system
