"""The project's own tests: plugins and options that they need."""

from __future__ import annotations

import pytest

pytest_plugins = ["tests.support.evidence"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--corpus", metavar="DIR", help="Check every dump below this folder too: tests/evidence/test_corpus.py"
    )
