"""People who have the plugin installed and do not use it must not notice it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pytest_probe

HEAVY = ("numpy", "msgspec", "torch", "hypothesis", "yaml", "ml_dtypes", "pytest_probe.settings", "pytest_probe.items")


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_an_unused_plugin_imports_nothing_heavy(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_mine(): pass")
    code = (
        "import sys, pytest\n"
        "pytest.main(['-q', '-p', 'pytest_probe.plugin'])\n"
        f"print('loaded', sorted(set({HEAVY}) & set(sys.modules)))"
    )
    result = pytester.run(
        sys.executable, "-c", "import os; os.environ['PYTEST_DISABLE_PLUGIN_AUTOLOAD'] = '1'\n" + code
    )
    result.stdout.fnmatch_lines(["1 passed*", "loaded []"])


def test_the_plugin_is_cheap_to_import() -> None:
    code = (
        "import time, pytest\n"
        "start = time.process_time(); import pytest_probe.plugin; print(time.process_time() - start)"
    )
    assert min(float(run(code)) for _ in range(5)) < 0.001


def test_public_names_are_loaded_when_asked_for() -> None:
    assert pytest_probe.Verdict.__name__ == "Verdict"
    assert set(pytest_probe.__all__) == {name for name in pytest_probe.__all__ if getattr(pytest_probe, name)}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pytest_probe.nothing
