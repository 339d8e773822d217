from __future__ import annotations

from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe.check import Checker, RunRequest
from pytest_probe.registry import Registry

DTYPES = ("bfloat16", "float16")


def attention(q: Any, k: Any, v: Any) -> Any:
    wide = [tensor.cast("float32") for tensor in (q, k, v)]
    return (paddle.nn.functional.softmax(wide[0] @ wide[1].transpose([0, 2, 1]), -1) @ wide[2]).cast(q.dtype)


def weighed(step: Any, q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.transpose([0, 2, 1])
    weights = paddle.exp(scores - scores.max(-1, keepdim=True))
    return step(weights) @ v / weights.sum(-1, keepdim=True)


def kernel(q: Any, k: Any, v: Any) -> Any:
    wide = [tensor.cast("float32") for tensor in (q, k, v)]
    return weighed(lambda tensor: tensor.cast(q.dtype).cast("float32"), *wide).cast(q.dtype)


def outcomes(function: Any, dtype: str, *, named: bool) -> list[str]:
    checker = Checker(RunRequest(device="cpu"), Registry.default(), framework="paddle")
    generator = np.random.default_rng(0)
    given = [paddle.to_tensor(generator.normal(size=(2, 32, 16)), dtype="float32").cast(dtype) for _ in range(3)]
    borders = (lambda *args: weighed(checker.border, *args)) if named else None
    found = checker.compare(function, attention, given, backward=True, key="paddle", borders=borders)
    return [verdict.verdict for verdict in found]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_kernel_that_rounds_at_a_named_border_passes_in_both_directions(dtype: str) -> None:
    assert outcomes(kernel, dtype, named=True) == ["pass", "pass"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_named_border_hides_no_fault(dtype: str) -> None:
    assert outcomes(lambda *args: kernel(*args) * 1.02, dtype, named=True)[0] == "error"
