"""References that write dtypes down are judged as those that take them from their arguments."""

from __future__ import annotations

import pytest
import torch

from pytest_probe.check import Checker, RunRequest
from pytest_probe.model.verdict import Verdict
from pytest_probe.registry import Registry
from tests.evidence.references import FAULTS, WRITTEN, Function, inputs, kernel
from tests.support.devices import Emulated

pytestmark = pytest.mark.usefixtures("causes_once")

DTYPES = ("float32", "bfloat16", "float16")


def verdicts(function: Function, reference: Function, name: str, dtype: str, device: str) -> tuple[Verdict, ...]:
    registry = Registry.default()
    registry.devices["npu"] = Emulated
    checker = Checker(RunRequest(device=device), registry)
    given = inputs(WRITTEN[name], getattr(torch, dtype))
    return checker.compare(function, reference, given, backward=True, key=f"reference.{name}")


@pytest.mark.parametrize("device", ["cpu", "npu"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", WRITTEN)
def test_a_kernel_that_rounds_once_passes(name: str, dtype: str, device: str) -> None:
    written = WRITTEN[name]
    found = verdicts(kernel(written), written.reference, name, dtype, device)
    assert [verdict.reason for verdict in found if verdict.verdict != "pass"] == []
    assert any("reference widened at " in note for verdict in found for note in verdict.notes)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("device", ["cpu", "npu"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", WRITTEN)
def test_a_fault_is_found_as_with_dtypes_of_the_arguments(name: str, dtype: str, device: str, fault: str) -> None:
    written = WRITTEN[name]
    function = FAULTS[fault](written)
    found, plain = (verdicts(function, each, name, dtype, device)[0] for each in (written.reference, written.plain))
    assert found.verdict == plain.verdict
    assert found.verdict == "error"


def _cut(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """To the next number of the dtype towards zero."""
    near = values.to(dtype)
    return torch.where(near.float().abs() > values.abs(), torch.nextafter(near, torch.zeros_like(near)), near)


@pytest.mark.parametrize("device", ["cpu", "npu"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("expected", ["pass", "error"])
def test_a_product_that_is_cut_inside_is_found_beside_a_function_of_torchs(
    expected: str, dtype: torch.dtype, device: str
) -> None:
    """Where nobody named the API, the spread of like elements of the reference is none of a kernel's."""

    def kernel(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        product = y.float() * z.float()
        return (x.float() + (_cut(product, dtype).float() if expected == "error" else product)).to(dtype)

    registry = Registry.default()
    registry.devices["npu"] = Emulated
    drawn = torch.Generator().manual_seed(7)
    given = [torch.randn(4_000, generator=drawn).to(dtype) for _ in range(3)]
    (verdict,) = Checker(RunRequest(device=device), registry).compare(kernel, torch.addcmul, given, key="cut")
    assert verdict.verdict == expected
