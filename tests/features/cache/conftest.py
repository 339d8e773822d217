"""A cache of every case, and a count of what is computed beside it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_probe.features.cache import plugin as cache
from pytest_probe.frameworks.python import calls


@pytest.fixture(autouse=True)
def every_case(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Those that take no time, too. No garbage of earlier tests is collected meanwhile: where code of others runs while
    a reference is computed, nothing is kept."""
    monkeypatch.setattr(cache, "_MIN_SECONDS_TO_CACHE", 0.0)
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often a reference has run since it was asked last."""
    count = 0
    run = calls.PythonCalls.run

    def counting(self: Any, function: Any, arguments: Any, way: Any, wanted: Any = None) -> Any:
        nonlocal count
        count += bool(way.dtype)
        return run(self, function, arguments, way, wanted)

    def since() -> int:
        nonlocal count
        found, count = count, 0
        return found

    # Functions of others are kept out of the cache: this one counts as this package's.
    counting.__code__ = counting.__code__.replace(co_filename=calls.__file__)
    monkeypatch.setattr(calls.PythonCalls, "run", counting)
    return since
