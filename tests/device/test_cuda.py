"""On an NVIDIA GPU: what poisons a process, and a whole dump in three dtypes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from pytest_probe.check import Case, Checker, Conditions
from pytest_probe.records import read_dump
from pytest_probe.registry import Registry
from tests.acceptance.conftest import forward, tensor
from tests.device.conftest import ROOT
from tests.support import scaled
from tests.support.scaled import FORMATS

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no NVIDIA GPU on this machine"),
]
# An index far out of range: the kernel's assertion fails, and with it every later call of the process.
POISON = """
import torch

def poison(x):
    return x.flatten()[torch.full((4,), 10**9, device=x.device)]

def pytest_probe_register(registry):
    registry.calls["Functional.relu"] = poison
"""
TF32 = """
import torch

torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = {allowed}
"""


@pytest.mark.parametrize("how", [["--probe-isolate"], ["-n", "2"]], ids=["isolated", "workers"])
def test_a_poisoned_process_is_replaced(pytester: pytest.Pytester, how: list[str]) -> None:
    x = tensor(2, 3)
    names = [f"Functional.{api}.{number}.forward" for number in range(4) for api in ("relu", "gelu")]
    header = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    content = {**header, "data": {name: forward(x, output=x) for name in names}}
    (pytester.path / "dump.json").write_text(json.dumps(content))
    pytester.makeconftest(POISON)
    pytester.runpytest_subprocess("--probe-dump=dump.json", "--probe-device=cuda", "--probe-out=out", *how)
    lines = [json.loads(line) for line in (pytester.path / "out/results.jsonl").read_text().splitlines()]
    found = {line["id"].rpartition("::")[2]: line["verdict"] for line in lines}
    assert found == {name: "error" if "relu" in name else "pass" for name in names}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("allowed", [False, True], ids=["exact", "tf32"])
def test_a_healthy_gpu_passes(pytester: pytest.Pytester, dtype: str, allowed: bool) -> None:
    pytester.makeconftest(TF32.format(allowed=allowed))
    options = [f"--probe-dump={ROOT / 'cases' / 'gpt'}", "--probe-device=cuda", f"--probe-dtype={dtype}"]
    result = pytester.runpytest_subprocess(*options)
    assert result.ret == 0
    assert result.parseoutcomes()["passed"] > 300


def measured(pytester: pytest.Pytester, data: Mapping[str, object], *args: str) -> dict[str, dict[str, object]]:
    """The results of a run on the GPU that measures, by name."""
    header = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    (pytester.path / "dump.json").write_text(json.dumps({**header, "data": data}))
    pytester.runpytest_subprocess("--probe-dump=dump.json", "--probe-device=cuda", "--probe-out=out", *args)
    lines = [json.loads(line) for line in (pytester.path / "out/results.jsonl").read_text().splitlines()]
    return {line["id"].rpartition("::")[2]: line for line in lines}


@pytest.mark.parametrize("rows", [2048, 4096])
def test_event_times_are_those_of_the_kernels(pytester: pytest.Pytester, rows: int) -> None:
    x = tensor(rows, rows)
    found = measured(pytester, {"Torch.matmul.0.forward": forward(x, x, output=x)}, "--probe-mode=time")
    time = found["Torch.matmul.0.forward"]["time"]
    assert isinstance(time, dict)
    assert time["clock"] == "events"
    a = torch.randn(rows, rows, device="cuda")
    for _ in range(20):
        a @ a
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(50):
            a @ a
        torch.cuda.synchronize()
    kernels = sum(event.self_device_time_total for event in profile.key_averages()) / 50
    assert kernels > 50
    assert time["median_us"] == pytest.approx(kernels, rel=0.05)


def test_an_extra_buffer_shows_in_memory(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import torch

        def exp(x):
            buffer = torch.empty(1 << 20, device=x.device)
            result = torch.exp(x)
            del buffer
            return result

        def pytest_probe_register(registry):
            registry.calls["Torch.exp"] = exp
        """
    )
    x = tensor(1024)
    data = {f"Torch.{name}.0.forward": forward(x, output=x) for name in ("exp", "sin")}
    found = measured(pytester, data, "--probe-mode=mem")
    greedy, plain = (found[f"Torch.{name}.0.forward"]["memory"] for name in ("exp", "sin"))
    assert isinstance(greedy, dict)
    assert isinstance(plain, dict)
    assert plain["source"] == "allocator"
    assert abs(greedy["peak_bytes"] - plain["peak_bytes"] - (1 << 22)) <= 4096


# Kernels on the default stream, whichever is the current one, without an event.
ELSEWHERE = """
import torch

def relu(x, inplace=False):
    out = torch.empty_like(x)
    with torch.cuda.stream(torch.cuda.default_stream()):
        out.copy_(torch.relu(x))
    return out

def pytest_probe_register(registry):
    registry.calls["Functional.relu"] = relu
"""


@pytest.mark.parametrize(("conftest", "broken"), [("", []), (ELSEWHERE, ["relation.stream"])], ids=["healthy", "wrong"])
def test_a_kernel_on_another_stream(pytester: pytest.Pytester, conftest: str, broken: list[str]) -> None:
    x = tensor(512, 512)
    header = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    content = {**header, "data": {"Functional.relu.0.forward": forward(x, output=x)}}
    (pytester.path / "dump.json").write_text(json.dumps(content))
    pytester.makeconftest(conftest)
    options = ["--probe-device=cuda", "--probe-relations=all", "--probe-out=out"]
    pytester.runpytest_subprocess("--probe-dump=dump.json", *options)
    (line,) = (pytester.path / "out/results.jsonl").read_text().splitlines()
    outputs = [each for each in json.loads(line)["outputs"] if each["name"].startswith("relation.")]
    assert "relation.stream" in {each["name"] for each in outputs}
    assert [each["name"] for each in outputs if each["verdict"] in ("warning", "error")] == broken


@pytest.mark.parametrize("name", FORMATS)
def test_recipes_of_scaled_products_that_the_gpu_has(tmp_path: Path, name: str) -> None:
    call = scaled.product(name, 0, (256, 512, 256))
    dump = read_dump(scaled.write(tmp_path, call, scaled.kernel()(*call.args)))
    checker = Checker(Conditions(device="cuda", allow=("short-accumulation",)), Registry.default())
    verdict = checker.run(Case(dump, dump.records[0], "forward", None)).verdict
    assert verdict.verdict == "pass" or verdict.kind == "unsupported by the device", verdict.reason
