from __future__ import annotations

import pytest

from pytest_probe import frameworks
from pytest_probe.errors import Unsupported


def test_another_framework() -> None:
    with pytest.raises(Unsupported, match="a dump of jax") as caught:
        frameworks.load("jax")
    assert caught.value.kind == "another framework"
