"""Scaled products of another device: faults in scales and sums are errors, and healthy ways to add up pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pytest_probe.check import Case, Checker, RunRequest
from pytest_probe.model.verdict import Verdict
from pytest_probe.records import read_dump
from pytest_probe.registry import Registry
from tests.support import scaled
from tests.support.devices import Emulated
from tests.support.scaled import FAULTS, FORMATS, Kernel, Product

pytestmark = pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="torch has no float4 before 2.8")

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
SEEDS = pytest.mark.parametrize("seeds", [range(first, first + 5) for first in range(0, 15, 5)], ids=str)


def judged(folder: Path, call: Product, kernel: Kernel, device: str = "other", allow: str = "none") -> Verdict:
    registry = Registry.default()
    registry.devices["other"] = Emulated
    registry.calls[call.api] = kernel
    dump = read_dump(scaled.write(folder, call, kernel(*call.args)))
    checker = Checker(RunRequest(device=device, allow=(allow,)), registry)
    return checker.run(Case(dump, dump.records[0], "forward", None)).verdict


def cause(verdict: Verdict) -> str:
    found = verdict.outputs[0].diagnosis
    return "" if found is None else found.cause


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


def fast(left: torch.Tensor, right: torch.Tensor, terms: int = 32) -> torch.Tensor:
    """Sums as Hopper's tensor cores make them of FP8, and Ada's of 16 terms: products and the sum so far are cut 13
    bits below the largest exponent among them, and so is what comes of them (MMA-Sim, arXiv:2511.10909)."""
    a, b = left.double().numpy(), right.double().numpy()
    total = np.zeros((left.shape[0], right.shape[0]))
    for start in range(0, left.shape[1], terms):
        first, second = a[:, None, start : start + terms], b[None, :, start : start + terms]
        both = np.concatenate([first * second, total[..., None]], axis=2)
        exponents = np.concatenate([_exponent(first) + _exponent(second), _exponent(total)[..., None]], axis=2)
        last = exponents.max(axis=2)[..., None] - 13
        found, exponent = np.frexp(np.ldexp(np.trunc(np.ldexp(both, -last)).sum(axis=2), last[..., 0]))
        total = np.ldexp(np.trunc(np.ldexp(found, 14)), exponent - 14)
    return torch.from_numpy(total).float()


def _exponent(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.where(values == 0, -100, np.frexp(values)[1] - 1))


def promoted(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The same for 128 places, whose sums are added in float32."""
    pairs = zip(left.split(128, 1), right.split(128, 1), strict=True)
    return torch.stack([fast(first, second) for first, second in pairs]).sum(0)


FAST = scaled.kernel(multiply=fast, after=True)
ADA = scaled.kernel(multiply=partial(fast, terms=16), after=True)
PROMOTED = scaled.kernel(multiply=promoted, after=True)
HEALTHY: Mapping[str, Kernel] = {
    "float32": scaled.kernel(),
    "blocks of 128": scaled.kernel(multiply=in_blocks(128)),
    "blocks of 16": scaled.kernel(multiply=in_blocks(16)),
    "split K": scaled.kernel(multiply=split_k),
    "scales after sums": scaled.kernel(multiply=lambda left, right: left @ right.t(), after=True),
}


@pytest.mark.parametrize("seeds", [range(5), range(5, 10)], ids=str)
@pytest.mark.parametrize("name", ["bfloat16", "row-wise", "mxfp8"])
def test_groups_are_judged_and_an_offset_by_one_is_an_error(tmp_path: Path, name: str, seeds: range) -> None:
    for seed in seeds:
        api, args, kernel = scaled.grouped(name, seed)
        call = Product(args, np.zeros(0), api)
        verdict = judged(tmp_path / f"right{seed}", call, kernel)
        assert (verdict.verdict, verdict.reason) == ("pass", "")
        found = judged(tmp_path / f"late{seed}", call, scaled.late(kernel))
        assert found.verdict == "error"
        assert cause(found) == "group 0 ends at 41 instead of 40"


@pytest.mark.parametrize("name", ["bfloat16", "row-wise", "mxfp8"])
def test_matrices_that_skip_an_empty_group_are_an_error(tmp_path: Path, name: str) -> None:
    """The third group has the matrix of the second, which has no rows."""
    api, args, kernel = scaled.grouped(name, 0)

    def skipping(*given: Any) -> torch.Tensor:
        if name == "bfloat16":
            return kernel(given[0], given[1][[0, 2, 1]], given[2])
        ends = given[-1].clone()
        ends[1] = ends[2]
        return kernel(*given[:-1], ends)

    verdict = judged(tmp_path, Product(args, np.zeros(0), api), skipping)
    assert (verdict.verdict, cause(verdict)) == ("error", "group 2 used the matrix of group 1")


