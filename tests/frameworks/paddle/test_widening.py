"""Paddle's kernels that round at borders which a user names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe.check import Checker, RunRequest
from pytest_probe.frameworks.base import reference_run
from pytest_probe.frameworks.paddle.references import border
from pytest_probe.model.run import Way
from pytest_probe.registry import Registry

DTYPES = ("bfloat16", "float16")


def attention(q: Any, k: Any, v: Any) -> Any:
    """In float32: it rounds nothing to 16 bit."""
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


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_border_rounds_values_and_gradients_in_runs_that_ask_for_it(dtype: str) -> None:
    x = paddle.to_tensor([1.0 + 2.0**-13, 3.0], dtype="float64", stop_gradient=False)
    assert border(x) is x
    with reference_run(Way(dtype="float64", border=dtype)):
        passed = border(x)
    assert passed.tolist() == [1.0, 3.0]
    assert passed.dtype == paddle.float64
    (gradient,) = paddle.grad([(passed * paddle.to_tensor([1 - 2.0**-13, 2.0], dtype="float64")).sum()], [x])
    assert gradient.tolist() == [1.0, 2.0]
