from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.support.installed import needs_paddle

pytestmark = [needs_paddle, pytest.mark.paddle]


def zones(dtype: str) -> Any:
    import paddle

    from pytest_probe.frameworks.paddle import memory

    tensor = paddle.arange(24).reshape([4, 6]).cast(dtype)
    found = memory.zones(tensor, 64)
    assert found is not None
    assert np.array_equal(found.tensor.cast("float32").numpy(), tensor.cast("float32").numpy())
    return found


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "complex64", "bool"])
@pytest.mark.parametrize("number", [math.nan, 2.0**100])
def test_paddle_finds_what_is_written_outside(dtype: str, number: float) -> None:
    import paddle

    made = zones(dtype)
    made.fill(number)
    assert made.damage() == ""
    start = made._places[0].stop
    for place, words in ((start - 1, "1 element before its first"), (start + 24, "1 element behind its last")):
        made.fill(number)
        one = made._memory.as_strided([1], [1], place * made._memory.element_size())
        one.copy_(paddle.full([1], 3, "float32").cast(dtype) if dtype != "bool" else ~one, True)
        assert made.damage() == words


def test_paddle_has_no_zones_where_elements_share_memory() -> None:
    import paddle

    from pytest_probe.frameworks.paddle import memory

    assert memory.zones(paddle.ones([1, 4]).as_strided([3, 4], [0, 1]), 64) is None
    assert memory.zones(paddle.ones([0, 4]), 64) is None


def test_paddle_memory_that_is_not_written() -> None:
    import paddle

    from pytest_probe.frameworks.paddle import memory

    for number, sign in ((math.nan, -1), (2.0**100, 1)):
        with memory.unwritten("cpu", [np.zeros(4096)], number) as known:
            values = paddle.empty([4096], "float32").numpy().copy()
        assert known
        assert (values * sign > 1e29).all()
