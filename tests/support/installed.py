"""Marks of tests that need what not every environment has."""

from __future__ import annotations

import pytest

from pytest_probe.frameworks import unavailable

needs_paddle = pytest.mark.skipif(bool(unavailable("paddle")), reason="Paddle is not installed: make demo-paddle")
needs_mindspore = pytest.mark.skipif(
    bool(unavailable("mindspore")), reason="MindSpore is not installed: make test-mindspore"
)
