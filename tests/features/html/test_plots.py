"""The data of plots, made when a case is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from msgspec.structs import replace

from pytest_probe.check import CaseOutcome, Checker, RunRequest
from pytest_probe.features.html.plugin import details_of, operands_of, plots_of
from pytest_probe.model.case import Case
from pytest_probe.model.details import Details, Plots
from pytest_probe.records import read_dump
from pytest_probe.registry import Registry
from tests.support import scaled
from tests.support.devices import Emulated
from tests.support.scaled import Product

T = TypeVar("T")


def the(value: T | None) -> T:
    assert value is not None
    return value


def plots(function: Any, reference: Any, *args: Any, device: Any = "cpu", plotted: bool = True) -> Plots | None:
    checker = Checker(RunRequest(device, plotted=plotted), Registry.default())
    (case,) = checker.pairs(function, reference, args)
    checked = checker.run(case)
    return plots_of(checked, checked.verdict)


def drawn(function: Any, reference: Any, *args: Any, **options: Any) -> Plots:
    return the(plots(function, reference, *args, **options))


def wrong(x: torch.Tensor) -> torch.Tensor:
    out = F.gelu(x).clone()
    out[3, 5] += 0.25
    return out


X = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))


def test_a_planted_fault_is_drawn() -> None:
    found = drawn(wrong, F.gelu, X)
    cells, ratios = the(found.error_map).cells, the(found.noise_ratios)
    assert found.output == "output.0"
    assert the(found.points).more[0] == pytest.approx(0.25, rel=1e-3)
    assert cells.index(max(cells)) == 3 * 16 + 5
    assert ratios.first + len(ratios.counts) > 20
    assert sum(ratios.counts) + ratios.small == 128


def test_what_passes_is_drawn_too() -> None:
    assert drawn(F.gelu, F.gelu, X, plotted=False).noise_ratios is None
    found = drawn(F.gelu, F.gelu, X)
    ratios = the(found.noise_ratios)
    assert ratios.first + len(ratios.counts) <= 6  # below 64, the limit
    assert found.ulps is not None
    assert len(msgspec.json.encode(found)) <= 4096


def test_an_accelerator_that_is_one_by_name() -> None:
    registry = Registry.default()
    registry.devices["npu"] = lambda name: Emulated(name, lambda tensor: tensor * 1.01)
    checker = Checker(RunRequest("npu", plotted=True), registry)
    (case,) = checker.pairs(F.gelu, F.gelu, (X,))
    checked = checker.run(case)
    assert checked.verdict.verdict == "error"
    assert "0" not in the(the(plots_of(checked, checked.verdict)).error_map).cells


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_integers_have_no_ulp(dtype: torch.dtype) -> None:
    found = drawn(lambda x: torch.zeros_like(x), lambda x: x, torch.tensor([0, 1, 1]).to(dtype))
    assert (found.noise_ratios, found.ulps, the(found.error_map).cells) == (None, None, "099")


def test_a_number_and_complex_numbers() -> None:
    for function, given in ((lambda x: x.sum().item(), X), (torch.fft.fft, X)):
        assert drawn(function, function, given).points is not None


def test_what_gave_nothing_has_no_plots() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no")

    assert plots(broken, F.gelu, X) is None
    assert plots(lambda x: x[:2], lambda x: x, X) is None
    assert plots(lambda x: x[:0], lambda x: x[:0], X) is None


FLOAT4 = pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="torch has no float4 before 2.8")


def checked_product(folder: Path, call: Product, kernel: Any) -> CaseOutcome:
    registry = Registry.default()
    registry.devices["other"] = Emulated
    registry.calls[call.api] = kernel
    dump = read_dump(scaled.write(folder, call, torch.from_numpy(call.exact).to(call.dtype)))
    return Checker(RunRequest("other", plotted=True), registry).run(Case(dump, dump.records[0], "forward", None))


@FLOAT4
@pytest.mark.parametrize("name", ["row-wise", "1x128, 128x128", "mxfp8", "nvfp4, two levels"])
def test_operands_are_drawn_with_their_scales(tmp_path: Path, name: str) -> None:
    call = scaled.product(name, 1, (24, 256, 48))
    checked = checked_product(tmp_path, call, scaled.kernel())
    found = operands_of(checked)
    assert [each.name for each in found] == ["input.0", "input.1"]
    told = details_of(checked, checked.verdict, "pytest")
    assert msgspec.json.decode(msgspec.json.encode(told), type=Details).operands == found
    for each, numbers in zip(found, scaled.decoded(call), strict=True):
        sizes = numbers[numbers != 0].abs().double().log2().floor().int() - each.numbers.first
        assert each.numbers.counts == tuple(torch.bincount(sizes).tolist())
        assert each.numbers.small == int((numbers == 0).sum())
        assert " scales over " in each.blocks


@FLOAT4
def test_operands_of_tiny_numbers_are_no_zeros(tmp_path: Path) -> None:
    call = scaled.product("row-wise", 1, (24, 256, 48))
    args = [call.args[0], call.args[1], [call.args[2][0] * 2.0**-60], *call.args[3:]]
    tiny, plain = (
        operands_of(checked_product(tmp_path / str(place), Product(each, call.exact), scaled.kernel()))[0]
        for place, each in enumerate((args, call.args))
    )
    assert tiny.numbers == replace(plain.numbers, first=plain.numbers.first - 60)


def test_other_cases_have_no_operands() -> None:
    checker = Checker(RunRequest("cpu"), Registry.default())
    (case,) = checker.pairs(F.gelu, F.gelu, (X,))
    assert operands_of(checker.run(case)) == ()


@FLOAT4
def test_both_numbers_of_a_pair_are_drawn(tmp_path: Path) -> None:
    def one_off(x: torch.Tensor) -> torch.Tensor:
        data = x.view(torch.uint8).clone()
        data[2, 3] = 0x71  # 0.5 and 6
        return data.view(x.dtype)

    x = torch.full((8, 8), 0x22, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)  # all 1
    dump = read_dump(scaled.write(tmp_path, Product([x], np.zeros(0), "Tensor.clone"), x))
    registry = Registry.default()
    registry.devices["other"] = Emulated
    registry.calls["Tensor.clone"] = one_off
    checked = Checker(RunRequest("other", plotted=True), registry).run(Case(dump, dump.records[0], "forward", None))
    assert checked.verdict.arguments[0].value == "1 .. 1"
    found = the(plots_of(checked, checked.verdict))
    ulps, cells = the(found.ulps), the(found.error_map).cells
    assert sum(ulps.counts) + ulps.small == 128
    assert cells.index(max(cells)) == 2 * 16 + 7
