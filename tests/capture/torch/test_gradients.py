from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe.capture.torch import gradients
from tests.support.capturing import recorded


def leaf(*shape: int) -> torch.Tensor:
    return torch.linspace(0.5, 2.0, torch.Size(shape).numel()).view(shape).requires_grad_()


def backward(folder: Path, name: str, program: Callable[[], object]) -> dict[str, Any]:
    found: dict[str, Any] = recorded(folder, program)[f"{name}.backward"]
    return found


def gradient(tensor: torch.Tensor) -> torch.Tensor:
    assert tensor.grad is not None
    return tensor.grad


def norms(trees: list[Any]) -> list[float | None]:
    return [None if tree is None else tree["Norm"] for tree in trees]


# A call, its leaves, what is made of its outputs, and the places of its gradients.
CALLS: dict[str, tuple[str, Callable[..., Any], list[torch.Tensor], list[str]]] = {
    "several nodes": ("Functional.linear", F.linear, [leaf(2, 3, 4), leaf(5, 4), leaf(5)], ["0", "1", "2"]),
    "several outputs": ("Torch.std_mean", torch.std_mean, [leaf(8)], ["0"]),
    "lists": ("Torch.cat", lambda *each: torch.cat(each), [leaf(2), leaf(3)], ["0.0", "0.1"]),
    "keywords": (
        "Functional.layer_norm",
        lambda x, weight: F.layer_norm(x, (5,), weight=weight),
        [leaf(2, 5), leaf(5)],
        ["0", "kwargs.weight"],
    ),
    "many": ("Torch.block_diag", torch.block_diag, [leaf(2) for _ in range(70)], [str(place) for place in range(70)]),
}


@pytest.mark.parametrize("kind", CALLS)
def test_a_call_has_the_gradients_of_its_arguments(kind: str, tmp_path: Path) -> None:
    name, function, leaves, places = CALLS[kind]
    outputs: list[torch.Tensor] = []

    def program() -> None:
        found = function(*leaves)
        outputs.extend(found if isinstance(found, tuple) else [found])
        torch.stack([each.square().sum() for each in outputs]).sum().backward()

    entry = backward(tmp_path, f"{name}.0", program)
    assert entry["probe"]["inputs"] == [f"input.{place}".replace("input.kwargs", "kwargs") for place in places]
    assert entry["probe"]["outputs"] == [f"output.{place}" for place in range(len(outputs))]
    assert [tree["shape"] for tree in entry["output"]] == [list(one.shape) for one in leaves]
    assert norms(entry["output"]) == pytest.approx([gradient(one).norm().item() for one in leaves], rel=1e-5)
    incoming = [2 * each.detach().norm().item() for each in outputs]
    assert norms(entry["input"]) == pytest.approx(incoming, rel=1e-6)


def test_a_tensor_that_is_used_twice_has_a_gradient_for_each_use(tmp_path: Path) -> None:
    x = leaf(3)

    def program() -> None:
        y = x * 2
        (y.sin() + y.cos()).sum().backward()

    entries = recorded(tmp_path, program)
    y = 2 * x.detach().double()
    assert norms(entries["Tensor.sin.0.backward"]["output"]) == pytest.approx([y.cos().norm().item()], rel=1e-6)
    assert norms(entries["Tensor.cos.0.backward"]["output"]) == pytest.approx([y.sin().norm().item()], rel=1e-6)


def test_a_tensor_at_two_places_of_one_call(tmp_path: Path) -> None:
    x = leaf(3)
    entry = backward(tmp_path, "Torch.div.0", lambda: torch.div(x, x).sum().backward())
    assert entry["probe"]["inputs"] == ["input.0", "input.1"]
    assert norms(entry["output"]) == pytest.approx([(1 / x).norm().item()] * 2, rel=1e-6)


def test_an_output_that_nobody_used_has_none(tmp_path: Path) -> None:
    x = leaf(4, 3)
    entry = backward(tmp_path, "Tensor.unbind.0", lambda: x.unbind(0)[1].sum().backward())
    assert len(entry["input"]) == 4
    used = backward(tmp_path / "lstm", "VF.lstm.0", lambda: torch.nn.LSTM(3, 2)(x)[0].sum().backward())
    assert [tree is None for tree in used["input"]] == [False, True, True]


def test_work_in_place(tmp_path: Path) -> None:
    x = leaf(3)
    entries = recorded(tmp_path, lambda: (x * 1).mul_(3).exp_().sum().backward())
    assert norms(entries["Tensor.mul_.0.backward"]["output"]) == pytest.approx([gradient(x).norm().item()], rel=1e-6)
    y = (3 * x.detach().double()).exp()
    assert norms(entries["Tensor.exp_.0.backward"]["output"]) == pytest.approx([y.norm().item()], rel=1e-6)


def test_the_first_of_two_backwards_counts(tmp_path: Path) -> None:
    x = leaf(3)

    def program() -> None:
        y = (x * 2).sum()
        y.backward(retain_graph=True)
        (y * 5).backward()

    assert norms(recorded(tmp_path, program)["Tensor.__mul__.0.backward"]["input"]) == pytest.approx([3**0.5])


