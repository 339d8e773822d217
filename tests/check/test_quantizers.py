"""Recorded calls of functions that a project names as quantisers, run on a device or judged as they were stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pytest_probe
from pytest_probe.check import Case, Checker, RunRequest
from pytest_probe.errors import BrokenCall, SettingsError
from pytest_probe.model.verdict import Verdict
from pytest_probe.records import read_dump
from pytest_probe.registry import Registry
from tests.support import scaled
from tests.support.devices import Emulated
from tests.support.scaled import Product

pytestmark = pytest.mark.skipif(not hasattr(torch, "float8_e8m0fnu"), reason="torch has no E8M0 before 2.7")
API = "Mine.mxfp8"


def mxfp8(x: torch.Tensor, top: float = 448.0) -> Any:
    """Scales by RCEIL."""
    blocks = x.float().unflatten(-1, (-1, 32))
    powers = torch.ceil(torch.log2(blocks.abs().amax(-1) / top)).clamp(-127, 127)
    values = (blocks * torch.exp2(-powers)[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    return values.flatten(-2), torch.exp2(powers).to(torch.float8_e8m0fnu)


def scales_first(x: torch.Tensor) -> Any:
    return mxfp8(x)[::-1]


def by_chance(x: torch.Tensor) -> Any:
    blocks = x.float().unflatten(-1, (-1, 32))
    powers = torch.ceil(torch.log2(blocks.abs().amax(-1) / 448)).clamp(-127, 127)
    quotients = (blocks * torch.exp2(-powers)[..., None]).numpy()
    step = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(quotients), 2.0**-6))) - 3)
    drawn = np.floor(quotients / step + np.random.default_rng().random(quotients.shape)) * step
    values = torch.from_numpy(np.clip(drawn, -448, 448)).float().to(torch.float8_e4m3fn)
    return values.flatten(-2), torch.exp2(powers).to(torch.float8_e8m0fnu)


def judged(folder: Path, recorded: Any, function: Any, device: str, **states: Any) -> Verdict:
    registry = Registry.default()
    registry.devices["other"] = Emulated
    registry.calls[API] = function
    registry.quantizers[API] = pytest_probe.quantizer("mxfp8", **states)
    x = torch.randn(32, 128, generator=torch.Generator().manual_seed(0)).bfloat16()
    dump = read_dump(scaled.write(folder, Product([x], np.zeros(0), API), *recorded(x)))
    checker = Checker(RunRequest(device=device), registry)
    return checker.run(Case(dump, dump.records[0], "forward", None)).verdict


@pytest.mark.parametrize("device", ["other", "recorded"])
def test_a_recorded_quantiser_is_judged_by_its_rules(tmp_path: Path, device: str) -> None:
    verdict = judged(tmp_path, mxfp8, mxfp8, device, rule="rceil")
    assert (verdict.verdict, verdict.standard, verdict.reason) == ("pass", "quantiser", "")
    assert [output.name for output in verdict.outputs] == ["scales", "elements"]


@pytest.mark.parametrize("device", ["other", "recorded"])
def test_a_wrong_one_is_an_error_that_says_what_it_is(tmp_path: Path, device: str) -> None:
    def wrong(x: torch.Tensor) -> Any:
        return mxfp8(x, 240.0)

    verdict = judged(tmp_path / "scales", wrong, wrong, device, rule="rceil")
    assert verdict.verdict == "error"
    assert verdict.reason.startswith("scales: scales follow no rule: ")
    verdict = judged(tmp_path / "rule", mxfp8, mxfp8, device, rule="floor")
    assert "scales follow rceil, not floor" in verdict.reason


def test_only_what_the_device_gives_is_judged_there(tmp_path: Path) -> None:
    assert judged(tmp_path, lambda x: mxfp8(x, 240.0), mxfp8, "other").verdict == "pass"


@pytest.mark.parametrize("device", ["other", "recorded"])
def test_scales_may_come_first(tmp_path: Path, device: str) -> None:
    assert judged(tmp_path, scales_first, scales_first, device, scales_first=True).verdict == "pass"
    verdict = judged(tmp_path, scales_first, scales_first, device)
    assert verdict.verdict == "error"
    assert verdict.reason.startswith("the quantiser gave ")


@pytest.mark.parametrize("device", ["other", "recorded"])
def test_rounding_by_chance(tmp_path: Path, device: str) -> None:
    """The stored outputs are one draw of 4,096 elements."""
    verdict = judged(tmp_path / "right", by_chance, by_chance, device, rounding="stochastic")
    assert (verdict.verdict, verdict.reason) == ("pass", "")
    verdict = judged(tmp_path / "wrong", mxfp8, mxfp8, device, rounding="stochastic")
    assert "elements are not rounded by chance" in verdict.reason


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: x, "the quantiser gave 1 outputs (ndarray), expected values, scales"),
        (lambda x: 1 / 0, "other raised ZeroDivisionError"),
        (lambda x: (mxfp8(x)[0][:, :96], mxfp8(x)[1]), "the quantiser gave values of shape [32, 96]"),
        (lambda x: (mxfp8(x)[0], mxfp8(x)[1].float()), "the quantiser gave BlockWise1x32: scales of float32"),
        (lambda x: (mxfp8(x)[0], mxfp8(x)[1][:, :3]), "the quantiser gave BlockWise1x32: scales of shape [32"),
    ],
)  # fmt: skip
def test_what_is_no_quantiser_is_said_in_a_sentence(tmp_path: Path, function: Any, words: str) -> None:
    verdict = judged(tmp_path, mxfp8, function, "other")
    assert verdict.verdict == "error"
    assert verdict.reason.startswith(words)


def test_what_cannot_be_stated_is_refused() -> None:
    with pytest.raises(BrokenCall, match="the recipe is 'fp8', expected one of TensorWise"):
        pytest_probe.quantizer("fp8")
    with pytest.raises(BrokenCall, match="the swizzle is 'rows', expected one of NO_SWIZZLE, SWIZZLE_32_4_4"):
        pytest_probe.quantizer("mxfp8", swizzle="rows")
    with pytest.raises(SettingsError, match="rule: 'round' cannot be used; give one of floor, ceil"):
        pytest_probe.quantizer("mxfp8", rule="round")


def test_the_backward_is_a_skip_and_other_records_are_judged_as_ever(tmp_path: Path) -> None:
    registry = Registry.default()
    registry.quantizers[API] = pytest_probe.quantizer("mxfp8")
    call = Product([torch.ones(2, 32)], np.zeros(0), API)
    dump = read_dump(scaled.write(tmp_path / "own", call, *mxfp8(call.args[0])))
    verdict = Checker(RunRequest(device="cpu"), registry).check(Case(dump, dump.records[0], "backward", None))
    assert (verdict.verdict, verdict.kind) == ("skip", "quantiser")
    other = Product([torch.ones(2, 32)], np.zeros(0), "Functional.relu")
    dump = read_dump(scaled.write(tmp_path / "other", other, other.args[0]))
    verdict = Checker(RunRequest(device="cpu"), registry).check(Case(dump, dump.records[0], "forward", None))
    assert (verdict.verdict, verdict.standard) == ("pass", "auto")
