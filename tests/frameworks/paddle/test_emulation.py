from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe import frameworks
from pytest_probe.errors import SettingsError
from pytest_probe.model.dump import DtypeSpec
from pytest_probe.model.run import Arguments, Leaf, Run, Wanted, Way

FRAMEWORK = frameworks.load("paddle")
DEVICE = FRAMEWORK.emulating("cpu")
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def leaf(*shape: int, seed: int = 0, dtype: Any = BFLOAT16) -> Leaf:
    return Leaf(np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(dtype))


def run(function: Any, *args: Any, wanted: Wanted | None = None, **kwargs: Any) -> Run:
    return FRAMEWORK.run(function, Arguments(args, kwargs, None), Way(DEVICE), wanted)


def test_a_kernel_that_is_not_there() -> None:
    x, y = leaf(4, 8), leaf(8, 3, seed=1)
    with pytest.raises(RuntimeError, match="The kernel with key"):
        FRAMEWORK.run(paddle.matmul, Arguments((x, y), {}, None), Way(FRAMEWORK.device("cpu")))
    found = run(paddle.matmul, x, y).outputs["output.0"]
    assert found.dtype == BFLOAT16
    exact = x.array.astype(np.float64) @ y.array.astype(np.float64)
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=2**-8)


def test_gradients_are_16_bit_too() -> None:
    done = run(paddle.exp, leaf(5), wanted=Wanted(frozenset({"input.0"})))
    found = FRAMEWORK.gradients(done, {"output.0": np.ones(5, BFLOAT16)})["input.0"]
    assert found.dtype == BFLOAT16
    np.testing.assert_allclose(found.astype(float), done.outputs["output.0"].astype(float), rtol=2**-7)


def test_what_is_written_to_is_written() -> None:
    x, y = leaf(5), leaf(5, seed=1)
    done = run(paddle.Tensor.multiply_, x, y, wanted=Wanted(frozenset({"input.0"}), copies=True))
    assert (done.changed, done.returned) == (frozenset({"input.0"}), {"output.0": "input.0"})
    assert np.array_equal(done.after("input.0"), done.outputs["output.0"])
    assert done.after("input.0").dtype == BFLOAT16
    assert np.array_equal(done.after("input.1"), y.array)


def test_statistics_that_a_kernel_changes_without_a_word() -> None:
    mean, variance = leaf(3), Leaf(np.ones(3, BFLOAT16))
    done = run(paddle.nn.functional.batch_norm, leaf(4, 3), mean, variance, training=True)
    assert not np.array_equal(done.after("input.1"), mean.array)


def test_a_dtype_that_the_call_names() -> None:
    assert run(paddle.sum, leaf(5), dtype=DtypeSpec("float32")).outputs["output.0"].dtype == np.float32
    assert run(paddle.cast, leaf(5), DtypeSpec("float16")).outputs["output.0"].dtype == np.float16
    assert run(paddle.cast, leaf(5), DtypeSpec("int64")).outputs["output.0"].dtype == np.int64


def test_other_calls_are_as_they_are() -> None:
    found = run(paddle.exp, leaf(5, dtype=np.float32)).outputs["output.0"]
    assert found.dtype == np.float32
    values, indices = run(paddle.topk, leaf(9), 2).outputs.values()
    assert (values.dtype, indices.dtype) == (BFLOAT16, np.int64)


def test_numbers_that_paddles_cast_makes_large() -> None:
    """Its float16 of 4.76e-24 is 8.8e-5."""
    tiny = Leaf(np.full(3, 4.755951e-24, np.float32))
    found = run(lambda x, y: x * y, Leaf(np.ones(3, np.float16)), tiny).outputs["output.0"]
    assert (found.dtype, found.tolist()) == (np.float16, [0, 0, 0])


def test_devices_that_have_kernels() -> None:
    with pytest.raises(SettingsError, match=r"--probe-emulate: 'cpu' cannot be used; torch has 16-bit kernels there"):
        frameworks.load("pytorch").emulating("cpu")
