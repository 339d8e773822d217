"""Outputs of a healthy H200 (torch 2.11), judged without one, and faults that are planted in them.

benchmarks/gpu_outputs.py recorded them: float32 with TF32 as torch allows it, bfloat16 and float16 by autocast, and
bfloat16 alone.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_probe.check import Case, CaseRuns, Checker, RunRequest
from pytest_probe.model.run import RECORDED
from pytest_probe.model.verdict import Verdict
from pytest_probe.records import read_dump
from pytest_probe.registry import Registry
from tests.support.h200 import ARCHIVE, DUMPS, stored

# Warnings on purpose: what an autocast casts inside torch's own call; gradients that are zero but for rounding, since
# those that came in are constant; sums in 16 bit that lose as much as steps between kernels may.
WARNED = {
    "cross_entropy": "under autocast the framework's own call computes log_softmax in",
    "batch_norm": "undecided: nothing was judged",
    "instance_norm": "undecided: nothing was judged",
    "softmax": "undecided: nothing was judged",
    "logcumsumexp": "explained by rounds between its kernels alone",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("h200")
    zipfile.ZipFile(ARCHIVE).extractall(found)
    return found


def judged(folder: Path, names: str = "", **asked: Any) -> Mapping[str, Verdict]:
    """The verdicts on a dump's stored outputs, on those of a name alone where one is given."""
    dump = read_dump(folder / "dump.json")
    runs = CaseRuns(Checker(RunRequest(device=RECORDED, **asked), Registry.default()))
    return {
        f"{record.name}.{direction}": runs.run(Case(dump, record, direction)).verdict
        for record in dump.records
        for direction in record.directions
        if names in f"{record.name}.{direction}"
    }


@pytest.mark.parametrize("dump", DUMPS)
def test_a_healthy_gpu_passes(dump: str, folder: Path) -> None:
    verdicts = judged(folder / dump)
    assert verdicts
    wrong = {name: found.headline for name, found in verdicts.items() if found.verdict not in ("pass", "warning")}
    assert wrong == {}
    warned = {name: found.headline for name, found in verdicts.items() if found.verdict == "warning"}
    for name, headline in warned.items():
        assert WARNED[name.split(".")[1]] in headline


def test_modes_that_the_recorded_program_allowed(folder: Path) -> None:
    """TF32 is named where nothing allows it."""
    verdicts = judged(folder / "products-tf32", "forward", allow=("none",)).values()
    assert {(found.verdict, "behaves as TF32 inputs" in found.headline) for found in verdicts} == {("error", True)}


def test_an_autocast_whose_lists_nobody_knows(folder: Path, tmp_path: Path) -> None:
    """The CPU's gives layer_norm in bfloat16, that of a GPU in float32."""
    shutil.copytree(folder / "norms-bfloat16", tmp_path / "norms")
    file = tmp_path / "norms" / "dump.json"
    file.write_text(file.read_text().replace('"autocast":{"cuda"', '"autocast":{"npu"'))
    (verdict,) = judged(tmp_path / "norms", "layer_norm.0.forward").values()
    assert verdict.verdict == "skip"
    assert "layer_norm gave bfloat16[6, 10, 32] under autocast, recorded: float32[6, 10, 32]" in verdict.reason


def _row(output: torch.Tensor) -> None:
    rows = output.view(-1, output.shape[-1])
    rows[0] = rows[-1]


def _tile(output: torch.Tensor) -> None:
    height, width = (max(1, extent // 3) for extent in output.shape[-2:])
    output[..., -height:, -width:] = 0


def _element(output: torch.Tensor) -> None:
    """The middle one of all by size."""
    output.view(-1)[output.abs().view(-1).argsort()[output.numel() // 2]] *= 1.25


def _channels(output: torch.Tensor) -> None:
    """The first two of the longest dimension are swapped."""
    axis = max(range(output.ndim), key=lambda each: output.shape[each])
    first, second = (output.select(axis, place) for place in (0, 1))
    kept = first.clone()
    first.copy_(second)
    second.copy_(kept)


def _factor(output: torch.Tensor) -> None:
    output *= 1 + 2**-7 if output.dtype is torch.float32 else 1 + 2**-4


FAULTS: tuple[Callable[[torch.Tensor], None], ...] = (_row, _tile, _element, _channels, _factor)
# Where TF32, or what the GPU's kernels round inside, is granted.
GRANTED = (
    ("convolutions-float32", "Functional.conv2d.9.forward"),
    ("convolutions-float32", "Functional.conv2d.8.backward"),
    ("products-tf32", "Functional.linear.0.forward"),
    ("products-tf32", "Torch.einsum.0.forward"),
    ("activations-bfloat16", "Torch.sigmoid.1.backward"),
    ("activations-bfloat16", "Torch.tanh.1.backward"),
    ("activations-bfloat16-alone", "Functional.softmax.1.backward"),
    ("attention-bfloat16", "Functional.scaled_dot_product_attention.2.backward"),
    ("losses-bfloat16", "Functional.cross_entropy.0.backward"),
    ("losses-bfloat16-alone", "Functional.smooth_l1_loss.0.backward"),
    ("norms-bfloat16", "Functional.batch_norm.0.backward"),
    ("norms-bfloat16-alone", "Functional.group_norm.0.forward"),
    ("indices-bfloat16-alone", "Functional.embedding.0.backward"),
    ("indices-bfloat16-alone", "Torch.cumsum.1.forward"),
)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("dump", "name"), GRANTED)
def test_a_fault_is_found(dump: str, name: str, fault: Callable[[torch.Tensor], None], folder: Path) -> None:
    file = folder / dump / "dump_tensor_data" / f"{name}.output.0.pt"
    right, wrong = (stored(dump, f"{name}.output.0").contiguous() for _ in range(2))
    fault(wrong)
    assert not torch.equal(wrong, right)
    torch.save(wrong, file)
    try:
        (verdict,) = judged(folder / dump, name, diagnosed=False).values()
    finally:
        torch.save(right, file)
    assert verdict.verdict == "error"
