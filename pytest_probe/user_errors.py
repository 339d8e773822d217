"""What a project's own code did wrong, said by the lines of that code alone."""

from __future__ import annotations

import linecache
import site
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial, update_wrapper
from pathlib import Path
from typing import Any

from pytest_probe.errors import HookFailed, ProbeError

SHOWN_LINES = 12


@contextmanager
def reporting_failures_of(what: str) -> Iterator[None]:
    """Raises HookFailed, which names what is run here, for any exception but our own."""
    try:
        yield
    except (ProbeError, MemoryError):
        raise
    except Exception as error:
        raise HookFailed("\n".join([f"{what} raised {exception_text(error)}", *frames(error)])) from error


def guarded(what: str, functions: Mapping[str, Callable[..., Any]], key: str) -> Callable[..., Any] | None:
    """The function registered for this key, whose exceptions become HookFailed; None where there is none."""
    function = functions.get(key)
    if function is None:
        return None
    return update_wrapper(partial(_call, f"{what} registered for {key}", function), function)


def _call(what: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    with reporting_failures_of(what):
        return function(*args, **kwargs)


def exception_text(error: BaseException) -> str:
    """An exception by its type and all it says, where that is no book."""
    lines = str(error).strip().splitlines()
    text = "\n".join(lines[:SHOWN_LINES])
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def first_line(error: BaseException) -> str:
    """What a framework's error says, in one line of at most 300 characters."""
    return (str(error).strip().split("\n", 1)[0] or type(error).__name__)[:300]


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


@cache
def _is_users(file: str) -> bool:
    return not file.startswith("<") and not any(Path(file).is_relative_to(folder) for folder in _installed())


@cache
def _installed() -> tuple[Path, ...]:
    """Where code lies that is not the project's: this package, Python and what was installed."""
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return (Path(__file__).parent, *map(Path, [*folders, *site.getsitepackages()]))
