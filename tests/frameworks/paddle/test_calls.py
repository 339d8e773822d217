from __future__ import annotations

from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe import frameworks
from pytest_probe.errors import Unsupported
from pytest_probe.frameworks.paddle.arrays import restrided, to_array, to_tensor
from pytest_probe.model.dump import DtypeSpec
from pytest_probe.model.run import Arguments, Jitter, Run, Steps, Wanted, Way
from tests.frameworks.test_calls import leaf

WIDE = Way(dtype="float64")
FRAMEWORK = frameworks.load("paddle")


def run(function: Any, *args: Any, way: Way = WIDE, wanted: Wanted | None = None) -> Run:
    return FRAMEWORK.run(function, Arguments(args, {}, None), way, wanted)


@pytest.mark.parametrize("name", ["uint16", "uint32", "uint64"])
def test_integers_that_paddle_has_not(name: str) -> None:
    with pytest.raises(Unsupported, match=f"dtype {name}, which Paddle has not"):
        to_tensor(np.ones(3, name))


def test_a_sparse_tensor_has_no_place() -> None:
    sparse = paddle.sparse.sparse_coo_tensor([[0], [1]], [1.0], [2, 2])
    with pytest.raises(Unsupported, match="a sparse tensor"):
        to_array(sparse)


def test_a_restrided_tensor_has_strides_and_values() -> None:
    tensor = restrided(to_tensor(np.arange(6.0).reshape(2, 3)), (1, 2))
    assert (list(tensor.strides), to_array(tensor).tolist()) == ([1, 2], [[0, 1, 2], [3, 4, 5]])


def test_gradients_of_in_place_calls_need_copies() -> None:
    given = leaf(3)
    with pytest.raises(ValueError, match="can't use inplace strategy"):
        run(paddle.Tensor.add_, given, given, wanted=Wanted(frozenset({"input.0"})))


def test_steps_that_paddle_does_not_show() -> None:
    for way in (Way(dtype="float64", steps=Steps("bfloat16", fine=False)), Way(dtype="float64", jitter=Jitter(1e-7))):
        with pytest.raises(NotImplementedError, match="does not show"):
            run(paddle.exp, leaf(3), way=way)


def test_what_a_test_of_the_users_gives_and_takes() -> None:
    device = FRAMEWORK.device("cpu")
    mine = paddle.arange(6, dtype="float32").reshape([2, 3])
    mine.stop_gradient = False
    taken = FRAMEWORK.take([mine, paddle.float16, mine.T, 3], device)
    assert (taken[0].array.tolist(), taken[0].requires_grad, taken[0].strides) == ([[0, 1, 2], [3, 4, 5]], True, None)
    assert (taken[1], taken[2].strides, taken[3]) == (DtypeSpec("float16"), (1, 3), 3)
    bound = FRAMEWORK.bind(Arguments((taken[0],), {}, None), Way(device), Wanted(frozenset({"input.0"})))
    done = FRAMEWORK.left(bound, bound.args[0] * 2)
    assert FRAMEWORK.gradients(done, {"output.0": np.ones((2, 3), np.float32)})["input.0"].tolist() == [[2] * 3] * 2


def test_memory_that_is_not_there() -> None:
    with pytest.raises(MemoryError):
        run(paddle.empty, [1 << 22, 1 << 22], way=Way(FRAMEWORK.device("cpu")))


def test_an_incoming_gradient_of_another_shape() -> None:
    """Paddle takes it, and its kernels write beside their memory."""
    done = run(lambda x: paddle.logcumsumexp(x, 1), leaf(4, 6), wanted=Wanted(frozenset({"input.0"})))
    with pytest.raises(ValueError, match=r"gradient of shape \[4, 7\] for an output of \[4, 6\]"):
        FRAMEWORK.gradients(done, {"output.0": np.ones((4, 7))})
