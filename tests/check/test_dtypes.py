"""Calls of dtypes that meet or that no float is: whole numbers, float32 beside float64, packed float4."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pytest_probe.check import Case, Checker, RunRequest
from pytest_probe.frameworks.torch.references import reference_result
from pytest_probe.model.verdict import Verdict
from pytest_probe.records import read_dump
from pytest_probe.registry import Registry
from tests.check.conftest import Make
from tests.support import scaled
from tests.support.devices import Emulated

Function = Callable[..., Any]
LOSS = torch.nn.functional.poisson_nll_loss


def verdict(function: Function, reference: Function, given: list[Any], device: str = "cpu", api: str = "") -> str:
    checker = Checker(RunRequest(device=device), Registry(devices={"other": Emulated}))
    (found,) = checker.compare(function, reference, given, api=api)
    return found.verdict


def test_the_cpu_itself_has_no_integers(bench: Make) -> None:
    found = bench("Torch.histc", lambda x: torch.histc(x.double()).to(x.dtype), torch.arange(4)).check()
    assert (found.verdict, found.kind) == ("skip", "unsupported by the device")


def test_a_reference_in_float64_is_for_integers_that_it_has_alone() -> None:
    def refusing(x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError(f"not implemented for '{x.dtype}'")

    x = torch.arange(4.0)
    assert torch.equal(reference_result(torch.add, [x, x], {}), x + x)
    with pytest.raises(RuntimeError, match="size of tensor"):
        reference_result(torch.add, [x, torch.arange(3)], {})
    with pytest.raises(NotImplementedError):  # a number that float64 does not have is not guessed
        reference_result(torch.histc, [torch.tensor([2**53 + 1])], {})
    with pytest.raises(NotImplementedError, match=r"'torch\.int64'"):  # the first error counts
        reference_result(refusing, [torch.arange(3)], {})


@pytest.mark.parametrize(("more", "expected"), [(0, "pass"), (2, "error")])
def test_integers_of_the_users_function_with_16_bit_arguments(more: int, expected: str) -> None:
    def floors(x: torch.Tensor) -> torch.Tensor:
        return (x * 3).floor().long()

    x = torch.rand(50, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert verdict(lambda x: floors(x) + more, floors, [x]) == expected


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32])
@pytest.mark.parametrize("off", [0.0, 1e-4])
def test_an_fft_of_whole_numbers(dtype: torch.dtype, off: float) -> None:
    """No run moves them: results that cancel are judged by the size of all. A bin that is off by 10^-4 of their RMS is
    an error."""

    def transform(x: torch.Tensor) -> torch.Tensor:
        found = torch.fft.rfft(x)
        found[2, 7] += off * found.abs().square().mean().sqrt()
        return found

    x = torch.randint(-32767, 32767, (4, 4096), generator=torch.Generator().manual_seed(1)).to(dtype)
    assert verdict(transform, torch.fft.rfft, [x], api="Torch.fft_rfft") == ("error" if off else "pass")


@pytest.mark.parametrize(
    ("function", "reference", "device", "expected"),
    [
        # The CPU alone cannot tell whether it should; beside another device its own result does.
        (LOSS, LOSS, "cpu", "warning"),
        (LOSS, LOSS, "other", "pass"),
        *((lambda x, y: LOSS(x, y) * (1 + 1e-5), LOSS, device, "error") for device in ("cpu", "other")),
        *((torch.add, torch.add, device, "pass") for device in ("cpu", "other")),
    ],
)
def test_steps_before_float32_meets_float64_compute_in_float32(
    function: Function, reference: Function, device: str, expected: str
) -> None:
    generator = torch.Generator().manual_seed(0)
    single = torch.randn(4, 30, generator=generator)
    double = torch.rand(4, 30, generator=generator, dtype=torch.float64)
    assert verdict(function, reference, [single, double], device) == expected


# Packed float4: its bytes are compared


def flipped(tensor: torch.Tensor) -> torch.Tensor:
    result = tensor.clone()
    result.view(torch.uint8)[2, 3] ^= 0x10
    return result


def of_packed(folder: Path, device: str, inputs: str, calls: dict[str, Function]) -> Verdict:
    data = torch.from_numpy(np.random.default_rng(0).integers(256, size=(4, 8), dtype=np.uint8))
    tensor = data.view(torch.float4_e2m1fn_x2)
    registry = Registry(devices={"other": Emulated}, calls=calls)
    dump = read_dump(scaled.write(folder, scaled.Product([tensor], np.zeros(0), "Tensor.clone"), tensor))
    return Checker(RunRequest(device=device, inputs=inputs), registry).check(Case(dump, dump.records[0], "forward"))


@pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="torch has no float4 before 2.8")
@pytest.mark.parametrize(
    ("device", "inputs"),
    [
        *((device, inputs) for device in ("cpu", "other") for inputs in ("auto", "generated", "exact")),
        ("recorded", "auto"),
    ],
)
def test_a_copy_of_packed_numbers_passes_and_one_other_bit_is_an_error(
    tmp_path: Path, device: str, inputs: str
) -> None:
    found = of_packed(tmp_path / "right", device, inputs, {})
    assert (found.verdict, found.reason, found.outputs[0].standard) == ("pass", "", "exact")
    if device == "other":
        found = of_packed(tmp_path / "wrong", device, inputs, {"Tensor.clone": flipped})
        assert (found.verdict, "1 of 32 elements differ" in found.reason) == ("error", True)
