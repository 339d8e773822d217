from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe import frameworks
from pytest_probe.errors import Unsupported
from pytest_probe.frameworks.paddle.arrays import restrided, to_array, to_tensor
from pytest_probe.frameworks.paddle.calls import PaddleCalls
from pytest_probe.model.dump import DtypeSpec
from pytest_probe.model.run import Array, Jitter, Leaf, Run, Steps, Wanted, Way
from pytest_probe.numerics.arrays import laid_out

F = paddle.nn.functional
WIDE = Way(dtype="float64")
FRAMEWORK = frameworks.load("paddle")
DTYPES = (
    "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2 complex64 complex128 bool int8 uint8 int16 int32 int64"
)


def on_cpu() -> Way:
    return Way(FRAMEWORK.device("cpu"))


def run(function: Any, *args: Any, way: Way = WIDE, wanted: Wanted | None = None, **kwargs: Any) -> Run:
    return FRAMEWORK.run(function, args, kwargs, way, wanted)


def leaf(*shape: int, seed: int = 0) -> Leaf:
    return Leaf(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


@pytest.mark.parametrize("name", DTYPES.split())
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3)])
def test_arrays_cross_as_they_are(name: str, shape: tuple[int, ...]) -> None:
    array = np.ones(shape).astype(getattr(ml_dtypes, name, None) or np.dtype(name))
    tensor = to_tensor(array)
    assert (str(tensor.dtype), tuple(tensor.shape)) == (f"paddle.{name}", shape)
    back = to_array(tensor)
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, shape, array.tobytes())


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


def test_the_reference_is_float64_and_the_device_as_recorded() -> None:
    assert run(paddle.exp, leaf(3)).outputs["output.0"].dtype == np.float64
    assert run(paddle.exp, leaf(3), way=on_cpu()).outputs["output.0"].dtype == np.float32
    assert run(paddle.cast, leaf(3), DtypeSpec("float16")).outputs["output.0"].dtype == np.float64
    assert run(paddle.cast, leaf(3), DtypeSpec("int32")).outputs["output.0"].dtype == np.int32
    assert run(paddle.ones, [3]).outputs["output.0"].dtype == np.float64
    assert run(paddle.ones, [3], way=on_cpu()).outputs["output.0"].dtype == np.float32
    assert run(lambda x: x, Array(np.ones(2, np.float32))).outputs["output.0"].dtype == np.float64


def test_the_modulus_of_complex_numbers_is_computed_in_float64() -> None:
    found = run(paddle.abs, Leaf(np.array([3 + 4j], np.complex64))).outputs["output.0"]
    assert (found.dtype, found.tolist()) == (np.float64, [5.0])


def test_gradients_of_many_outputs_and_of_arguments_that_have_none() -> None:
    given, unused = leaf(4, 6), leaf(2)
    wanted = Wanted(frozenset({"input.0", "kwargs.y"}))
    done = run(lambda x, y: paddle.split(x * 2, 2, axis=1), given, y=unused, wanted=wanted)
    assert done.differentiable == ("output.0", "output.1")
    found = FRAMEWORK.gradients(done, {"output.0": np.ones((4, 3)), "output.1": np.full((4, 3), 3.0)})
    assert found.keys() == {"input.0"}
    assert found["input.0"].tolist() == [[2.0] * 3 + [6.0] * 3] * 4


def test_integers_have_no_gradient_though_paddle_says_so() -> None:
    done = run(paddle.topk, leaf(9), 2, wanted=Wanted(frozenset({"input.0"})))
    assert done.differentiable == ("output.0",)


def test_a_gradient_comes_in_the_outputs_dtype() -> None:
    done = run(paddle.exp, leaf(3), way=on_cpu(), wanted=Wanted(frozenset({"input.0"})))
    assert FRAMEWORK.gradients(done, {"output.0": np.ones(3)})["input.0"].dtype == np.float32


