"""--probe-standard=self in runs of pytest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.running import refusal
from tests.support.writing import entries, write_dump

CONFTEST = """
from tests.support import devices
from tests.support.self_faults import RACE

def pytest_probe_register(registry):
    registry.devices["other"] = devices.Emulated
    registry.calls["Torch.sum"] = RACE.wrong
"""
VENDOR_OPS = """
import torch

def tanh(x):
    if x.dtype is torch.float64:
        raise RuntimeError("no such kernel")
    return torch.tanh(x)
"""
INI = """
[pytest]
pythonpath = .
probe_namespaces = Vendor=vendor_ops
"""
X = torch.linspace(-2, 2, 64).reshape(8, 8)
CALLS = {
    **entries("Functional.gelu.0", torch.nn.functional.gelu, X, backward=True),
    **entries("Torch.matmul.0", torch.matmul, X.bfloat16(), X.bfloat16()),
    **entries("Torch.add.0", torch.add, torch.arange(4), torch.arange(4)),
}
VENDOR = entries("Vendor.tanh.0", torch.tanh, X.half())
SELF = "--probe-standard=self"


@pytest.fixture
def run(pytester: pytest.Pytester) -> Any:
    pytester.makeconftest(CONFTEST)
    pytester.makeini(INI)
    pytester.makepyfile(vendor_ops=VENDOR_OPS)

    def one(*args: str, calls: Any = CALLS) -> tuple[pytest.RunResult, dict[str, Any]]:
        write_dump(pytester.path, calls)
        result = pytester.runpytest("--probe-dump=dump.json", *args)
        path = Path("out/results.jsonl")
        lines = path.read_text().splitlines() if path.exists() else []
        return result, {found["id"].split("::")[1]: found for found in map(json.loads, lines)}

    return one


def test_each_question_is_an_output(run: Any) -> None:
    result, found = run(SELF, "--probe-device=other", "--probe-out=out", "-n1")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["4 cases, 4 pass (self)", "pass (self): a fault that all dtypes' *"])
    matmul = found["Torch.matmul.0.forward"]
    assert (matmul["verdict"], matmul["standard"]) == ("pass (self)", "self")
    assert {each["name"] for each in matmul["outputs"]} == {
        *("wider-dtype.output.0", "cpu.output.0", "no-jumps", "finite.wider-dtype.output.0", "finite.cpu.output.0")
    }
    assert matmul["outputs"][0]["metrics"]["noise_ratio"] >= 0
    gradient = found["Functional.gelu.0.backward"]
    assert "wider-dtype.grad.input.0" in {each["name"] for each in gradient["outputs"]}
    assert {each["name"] for each in found["Torch.add.0.forward"]["outputs"]} == {"cpu.output.0", "finite.cpu.output.0"}


def test_a_case_without_a_question_is_a_skip(run: Any) -> None:
    result, found = run(SELF, "--probe-device=cpu", "--probe-out=out")
    result.assert_outcomes(passed=3, skipped=1)
    assert found["Torch.add.0.forward"]["kind"] == "no question"


@pytest.mark.parametrize("device", ["cpu", "other"])
def test_a_call_that_the_device_refuses_is_unsupported(run: Any, device: str) -> None:
    calls = entries("Torch.fft.rfft.0", torch.fft.rfft, X)
    # As another device recorded it.
    calls["Torch.fft.rfft.0.forward"]["input_args"][0]["dtype"] = "torch.bfloat16"
    result, found = run(SELF, f"--probe-device={device}", "--probe-out=out", calls=calls)
    result.assert_outcomes(skipped=1)
    skip = found["Torch.fft.rfft.0.forward"]
    assert (skip["kind"], skip["reason"]) == ("unsupported by the device", f"{device}: Unsupported dtype BFloat16")


def test_strict_counts_no_such_pass(run: Any) -> None:
    result, found = run(SELF, "--probe-device=other", "--probe-strict", "--probe-out=out", "-rs")
    result.assert_outcomes(skipped=4)
    result.stdout.fnmatch_lines(["*--probe-strict counts no pass (self); asked: *"])
    assert {each["verdict"] for each in found.values()} == {"pass (self)"}


def test_auto_says_what_can_be_asked(run: Any) -> None:
    result, _ = run("--probe-device=other", "-rs", "-vv", calls=VENDOR)
    result.assert_outcomes(skipped=1)
    assert "--probe-standard=self can ask: wider-dtype, cpu, no-jumps, finite" in "".join(
        line.strip() + " " for line in result.outlines
    ).replace("  ", " ")
    result, found = run(SELF, "--probe-device=other", "--probe-out=out", calls=VENDOR)
    result.assert_outcomes(passed=1)
    reasons = {each["name"]: each["reason"] for each in found["Vendor.tanh.0.forward"]["outputs"]}
    assert set(reasons) >= {"wider-dtype.output.0", "cpu.output.0", "no-jumps"}


def test_only_what_is_named_is_asked(run: Any) -> None:
    _, found = run(SELF, "--probe-self=wider-dtype", "--probe-device=other", "--probe-out=out", "--probe-api=*matmul")
    assert [each["name"] for each in found["Torch.matmul.0.forward"]["outputs"]] == ["wider-dtype.output.0"]


def test_a_race_breaks_a_relation(run: Any) -> None:
    calls = entries("Torch.sum.0", torch.sum, torch.randn(4, 4096, generator=torch.Generator().manual_seed(0)), 1)
    _, found = run(SELF, "--probe-device=other", "--probe-relations=again", "--probe-out=out", calls=calls)
    outputs = {each["name"]: each["verdict"] for each in found["Torch.sum.0.forward"]["outputs"]}
    assert outputs["relation.again"] == "warning"
    assert "error" not in outputs.values()


def test_a_baseline_with_a_reference_takes_no_such_pass(run: Any, pytester: pytest.Pytester) -> None:
    run("--probe-device=other", "--probe-baseline=base.json", "--probe-baseline-update")
    said = refusal(pytester, "--probe-dump=dump.json", SELF, "--probe-device=other", "--probe-baseline=base.json")
    said.fnmatch_lines(["*standard*"])
