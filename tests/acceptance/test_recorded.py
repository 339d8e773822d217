"""`--probe-device=recorded`: the outputs that a dump stored are judged, and nothing runs."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.acceptance.conftest import DumpMaker, forward, tensor
from tests.support.dumps import unpack
from tests.support.running import ran

NEVER = """
def never(*args, **kwargs):
    raise RuntimeError("nothing may run on the device")

def pytest_probe_register(registry):
    for api in ("Functional.linear", "Tensor.mul", "Torch.matmul"):
        registry.calls[api] = never
"""
TENSOR_DUMP = "msprobe-26.2.0/cplx_tensor"


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(TENSOR_DUMP, tmp_path_factory.mktemp("recorded")).parent


@pytest.fixture
def stored(pytester: pytest.Pytester, unpacked: Path) -> Path:
    """A copy of the dump with tensors."""
    shutil.copytree(unpacked, pytester.path / "stored")
    return pytester.path / "stored/dump.json"


def results(folder: Path) -> dict[str, dict[str, Any]]:
    lines = (folder / "out/results.jsonl").read_text().splitlines()
    return {found["id"].partition("::")[2]: found for found in map(json.loads, lines)}


def run(pytester: pytest.Pytester, *args: str) -> dict[str, dict[str, Any]]:
    pytester.runpytest("--probe-dump=stored", "--probe-device=recorded", "--probe-out=out", *args)
    return results(pytester.path)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory, unpacked: Path) -> dict[str, dict[str, Any]]:
    """What is judged of the dump, where nothing may run on the device."""
    folder = tmp_path_factory.mktemp("healthy")
    (folder / "conftest.py").write_text(NEVER)
    ran(folder, f"--probe-dump={unpacked}", "--probe-device=recorded", "--probe-out=out")
    return results(folder)


def test_stored_outputs_are_judged_without_a_run(healthy: dict[str, dict[str, Any]]) -> None:
    kinds = Counter((each["direction"], each["verdict"], each["kind"]) for each in healthy.values())
    assert kinds == {
        ("forward", "pass", ""): 39,
        ("forward", "skip", "ambiguous name"): 1,
        ("backward", "skip", "recorded gradients are not the API's"): 31,
    }
    assert {each["device"] for each in healthy.values()} == {"recorded"}


def test_a_wrong_stored_output_is_found(
    pytester: pytest.Pytester, stored: Path, healthy: dict[str, dict[str, Any]]
) -> None:
    data = json.loads(stored.read_text())["data"]
    floats = {
        name: entry["output"][0]["data_name"]
        for name, entry in data.items()
        if name.endswith(".forward")
        and entry["output"][0].get("dtype") == "torch.float32"
        and entry["output"][0]["shape"]
    }
    names = [name for name in floats if healthy[name]["verdict"] == "pass"][::4]
    assert len(names) > 3
    for name in names:
        file = stored.parent / "dump_tensor_data" / floats[name]
        values = torch.load(file, weights_only=True)
        values.view(-1)[0] = values.view(-1)[0] * 1.01 + 1e-3
        torch.save(values, file)
    found = run(pytester, "--probe-direction=forward")
    assert sorted(name for name, each in found.items() if each["verdict"] == "error") == sorted(names)


def test_statistics_alone_are_a_skip(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump("stored/dump.json")
    found = run(pytester)
    assert {each["kind"] for each in found.values() if each["direction"] == "forward"} == {
        "no stored tensors",
    }
    assert "input_args.0: no tensor was stored" in found["Functional.relu.0.forward"]["reason"]


def write(folder: Path, name: str, values: torch.Tensor) -> dict[str, Any]:
    """A stored tensor, and its entry."""
    (folder / "dump_tensor_data").mkdir(parents=True, exist_ok=True)
    torch.save(values, folder / "dump_tensor_data" / name)
    return {**tensor(*values.shape, dtype=str(values.dtype).removeprefix("torch.")), "data_name": name}


def test_a_stored_output_of_an_in_place_call_is_judged(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    folder, one = pytester.path / "stored", {"type": "int", "value": 1}
    y = write(folder, "y.pt", torch.tensor([2.0, -1.0, 4.0]))
    stored = [
        write(folder, f"x{number}.pt", torch.tensor(values))
        for number, values in enumerate(([1.0, -2.0, 3.0], [2.0, -1.0, 4.0], [1.0, -2.5, 3.0]))
    ]
    data = {f"Tensor.add_.{number}.forward": forward(x, one, output=y) for number, x in enumerate(stored)}
    make_dump("stored/dump.json", data, task="tensor")
    right, after, wrong = run(pytester).values()
    assert [(each["verdict"], each["kind"]) for each in (right, after, wrong)] == [
        ("pass", ""),
        ("skip", "in-place input stored after the call"),
        ("error", ""),
    ]
    assert "input.0 was stored after the in-place call: its file holds what output.0's holds" in after["reason"]


def test_arguments_that_a_call_changes_beside_are_named(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    folder = pytester.path / "stored"
    x, mean, var = torch.arange(12.0).view(4, 3), torch.zeros(3), torch.ones(3)
    y = torch.nn.functional.batch_norm(x, mean.clone(), var.clone(), training=True)
    rows = [write(folder, f"{name}.pt", values) for name, values in (("x", x), ("mean", mean), ("var", var))]
    data = forward(*rows, None, None, {"type": "bool", "value": True}, output=write(folder, "y.pt", y))
    make_dump("stored/dump.json", {"Functional.batch_norm.0.forward": data}, task="tensor")
    [found] = run(pytester).values()
    assert found["verdict"] == "pass"
    assert [each["name"] for each in found["outputs"]] == ["output.0"]
    assert found["notes"] == ["not judged, because a dump does not store what the call wrote there: input.1, input.2"]


def test_stored_outputs_under_autocast_are_judged(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    folder = pytester.path / "stored"
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(8, 16, generator=generator), torch.randn(4, 16, generator=generator)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = torch.nn.functional.linear(x, weight)
    rows = [write(folder, "x.pt", x), write(folder, "w.pt", weight)]
    given = [write(folder, f"{name}.pt", output) for name, output in (("healthy", y), ("wrong", y * 1.02))]
    data = {f"Functional.linear.{place}.forward": forward(*rows, output=each) for place, each in enumerate(given)}
    make_dump("stored/dump.json", data, task="tensor")
    found = [*run(pytester).values()]
    assert [each["verdict"] for each in found] == ["pass", "error"]
    assert all("under autocast to bfloat16" in each["notes"] for each in found)


def test_the_printed_command_and_saved_tensors(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    folder = pytester.path / "stored"
    data = forward(write(folder, "x.pt", torch.ones(3)), output=write(folder, "y.pt", torch.full((3,), 2.0)))
    make_dump("stored/dump.json", {"Torch.exp.0.forward": data}, task="tensor")
    result = pytester.runpytest(
        "--probe-dump=stored", "--probe-device=recorded", "--probe-out=out", "--probe-save=failing"
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "Torch.exp.0.forward in float32 on recorded: error",
            "to reproduce: pytest 'stored/dump.json::Torch.exp.0.forward' --probe-device=recorded",
        ]
    )
    saved = torch.load(pytester.path / "out/saved/dump.json/Torch.exp.0.forward.pt", weights_only=True)
    assert saved["actual.output.0"].tolist() == [2.0, 2.0, 2.0]
