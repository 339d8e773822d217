"""Scaled products of another device: faults in scales and sums are errors, and healthy ways to add up pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch

from pytest_probe.check import Case, Checker, Conditions
from pytest_probe.model.verdict import Verdict
from pytest_probe.records import read_dump
from pytest_probe.registry import Registry
from tests.support import scaled
from tests.support.devices import Emulated
from tests.support.scaled import FAULTS, FORMATS, Kernel, Product

pytestmark = pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="torch has no float4 before 2.8")

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
SEEDS = 40


def judged(folder: Path, call: Product, kernel: Kernel, device: str = "other", allow: str = "none") -> Verdict:
    registry = Registry.default()
    registry.devices["other"] = Emulated
    registry.calls[call.api] = kernel
    dump = read_dump(scaled.write(folder, call, kernel(*call.args)))
    checker = Checker(Conditions(device=device, allow=(allow,)), registry)
    return checker.run(Case(dump, dump.records[0], "forward", None)).verdict


def in_blocks(size: int) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Sums of so many terms, added one after another."""

    def multiply(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        pairs = zip(left.split(size, 1), right.split(size, 1), strict=True)
        total = torch.zeros(left.shape[0], right.shape[0])
        for first, second in pairs:
            total = total + first @ second.t()
        return total

    return multiply


def split_k(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    parts = [first @ second.t() for first, second in zip(left.chunk(4, 1), right.chunk(4, 1), strict=True)]
    return (parts[0] + parts[2]) + (parts[1] + parts[3])


HEALTHY: Mapping[str, Kernel] = {
    "float32": scaled.kernel(),
    "blocks of 128": scaled.kernel(multiply=in_blocks(128)),
    "blocks of 16": scaled.kernel(multiply=in_blocks(16)),
    "split K": scaled.kernel(multiply=split_k),
}


@pytest.mark.parametrize("device", ["other", "recorded"])
@pytest.mark.parametrize("name", FORMATS)
def test_every_recipe_is_judged(tmp_path: Path, name: str, device: str) -> None:
    call = scaled.product(name, 0)
    verdict = judged(tmp_path, call, scaled.kernel(), device)
    assert (verdict.verdict, verdict.reason) == ("pass", "")
    # The reference is what operands and scales say, to the last digit of float64.
    found = verdict.outputs[0].metrics["noise_ratio"]
    assert isinstance(found, float)
    assert found <= 16


@pytest.mark.parametrize("way", HEALTHY)
def test_healthy_ways_to_add_up_pass(tmp_path: Path, way: str) -> None:
    for seed in range(SEEDS):
        name, dtype = list(FORMATS)[seed % len(FORMATS)], DTYPES[seed % 3]
        verdict = judged(tmp_path / str(seed), scaled.product(name, seed, dtype=dtype), HEALTHY[way])
        assert (verdict.verdict, seed, name) == ("pass", seed, name), verdict.reason


# What errors say of each fault. Swizzling twice is the same as not at all where a tensor has four tiles side by side.
CAUSES = {
    "scale transposed": ("the scales are transposed",),
    "swizzle left out": ("the swizzle of the scales is left out",),
    "swizzle applied twice": ("the swizzle of the scales is applied twice", "the swizzle of the scales is left out"),
    "first slice for all of K": ("the first slice of the scales serves for all of K",),
    "launch index for tile index": (
        "tiles of scales are taken in the order of another loop",
        "row ",
    ),
    "unpadded scales": ("the scales are read without their padding",),
    "byte as a linear number": ("the scales' bytes are taken as linear numbers, b / 127",),
    "nibbles swapped": ("the two numbers of each byte are swapped, of the first operand",),
    "tensor-wise for block-wise": (
        "one scale serves for the whole tensor",
        "the first row of the scales serves for all rows",
    ),
    "scale ignored": ("the scales are ignored",),
    "byte 0 and 255 wrong": ("numbers where NaN is expected",),
    "accumulation in float16": ("", "has errors as large as with float16 accumulation"),
    "last block of K dropped": ("the last block of K is left out",),
}


@pytest.mark.parametrize(("fault", "place"), [(fault, place) for fault in FAULTS for place in range(3)])
def test_causes_are_named(tmp_path: Path, fault: str, place: int) -> None:
    verdict = judged(tmp_path, *scaled.planted(fault, FAULTS[fault][place], 7))
    diagnosis = verdict.outputs[0].diagnosis
    assert diagnosis is not None
    assert diagnosis.cause.startswith(CAUSES[fault])


@pytest.mark.parametrize("side", ["first", "second"])
@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "1x128"])
def test_an_error_says_which_scale_was_used(tmp_path: Path, name: str, side: str) -> None:
    """Of row 3 alone, block 1 has the scale of block 2."""
    kernel = scaled.kernel("one block", both=side == "second", first=side == "first")
    verdict = judged(tmp_path, scaled.product(name, 2), kernel)
    diagnosis = verdict.outputs[0].diagnosis
    assert diagnosis is not None
    line = "row" if side == "first" else "column"
    assert diagnosis.cause == f"{line} 3 used the scale of block 2 for block 1"


@pytest.mark.usefixtures("no_causes")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("fault", "place"), [(fault, place) for fault in FAULTS for place in range(3)])
def test_faults_are_errors(tmp_path: Path, fault: str, place: int, dtype: torch.dtype) -> None:
    verdict = judged(tmp_path, *scaled.planted(fault, FAULTS[fault][place], place, dtype))
    assert verdict.verdict == "error", verdict.reason
