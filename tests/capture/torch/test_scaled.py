"""Statistics of blocks, which a capture counts with torch's functions where the tensors are: those that NumPy gives of
the same operands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pytest_probe
from pytest_probe.capture.snapshot import Tree
from pytest_probe.capture.torch.scaled import Blocks, of_operands, of_results
from pytest_probe.cli import main
from pytest_probe.cli.record import block_line
from pytest_probe.frameworks.torch.arrays import to_array
from pytest_probe.frameworks.torch.signatures import bind
from pytest_probe.model.dump import Dump, TensorSpec
from pytest_probe.model.scaled_product import Operand, Scaling, operands
from pytest_probe.numerics.scaled import RECIPES, BlockStatistics, Order, block_statistics
from pytest_probe.records import read_dump
from tests.support import scaled
from tests.support.scaled import FORMATS, Product

pytestmark = pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="torch has no float4 before 2.8")


def statistics(found: Blocks) -> BlockStatistics:
    assert found.numbers.shape == (7,)
    return block_statistics(found.numbers.tolist(), found.count)


def by_numpy(call: Product) -> list[BlockStatistics]:
    def array(value: Any) -> Any:
        return to_array(value) if isinstance(value, torch.Tensor) else value

    return [each.blocks() for each in operands(bind(call.api, tuple(call.args), {}).mapped(array))]


@pytest.mark.parametrize("shape", [(160, 512, 96), (1, 544, 33)], ids=str)
@pytest.mark.parametrize("name", FORMATS)
def test_operands_of_every_recipe(name: str, shape: tuple[int, int, int]) -> None:
    call = scaled.product(name, 3, shape, extremes=name == "mxfp8" and shape[0] > 8)
    found = of_operands(call.api, call.args, {})
    assert list(found) == ["input.0", "input.1"]
    assert [statistics(each) for each in found.values()] == by_numpy(call)
    if len(FORMATS[name].a) == 1:  # a second level has no place in that call
        inferred = scaled.inferred(call)
        assert [statistics(each) for each in of_operands(inferred.api, inferred.args, {}).values()] == by_numpy(call)


@pytest.mark.parametrize(
    ("name", "recipe", "order", "stored"),
    [("row-wise", "RowWise", "grid", 40), ("mxfp8", "BlockWise1x32", "swizzled", 512)],
)
def test_groups_of_rows_each_with_scales_of_its_own(name: str, recipe: str, order: Order, stored: int) -> None:
    """Of which the tiles of each are padded: with bytes of 0, which are no scales."""
    api, args, _ = scaled.grouped(name, 2)

    def alone(matrix: np.ndarray, scales: np.ndarray) -> BlockStatistics:
        return Operand(matrix, 1, (scales,), Scaling((RECIPES[recipe],), order)).blocks()

    (a, b, scale_a, scale_b), sizes = map(to_array, args[:4]), (40, 56)
    rows = [*map(alone, np.split(a, [40]), np.split(scale_a, [stored]))]
    matrices = [*map(alone, b.swapaxes(1, 2), scale_b)]
    if order == "swizzled":  # as many tiles as groups may take
        args[2] = torch.cat([args[2].view(torch.uint8), torch.full((512,), 255, dtype=torch.uint8)]).view(args[2].dtype)
    both = of_operands(api, args, {}).values()
    for found, parts, counts in zip(both, (rows, matrices), (sizes, (32,) * 3), strict=True):
        whole = statistics(found)
        assert whole.blocks == sum(part.blocks for part in parts)
        assert whole.clipped * sum(counts) == pytest.approx(np.dot([part.clipped for part in parts], counts), rel=1e-12)
        assert whole.clipped_in_a_block == max(part.clipped_in_a_block for part in parts)
        assert whole.flushed_in_a_block == max(part.flushed_in_a_block for part in parts)
        assert max(part.binades for part in parts) <= whole.binades < 20


def test_groups_of_numbers_that_are_added_up_have_none() -> None:
    api, args, _ = scaled.grouped("row-wise", 2)
    a = args[0].t().contiguous().t()
    scales = torch.ones(3 * 96)
    assert of_operands(api, [a, args[0].t(), scales, scales, torch.tensor([32, 32, 128], dtype=torch.int32)], {}) == {}


@pytest.mark.parametrize(
    "change", [(2, torch.ones(3, 3)), (0, torch.zeros(4, 4)), (2, None)], ids=["scales", "dtype", "none"]
)
def test_what_is_no_recipes_is_left_to_the_call(change: tuple[int, Any]) -> None:
    call = scaled.inferred(scaled.product("row-wise", 0, (16, 32, 16)))
    args = list(call.args)
    args[change[0]] = change[1]
    assert of_operands(call.api, args, {}) == {}


def results(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    call = scaled.product(name, 5, (160, 512, 96))
    return call.args[0], call.args[2][0]


@pytest.mark.parametrize("name", ["tensor-wise", "row-wise", "1x128", "mxfp8", "mxfp4", "nvfp4"])
def test_values_beside_their_scales(name: str) -> None:
    values, scales = results(name)
    (own, _) = by_numpy(scaled.product(name, 5, (160, 512, 96)))
    assert {place: statistics(each) for place, each in of_results((values, scales)).items()} == {"output.0": own}
    assert {place: statistics(each) for place, each in of_results((scales, values)).items()} == {"output.1": own}


def test_other_results_have_no_blocks() -> None:
    values, scales = results("mxfp8")
    for others in (
        (values,),
        (values, scales[:-512]),
        (values, values),
        (scales, scales),
        (values.float(), scales),
        ("x", 1),
    ):
        assert of_results(others) == {}


def quantised(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = x.abs().amax(1, keepdim=True) / 448
    return (x / scale).to(torch.float8_e4m3fn), scale


def recorded(tmp_path: Path, task: str) -> Dump:
    a = torch.randn(32, 64, generator=torch.Generator().manual_seed(0))
    with pytest_probe.capture(tmp_path, task=task, overwrite=True, namespaces={"Mine": __name__}):
        values, scales = quantised(a)
        for again in (values, values.clone()):
            torch._scaled_mm(again, values.t(), scale_a=scales, scale_b=scales.t().contiguous())
    (path,) = tmp_path.glob("step0/*/dump.json")
    return read_dump(path)


def blocks(tree: Tree) -> list[BlockStatistics | None]:
    return [each.blocks for each in tree if isinstance(each, TensorSpec)]


@pytest.mark.usefixtures("counting")
@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_they_are_in_the_dump_of_that_call_alone(tmp_path: Path, task: str) -> None:
    """Though the statistics of a tensor that nothing was written to are computed once, for all calls that see it."""
    dump = recorded(tmp_path, task)
    calls = {record.name: dump.decode(record) for record in dump.records}
    first, second = calls["Torch._scaled_mm.0"], calls["Torch._scaled_mm.1"]
    own = blocks(first.args)
    assert own == blocks(second.args)
    assert own[0] == own[1]
    assert own[0] is not None
    assert (own[0].blocks, own[0].not_finite, own[0].flushed) == (32, 0, 0)
    assert own[0].clipped_in_a_block >= 1 / 64  # each row has its largest number
    assert blocks(calls["Mine.quantised.0"].outputs or ()) == [own[0], None]
    others = [call for name, call in calls.items() if not name.startswith(("Torch._scaled_mm", "Mine"))]
    assert len(others) >= 3
    assert not any(filter(None, (each for call in others for each in blocks((*call.args, *(call.outputs or ()))))))
    plain, counted = calls["Tensor.clone.0"].args[0], first.args[0]
    assert (plain.max, plain.mean, plain.norm) == (counted.max, counted.mean, counted.norm)
    assert plain.blocks is None


@pytest.mark.usefixtures("counting")
@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_a_transposed_operand_of_float4_is_recorded(tmp_path: Path, task: str) -> None:
    """Though torch copies tensors of float4 in the order of their memory alone."""
    (_, values, *_) = scaled.product("nvfp4", 3, (160, 512, 96)).args
    with pytest_probe.capture(tmp_path, task=task, overwrite=True):
        torch.transpose(values, 0, 1)
    (path,) = tmp_path.glob("step0/*/dump.json")
    (record,) = (dump := read_dump(path)).records
    (stored, *_) = dump.decode(record).args
    assert isinstance(stored, TensorSpec)
    assert (stored.shape, stored.stride, stored.max) == ((256, 96), (1, 256), 6.0)


def test_a_device_that_cannot_count_leaves_the_record_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: Any) -> Any:
        raise NotImplementedError("no kernel\nand more")

    monkeypatch.setattr("pytest_probe.capture.torch.hooks.of_operands", fail)
    dump = recorded(tmp_path, "statistics")
    (first, second) = (dump.decode(record) for record in dump.records if record.api == "_scaled_mm")
    assert blocks((*first.args, *second.args)) == [None] * 4
    assert first.args[0].max == 448
    told = [record.getMessage() for record in caplog.records if "blocks" in record.getMessage()]
    assert told == ["pytest-probe: what blocks hold is not recorded (NotImplementedError: no kernel)"]


@pytest.mark.parametrize("spare", [1, 512 * 3 + 4])
def test_scales_that_groups_cannot_have_are_left_to_the_call(spare: int) -> None:
    api, args, _ = scaled.grouped("mxfp8", 2)
    args[2] = torch.cat([args[2].view(torch.uint8), torch.zeros(spare, dtype=torch.uint8)]).view(args[2].dtype)
    assert of_operands(api, args, {}) == {}


def test_what_the_dump_has_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = recorded(tmp_path, "statistics")
    assert main(["show", str(dump.path), "--json"]) == 0
    found = {each["record"]: each["blocks"] for each in json.loads(capsys.readouterr().out)}
    assert [each["name"] for each in found["Torch._scaled_mm.0"]] == ["input", "mat2"]
    (of_values,) = found["Mine.quantised.0"]
    assert of_values == {**found["Torch._scaled_mm.0"][0], "name": "output.0"}
    assert found["Tensor.clone.0"] == []
    assert block_line(of_values).startswith("    output.0  32 scales over ")
