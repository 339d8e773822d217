"""--probe-standard=self in runs of pytest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_probe.features.gate.baseline import write
from tests.features.gate.test_baseline import HEADER, cases
from tests.support.running import by_case, ran, refusal
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


RFFT = entries("Torch.fft.rfft.0", torch.fft.rfft, X)
# As another device recorded it.
RFFT["Torch.fft.rfft.0.forward"]["input_args"][0]["dtype"] = "torch.bfloat16"
RACES = entries("Torch.sum.0", torch.sum, torch.randn(4, 4096, generator=torch.Generator().manual_seed(0)), 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("self")
    for name, text in {"conftest.py": CONFTEST, "pytest.ini": INI, "vendor_ops.py": VENDOR_OPS}.items():
        (folder / name).write_text(text)
    write_dump(folder, {**CALLS, **VENDOR, **RFFT, **RACES})
    return folder


def run(folder: Path, out: str, *args: str) -> tuple[pytest.RunResult, dict[str, Any]]:
    result = ran(folder, "--probe-dump=dump.json", f"--probe-out={out}", *args).result
    return result, by_case(folder / out)


@pytest.fixture(scope="module")
def other(folder: Path) -> tuple[pytest.RunResult, dict[str, Any]]:
    return run(folder, "other", SELF, "--probe-device=other", "-n1")


@pytest.fixture(scope="module")
def cpu(folder: Path) -> tuple[pytest.RunResult, dict[str, Any]]:
    return run(folder, "cpu", SELF, "--probe-device=cpu")


Told = tuple[pytest.RunResult, dict[str, Any]]


def test_each_question_is_an_output(other: Told) -> None:
    result, found = other
    result.assert_outcomes(passed=6, skipped=1)
    result.stdout.fnmatch_lines(["7 cases, 6 pass (self), 1 skip", "pass (self): a fault that all dtypes' *"])
    matmul = found["Torch.matmul.0.forward"]
    assert (matmul["verdict"], matmul["standard"]) == ("pass (self)", "self")
    assert {each["name"] for each in matmul["outputs"]} == {
        *("wider-dtype.output.0", "cpu.output.0", "no-jumps", "finite.wider-dtype.output.0", "finite.cpu.output.0")
    }
    assert matmul["outputs"][0]["metrics"]["noise_ratio"] >= 0
    gradient = found["Functional.gelu.0.backward"]
    assert "wider-dtype.grad.input.0" in {each["name"] for each in gradient["outputs"]}
    assert {each["name"] for each in found["Torch.add.0.forward"]["outputs"]} == {"cpu.output.0", "finite.cpu.output.0"}


def test_a_case_without_a_question_is_a_skip(cpu: Told) -> None:
    assert cpu[1]["Torch.add.0.forward"]["kind"] == "no question"


@pytest.mark.parametrize("device", ["cpu", "other"])
def test_a_call_that_the_device_refuses_is_unsupported(request: pytest.FixtureRequest, device: str) -> None:
    skip = request.getfixturevalue(device)[1]["Torch.fft.rfft.0.forward"]
    assert (skip["verdict"], skip["kind"]) == ("skip", "unsupported by the device")
    assert skip["reason"] == f"{device}: Unsupported dtype BFloat16"


def test_strict_counts_no_such_pass(folder: Path) -> None:
    result, found = run(folder, "strict", SELF, "--probe-device=other", "--probe-strict", "-rs", "--probe-api=*matmul")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*--probe-strict counts no pass (self); asked: *"])
    assert {each["verdict"] for each in found.values()} == {"pass (self)"}


def test_auto_says_what_can_be_asked(folder: Path, other: Told) -> None:
    result, _ = run(folder, "auto", "--probe-device=other", "-rs", "-vv", "--probe-api=*tanh")
    result.assert_outcomes(skipped=1)
    text = " ".join(" ".join(result.outlines).split())
    assert "--probe-standard=self can ask: wider-dtype, cpu, no-jumps, finite" in text
    row = other[1]["Vendor.tanh.0.forward"]
    assert row["verdict"] == "pass (self)"
    assert {each["name"] for each in row["outputs"]} >= {"wider-dtype.output.0", "cpu.output.0", "no-jumps"}


def test_a_race_breaks_a_relation_and_only_what_is_named_is_asked(folder: Path) -> None:
    asked = ("--probe-self=wider-dtype", "--probe-device=other", "--probe-relations=again", "--probe-api=*sum")
    _, found = run(folder, "race", SELF, *asked)
    outputs = {each["name"]: each["verdict"] for each in found["Torch.sum.0.forward"]["outputs"]}
    assert outputs == {"wider-dtype.output.0": "pass", "relation.again": "warning"}


def test_a_baseline_with_a_reference_takes_no_such_pass(
    pytester: pytest.Pytester, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder / "kept.json", HEADER, cases("exp"), whole=True)
    monkeypatch.chdir(folder)
    asked = (SELF, "--probe-device=other", "--probe-baseline=kept.json")
    said = refusal(pytester, "--probe-dump=dump.json", *asked)
    said.fnmatch_lines(["*it has standard auto, this run has standard self*"])