def of_places(a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    """Groups of what is added up: (M, K) @ (K, N) gives (groups, M, N)."""
    pairs = zip([0, *offs.tolist()], offs.tolist(), strict=False)
    return torch.stack([a[:, start:end].float() @ b[start:end].float() for start, end in pairs]).bfloat16()


def of_columns(a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    """Groups of columns: (groups, M, K) @ (K, N) gives (M, N)."""
    pairs = zip([0, *offs.tolist()], offs.tolist(), strict=False)
    return torch.cat(
        [matrix.float() @ b[:, i:j].float() for matrix, (i, j) in zip(a, pairs, strict=True)], 1
    ).bfloat16()


@pytest.mark.parametrize(
    ("kernel", "shapes"),
    [(of_places, ((24, 96), (96, 40))), (of_columns, ((3, 24, 64), (64, 96)))],
)
def test_an_end_of_groups_of_places_or_columns_is_named(tmp_path: Path, kernel: Kernel, shapes: Sequence[Any]) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(shape, generator=generator).bfloat16() for shape in shapes)
    call = Product([a, b, torch.tensor([40, 64, 96], dtype=torch.int32)], np.zeros(0), "Torch._grouped_mm")
    assert judged(tmp_path / "right", call, kernel).verdict == "pass"
    assert cause(judged(tmp_path / "late", call, scaled.late(kernel))) == "group 0 ends at 41 instead of 40"


FP8 = [name for name in FORMATS if FORMATS[name].elements.startswith("float8")]


# Outputs of 1,536 and of 16 elements.
SHAPES = ((32, 512, 48), (1, 512, 16))


@SEEDS
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kernel", [FAST, ADA, PROMOTED], ids=["fast", "ada", "promoted"])
def test_fast_accumulation_passes_where_it_is_allowed(
    tmp_path: Path, kernel: Kernel, shape: tuple[int, int, int], seeds: range
) -> None:
    for seed in seeds:
        name, dtype = FP8[seed % len(FP8)], DTYPES[seed % 3]
        call = scaled.product(name, seed, shape, dtype)
        verdict = judged(tmp_path / str(seed), call, kernel, allow="short-accumulation")
        assert (verdict.verdict, seed, name) == ("pass", seed, name), verdict.reason


@pytest.mark.parametrize("name", FP8)
def test_fast_accumulation_is_an_error_that_names_the_mode(tmp_path: Path, name: str) -> None:
    for seed, dtype in enumerate(DTYPES):
        verdict = judged(tmp_path / str(seed), scaled.product(name, seed, (64, 512, 48), dtype), FAST)
        assert verdict.verdict == "error"
        assert "sums of products of about 14 bits" in cause(verdict)


@pytest.mark.usefixtures("no_causes")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("fault", ["first slice for all of K", "accumulation in float16", "last block of K dropped"])
def test_short_accumulation_excuses_no_fault(tmp_path: Path, fault: str, dtype: torch.dtype) -> None:
    """Sums that are rounded to nearest in float16 are as far off, but lose nothing on average."""
    call, kernel = scaled.planted(fault, FAULTS[fault][DTYPES.index(dtype)], 1, dtype)
    assert judged(tmp_path, call, kernel, allow="short-accumulation").verdict == "error"


@pytest.mark.usefixtures("no_causes")
@pytest.mark.parametrize("allow", ["short-accumulation", "reduced-reduction"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FAULTS["accumulation in float16"])
def test_no_mode_excuses_float16_sums_of_small_outputs(
    tmp_path: Path, name: str, dtype: torch.dtype, allow: str
) -> None:
    """384 elements of 16 bits, most of which hide the sums. torch's flag for sums in 16 bit is none of FP8's, and is on
    by default."""
    for seed in range(4):
        call, kernel = scaled.product(name, seed, (16, 512, 24), dtype), scaled.kernel("accumulation in float16")
        assert judged(tmp_path / str(seed), call, kernel, allow=allow).verdict == "error"


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


@pytest.mark.parametrize("name", FORMATS)
def test_a_recipe_that_torchs_cpu_has_not_is_no_error(tmp_path: Path, name: str) -> None:
    call = scaled.product(name, 0)
    dump = read_dump(scaled.write(tmp_path, call, scaled.kernel()(*call.args)))
    checker = Checker(RunRequest(device="cpu"), Registry.default())
    verdict = checker.run(Case(dump, dump.records[0], "forward", None)).verdict
    if name in ("tensor-wise", "row-wise"):
        assert verdict.verdict == "pass"
    else:
        assert (verdict.verdict, verdict.kind) == ("skip", "unsupported by the device")


@SEEDS
@pytest.mark.parametrize("way", HEALTHY)
def test_healthy_ways_to_add_up_pass(tmp_path: Path, way: str, seeds: range) -> None:
    for seed in seeds:
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
        "the scales of each row are taken in reverse",
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
    "accumulation in float16": ("has errors as large as with float16 accumulation",),
    "last block of K dropped": ("the last block of K is left out",),
}


@pytest.mark.parametrize(("fault", "place"), [(fault, place) for fault in FAULTS for place in range(3)])
def test_faults_are_errors_that_name_their_cause(tmp_path: Path, fault: str, place: int) -> None:
    verdict = judged(tmp_path, *scaled.planted(fault, FAULTS[fault][place], 7))
    assert verdict.verdict == "error"
    assert cause(verdict).startswith(CAUSES[fault])


@pytest.mark.usefixtures("no_causes")
@pytest.mark.parametrize(("fault", "place"), [(fault, place) for fault in FAULTS for place in range(3)])
def test_faults_in_results_of_another_dtype_are_errors(tmp_path: Path, fault: str, place: int) -> None:
    call, kernel = scaled.planted(fault, FAULTS[fault][place], place, DTYPES[1 + place % 2])
    assert judged(tmp_path, call, kernel).verdict == "error"


@pytest.mark.parametrize("side", ["first", "second"])
@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "1x128"])
def test_an_error_says_which_scale_was_used(tmp_path: Path, name: str, side: str) -> None:
    """Of row 3 alone, block 1 has the scale of block 2."""
    kernel = scaled.kernel("one block", both=side == "second", first=side == "first")
    verdict = judged(tmp_path, scaled.product(name, 2), kernel)
    line = "row" if side == "first" else "column"
    assert cause(verdict) == f"{line} 3 used the scale of block 2 for block 1"
