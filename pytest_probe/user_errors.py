"""What a project's own code did wrong, said by the lines of that code alone; Ctrl-C, and memory that ran out."""

from __future__ import annotations

import importlib
import linecache
import signal
import site
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ContextDecorator, contextmanager
from functools import cache, partial, update_wrapper
from pathlib import Path
from types import FrameType
from typing import Any

from pytest_probe.errors import HookFailed, NoReference, ProbeError

# What an item's failure shows of an exception, so that all of it has ten lines.
SHOWN_LINES, SHOWN_LETTERS, SHOWN_FRAMES = 4, 300, 2


class _Interrupts(threading.local):
    """noting: are Ctrl-C's seen? came: did one come since?"""

    noting = False
    came = False


_interrupts = _Interrupts()


# What `signal` itself calls: that looks for each handler among its enumerations, at ten times the cost.
_signal: Any = importlib.import_module("_signal")


class noting_interrupts:
    """In here `ends_run` tells the user's Ctrl-C from a KeyboardInterrupt that a call raised itself."""

    def __enter__(self) -> None:
        self._handler = _signal.getsignal(signal.SIGINT)
        _interrupts.noting, _interrupts.came = True, False
        # Ctrl-C raises in the main thread only, and nowhere if the signal is ignored (`nohup pytest &`).
        self._watched = callable(self._handler) and threading.current_thread() is threading.main_thread()
        self._note = partial(_noted, self._handler)
        if self._watched:
            _signal.signal(signal.SIGINT, self._note)

    def __exit__(self, *raised: object) -> None:
        _interrupts.noting = False
        if self._watched and _signal.getsignal(signal.SIGINT) is self._note:
            _signal.signal(signal.SIGINT, self._handler)


def _noted(handler: Callable[..., Any], number: int, frame: FrameType | None) -> Any:
    _interrupts.came = True
    return handler(number, frame)


class allowing_refusal:
    """A call may refuse in here to run as it is asked to: what it raises is dropped, but for memory that ran out."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return isinstance(error, Exception) and not isinstance(error, MemoryError)


@contextmanager
def no_reference(who: str, *passing: type[Exception], advice: str = "") -> Iterator[None]:
    """A reference runs in here. Raises NoReference for what it raises, but for memory that ran out, and for these."""
    try:
        yield
    except Exception as error:
        if isinstance(error, (MemoryError, *passing)):
            raise
        raise NoReference(f"{who} raised {exception_line(error)}{advice}") from error


class MemoryErrors(ContextDecorator):
    """For what runs a framework: MemoryError is raised where an error says in words of its own that memory ran out, as
    ran_out tells."""

    def __init__(self, ran_out: Callable[[BaseException], bool]) -> None:
        self._ran_out = ran_out

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, MemoryError) and self._ran_out(error):
            raise MemoryError(first_line(error)) from error


def ends_run(error: BaseException) -> bool:
    """Is it the user who wants the run to end? What else a call ends with is that call's own failure, also where
    Python or pytest have another use for it: SystemExit, GeneratorExit, pytest.skip, ..."""
    return isinstance(error, KeyboardInterrupt) and (_interrupts.came or not _interrupts.noting)


@contextmanager
def reporting_failures_of(what: str) -> Iterator[None]:
    """Raises HookFailed, which names what is run here, for any exception but our own and the user's Ctrl-C."""
    try:
        yield
    except (ProbeError, MemoryError):
        raise
    except BaseException as error:
        if ends_run(error):
            raise
        raise HookFailed(raised(what, error)) from error


def raised(what: str, error: BaseException) -> str:
    """What raised which error, and the project's own lines that led to it."""
    return "\n".join([f"{what} raised {exception_text(error)}", *frames(error)[-SHOWN_FRAMES:]])


def guarded(what: str, functions: Mapping[str, Callable[..., Any]], key: str) -> Callable[..., Any] | None:
    """The function registered for this key, whose exceptions become HookFailed; None without one."""
    function = functions.get(key)
    if function is None:
        return None
    return update_wrapper(partial(_call, f"{what} registered for {key}", function), function)


def _call(what: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    with reporting_failures_of(what):
        return function(*args, **kwargs)


def exception_text(error: BaseException) -> str:
    """An exception by its type and all it says, where that is no book."""
    lines = message_of(error).splitlines()
    text = "\n".join(lines[:SHOWN_LINES])
    if len(lines) > SHOWN_LINES or len(text) > SHOWN_LETTERS:
        text = f"{text[:SHOWN_LETTERS]} ..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def exception_line(error: BaseException) -> str:
    """An exception by its type and the first line of what it says."""
    return f"{type(error).__name__}: {first_line(error)}"


def first_line(error: BaseException) -> str:
    """What a framework's error says, in one line of at most 300 characters."""
    return (message_of(error).split("\n", 1)[0] or type(error).__name__)[:300]


def causes(error: BaseException) -> Iterator[BaseException]:
    """The exception, and what it was raised from; each once, since a user's may lead back to itself."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def message_of(error: BaseException) -> str:
    """All that an exception says, also where saying it raises."""
    try:
        return str(error).strip()
    except BaseException as another:
        if ends_run(another):
            raise
        return f"(its own text raised {type(another).__name__})"


def frames(error: BaseException) -> list[str]:
    """The project's own frames of the traceback, outermost first, as "  file:line: code"."""
    found = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        found.append((error.filename, error.lineno or 1))
    return [
        f"  {file}:{line}: {linecache.getline(file, line).strip()}".rstrip(": ")
        for file, line in found
        if _is_users(file)
    ]


def users_place() -> str:
    """Where the project's own code is at this moment ("test_x.py:12"); "" where none of it is."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return "" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


@cache
def _is_users(file: str) -> bool:
    return not file.startswith("<") and not any(Path(file).is_relative_to(folder) for folder in _installed())


@cache
def _installed() -> tuple[Path, ...]:
    """Where code lies that is not the project's: this package, Python and what was installed."""
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return (Path(__file__).parent, *map(Path, [*folders, *site.getsitepackages()]))
