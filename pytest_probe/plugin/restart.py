"""`--probe-dump PATH`, with a space: pytest takes PATH for a test path when it looks for rootdir and its ini file.

A run that was started from the command line starts itself again with `--probe-dump=PATH`.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pytest_probe.options import OPTIONS
from pytest_probe.settings.dump_paths import CONFIG_FILES

FLAGS = frozenset(option.flag for option in OPTIONS if option.cli and option.kind != "flag")


def with_equals(config: pytest.Config) -> None:
    """Start the run again where a path behind a space may have changed rootdir, or the ini file.

    Raises UsageError where the run is a call of pytest.main, which cannot start again.
    """
    words = [str(word) for word in config.invocation_params.args]
    added = shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
    start = config.invocation_params.dir
    paths = [pair for pair in (*_pairs(added), *_pairs(words)) if _exists(start / pair[1])]
    if not paths or not _may_matter(config, [start / value for _, value in paths]):
        return
    if not _from_command_line(words):
        flag, value = paths[0]
        raise pytest.UsageError(
            f"{flag} {value}: with a space pytest takes the path for a test path when it looks for rootdir and its ini "
            f"file; write {flag}={value}"
        )
    if added:
        os.environ["PYTEST_ADDOPTS"] = shlex.join(_joined(added))
    _run([sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - len(words)], *_joined(words)])


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Our options that stand apart from their values."""
    options = words[: words.index("--")] if "--" in words else words
    yield from ((flag, value) for flag, value in pairwise(options) if flag in FLAGS)


def _joined(words: Sequence[str]) -> list[str]:
    """The words with `=` between our options and their values."""
    end = words.index("--") if "--" in words else len(words)
    found: list[str] = []
    for word in words[:end]:
        if found and found[-1] in FLAGS:
            found[-1] += f"={word}"
        else:
            found.append(word)
    return [*found, *words[end:]]


def _may_matter(config: pytest.Config, values: Iterable[Path]) -> bool:
    """Could pytest find another ini file or rootdir with these paths than without them?

    It looks in the folder that all paths share and above, then in each one's folder and above.
    """
    given: Any = config.known_args_namespace
    if given.inifilename:
        return False
    start = config.invocation_params.dir
    others = [start / str(arg).partition("::")[0] for arg in given.file_or_dir]
    named = [_folder(path) for path in values]
    tests = [_folder(path) for path in others if _exists(path)]
    try:
        without, together = _shared(tests or [start]), _shared([*tests, *named])
        top = _shared([without, together])
        places = {_shared([start, without]), _shared([start, together])}
    except ValueError:  # two drives
        return True
    found_there = any(_has_config(folder) for place in (without, *named) for folder in _up_to(place, top))
    return found_there or (config.inipath is None and not given.rootdir and len(places) > 1)


def _up_to(folder: Path, top: Path) -> Iterator[Path]:
    """The folder and those above it, below top."""
    return (each for each in (folder, *folder.parents) if each != top and each.is_relative_to(top))


def _has_config(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (*CONFIG_FILES, "setup.py"))


def _folder(path: Path) -> Path:
    whole = Path(os.path.abspath(path))
    return whole if whole.is_dir() else whole.parent


def _shared(folders: Sequence[Path]) -> Path:
    return Path(os.path.commonpath(folders))


def _exists(path: Path) -> bool:
    return os.path.exists(path)  # Path.exists raises where a name is too long


def _from_command_line(words: Sequence[str]) -> bool:
    """Is this pytest's own command, and no script that calls pytest.main and may have done other things before?"""
    if not sys.executable or sys.orig_argv[len(sys.orig_argv) - len(words) :] != list(words):
        return False
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_name.endswith("console_main") and frame.f_globals.get("__name__") == "_pytest.config":
            return True
    return False


def _run(command: list[str]) -> NoReturn:
    """Run the command in place of this process."""
    sys.stdout.flush()
    sys.stderr.flush()
    if sys.platform == "win32":  # where exec returns to the shell at once
        raise SystemExit(subprocess.call(command))
    os.execv(command[0], command)