def test_gradients_of_in_place_calls_need_copies() -> None:
    given = leaf(3)
    with pytest.raises(ValueError, match="can't use inplace strategy"):
        run(paddle.Tensor.add_, given, given, wanted=Wanted(frozenset({"input.0"})))
    done = run(paddle.Tensor.add_, given, leaf(3, seed=1), wanted=Wanted(frozenset({"input.0"}), copies=True))
    assert (done.changed, done.returned) == (frozenset({"input.0"}), {"output.0": "input.0"})
    assert np.array_equal(done.after("input.0"), done.outputs["output.0"])
    assert FRAMEWORK.gradients(done, {"output.0": np.ones(3)})["input.0"].tolist() == [1, 1, 1]


def test_outputs_of_all_kinds() -> None:
    tree = {"a": [to_tensor(np.ones(2)), None], "b": (1, "text", np.float32(2.5)), "c": np.ones(2)}
    found = run(lambda: tree).outputs
    assert {name: type(value).__name__ for name, value in found.items()} == {
        "output.a.0": "ndarray",
        "output.b.0": "int",
        "output.b.1": "str",
        "output.b.2": "ndarray",
        "output.c": "ndarray",
    }


def test_0_d_stays_0_d() -> None:
    assert run(paddle.sum, leaf(3)).outputs["output.0"].shape == ()
    assert run(paddle.add, Leaf(np.full((), 1.5, np.float32)), leaf(2)).outputs["output.0"].shape == (2,)


def test_steps_that_paddle_does_not_show() -> None:
    for way in (
        Way(dtype="float64", steps=Steps("bfloat16", fine=False)),
        Way(dtype="float64", jitter=Jitter(1e-7)),
    ):
        with pytest.raises(NotImplementedError, match="does not show"):
            run(paddle.exp, leaf(3), way=way)


def test_what_a_test_of_the_users_gives_and_takes() -> None:
    device = FRAMEWORK.device("cpu")
    mine = paddle.arange(6, dtype="float32").reshape([2, 3])
    mine.stop_gradient = False
    taken = FRAMEWORK.take([mine, paddle.float16, mine.T, 3], device)
    assert (taken[0].array.tolist(), taken[0].requires_grad, taken[0].strides) == ([[0, 1, 2], [3, 4, 5]], True, None)
    assert (taken[1], taken[2].strides, taken[3]) == (DtypeSpec("float16"), (1, 3), 3)
    bound = FRAMEWORK.bind([taken[0]], {}, Way(device), Wanted(frozenset({"input.0"})))
    done = FRAMEWORK.left(bound, bound.args[0] * 2)
    assert FRAMEWORK.gradients(done, {"output.0": np.ones((2, 3), np.float32)})["input.0"].tolist() == [[2] * 3] * 2


def test_memory_that_is_not_there() -> None:
    with pytest.raises(MemoryError):
        run(paddle.empty, [1 << 22, 1 << 22], way=on_cpu())


def test_an_incoming_gradient_of_another_shape() -> None:
    """Paddle takes it, and its kernels write beside their memory."""
    done = run(lambda x: paddle.logcumsumexp(x, 1), leaf(4, 6), wanted=Wanted(frozenset({"input.0"})))
    with pytest.raises(ValueError, match=r"gradient of shape \[4, 7\] for an output of \[4, 6\]"):
        FRAMEWORK.gradients(done, {"output.0": np.ones((4, 7))})


@pytest.mark.parametrize("strides", [(1, 2), (4, 1), (3, 1)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_incoming_gradient_lies_as_its_array(strides: tuple[int, int], dtype: str) -> None:
    array = laid_out(np.arange(6.0).reshape(2, 3), np.dtype("float32"), strides, 0)
    seed = PaddleCalls().seed(array, paddle.ones([2, 3], dtype), Way(dtype=dtype))
    assert (seed.strides, seed.numpy().tolist()) == (list(strides), array.tolist())
