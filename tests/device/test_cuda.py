"""On an NVIDIA GPU: what poisons a process, and a whole dump in three dtypes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pytest_probe.capture.torch.scaled import of_operands
from pytest_probe.check import Case, Checker, RunRequest
from pytest_probe.model.verdict import Verdict
from pytest_probe.records import read_dump
from pytest_probe.registry import Registry
from tests.acceptance.conftest import forward, tensor
from tests.device.conftest import ROOT
from tests.support import scaled
from tests.support.scaled import FORMATS, Product

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


def on_gpu(folder: Path, call: Product, *allowed: str) -> Verdict:
    dump = read_dump(scaled.write(folder, call, torch.from_numpy(call.exact).to(call.dtype)))
    checker = Checker(RunRequest(device="cuda", allow=allowed or ("none",)), Registry.default())
    verdict = checker.run(Case(dump, dump.records[0], "forward", None)).verdict
    print(call.api, folder.name, verdict.verdict, verdict.kind, verdict.reason)
    for output in verdict.outputs:
        print({name: value for name, value in output.metrics.items() if name.startswith(("noise", "mode"))})
    return verdict


# Hopper multiplies by tensor, by row and by blocks of 128; Blackwell by blocks of 16 and 32.
HOPPERS = ("tensor-wise", "row-wise", "1x128", "1x128, 128x128", "128x128, 1x128")
# The last two have few elements, of which the sums must be what tensor cores give to the last place.
SIZES = ((256, 512, 256), (16, 4096, 128), (16, 512, 16), (32, 128, 32))
needs_hopper = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9, reason="for Hopper's recipes"
)


@pytest.mark.skipif(not hasattr(torch, "_scaled_mm_v2"), reason="torch's scaled_mm has no recipes")
@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize("name", FORMATS)
def test_recipes_of_scaled_products_that_the_gpu_has(tmp_path: Path, name: str, shape: tuple[int, int, int]) -> None:
    verdict = on_gpu(tmp_path, scaled.product(name, 0, shape), "short-accumulation")
    lacking = verdict.kind == "unsupported by the device"
    assert verdict.verdict == "pass" or lacking, verdict.reason
    assert not lacking or name not in HOPPERS or torch.cuda.get_device_capability()[0] != 9


@needs_hopper
@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize("name", HOPPERS)
def test_scaled_products_without_recipes(tmp_path: Path, name: str, shape: tuple[int, int, int]) -> None:
    """torch._scaled_mm, which infers them."""
    verdict = on_gpu(tmp_path, scaled.inferred(scaled.product(name, 0, shape)), "short-accumulation")
    assert verdict.verdict == "pass", verdict.reason


@needs_hopper
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("fast", [False, True])
def test_small_products_pass_with_the_mode(tmp_path: Path, fast: bool, dtype: torch.dtype, seed: int) -> None:
    call = scaled.inferred(scaled.product("tensor-wise", seed, (16, 1024, 16), dtype), fast=fast)
    verdict = on_gpu(tmp_path, call, "short-accumulation")
    assert verdict.verdict == "pass", verdict.reason


@needs_hopper
def test_grouped_products_of_the_gpu(tmp_path: Path) -> None:
    for name in ("bfloat16", "row-wise"):
        api, args, _ = scaled.grouped(name, 0)
        call = Product(args, np.zeros((96, 32)), api)
        verdict = on_gpu(tmp_path / name, call, "short-accumulation")
        assert verdict.verdict == "pass" or verdict.kind == "unsupported by the device", verdict.reason


@needs_hopper
@pytest.mark.parametrize("name", ["tensor-wise", "row-wise"])
def test_fast_accumulation_of_the_gpu_is_named(tmp_path: Path, name: str) -> None:
    """Sums of 4,096 products in the tensor cores' own digits: too few for float32, and named where they are few."""
    dtype = torch.float32 if name == "tensor-wise" else torch.bfloat16
    call = scaled.inferred(scaled.product(name, 0, (64, 4096, 128), dtype), fast=True)
    assert on_gpu(tmp_path / "allowed", call, "short-accumulation").verdict == "pass"
    verdict = on_gpu(tmp_path / "not", call)
    if verdict.verdict == "error":
        diagnosis = verdict.outputs[0].diagnosis
        assert diagnosis is not None
        assert "sums of products of about 14 bits" in diagnosis.cause


@needs_hopper
@pytest.mark.parametrize("name", ["1x128", "1x128, 128x128"])
def test_a_wrong_scale_on_the_gpu_is_an_error(tmp_path: Path, name: str) -> None:
    """The device's product with the scale of another block in row 3, of the operands that were recorded."""
    call = scaled.inferred(scaled.product(name, 0))

    def faulty(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, *rest: Any, **how: Any) -> torch.Tensor:
        changed = scale_a.clone(memory_format=torch.preserve_format)
        changed[3, 1] = scale_a[3, 2]
        return torch._scaled_mm(a, b, changed, *rest, **how)

    registry = Registry.default()
    registry.calls[call.api] = faulty
    dump = read_dump(scaled.write(tmp_path, call, torch.from_numpy(call.exact).to(call.dtype)))
    checker = Checker(RunRequest(device="cuda", allow=("short-accumulation",)), registry)
    verdict = checker.run(Case(dump, dump.records[0], "forward", None)).verdict
    assert verdict.verdict == "error"
    diagnosis = verdict.outputs[0].diagnosis
    assert diagnosis is not None
    assert diagnosis.cause == "row 3 used the scale of block 2 for block 1"


@pytest.mark.parametrize("name", [*FORMATS, "groups"])
def test_blocks_are_counted_on_the_gpu_and_nothing_waits(name: str) -> None:
    call = scaled.product(name, 3, (160, 272, 40)) if name in FORMATS else None
    api, args = ("Torch._scaled_mm_v2", call.args) if call is not None else scaled.grouped("mxfp8", 2)[:2]
    there = [_on_cuda(value) for value in args]
    of_operands(api, there, {})  # kernels are loaded at their first call
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = of_operands(api, there, {})
    finally:
        torch.cuda.set_sync_debug_mode("default")
    here = of_operands(api, args, {})
    assert list(found) == list(here) == ["input.0", "input.1"]
    for place, counted in found.items():
        assert counted.count == here[place].count
        assert np.allclose(counted.numbers.tolist(), here[place].numbers.tolist(), rtol=1e-12, atol=0)


def _on_cuda(value: Any) -> Any:
    if isinstance(value, list):
        return [_on_cuda(each) for each in value]
    if not isinstance(value, torch.Tensor):
        return value
    return value.view(torch.uint8).cuda().view(value.dtype) if value.element_size() == 1 else value.cuda()


CALLS = {
    "gelu": torch.nn.functional.gelu,
    "softmax": lambda x: torch.softmax(x, -1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CALLS)
def test_a_reference_on_the_gpu(name: str, dtype: torch.dtype) -> None:
    """The verdicts of one on the CPU, and a fault in one element of four million is found."""
    right, x = CALLS[name], torch.randn(2**13, 2**9, dtype=dtype)

    def wrong(x: torch.Tensor) -> torch.Tensor:
        found = right(x).clone()
        found[5000, 300] += 0.5
        return found

    checker = Checker(RunRequest(device="cuda", reference_device="cuda"), Registry.default())
    healthy = checker.compare(right, right, [x], key="call", backward=True)
    assert [verdict.verdict for verdict in healthy] == ["pass", "pass"]
    (faulty,) = checker.compare(wrong, right, [x], key="call")
    assert faulty.verdict == "error"
    assert faulty.outputs[0].worst[0].index == (5000, 300)
