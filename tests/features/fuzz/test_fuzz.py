"""--probe-fuzz as users type it."""

from __future__ import annotations

import importlib.util
import shutil
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings

from pytest_probe.strategies import DrawnArguments, calls, tensors
from tests.support.installed import needs_paddle
from tests.support.paddle_dumps import unpack
from tests.support.running import refusal

ROOT = Path(__file__).parents[3]
PATCHED = """
import torch

def softmax(input, dim=None, _stacklevel=3, dtype=None):
    powers = input.exp()
    return powers / powers.sum(dim, keepdim=True)

def pytest_probe_register(registry):
    registry.calls["Functional.softmax"] = softmax
"""
SOFTMAX = ("--probe-api=torch.nn.functional.softmax", "--probe-dtype=float32", "--probe-direction=forward")


def test_a_dump_has_an_item_an_api(pytester: pytest.Pytester) -> None:
    """Also where examples cannot be kept, because the cache is a file. Records that are all broken are a skip."""
    shutil.copytree(ROOT / "cases" / "gpt", pytester.path / "gpt")
    (pytester.path / ".pytest_cache").touch()
    broken = '{"task": "statistics", "level": "L1", "framework": "pytorch", "data": {"Functional.relu.0.forward": '
    (pytester.path / "broken.json").write_text(broken + '{"input_args": 5, "input_kwargs": {}}}}')
    args = ("--probe-dump=gpt", "--probe-dump=broken.json", "--probe-fuzz=quick", "--probe-api=Functional.*")
    result = pytester.runpytest(*args, "-v", "-rs", "-Wignore")
    outcomes = result.parseoutcomes()
    # Whether gelu of an infinity is NaN, which warns, depends on the processor's kernel.
    assert outcomes.get("passed", 0) + outcomes.get("warned", 0) == 7
    assert outcomes.keys() <= {"passed", "warned", "skipped"}
    assert outcomes["skipped"] == 1
    result.stdout.fnmatch_lines(["*input_args*found*expected*"])
    result.stdout.fnmatch_lines(["*dump.json::Functional.layer_norm.fuzz PASSED*"])
    result.stdout.fnmatch_lines(["8 cases, [67] pass*"])
    result.stdout.fnmatch_lines(
        ["probe: a drawn call that ends the process, or hangs, ends this run; with -n or --probe-isolate *"]
    )
    result.stdout.fnmatch_lines(["* calls drawn, *% of them rejected by the reference"])


def test_without_a_dump_a_fault_is_found_shrunk_and_kept_as_a_case(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(PATCHED)
    result = pytester.runpytest(*SOFTMAX, "--probe-fuzz=100,save=kept", "--hypothesis-seed=1")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*NaN where numbers are expected*",
            "note: saved as Functional.softmax.0 in*",
            "to reproduce: pytest --probe-api=Functional.softmax --probe-direction=forward --probe-dtype=float32*",
            "    return torch.nn.functional.softmax(x0, *",
            "found = [[]torch.tensor([[]float('nan')*",
        ]
    )
    again = pytester.runpytest("--probe-dump=kept")
    again.assert_outcomes(failed=1)


@needs_paddle
def test_a_finding_in_paddle_is_a_script_of_paddles(pytester: pytest.Pytester) -> None:
    unpack("cnn_random", pytester.path)
    pytester.makeconftest("""
        import paddle

        def relu(x, name=None):
            return paddle.where(x > 0.5, x, paddle.zeros_like(x))

        def pytest_probe_register(registry):
            registry.calls["paddle.nn.functional.relu"] = relu
    """)
    dump = ("--probe-dump=forward_rank0_all.json", "--probe-api=paddle.nn.functional.relu")
    result = pytester.runpytest(*dump, "--probe-fuzz=60,save=kept", "--probe-direction=forward")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "note: saved as paddle.nn.functional.relu.0 in*",
            "x0 = paddle.*",
            "    return paddle.nn.functional.relu(x0)",
            "found = [[]paddle.*",
        ]
    )
    again = pytester.runpytest("--probe-dump=kept")
    again.assert_outcomes(failed=1)
    again.stdout.fnmatch_lines(["*kept/dump.json::paddle.nn.functional.relu.0.forward*"])


def test_what_failed_is_tried_first_the_next_time(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    # --hypothesis-seed of another test, in this process, turns the database off.
    monkeypatch.setattr("hypothesis.core.global_force_seed", None)
    pytester.makeconftest(PATCHED)
    for _ in range(2):
        result = pytester.runpytest(*SOFTMAX, "--probe-fuzz=100")
        result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["note: fuzz: 1 calls, 0 of them rejected by the reference"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--probe-fuzz=0", "--probe-api=Torch.exp"),
            "*--probe-fuzz: '0' cannot be used; give a number of calls, *",
        ),
        (("--probe-fuzz=5",), "*--probe-fuzz*give a dump*or*--probe-api*"),
        (("--probe-fuzz=5", "--probe-api=torch.nn.functional.no_such"), "*--probe-api*no_such*table*"),
        (("--probe-fuzz=5", "--probe-api=os.system"), "*--probe-api*os.system*table*"),
        (("--probe-fuzz=5,safe=kept",), "*--probe-fuzz: '5,safe=kept' cannot be used*"),
    ],
)
def test_what_cannot_be_searched_is_said(pytester: pytest.Pytester, arguments: tuple[str, ...], words: str) -> None:
    refusal(pytester, *arguments).fnmatch_lines([words])


def test_hypothesis_may_be_missing(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "hypothesis" else find(name))
    said = refusal(pytester, "--probe-fuzz=5", "--probe-api=Torch.exp")
    said.fnmatch_lines(["*pip install 'pytest-probe[[]fuzz[]]'*"])


@settings(max_examples=20, deadline=None)
@given(calls("torch.nn.functional.softmax"), tensors("n 3 h w", dtype="bfloat16"))
def test_the_strategies_serve_tests_of_the_users(call: DrawnArguments, image: Any) -> None:
    assert torch.nn.functional.softmax(*call.args, **call.kwargs).shape == call.args[0].shape
    assert image.shape[1] == 3
    assert image.dtype is torch.bfloat16


LOSES_DEVICE = """
from pytest_probe.frameworks.torch.framework import TorchFramework
import torch

def relu(x, inplace=False):
    if x.numel() > 40:
        TorchFramework.is_lost = lambda self, device: True
        raise RuntimeError("an illegal memory access was encountered")
    return torch.relu(x)

def pytest_probe_register(registry):
    registry.calls["Functional.relu"] = relu
"""
RELU = ("--probe-api=torch.nn.functional.relu", "--probe-dtype=float32", "--probe-direction=forward")


@pytest.mark.parametrize(
    ("isolated", "found"),
    [
        (False, "a drawn call left the device unusable: cpu raised RuntimeError: an illegal memory access was "
                "encountered* with -n or --probe-isolate it is a finding*"),
        (True, "process*Functional.relu*"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("forked")
def test_a_drawn_call_that_loses_the_device(pytester: pytest.Pytester, isolated: bool, found: str) -> None:
    """As an illegal address on a GPU does: whatever a process does with that device from then on raises."""
    pytester.makeconftest(LOSES_DEVICE)
    options = ["--probe-fuzz=60", "--hypothesis-seed=1", *["--probe-isolate"] * isolated]
    result = pytester.runpytest_subprocess(*RELU, *options)
    result.assert_outcomes(failed=1)
    text = " ".join(line.strip() for line in result.outlines)
    assert fnmatch(text, f"*{found}")
    assert "Traceback" not in text
    assert "pytest-probe broke" not in text
