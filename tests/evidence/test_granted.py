"""What an output passes by that is neither noise nor one rounding is said, with its size; much of it is a warning."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_probe.model.verdict import Verdict
from tests.support.comparing import compared

pytestmark = pytest.mark.usefixtures("no_causes")
DEVICES = pytest.mark.parametrize("device", ["cpu", "npu"])


def judged(function: Any, reference: Any, given: Any, device: str, **how: Any) -> Verdict:
    return compared(function, reference, given, device=device, diagnosed=False, **how)[0]


def added(count: int, dtype: torch.dtype, device: str) -> Verdict:
    """A sum of so many terms into each of four elements, as index_put makes it in 16 bit."""
    values = torch.rand(4 * count, generator=torch.Generator().manual_seed(0)).to(dtype)
    index = torch.arange(4 * count) % 4
    put = torch.Tensor.index_put
    return judged(put, put, (torch.zeros(4, dtype=dtype), (index,), values, True), device, api="Tensor.index_put")


@DEVICES
def test_a_running_sum_that_loses_much_is_a_warning_with_its_size(device: str) -> None:
    found = added(4096, torch.float16, device)
    assert found.verdict == "warning"
    assert " ulp, " in found.reason
    assert " of the result, explained by " in found.reason
    assert found.notes[-1].startswith("output.0: granted ")


@DEVICES
def test_one_that_loses_little_passes_with_a_note(device: str) -> None:
    found = added(64, torch.float16, device)
    assert found.verdict == "pass"
    assert [note for note in found.notes if note.startswith("output.0: granted ")]


def scaled(x: torch.Tensor) -> torch.Tensor:
    """rms_norm, whose squares overflow in float16."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True))


def large() -> torch.Tensor:
    return (torch.randn(8, 64, generator=torch.Generator().manual_seed(0)) * 2000).half()


@DEVICES
def test_where_the_steps_overflow_everywhere_nothing_was_judged(device: str) -> None:
    for function in (scaled, lambda x: 0 * x):
        found = judged(function, scaled, (large(),), device)
        assert found.verdict == "warning"
        assert "undecided: nothing was judged: steps in float16 overflow or vanish" in found.reason


@DEVICES
def test_there_a_right_result_passes_and_wrong_ones_do_not(device: str) -> None:
    assert judged(lambda x: scaled(x.float()).half(), scaled, (large(),), device).verdict == "pass"
    wrong = (
        lambda x: scaled(x.float()).half().flip(0),
        lambda x: x * torch.nan,
        lambda x: (2 * scaled(x.float())).half(),
    )
    assert all(judged(function, scaled, (large(),), device).verdict in ("error", "warning") for function in wrong)


@DEVICES
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bfloat16])
def test_a_float32_product_that_adds_up_in_bfloat16_is_wrong(dtype: torch.dtype, device: str) -> None:
    """Though its operands are numbers of 8 bit times a scale, which would be rounded to 8 bit as well."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(16, 256, generator=generator).to(dtype) for _ in range(2))
    scale = 1 + torch.rand(16, 1, generator=generator)

    def product(a: torch.Tensor, b: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return (a.to(scale.dtype) * scale) @ (b.to(scale.dtype) * scale).T

    def narrow(a: torch.Tensor, b: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(16, 16, dtype=torch.bfloat16)
        for start in range(0, 256, 32):
            part = slice(start, start + 32)
            total += product(a[:, part], b[:, part], scale).bfloat16()
        return total.float()

    assert judged(product, product, (a, b, scale), device).verdict == "pass"
    assert judged(narrow, product, (a, b, scale), device).verdict == "error"
