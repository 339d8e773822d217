"""People who have the plugin installed and do not use it must not notice it."""

from __future__ import annotations

import sys

import pytest

HEAVY = (
    "numpy",
    "msgspec",
    "torch",
    "hypothesis",
    "yaml",
    "ml_dtypes",
    "pytest_probe.settings",
    "pytest_probe.plugin.items",
)


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
