"""Drawn calls that end their process, or never return: findings, and the search goes on."""

from __future__ import annotations

import json

import pytest

from tests.support.running import rows

# Of some drawn calls alone; both functions are called with the GIL held.
KERNELS = """
import ctypes
import torch

def relu(input, inplace=False):
    if input.ndim == 3:
        ctypes.string_at(0)
    return torch.relu(input)

def tanh(input):
    if 300 <= input.numel() <= 1100:
        ctypes.PyDLL(None).sleep(60)
    return torch.tanh(input)

def always(input):
    ctypes.string_at(0)

def reference_of_abs(input):
    if input.ndim == 4 and not input.is_contiguous():
        ctypes.string_at(0)
    return torch.abs(input)

def pytest_probe_register(registry):
    registry.calls |= {"Functional.relu": relu, "Torch.tanh": tanh, "Torch.exp": always}
    registry.references["Torch.abs"] = reference_of_abs
"""
RUN = (
    "--probe-fuzz=quick",
    "--probe-dtype=float32",
    "--probe-direction=forward",
    "--probe-out=out",
    "-p",
    "no:randomly",
)
CRASH = "the process died by SIGSEGV while the device ran it"
TIMEOUT = "the process was ended by --probe-timeout while the device ran it"


def test_a_crash_of_some_calls_is_a_finding_under_workers(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(KERNELS)
    apis = ("--probe-api=Functional.relu", "--probe-api=Torch.si[n]", "--probe-api=Torch.abs")
    run = pytester.runpytest(*apis, *RUN, "-n", "1", "--probe-fuzz=quick,save=kept")
    run.assert_outcomes(failed=1, passed=2)
    found = {row["api"]: row for row in rows()}
    relu = found["Functional.relu"]
    assert (relu["verdict"], relu["kind"], relu["id"]) == ("error", "crash", "table::Functional.relu.fuzz")
    assert relu["reason"].startswith("relu(float32[")
    assert relu["reason"].endswith(f": {CRASH}")
    calls, *notes = (note for note in relu["notes"] if note.startswith("fuzz: ") and "worst" not in note)
    assert calls == "fuzz: 25 calls, 0 of them rejected by the reference"
    assert all(note.startswith("fuzz: crash: relu(float32[") and CRASH in note for note in notes)
    assert (found["Torch.sin"]["verdict"], found["Torch.abs"]["verdict"]) == ("pass", "pass")
    assert not any("0 of them rejected" in note for note in found["Torch.abs"]["notes"])
    assert not (pytester.path / "out/running").exists()
    saved = json.loads((pytester.path / "kept/dump.json").read_text())["data"]
    assert len(saved["Functional.relu.0.forward"]["input_args"][0]["shape"]) == 3


def test_a_hang_is_a_finding_in_a_process_of_its_own_and_a_search_whose_calls_all_end_it_is_given_up(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(KERNELS)
    apis = ("--probe-api=Torch.tanh", "--probe-api=Torch.exp")
    run = pytester.runpytest(*apis, *RUN, "--probe-isolate", "--probe-timeout=6")
    run.assert_outcomes(failed=2)
    run.stdout.fnmatch_lines(["to reproduce: pytest --probe-api=Torch.exp * --probe-fuzz=quick*"])
    found = {row["api"]: row for row in rows()}
    tanh, exp = found["Torch.tanh"], found["Torch.exp"]
    assert (tanh["verdict"], tanh["kind"]) == ("error", "timeout")
    assert TIMEOUT in tanh["reason"]
    assert exp["kind"] == "crash"
    assert exp["reason"].endswith("; the search was given up after 4 such calls")
    assert len(exp["notes"]) == 4
