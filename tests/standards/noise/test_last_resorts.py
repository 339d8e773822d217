"""Sums that tensor cores cut: healthy on an accelerator, and no excuse for anything else."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_probe.model.verdict import Verdict
from pytest_probe.standards.noise.table import CUT_SUMS_WORDS
from tests.support.comparing import compared

TERMS = 1024
Tensor = torch.Tensor


def wide(a: Tensor, b: Tensor) -> Tensor:
    """A product of 16-bit tensors with a float32 result."""
    return torch.matmul(*(tensor if tensor.dtype is torch.float64 else tensor.float() for tensor in (a, b)))


def tensor_cores(a: Tensor, b: Tensor, step: int = 4) -> Tensor:
    """float32 sums of `step` products at once, aligned with the sum so far to the largest of them, and cut."""
    total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64)
    for k in range(0, a.shape[1], step):
        products = a[:, k : k + step].double().T[:, :, None] * b[k : k + step].double()[:, None, :]
        terms = torch.cat([products, total[None]])
        place = 2.0 ** (terms.abs().amax(0).clamp_min(2.0**-500).log2().floor() - 23)
        total = ((terms / place).trunc() * place).sum(0)
    return total.float()


def operands(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    a, b = torch.rand(24, TERMS, generator=generator), torch.rand(TERMS, 32, generator=generator)
    return a.to(dtype), (b / TERMS**0.5).to(dtype)


def judged(result: Tensor, a: Tensor, b: Tensor, api: str, device: str = "other") -> Verdict:
    reference = torch.matmul if result.dtype is a.dtype else wide
    how: Any = {"device": device, "allow": "none", "api": api}
    return compared(lambda a, b: result.clone(), reference, [a, b], **how)[0]


@pytest.mark.parametrize(
    ("dtype", "output", "api", "words"),
    [
        (torch.float16, torch.float16, "Torch.matmul", CUT_SUMS_WORDS),
        (torch.float16, torch.float16, "", CUT_SUMS_WORDS),
        (torch.float16, torch.float32, "", CUT_SUMS_WORDS),
        (torch.bfloat16, torch.bfloat16, "Torch.matmul", ""),  # less than its own rounding
        (torch.bfloat16, torch.float32, "", CUT_SUMS_WORDS),
    ],
)
def test_an_accelerator_may_cut_sums(dtype: torch.dtype, output: torch.dtype, api: str, words: str) -> None:
    a, b = operands(dtype)
    for step in (4, 8, 16):
        found = judged(tensor_cores(a, b, step).to(output), a, b, api)
        assert found.verdict == "pass", found.reason
        assert found.outputs[0].reason in ("", words)


def test_faults_beside_cut_sums_are_errors() -> None:
    a, b = operands(torch.bfloat16)
    exact = wide(a.double(), b.double())
    one_row = tensor_cores(a, b)
    one_row[7] *= 1 - TERMS * 2.0**-24
    lost = tensor_cores(a[:, :-1], b[:-1])
    for result in ((exact * 0.999).float(), (exact * (1 + TERMS * 2.0**-26)).float(), lost, one_row):
        assert judged(result, a, b, "").verdict == "error"


def test_the_cpu_cuts_nothing() -> None:
    a, b = operands(torch.float16)
    assert judged(tensor_cores(a, b), a, b, "", device="cpu").verdict == "error"
