"""--probe-inputs=exact: every bit of a product must be right, whatever the order in which a kernel adds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe.check import Case, Checker, RunRequest
from pytest_probe.model.verdict import Verdict
from pytest_probe.records import read_dump
from pytest_probe.registry import Registry
from tests.evidence.test_scaled_products import HEALTHY, fast
from tests.support import scaled
from tests.support.devices import Emulated
from tests.support.scaled import FAULTS, FORMATS
from tests.support.writing import entries, write_dump

pytestmark = pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="torch has no float4 before 2.8")

SEEDS = 10


def checked(path: Path, seed: int, device: str = "other", call: Callable[..., Any] | None = None) -> Verdict:
    registry, dump = Registry.default(), read_dump(path)
    registry.devices["other"] = Emulated
    case = Case(dump, dump.records[0], "forward", None)
    if call is not None:
        registry.calls[case.api] = call
    return Checker(RunRequest(device=device, inputs="exact", seed=seed, allow=("none",)), registry).run(case).verdict


def of_format(folder: Path, name: str, shape: tuple[int, int, int] = (160, 512, 96)) -> Path:
    call = scaled.product(name, 0, shape)
    return scaled.write(folder, call, scaled.kernel()(*call.args))


@pytest.mark.parametrize("name", FORMATS)
def test_healthy_scaled_products_are_right_to_the_bit(tmp_path: Path, name: str) -> None:
    path = of_format(tmp_path, name)
    for seed, kernel in enumerate([*HEALTHY.values(), scaled.kernel(multiply=fast)]):
        verdict = checked(path, seed, call=kernel)
        assert (verdict.verdict, verdict.reason) == ("pass", "")
        assert verdict.outputs[0].standard == "exact"


# No byte of these scales is 0 or 255, and sums in float16 are exact here.
@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - {"byte 0 and 255 wrong", "accumulation in float16"}))
def test_faults_in_scales_are_errors(tmp_path: Path, fault: str) -> None:
    path = of_format(tmp_path, FAULTS[fault][1], (160, 528 if fault == "unpadded scales" else 512, 96))
    verdict = checked(path, 0, call=scaled.kernel(fault, both=fault != "nibbles swapped"))
    assert (verdict.verdict, verdict.outputs[0].standard) == ("error", "exact")


def test_one_wrong_scale_of_one_block_is_named(tmp_path: Path) -> None:
    verdict = checked(of_format(tmp_path, "mxfp8"), 0, call=scaled.kernel("one block", both=False))
    assert verdict.verdict == "error"
    diagnosis = verdict.outputs[0].diagnosis
    assert diagnosis is not None
    assert diagnosis.cause.startswith("row 3 used the scale of block ")


def tensor(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(0)) * 3
    return made.to(dtype)


CALLS: Mapping[str, Callable[[torch.dtype], tuple[Any, ...]]] = {
    "Functional.linear": lambda dtype: (tensor(33, 300, dtype=dtype), tensor(20, 300, dtype=dtype)),
    "Torch.matmul": lambda dtype: (tensor(3, 17, 1000, dtype=dtype), tensor(1000, 9, dtype=dtype)),
    "Functional.conv1d": lambda dtype: (tensor(2, 8, 50, dtype=dtype), tensor(4, 8, 1, dtype=dtype)),
}
FUNCTIONS = {"Functional.linear": F.linear, "Torch.matmul": torch.matmul, "Functional.conv1d": F.conv1d}


def plain(folder: Path, api: str, dtype: torch.dtype) -> Path:
    return write_dump(folder, entries(f"{api}.0", FUNCTIONS[api], *CALLS[api](dtype)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("api", CALLS)
def test_plain_products_are_right_to_the_bit(tmp_path: Path, api: str, dtype: torch.dtype) -> None:
    path = plain(tmp_path, api, dtype)
    for seed in range(SEEDS):
        verdict = checked(path, seed, "cpu")
        assert (verdict.verdict, verdict.outputs[0].standard, seed) == ("pass", "exact", seed), verdict.reason


def test_an_error_of_one_step_is_found(tmp_path: Path) -> None:
    """Of the largest element alone, which the noise rule grants many."""

    def wrong(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        result = F.linear(x, weight)
        result.view(-1)[result.abs().argmax()] *= 1 + 2**-22
        return result

    verdict = checked(plain(tmp_path, "Functional.linear", torch.float32), 0, call=wrong)
    assert (verdict.verdict, verdict.reason.split(":")[1]) == (
        "error",
        " 1 of 660 elements differ from the correctly rounded reference; none may; wrong",
    )


def test_integers_and_other_calls_are_judged_as_ever(tmp_path: Path) -> None:
    a, b = (torch.randint(-9, 9, (16, 16), dtype=torch.int8) for _ in range(2))
    path = write_dump(tmp_path, entries("Torch._int_mm.0", lambda *args: torch._int_mm(*args), a, b))
    assert checked(path, 0, "cpu").verdict in ("pass", "skip")  # the name is private
    softmax = write_dump(tmp_path, entries("Functional.softmax.0", F.softmax, tensor(4, 9, dtype=torch.float32), -1))
    verdict = checked(softmax, 0, "cpu")
    assert (verdict.verdict, verdict.outputs[0].standard) == ("pass", "noise")
    wide = tensor(1, 4, 9, 9, dtype=torch.float32), tensor(4, 4, 3, 3, dtype=torch.float32)
    winograd = write_dump(tmp_path, entries("Functional.conv2d.0", F.conv2d, *wide))
    verdict = checked(winograd, 0, "cpu")
    assert verdict.verdict == "pass"
