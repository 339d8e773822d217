"""torch's own entry to its engine gives what torch.autograd.grad gives, and is left where that would do more."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from pytest_probe.frameworks.torch import backward as room
from pytest_probe.frameworks.torch.backward import backward

QUIET = """
import sys, torch
from pytest_probe.frameworks.torch.backward import backward
x = torch.ones(3, requires_grad=True)
backward([(x * x).sum(), x * 2], [x], [torch.ones(()), torch.ones(3)])
assert not {"sympy", "torch._dynamo"} & sys.modules.keys()
"""


def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Calls of torch.autograd.grad."""
    calls: list[Any] = []
    public = torch.autograd.grad

    def noted(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return public(*args, **kwargs)

    monkeypatch.setattr(torch.autograd, "grad", noted)
    return calls


def made() -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
    torch.manual_seed(0)
    x, y, z = (torch.randn(4, 5, requires_grad=True) for _ in range(3))
    outputs = [torch.softmax(x @ y.T, -1), (x * y).sum(1), torch.complex(x, y)]
    return outputs, [x, y, z], [torch.randn(output.shape, dtype=output.dtype) for output in outputs]


def test_the_same_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = torch.autograd.grad(*made(), allow_unused=True)
    calls = asked(monkeypatch)
    found = backward(*made())
    assert not calls
    assert found[2] is None is wanted[2]
    for gradient, right in zip(found[:2], wanted[:2], strict=True):
        assert gradient is not None
        assert torch.equal(gradient, right)


def test_the_graph_is_used_up() -> None:
    outputs, leaves, incoming = made()
    backward(outputs, leaves, incoming)
    with pytest.raises(RuntimeError, match="a second time"):
        backward(outputs, leaves, incoming)


def test_no_sympy_is_imported() -> None:
    subprocess.run([sys.executable, "-c", QUIET], check=True)


def test_a_gradient_of_another_shape_is_refused() -> None:
    """The engine would add up its rows."""
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        backward([x * 2], [x], [torch.ones(4, 3)])


def test_a_complex_gradient_of_a_real_output_is_refused() -> None:
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="complex"):
        backward([x * 2], [x], [torch.ones(3, dtype=torch.complex64)])


class Own(torch.Tensor):
    pass


class Mode(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


def test_what_sees_the_public_call_still_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = asked(monkeypatch)
    with Mode():
        backward(*made())
    x = torch.ones(3).as_subclass(Own).requires_grad_()
    backward([x * 2], [x], [torch.ones(3)])
    assert len(calls) >= 2


@pytest.mark.parametrize("entry", [None, lambda outputs, inputs: None])
def test_another_entry_is_left_alone(entry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.autograd.graph, room.ENTRY, entry)
    monkeypatch.setattr(torch.autograd, "grad", lambda *args, **kwargs: ())
    assert backward(*made()) == ()