def test_the_first_backward_counts_where_it_did_not_pass_all(tmp_path: Path) -> None:
    """As a gradient penalty's, for the gradients of inputs alone."""
    x, layer = leaf(2, 3, 4), torch.nn.Linear(4, 5)

    def program() -> None:
        y = layer(x)
        torch.autograd.grad(y.sum(), x, retain_graph=True)
        (y * 7).sum().backward()

    found = recorded(tmp_path, program)["Functional.linear.0.backward"]
    assert norms(found["input"]) == pytest.approx([30**0.5])
    expected = layer.weight.detach().sum(0).expand(2, 3, 4).norm().item()
    assert norms(found["output"][:1]) == pytest.approx([expected])
    assert found["output"][1:] == [None, None]


def test_gradients_that_never_come_leave_their_calls_in_the_order_of_the_backward(tmp_path: Path) -> None:
    layers, inputs = [torch.nn.Linear(4, 5) for _ in range(30)], [leaf(2, 3, 4) for _ in range(30)]

    def program() -> None:
        total = sum(layer(x).sum() for layer, x in zip(layers, inputs, strict=True))
        assert isinstance(total, torch.Tensor)
        torch.autograd.grad(total, inputs)

    entries = recorded(tmp_path, program)
    numbers = [int(name.split(".")[2]) for name in entries if name.startswith("Functional.linear.")]
    backwards = [
        number
        for number, name in zip(numbers, (n for n in entries if n.startswith("Functional.linear.")), strict=True)
        if name.endswith(".backward")
    ]
    assert backwards == sorted(backwards, reverse=True)


def test_gradients_that_come_many_at_once(tmp_path: Path) -> None:
    """vmap's have no values of their own; the backward after them counts."""
    x = leaf(3)

    def program() -> None:
        y = x * 2
        torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True, retain_graph=True)
        (y * 5).sum().backward()

    found = recorded(tmp_path, program)["Tensor.__mul__.0.backward"]
    assert norms(found["input"]) == pytest.approx([5 * 3**0.5])
    assert norms(found["output"][:1]) == pytest.approx([10 * 3**0.5])


def test_without_gradients_there_is_no_backward(tmp_path: Path) -> None:
    def program() -> None:
        with torch.no_grad():
            leaf(3).sin()
        leaf(3).detach().sin()

    assert not [name for name in recorded(tmp_path, program) if name.endswith("backward")]


def test_a_hook_gives_nothing_back(tmp_path: Path) -> None:
    x = leaf(3)

    def program() -> None:
        (first,) = torch.autograd.grad(x.pow(3).sum(), x, create_graph=True)
        first.sum().backward()

    recorded(tmp_path, program)
    assert gradient(x).tolist() == (6 * x).tolist()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_parameter_that_autocast_casts_once_has_a_gradient_for_each_call(tmp_path: Path, dtype: torch.dtype) -> None:
    weight, bias = leaf(4, 4), leaf(4)
    inputs = [leaf(3, 4), leaf(3, 4).detach(), leaf(3, 4).to(dtype).detach().requires_grad_()]

    def alone(x: torch.Tensor) -> list[float]:
        with torch.autocast("cpu", dtype=dtype):
            loss = F.linear(x, weight, bias).sin().sum()
        return [gradient.norm().item() for gradient in torch.autograd.grad(loss, [weight, bias])]

    def program() -> None:
        with torch.autocast("cpu", dtype=dtype):
            total = sum(F.linear(x, weight, bias).sin().sum() for x in inputs)
            total = total + F.linear(weight, weight).sum()
        total.backward()

    found = recorded(tmp_path, program)
    for number, x in enumerate(inputs):
        entry = found[f"Functional.linear.{number}.backward"]
        named = dict(zip(entry["probe"]["inputs"], entry["output"], strict=True))
        assert norms([named["input.1"], named["input.2"]]) == pytest.approx(alone(x), rel=1e-6)
        assert {named[place]["dtype"] for place in ("input.1", "input.2")} == {"torch.float32"}
    assert norms(found["Functional.linear.3.backward"]["output"]) == pytest.approx(
        [weight.detach().to(dtype).sum(0).float().norm().item() * 2] * 2, rel=0.01
    )


def test_a_cast_of_the_programs_own_is_an_argument_like_others(tmp_path: Path) -> None:
    weight = leaf(3, 4)

    def program() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            cast = weight.bfloat16()
            (F.linear(leaf(2, 4), cast).sum() + 2 * cast.sum()).backward()

    found = recorded(tmp_path, program)
    linear, cast = found["Functional.linear.0.backward"], found["Tensor.bfloat16.0.backward"]
    assert [tree["dtype"] for tree in linear["output"]] == ["torch.float32", "torch.bfloat16"]
    wanted = gradient(weight).norm().item()
    assert norms(cast["output"]) == pytest.approx([wanted])
    assert linear["output"][1]["Norm"] < wanted


@pytest.mark.parametrize("state", ["no_grad", "inference_mode"])
def test_a_capture_may_begin_where_nothing_is_recorded_for_gradients(state: str) -> None:
    with getattr(torch, state)():
        found = runpy.run_path(gradients.__file__)
    assert found["ACCUMULATE"].__name__ == "AccumulateGrad"
