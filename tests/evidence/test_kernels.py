"""Healthy 16-bit kernels pass whatever the seed, and faulty ones fail."""

from __future__ import annotations

import pytest
import torch

from pytest_probe.check import Checker, RunRequest
from pytest_probe.model.verdict import Verdict
from pytest_probe.registry import Registry
from tests.evidence.kernels import FAULTS, KERNELS, Kernel, faulty

pytestmark = pytest.mark.usefixtures("causes_once")

SEEDS = pytest.mark.parametrize("seeds", [range(first, first + 5) for first in range(0, 20, 5)], ids=str)


def verdicts(kernel: Kernel, seed: int, backward: bool) -> tuple[Verdict, ...]:
    checker = Checker(RunRequest(device="cpu"), Registry.default())
    inputs = kernel.inputs(torch.Generator().manual_seed(seed))
    return checker.compare(kernel.function, kernel.reference, inputs, backward=backward, key=f"kernel.{seed}")


@SEEDS
@pytest.mark.parametrize("name", KERNELS)
def test_a_healthy_kernel_passes(name: str, seeds: range) -> None:
    found = {
        seed: [verdict.reason for verdict in verdicts(KERNELS[name], seed, True) if verdict.verdict != "pass"]
        for seed in seeds
    }
    assert found == {seed: [] for seed in seeds}


def test_a_tie_that_every_perturbed_run_rounds_the_other_way() -> None:
    """Element [0, 29, 39] of this seed's output is a product that lies between two bfloat16 numbers."""
    [verdict] = verdicts(KERNELS["rotary embedding, rounded between its steps"], 166, False)
    assert verdict.verdict == "pass"
    assert float(verdict.outputs[0].metrics["noise_ratio"]) <= 1


@SEEDS
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", KERNELS)
def test_a_faulty_kernel_fails(name: str, fault: str, seeds: range) -> None:
    kernel = faulty(KERNELS[name], fault)
    missed = [seed for seed in seeds if verdicts(kernel, seed, False)[0].verdict != "error"]
    assert missed == []
