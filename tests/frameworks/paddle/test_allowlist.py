from __future__ import annotations

from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe.errors import UnknownAPI
from pytest_probe.frameworks.paddle.allowlist import OPERATORS, candidates, operator
from pytest_probe.frameworks.paddle.rounding import rounding
from pytest_probe.model.run import Steps

COMPUTING = (
    "add nn.functional.linear linalg.svd fft.fft Tensor.__add__ Tensor.multiply_ Tensor.__getitem__ _C_ops.layer_norm "
    "nn.clip._squared_l2_norm incubate.nn.functional.swiglu geometric.segment_sum vision.ops.roi_align full randn"
).split()
# They read and write files, run what they are given, or set what the process has.
REFUSED = (
    "load save hub.load jit.load static.py_func set_flags seed vision.ops.read_file _C_ops.load_combine "
    "_C_ops.run_program _C_ops._run_custom_op _C_ops.print Tensor.register_hook Tensor.numpy Tensor.apply_ "
    "Tensor.__reduce__ Tensor.__class__ Tensor._share_memory os.system base.core.eager.Tensor nn.Linear utils.download "
    "add.__globals__ nn.functional.os inference.create_predictor autograd.PyLayer"
).split()


@pytest.mark.parametrize("api", COMPUTING)
def test_apis_that_compute_are_allowed(api: str) -> None:
    (found,) = candidates("paddle", api, {})
    assert found.path == f"paddle.{api}"
    assert callable(found.lookup())
    assert found.in_place == (api == "Tensor.multiply_")


@pytest.mark.parametrize("api", REFUSED)
def test_apis_that_do_not_compute_are_refused(api: str) -> None:
    with pytest.raises(UnknownAPI, match=rf"paddle\.{api}"):
        candidates("paddle", api, {})


def test_every_operator_is_there() -> None:
    assert {name for name in OPERATORS if not {name, f"{name}_"} & set(dir(paddle._C_ops))} == set()


def test_a_namespace_that_is_not_paddle_is_refused() -> None:
    with pytest.raises(UnknownAPI, match=r"os is not paddle; allow it with probe_namespaces \(os=python.module\)"):
        candidates("os", "system", {})


def test_a_namespace_of_the_user_gives_its_functions_only() -> None:
    (found,) = candidates("mine", "median", {"mine": "statistics"})
    assert found.lookup()([1, 2, 9]) == 2
    with pytest.raises(UnknownAPI, match="is not a function there"):
        candidates("mine", "sys.exit", {"mine": "statistics"})


def test_what_a_user_patched_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = candidates("paddle", "add", {})
    monkeypatch.setattr(paddle, "add", lambda x, y: "mine")
    assert found.lookup()(1, 2) == "mine"


@pytest.mark.parametrize("name", ["cast", "conv2d", "adagrad_", "clip", "rnn"])
def test_missing_arguments_are_an_error(name: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        operator(name)(paddle.ones([2, 3]))


def test_operators_that_count_their_arguments() -> None:
    x = paddle.to_tensor([[1.0, 5.0], [7.0, 2.0]])
    assert operator("amax")(x, [1]).tolist() == [5.0, 7.0]
    assert operator("amax")(x, axis=[0], keepdim=True).tolist() == [[7.0, 5.0]]
    with pytest.raises(ValueError, match="Has too many arguments"):
        operator("amax")(x, [1], False, None, 3, 4)


def test_operators_of_paddle_are_called_by_name() -> None:
    assert operator("scale")(paddle.ones([2]), 3.0, 1.0, True).tolist() == [4.0, 4.0]
    assert operator("cast")(paddle.ones([2]), paddle.int32).dtype == paddle.int32


@pytest.mark.parametrize("value", [3, "float32", [1]])
def test_a_value_in_the_place_of_a_dtype_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="in the place of a dtype"):
        operator("full")([2], 1.0, value, paddle.CPUPlace())


@pytest.mark.parametrize(
    ("name", "args"),
    [("gelu", (True,)), ("selu", (1.05, 1.67)), ("amax", ([0], False)), ("scale", (3.0, 0.5, True)), ("cast", ())],
)
def test_steps_are_rounded(name: str, args: tuple[Any, ...]) -> None:
    """Another function stands in the operator's place then."""
    x = paddle.to_tensor([0.1, -0.7, 2.5], dtype="float64")
    if name == "cast":
        args = (paddle.float64,)
    exact = operator(name)(x, *args).numpy()
    with rounding(Steps("float32", fine=True)):
        rounded = operator(name)(x, *args).numpy()
        with pytest.raises((ValueError, TypeError)):
            operator("clip")(x)
    assert np.abs(rounded - exact).max() < 1e-6


def test_what_a_user_put_there_is_called_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paddle._C_ops, "scale", lambda x, factor: (x, factor))
    assert operator("scale")(1, 2) == (1, 2)


def gradients(frozen: set[int]) -> dict[int, list[Any]]:
    """Of an LSTM's input (0), states (1, 2) and weights, those that are frozen left out."""
    paddle.seed(0)
    shapes = [(3, 2, 4), (1, 2, 5), (1, 2, 5), (20, 4), (20, 5), (20,), (20,)]
    leaves = [paddle.randn(shape).astype("float64") for shape in shapes]
    for index, leaf in enumerate(leaves):
        leaf.stop_gradient = index in frozen
    dropped = paddle.to_tensor(0, dtype="uint8")
    x, states, weights = leaves[0], leaves[1:3], leaves[3:]
    out, *_ = operator("rnn")(x, states, weights, None, dropped, 0.0, False, 4, 5, 1, "LSTM", 0, False)
    wanted = {index: leaf for index, leaf in enumerate(leaves) if index not in frozen}
    found = paddle.grad([out], list(wanted.values()), [paddle.full_like(out, 0.5)])
    return {index: gradient.tolist() for index, gradient in zip(wanted, found, strict=True)}


@pytest.mark.parametrize("frozen", [{3, 4, 5, 6}, {0, 3, 4, 5, 6}, {0, 1, 2, 5}, {6}])
def test_gradients_beside_frozen_weights(frozen: set[int]) -> None:
    everything = gradients(set())
    assert gradients(frozen) == {index: found for index, found in everything.items() if index not in frozen}
