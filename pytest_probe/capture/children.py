"""The Python processes that a captured program starts record as well.

PYTHONPATH leads each of them to startup/sitecustomize.py, and a variable says what to record. Nothing is loaded there
before the process imports a framework, which `watch_imports` follows. Forked processes are left alone, and so are
daemons of `multiprocessing`, which load data for a process that trains.

Every Python that a captured program starts imports this module, so it imports little: importlib.abc takes 50 ms.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Watch:
    """A finder of sys.meta_path, which finds the modules of these names as the others do, and follows how they are
    executed."""

    def __init__(self, names: Collection[str], imported: Callable[[str], None]) -> None:
        self._names = names
        self._imported = imported

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._names:
            return None
        others = (finder for finder in list(sys.meta_path) if finder is not self)
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            executed = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                executed(module)
                self._imported(name)

            loader.exec_module = exec_module
        return spec


@contextmanager
def watch_imports(names: Collection[str], imported: Callable[[str], None]) -> Iterator[None]:
    """Call imported with each of these names once its module is imported, also with names that were imported before."""
    watch = _Watch(names, imported)
    sys.meta_path.insert(0, watch)
    try:
        for name in names:
            if name in sys.modules:
                imported(name)
        yield
    finally:
        sys.meta_path.remove(watch)


_SETTINGS, _PATH = "PYTEST_PROBE_CAPTURE_CHILDREN", "PYTHONPATH"
_STARTUP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "startup")
# What follows this process's imports, where another one's capture asks for it.
_following = ExitStack()


@contextmanager
def followed(settings: Mapping[str, Any]) -> Iterator[Callable[[], int]]:
    """Tell the processes that are started meanwhile what to record: the arguments of `program.begin`. How many have
    recorded something."""
    kept = {name: os.environ.get(name) for name in (_SETTINGS, _PATH)}
    paths = [path for path in (kept[_PATH] or "").split(os.pathsep) if path != _STARTUP]
    with _folder() as note:
        os.environ[_SETTINGS] = json.dumps({**settings, "note": note, "python": [sys.prefix, sys.version]})
        os.environ[_PATH] = os.pathsep.join([_STARTUP, *paths] if any(paths) else [_STARTUP])
        try:
            yield lambda: len(os.listdir(note)) if os.path.isdir(note) else 0
        finally:
            for name, value in kept.items():
                os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)


@contextmanager
def _folder() -> Iterator[str]:
    """A folder in which each process that records leaves a file. Its path."""
    import shutil
    import tempfile

    process, path = os.getpid(), tempfile.mkdtemp(prefix="pytest-probe-")
    try:
        yield path
    finally:
        # A process that the program forked may come here as well.
        if os.getpid() == process:
            shutil.rmtree(path, ignore_errors=True)


def _write_note(path: str) -> None:
    # The folder is gone where the process that the user started has ended.
    with suppress(OSError), open(os.path.join(path, str(os.getpid())), "w"):
        pass


def follow(settings: Mapping[str, Any]) -> None:
    """In a process that shall record: record what it calls, from the import of a framework on."""
    # The rest of a command of multiprocessing's own, for a process or for the server that forks them.
    if any(argument.startswith("from multiprocessing.") for argument in sys.orig_argv):
        _follow_processes(settings)
    else:
        _follow_imports(settings)
    atexit.register(unfollow)


def unfollow() -> None:
    """This process records by itself."""
    _following.close()


def _follow_imports(settings: Mapping[str, Any]) -> Callable[[], None]:
    """What ends it."""
    captures: list[Any] = []

    def imported(module: str) -> None:
        try:
            from pytest_probe.capture.program import begin

            if not captures:
                captures.append(begin(settings, lambda: _write_note(settings["note"])))
            captures[0].imported(module)
        except Exception as error:
            sys.stderr.write(f"pytest-probe: this process is not recorded ({type(error).__name__}: {error})\n")

    def end() -> None:
        for capture in captures:
            capture.end()

    _following.enter_context(watch_imports(settings["modules"], imported))
    return end


def _follow_processes(settings: Mapping[str, Any]) -> None:
    """Once a process knows what it is: before, it imports the program's module, which calls nothing new."""
    from multiprocessing.process import BaseProcess

    original = BaseProcess._bootstrap  # type: ignore[attr-defined]

    def bootstrap(process: BaseProcess, *args: Any, **kwargs: Any) -> Any:
        if process.daemon:
            return original(process, *args, **kwargs)
        end = _follow_imports(settings)
        try:
            return original(process, *args, **kwargs)
        finally:
            end()

    BaseProcess._bootstrap = bootstrap  # type: ignore[attr-defined]
