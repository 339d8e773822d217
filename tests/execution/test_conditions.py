from __future__ import annotations

import pytest

from pytest_probe.errors import Unsupported
from pytest_probe.execution import load_framework


def test_another_framework() -> None:
    with pytest.raises(Unsupported, match="a dump of mindspore") as caught:
        load_framework("mindspore")
    assert caught.value.kind == "another framework"
