from __future__ import annotations

import pytest

from pytest_probe import frameworks
from pytest_probe.errors import Unsupported


def test_another_framework() -> None:
    with pytest.raises(Unsupported, match="a dump of mindspore") as caught:
        frameworks.load("mindspore")
    assert caught.value.kind == "another framework"
