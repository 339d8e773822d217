"""One thread for torch, in every process that tests start: tensors are small, and threads would only wait.

What hangs on the number of threads sets it.
"""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import hypothesis
import pytest
from _pytest import unraisableexception

# pytester forgets the modules that a run of its own imports first. Of these, which are imported late, some would be
# there twice, with a class each.
import pytest_probe.features.fuzz.from_records
import pytest_probe.features.fuzz.strategy  # noqa: F401
from tests.support import forks, kernels
from tests.support.other_plugins import WITHOUT_OTHERS

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests compare what runs print: a line ends where a terminal of 80 columns has its end, and has no colours.
for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "PYTEST_THEME", "PYTEST_ADDOPTS"):
    os.environ.pop(name, None)
# A socket's path has at most 107 bytes, and Ray's take 60 of them.
if len(os.fsencode(tempfile.gettempdir())) > 40:
    os.environ.setdefault("RAY_TMPDIR", "/tmp")
# A shell ignores SIGINT in its background jobs, and so would every child of theirs: `make test &` then tests no Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# No test waits on the clock: on a busy machine an example takes longer.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")
# They hold what works where there is no torch: `make test-without-torch`.
collect_ignore = ["without_torch"] if find_spec("torch") else []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What runs pytest is slow: it may start processes that import a framework. What needs Paddle says so in its id, or
    its module imports it."""
    for item in items:
        if "paddle" in item.nodeid or "paddle" in vars(getattr(item, "module", item)):
            item.add_marker(pytest.mark.paddle)
        if "pytester" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """A collection of garbage passes over what was collected of tests and the modules that they import: a million
    objects, half a second each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def outside_ci() -> Iterator[None]:
    """pytest does not shorten its summary in CI: what tests compare is the text elsewhere, also of runs that fixtures
    of the session make. This run's own summary comes after it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CI", raising=False)
        patch.delenv("BUILD_NUMBER", raising=False)
        yield


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """A capture sets variables for the processes that are started later. Each test leaves them as they were."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture(scope="session")
def built_kernel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled kernel, built of the source that is tested."""
    return kernels.built(tmp_path_factory.mktemp("kernel"))


@pytest.fixture(scope="session")
def compiled(built_kernel: Path) -> ModuleType:
    """The compiled kernel itself."""
    return kernels.loaded(built_kernel)


@pytest.fixture(scope="session")
def compiled_numbers(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The compiled kernel of numbers."""
    return kernels.loaded(kernels.built(tmp_path_factory.mktemp("numbers"), "numerics"))


@pytest.fixture(params=["compiled", "not compiled"])
def counting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the compiled kernel, and without it."""
    found = request.getfixturevalue("compiled") if request.param == "compiled" else None
    monkeypatch.setattr("pytest_probe.capture.kernel.compiled", found)


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Runs pytest without the plugins that only the tests of them need, and its workers as forks.

    It writes no bytecode: of a module that a test writes twice within a second the first would run again."""
    monkeypatch.setenv("PYTEST_ADDOPTS", WITHOUT_OTHERS)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    forks.fork_workers(monkeypatch)
    monkeypatch.setattr(pytester, "parseconfig", partial(_parsed, pytester.parseconfig))
    return pytester


def _parsed(parse: Callable[..., pytest.Config], *args: str) -> pytest.Config:
    """A configuration that collects no garbage at its end, which takes a second among what all tests here have made.
    Of its own runs pytester says the same."""
    config = parse(*args)
    key = vars(unraisableexception).get("gc_collect_iterations_key")
    if key is not None:  # since pytest 8.4
        config.stash[key] = 0
    return config


@pytest.fixture
def forked(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs that pytester runs are forks as well."""
    forks.fork_programs(pytester, monkeypatch)
