from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_probe.model.run import Leaf

pytest.importorskip("paddle")
from pytest_probe.frameworks.paddle.memory import bytes_inside

pytestmark = pytest.mark.paddle


def big(*shape: int) -> Leaf:
    return Leaf(np.broadcast_to(np.float32(1), shape))


N = 100_000
TAKES: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], int]] = {
    "full": ("full", ([N, N], 1.0), {}, N * N),
    "a size of a tensor": ("full", (Leaf(np.array([N, N])), 1.0), {}, N * N),
    "sizes of tensors": ("zeros", ([Leaf(np.array(N)), N],), {}, N * N),
    "shape": ("uniform", (), {"shape": [N, N]}, N * N),
    "expand": ("expand", (big(1, N), [N, -1]), {}, N),
    "tile": ("tile", (big(N), [N, 1]), {}, N * N),
    "matmul": ("matmul", (big(3, N, 2), big(2, N)), {}, 3 * N * N),
    "affine": ("affine", (big(2, N, 3), big(3, N)), {}, 2 * N * N),
    "outer": ("outer", (big(N), big(N)), {}, N * N),
    "broadcast": ("add", (big(N, 1), big(1, N)), {}, N * N),
    "one_hot": ("one_hot", (big(N), N), {}, N * N),
    "eye": ("eye", (N,), {}, N * N),
    "arange": ("arange", (0, N * N), {}, N * N),
}


@pytest.mark.parametrize("key", TAKES)
def test_what_a_call_takes(key: str) -> None:
    name, args, kwargs, elements = TAKES[key]
    assert bytes_inside(name, args, kwargs, 8 * elements) == 8 * elements
    assert bytes_inside(name, args, kwargs, 8 * elements + 1) == 0


@pytest.mark.parametrize(
    ("name", "args"),
    [("full", ("wrong", 1.0)), ("matmul", (big(2), 3)), ("add", (big(2), big(3))), ("tolist", (big(9),)), ("", ())],
)
def test_calls_that_tell_nothing(name: str, args: tuple[Any, ...]) -> None:
    assert bytes_inside(name, args, {}, 1) == 0
