"""A mode whose rounding changes a choice inside the call would explain any error of it: it is named for none."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import pytest_probe
from pytest_probe.model.card import Verdicts
from pytest_probe.standards.diagnosis import arguments


def experts(x: Tensor, router: Tensor, weight: Tensor, noise: float = 0.0) -> Tensor:
    """Two experts of 64 for each row."""
    best, chosen = torch.softmax(x @ router, -1).topk(2, -1)
    results = torch.einsum("td,edf->tef", x, weight)
    results = results * (1 + noise * torch.randn(results.shape, generator=torch.Generator().manual_seed(3)))
    found = results.gather(1, chosen[..., None].expand(-1, -1, results.shape[-1]))
    return (found * (best / best.sum(-1, keepdim=True))[..., None]).sum(1)


def tf32(x: Tensor) -> Tensor:
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def cause(found: Verdicts) -> str:
    ((output,),) = [verdict.outputs for verdict in found]
    assert output.verdict == "error"
    assert output.diagnosis is not None
    return output.diagnosis.cause


def test_random_errors_of_experts_are_no_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    # Other arguments take hundreds of runs.
    monkeypatch.setattr(arguments, "_RUNS", 0)
    torch.manual_seed(0)
    inputs = [torch.randn(512, 64), torch.randn(64, 64), torch.randn(64, 64, 16)]

    def noisy(*args: Tensor) -> Tensor:
        return experts(*args, noise=1e-3)

    assert "--probe-allow" not in cause(
        pytest_probe.check(noisy, reference=experts, inputs=inputs, device="cpu", allow=())
    )


@pytest.mark.parametrize("terms", [64, 1024])
def test_a_product_of_rounded_operands_is_a_mode(terms: int) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(64, terms), torch.randn(terms, 32)]

    def product(a: Tensor, b: Tensor) -> Tensor:
        return tf32(a) @ tf32(b)

    found = pytest_probe.check(product, reference=torch.matmul, inputs=inputs, device="cpu", allow=())
    assert cause(found).startswith("behaves as TF32 inputs: ")
