"""Each framework whose replays the contract is about."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from msgspec import Struct

from pytest_probe import frameworks
from tests.support.installed import needs_paddle


class Kit(Struct):
    """A framework as its replays see it, and as a program does."""

    name: str
    framework: Any
    module: Any

    @property
    def cpu(self) -> Any:
        return self.framework.device("cpu")


@pytest.fixture(params=["pytorch", pytest.param("paddle", marks=needs_paddle)])
def kit(request: pytest.FixtureRequest) -> Kit:
    name = request.param
    return Kit(name, frameworks.load(name), import_module({"pytorch": "torch"}.get(name, name)))
