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


def change(folder: Path) -> None:
    """Every fourth output is stored with a wrong element."""
    for name in changed_in(folder).values():
        file = folder / "dump_tensor_data" / name
        values = torch.load(file, weights_only=True)
        values.view(-1)[0] = values.view(-1)[0] * 1.01 + 1e-3
        torch.save(values, file)


def changed_in(folder: Path) -> dict[str, str]:
    """Their files, by the entry."""
    data = json.loads((folder / "dump.json").read_text())["data"]
    outputs = {name: entry["output"][0] for name, entry in data.items() if name.endswith(".forward")}
    floats = {
        name: output["data_name"]
        for name, output in outputs.items()
        if output.get("dtype") == "torch.float32" and output["shape"]
    }
    return dict(list(floats.items())[::4])


def write(folder: Path, values: torch.Tensor) -> dict[str, Any]:
    """A stored tensor, and its entry."""
    (folder / "dump_tensor_data").mkdir(parents=True, exist_ok=True)
    name = f"{len(list((folder / 'dump_tensor_data').iterdir()))}.pt"
    torch.save(values, folder / "dump_tensor_data" / name)
    return {**tensor(*values.shape, dtype=str(values.dtype).removeprefix("torch.")), "data_name": name}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A run of calls of several kinds: in place, with arguments that they change, under autocast, wrong; of a dump
    of statistics alone; of a dump of msprobe's, and of one with other tensors. Nothing may run on the device."""
    folder = tmp_path_factory.mktemp("kinds")
    (folder / "conftest.py").write_text(NEVER)
    (folder / "stored").mkdir()
    unpack("msprobe-26.2.0/cplx_tensor", folder).parent.rename(folder / "stored/whole")
    change(Path(shutil.copytree(folder / "stored/whole", folder / "stored/changed")))

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
    args = ("--probe-dump=stored", "--probe-device=recorded", "--probe-out=out", "--probe-save=failing", "-vv")
    return ran(folder, *args)


def under(told: Ran, folder: str) -> Mapping[str, dict[str, Any]]:
    """The results of one of the dumps, by entry."""
    rows = [row for row in told.rows if f"{folder}/" in row["id"]]
    return {row["id"].rpartition("::")[2]: row for row in rows}


def test_stored_outputs_are_judged_without_a_run(told: Ran) -> None:
    found = under(told, "whole")
    kinds = Counter((each["direction"], each["verdict"], each["kind"]) for each in found.values())
    assert kinds == {
        ("forward", "pass", ""): 39,
        ("forward", "skip", "ambiguous name"): 1,
        ("backward", "skip", "recorded gradients are not the API's"): 31,
    }
    assert {each["device"] for each in found.values()} == {"recorded"}


def test_a_wrong_stored_output_is_found(told: Ran) -> None:
    whole, found = under(told, "whole"), under(told, "changed")
    names = {name for name in changed_in(told.folder / "stored/changed") if whole[name]["verdict"] == "pass"}
    assert len(names) > 3
    assert {name for name, each in found.items() if each["verdict"] == "error"} == names


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
