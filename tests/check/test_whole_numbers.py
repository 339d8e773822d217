"""Calls of whole numbers alone, which no run moves: results that cancel are judged by the size of all."""

from __future__ import annotations

import pytest
import torch

from pytest_probe.check import Checker, RunRequest
from pytest_probe.registry import Registry


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32])
@pytest.mark.parametrize("off", [0.0, 1e-4])
def test_an_fft_of_whole_numbers(dtype: torch.dtype, off: float) -> None:
    """The same numbers pass as float32. A bin that is off by 10^-4 of their RMS is an error."""

    def transform(x: torch.Tensor) -> torch.Tensor:
        found = torch.fft.rfft(x)
        found[2, 7] += off * found.abs().square().mean().sqrt()
        return found

    x = torch.randint(-32767, 32767, (4, 4096), generator=torch.Generator().manual_seed(1)).to(dtype)
    checker = Checker(RunRequest(device="cpu"), Registry.default())
    (found,) = checker.compare(transform, torch.fft.rfft, [x], key="rfft", api="Torch.fft_rfft")
    assert found.verdict == ("error" if off else "pass"), found.reason
