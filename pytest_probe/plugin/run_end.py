"""The end of a run that something could not write to the disk: the run fails, and says what."""

from __future__ import annotations

import traceback

import pytest


def fail(session: pytest.Session) -> None:
    """Let the run end with a status that is not 0."""
    if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def unwritten(config: pytest.Config, error: OSError) -> str:
    """What pytest, or another plugin, could not write at the end of a run."""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    of_cache = "_pytest.cacheprovider" in modules
    file = error.filename or (config.rootpath / config.getini("cache_dir") if of_cache else f"a file of {modules[-1]}")
    return f"{file} cannot be written ({error.strerror or error}): the run went on without it"
