"""`--probe-device=recorded`: the outputs that a dump stored are judged, and nothing runs."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.acceptance.conftest import forward, tensor, written
from tests.support.dumps import unpack
from tests.support.other_plugins import Ran
from tests.support.running import ran

NEVER = """
def never(*args, **kwargs):
    raise RuntimeError("nothing may run on the device")

def pytest_probe_register(registry):
    for api in ("Functional.linear", "Tensor.mul", "Torch.matmul"):
        registry.calls[api] = never
"""
TENSOR_DUMP = "msprobe-26.2.0/cplx_tensor"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(TENSOR_DUMP, tmp_path_factory.mktemp("recorded")).parent


def judged(folder: Path, *args: str) -> Ran:
    return ran(folder, "--probe-dump=stored", "--probe-device=recorded", "--probe-out=out", *args)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory, unpacked: Path) -> Mapping[str, dict[str, Any]]:
    """What is judged of the dump, where nothing may run on the device."""
    folder = tmp_path_factory.mktemp("healthy")
    (folder / "conftest.py").write_text(NEVER)
    (folder / "stored").symlink_to(unpacked)
    return judged(folder).by_name


def test_stored_outputs_are_judged_without_a_run(healthy: Mapping[str, dict[str, Any]]) -> None:
    kinds = Counter((each["direction"], each["verdict"], each["kind"]) for each in healthy.values())
    assert kinds == {
        ("forward", "pass", ""): 39,
        ("forward", "skip", "ambiguous name"): 1,
        ("backward", "skip", "recorded gradients are not the API's"): 31,
    }
    assert {each["device"] for each in healthy.values()} == {"recorded"}


def test_a_wrong_stored_output_is_found(tmp_path: Path, unpacked: Path, healthy: Mapping[str, dict[str, Any]]) -> None:
    stored = Path(shutil.copytree(unpacked, tmp_path / "stored"))
    data = json.loads((stored / "dump.json").read_text())["data"]
    outputs = {name: entry["output"][0] for name, entry in data.items() if name.endswith(".forward")}
    floats = {
        name: output["data_name"]
        for name, output in outputs.items()
        if output.get("dtype") == "torch.float32" and output["shape"]
    }
    names = [name for name in floats if healthy[name]["verdict"] == "pass"][::4]
    assert len(names) > 3
    for name in names:
        file = stored / "dump_tensor_data" / floats[name]
        values = torch.load(file, weights_only=True)
        values.view(-1)[0] = values.view(-1)[0] * 1.01 + 1e-3
        torch.save(values, file)
    found = judged(tmp_path, "--probe-direction=forward").by_name
    assert sorted(name for name, each in found.items() if each["verdict"] == "error") == sorted(names)


def write(folder: Path, values: torch.Tensor) -> dict[str, Any]:
    """A stored tensor, and its entry."""
    (folder / "dump_tensor_data").mkdir(parents=True, exist_ok=True)
    name = f"{len(list((folder / 'dump_tensor_data').iterdir()))}.pt"
    torch.save(values, folder / "dump_tensor_data" / name)
    return {**tensor(*values.shape, dtype=str(values.dtype).removeprefix("torch.")), "data_name": name}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A run of calls of several kinds: in place, with arguments that they change, under autocast, wrong, and a dump
    of statistics alone."""
    folder = tmp_path_factory.mktemp("kinds")

    def stored(*values: torch.Tensor) -> list[dict[str, Any]]:
        return [write(folder / "stored/tensors", each) for each in values]

    one, generator = {"type": "int", "value": 1}, torch.Generator().manual_seed(0)
    (y,) = stored(torch.tensor([2.0, -1.0, 4.0]))
    changed = stored(*(torch.tensor([first, second, 3.0 + (first == 2)]) for first, second in
                       ((1.0, -2.0), (2.0, -1.0), (1.0, -2.5))))  # fmt: skip
    data = {f"Tensor.add_.{number}.forward": forward(x, one, output=y) for number, x in enumerate(changed)}
    x, mean, var = torch.arange(12.0).view(4, 3), torch.zeros(3), torch.ones(3)
    normed = torch.nn.functional.batch_norm(x, mean.clone(), var.clone(), training=True)
    *rows, y = stored(x, mean, var, normed)
    data["Functional.batch_norm.0.forward"] = forward(*rows, None, None, {"type": "bool", "value": True}, output=y)
    x, weight = torch.randn(8, 16, generator=generator), torch.randn(4, 16, generator=generator)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        linear = torch.nn.functional.linear(x, weight)
    *rows, right, wrong = stored(x, weight, linear, linear * 1.02)
    data |= {f"Functional.linear.{n}.forward": forward(*rows, output=each) for n, each in enumerate((right, wrong))}
    given, gave = stored(torch.ones(3), torch.full((3,), 2.0))
    written(
        folder / "stored/tensors/dump.json", data | {"Torch.exp.0.forward": forward(given, output=gave)}, task="tensor"
    )
    written(folder / "stored/statistics/dump.json")
    return judged(folder, "--probe-save=failing", "-vv")


def test_statistics_alone_are_a_skip(told: Ran) -> None:
    rows = {each["id"]: each for each in told.rows if each["id"].startswith("statistics")}
    assert {each["kind"] for each in rows.values() if each["direction"] == "forward"} == {"no stored tensors"}
    assert "input_args.0: no tensor was stored" in rows["statistics/dump.json::Functional.relu.0.forward"]["reason"]


def of(told: Ran, api: str) -> list[dict[str, Any]]:
    return [row for row in told.rows if row["id"].startswith(f"tensors/dump.json::{api}")]


def test_a_stored_output_of_an_in_place_call_is_judged(told: Ran) -> None:
    right, after, wrong = of(told, "Tensor.add_")
    assert [(each["verdict"], each["kind"]) for each in (right, after, wrong)] == [
        ("pass", ""),
        ("skip", "in-place input stored after the call"),
        ("error", ""),
    ]
    assert "input.0 was stored after the in-place call: its file holds what output.0's holds" in after["reason"]


def test_arguments_that_a_call_changes_beside_are_named(told: Ran) -> None:
    [found] = of(told, "Functional.batch_norm")
    assert found["verdict"] == "pass"
    assert [each["name"] for each in found["outputs"]] == ["output.0"]
    assert found["notes"] == ["not judged, because a dump does not store what the call wrote there: input.1, input.2"]


def test_stored_outputs_under_autocast_are_judged(told: Ran) -> None:
    found = of(told, "Functional.linear")
    assert [each["verdict"] for each in found] == ["pass", "error"]
    assert all("under autocast to bfloat16" in each["notes"] for each in found)


def test_the_printed_command_and_saved_tensors(told: Ran) -> None:
    told.result.stdout.fnmatch_lines(
        [
            "Torch.exp.0.forward in float32 on recorded: error",
            "to reproduce: pytest 'stored/tensors/dump.json::Torch.exp.0.forward' --probe-device=recorded",
        ]
    )
    (file,) = (told.folder / "out/saved").rglob("Torch.exp.0.forward.pt")
    assert torch.load(file, weights_only=True)["actual.output.0"].tolist() == [2.0, 2.0, 2.0]
