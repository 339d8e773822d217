"""Calls that hold, move or copy packed float4 numbers: their bytes are compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from pytest_probe.check import Case, Checker, RunRequest
from pytest_probe.model.verdict import Verdict
from pytest_probe.records import read_dump
from pytest_probe.registry import Registry
from tests.support import scaled
from tests.support.devices import Emulated

pytestmark = pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="torch has no float4 before 2.8")


def flipped(tensor: torch.Tensor) -> torch.Tensor:
    result = tensor.clone()
    result.view(torch.uint8)[2, 3] ^= 0x10
    return result


def verdict_on(folder: Path, device: str, inputs: str, call: Callable[..., torch.Tensor] | None = None) -> Verdict:
    data = torch.from_numpy(np.random.default_rng(0).integers(256, size=(4, 8), dtype=np.uint8))
    tensor, registry = data.view(torch.float4_e2m1fn_x2), Registry.default()
    registry.devices["other"] = Emulated
    if call is not None:
        registry.calls["Tensor.clone"] = call
    dump = read_dump(scaled.write(folder, scaled.Product([tensor], np.zeros(0), "Tensor.clone"), tensor))
    return (
        Checker(RunRequest(device=device, inputs=inputs), registry)
        .run(Case(dump, dump.records[0], "forward", None))
        .verdict
    )


@pytest.mark.parametrize("inputs", ["auto", "stored", "generated", "exact"])
@pytest.mark.parametrize("device", ["cpu", "other"])
def test_a_copy_passes(tmp_path: Path, device: str, inputs: str) -> None:
    verdict = verdict_on(tmp_path, device, inputs)
    assert (verdict.verdict, verdict.reason, verdict.outputs[0].standard) == ("pass", "", "exact")


def test_recorded_outputs_are_judged(tmp_path: Path) -> None:
    assert verdict_on(tmp_path, "recorded", "auto").verdict == "pass"


def test_one_other_bit_is_an_error(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, "other", "auto", flipped)
    assert verdict.verdict == "error"
    assert "1 of 32 elements differ" in verdict.reason
