"""Each framework whose captures the contract is about."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from tests.support.installed import needs_paddle


@pytest.fixture(params=["pytorch", pytest.param("paddle", marks=needs_paddle)])
def kit(request: pytest.FixtureRequest) -> Any:
    return import_module(f"tests.capture.kits.{request.param}")
