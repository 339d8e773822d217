from __future__ import annotations

from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe import frameworks
from pytest_probe.frameworks.paddle.decomposed import DECOMPOSED
from pytest_probe.model.run import Arguments, Leaf, Steps, Wanted, Way

F = paddle.nn.functional
FRAMEWORK = frameworks.load("paddle")
VALUES = np.random.default_rng(0).uniform(-0.9, 0.9, 64).astype(np.float32)
LABELS = paddle.to_tensor(np.array([[1, 2], [3, 1]], np.int32))
EIGHT, TWO = paddle.to_tensor([8, 8]), paddle.to_tensor([2, 2])
WEIGHTS = [paddle.to_tensor(np.linspace(low, 2, 4)) for low in (1, 0)]
# The function whose operator each one is.
FUNCTIONS: dict[str, Any] = {
    "celu": lambda x: F.celu(x, 0.7),
    "cosh": paddle.cosh,
    "cumprod": lambda x: paddle.cumprod(x.reshape([16, 4]), dim=1),
    "elu": lambda x: F.elu(x, 0.7),
    "erfinv": paddle.erfinv,
    "exp": paddle.exp,
    "expm1": paddle.expm1,
    "gelu": F.gelu,
    "group_norm": lambda x: F.group_norm(x.reshape([2, 4, 8]), 2, 1e-5, *WEIGHTS),
    "i0e": paddle.i0e,
    "i1e": paddle.i1e,
    "logcumsumexp": lambda x: paddle.logcumsumexp(x.reshape([16, 4]), axis=1),
    "logit": lambda x: paddle.logit(paddle.abs(x) / 4, 0.05),
    "logsigmoid": F.log_sigmoid,
    "mish": F.mish,
    "prod": lambda x: paddle.prod(x.reshape([16, 4]), axis=1),
    "selu": F.selu,
    "sigmoid": F.sigmoid,
    "sinh": paddle.sinh,
    "softplus": lambda x: F.softplus(x, 2.0),
    "stanh": paddle.stanh,
    "tanh": paddle.tanh,
    "tanh_shrink": F.tanhshrink,
    "warpctc": lambda x: F.ctc_loss(x.reshape([8, 2, 4]), LABELS, EIGHT, TWO, reduction="none"),
}


def both(function: Any, steps: Steps | None, values: np.ndarray = VALUES) -> tuple[np.ndarray, np.ndarray]:
    way = Way(dtype="float64", steps=steps)
    done = FRAMEWORK.run(function, Arguments((Leaf(values),), {}, None), way, Wanted(frozenset({"input.0"})))
    incoming = {"output.0": np.ones(done.outputs["output.0"].shape)}
    return done.outputs["output.0"], FRAMEWORK.gradients(done, incoming)["input.0"]


def fine(seed: int = 0, *, by_chance: bool = False) -> Steps:
    return Steps("float32", fine=True, seed=seed, by_chance=by_chance)


def test_all_that_are_written_out_are_asked() -> None:
    assert FUNCTIONS.keys() == DECOMPOSED.keys()


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("by_chance", [False, True])
def test_steps_are_those_of_the_operator(name: str, by_chance: bool) -> None:
    """They differ from it by float32's rounding, and by no more: a wrong formula would explain a wrong kernel."""
    exact, stepped = both(FUNCTIONS[name], None), both(FUNCTIONS[name], fine(1, by_chance=by_chance))
    for wanted, found in zip(exact, stepped, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=5e-7)
    if name != "prod":  # one step, whose result nothing reads
        assert any((wanted != found).any() for wanted, found in zip(exact, stepped, strict=True))


def test_what_no_step_reads_is_not_rounded() -> None:
    assert np.array_equal(both(paddle.exp, None)[0], both(paddle.exp, fine())[0])


def test_operators_that_are_given_a_name() -> None:
    """glu hands its own to each, as None."""
    gates = [both(lambda x: F.glu(x.reshape([8, 8])), steps)[1] for steps in (None, fine())]
    assert 0 < np.abs(gates[0] - gates[1]).max() < 1e-6


def test_functions_that_are_made_of_others() -> None:
    exact, stepped = both(paddle.sinc, None), both(paddle.sinc, fine())
    assert 0 < np.abs(exact[0] - stepped[0]).max() < 1e-6
    assert 0 < np.abs(exact[1] - stepped[1]).max() < 1e-5


def test_operators_of_tensors_are_steps_as_well() -> None:
    thirds = np.full(4, 1 / 3, np.float32)
    found = both(lambda x: (x * x) * 3.0, fine(), thirds)[0]
    assert found[0] == float(np.float32(np.float64(thirds[0]) ** 2)) * 3.0


def test_a_gradient_is_rounded_on_its_way() -> None:
    exact, stepped = both(lambda x: (x * 0.3).exp(), None)[1], both(lambda x: (x * 0.3).exp(), fine())[1]
    assert 0 < np.abs(exact / stepped - 1).max() < 1e-6


def test_seeds_draw_other_roundings() -> None:
    runs = [both(F.gelu, fine(seed))[0] for seed in (0, 1, 0)]
    assert np.array_equal(runs[0], runs[2])
    assert not np.array_equal(runs[0], runs[1])


def test_everything_is_put_back() -> None:
    before = (paddle._C_ops.gelu, paddle._C_ops.matmul, paddle.Tensor.__add__, paddle.Tensor.__mul__)
    with pytest.raises(RuntimeError, match="mine"):
        both(failing, fine())
    assert (paddle._C_ops.gelu, paddle._C_ops.matmul, paddle.Tensor.__add__, paddle.Tensor.__mul__) == before


def failing(x: Any) -> Any:
    raise RuntimeError("mine")


def test_what_was_replaced_is_put_back() -> None:
    """Some modules have operators by names of their own."""
    before = (paddle.tensor.ops.sigmoid, paddle.tensor.math.exp, paddle._C_ops.exp, paddle.Tensor.__add__)
    both(paddle.sinc, fine())
    assert (paddle.tensor.ops.sigmoid, paddle.tensor.math.exp, paddle._C_ops.exp, paddle.Tensor.__add__) == before
