from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_probe.frameworks.torch import decompositions, rounding
from pytest_probe.frameworks.torch.decompositions import ONE_STEP, WHOLE_NUMBERS, steps_of
from pytest_probe.frameworks.torch.rounding import StepsMode, only_moves

ATEN = torch.ops.aten
TABLE = decompositions.decompositions()
FLOATS = (
    torch.linspace(0.1, 0.9, 12, dtype=torch.float64).view(3, 4),
    torch.linspace(0.2, 0.7, 12, dtype=torch.float64).view(3, 4),
)
NUMBERS = (torch.arange(12).view(3, 4), torch.arange(12).flip(0).view(3, 4))


class Kernels(TorchDispatchMode):
    """Those that compute, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not only_moves(func):
            self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def overloads(name: str) -> list[Any]:
    packet = getattr(ATEN, name)
    known = (getattr(packet, each) for each in packet.overloads())
    return [func for func in known if func in TABLE and not func._schema.is_mutable]


def arguments(func: Any, tensors: tuple[torch.Tensor, torch.Tensor]) -> list[Any]:
    found: list[Any] = []
    for argument in func._schema.arguments:
        if argument.has_default_value():
            break
        kind = str(argument.type)
        found.append(tensors[len(found)] if kind == "Tensor" else [0] if "int" in kind else 2)
    return found


@pytest.mark.parametrize(
    ("name", "tensors"),
    [(name, FLOATS) for name in sorted(ONE_STEP)] + [(name, NUMBERS) for name in sorted(WHOLE_NUMBERS)],
)
def test_a_kernel_of_one_step_is_its_own_decomposition(name: str, tensors: tuple[torch.Tensor, torch.Tensor]) -> None:
    tried = 0
    for func in overloads(name):
        given = arguments(func, tensors)
        if not isinstance(given[0], torch.Tensor) or func._overloadname.endswith("_mode"):
            continue
        with Kernels() as kernels:
            found = TABLE[func](*given)
        assert kernels.names == [name], func
        assert torch.equal(found, func(*given)), func
        assert found.stride() == func(*given).stride(), func
        assert steps_of(func, given, {}) is None
        tried += 1
    assert tried


def test_other_arguments_take_more_steps() -> None:
    x, y = FLOATS
    assert steps_of(ATEN.add.Tensor, (x, y), {"alpha": 0.5}) is not None
    assert steps_of(ATEN.div.Tensor_mode, (x, y), {"rounding_mode": "floor"}) is not None
    assert steps_of(ATEN.mul.Tensor, (x, NUMBERS[0]), {}) is not None  # the numbers are converted, and rounded
    assert steps_of(ATEN.add.Scalar, (NUMBERS[0], 0.5), {}) is not None
    assert steps_of(ATEN.exp.default, (NUMBERS[0],), {}) is not None


def weights(x: torch.Tensor) -> torch.Tensor:
    return torch.linspace(-1, 1, x.shape[-1], dtype=torch.float64)


def adam(x: torch.Tensor) -> torch.Tensor:
    given = x.detach()
    mean, square = given * 0.5, given.abs() + 0.1
    mean.lerp_(given.flip(0), 0.1)
    square.mul_(0.99).addcmul_(given, given, value=0.01)
    return x + given.clone().addcdiv_(mean, square.sqrt().div_(0.3).add_(1e-8), value=-0.01)


def integers(x: torch.Tensor) -> torch.Tensor:
    index = torch.tensor([[0, 2, 1], [2, 2, 0]])
    return torch.nn.functional.embedding(index, x, 0) * index.unsqueeze(-1)


CALLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "layer_norm": lambda x: torch.layer_norm(x, (4,), weights(x), weights(x)),
    "batch_norm": lambda x: torch.nn.functional.batch_norm(x, None, None, training=True),
    "softmax": lambda x: torch.softmax(x, 0),
    "gelu": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
    "sigmoid": lambda x: torch.sigmoid(x) * 3,
    "logsumexp": lambda x: torch.logsumexp(x, 1),
    "std": lambda x: torch.std(x, 1, keepdim=True) + x,
    "mean": lambda x: torch.mean(x, (0, 1)) * x + torch.mean(x),
    "variance": lambda x: torch.var_mean(x, 1, correction=0)[0] + torch.var_mean(x)[1],
    "clamp": lambda x: torch.clamp(x, -0.5, 0.5) / 3,
    "where": lambda x: torch.where(x > 0, torch.exp(x), x * 3) + 1,
    "cross_entropy": lambda x: torch.nn.functional.cross_entropy(x, torch.tensor([0, 2, 1])),
    "addmm": lambda x: torch.addmm(weights(x)[:3], x, x.t(), alpha=0.3),
    "transposed": lambda x: (x.t() * 3 + x.t().exp()).sum(0, keepdim=True) / 7,
    "complex": lambda x: torch.complex(x, x).exp().mean(0).abs(),
    "scaled": lambda x: torch.sub(x.exp(), x, alpha=0.3) + torch.sum(x, 0, dtype=torch.float64),
    "adam": adam,
    "integers": integers,
}


def stepped(function: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
    """Result and gradient by fine steps."""
    x = torch.linspace(-2, 3, 12, dtype=torch.float64).view(3, 4).requires_grad_()
    with StepsMode(torch.float32, fine=True, seed=3):
        found = function(x)
        (gradient,) = torch.autograd.grad(found.abs().sum(), x)
    return [found, gradient]


@pytest.mark.parametrize("name", CALLS)
def test_steps_give_the_numbers_of_torchs_decompositions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = stepped(CALLS[name])
    own = (ATEN.mean.dim, ATEN.mean.default, ATEN.var_mean.dim, ATEN.var_mean.correction)
    table = {**TABLE, **{func: torch._decomp.decomposition_table[func] for func in own}}
    monkeypatch.setattr(rounding, "steps_of", lambda func, args, kwargs: table.get(func))
    monkeypatch.setattr(rounding, "kernel", lambda func: func)
    wanted = stepped(CALLS[name])
    assert all(torch.equal(left, right) for left, right in zip(found, wanted, strict=True))


def test_steps_need_no_compiler() -> None:
    code = (
        "import sys, torch\n"
        "from tests.frameworks.torch.test_decompositions import CALLS, stepped\n"
        "before = 'torch._dynamo' in sys.modules\n"
        "for name in ('layer_norm', 'softmax', 'gelu', 'adam', 'scaled', 'cross_entropy', 'integers'):\n"
        "    stepped(CALLS[name])\n"
        "print(before, 'torch._dynamo' in sys.modules)\n"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.split() == ["False", "False"]


def test_an_unknown_release_keeps_its_own_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Any:
        return {}

    monkeypatch.setattr(decompositions, "_wrappers", unknown)
    decompositions._inside.cache_clear()
    try:
        assert steps_of(ATEN.lerp.Scalar, (*FLOATS, 0.5), {}) is TABLE[ATEN.lerp.Scalar]
    finally:
        decompositions._inside.cache_clear()
