"""One thread for torch, in every process that tests start: tensors are small, and threads would only wait.

What hangs on the number of threads sets it.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

from tests.support.other_plugins import WITHOUT_OTHERS

os.environ.setdefault("OMP_NUM_THREADS", "1")
# They hold what works where there is no torch: `make test-without-torch`.
collect_ignore = ["without_torch"] if find_spec("torch") else []


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Runs pytest without the plugins that only the tests of them need."""
    monkeypatch.setenv("PYTEST_ADDOPTS", WITHOUT_OTHERS)
    return pytester
