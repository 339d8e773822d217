"""--probe-allow: its values, the results, the command that reproduces a failure."""

from __future__ import annotations

import json
import re

import pytest

from tests.acceptance.conftest import DumpMaker

CONFTEST = """
import torch
import torch.nn.functional as F

def cut(tensor):
    return (tensor.view(torch.int32) & -(1 << 13)).view(torch.float32)

class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return cut(x) @ cut(weight).t()

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return cut(gradient.contiguous()) @ cut(weight), cut(gradient.contiguous()).t() @ cut(x)

def pytest_probe_register(registry):
    registry.calls["Functional.linear"] = Linear.apply
    registry.references["Functional.linear"] = F.linear
"""
KNOWN = "tf32, hf32, bf16x3, bf16, ftz, reduced-reduction, short-accumulation, truncate, fast-math, auto, none"
ARGUMENTS = ("--probe-dump=dump.json", "--probe-api=*linear*", "--probe-device=cpu")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("tf23", f"'tf23' cannot be used; give one of {KNOWN} (did you mean tf32?)"),
        ("tf32,none", "'tf32,none' cannot be used; auto and none stand alone"),
    ],
)
def test_an_unknown_mode_is_a_usage_error(
    pytester: pytest.Pytester, make_dump: DumpMaker, value: str, words: str
) -> None:
    make_dump()
    result = pytester.runpytest("--probe-dump=dump.json", f"--probe-allow={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: --probe-allow: {words}" in result.stderr.lines


def test_a_device_that_cuts_to_tf32(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    pytester.makeconftest(CONFTEST)
    make_dump()
    failed = pytester.runpytest(*ARGUMENTS, "--probe-allow=none", "--probe-out=out")
    failed.assert_outcomes(failed=2)
    failed.stdout.fnmatch_lines(["to reproduce: *--probe-device=cpu --probe-allow=none*"])
    results = [json.loads(line) for line in (pytester.path / "out" / "results.jsonl").read_text().splitlines()]
    pattern = r"output\.0: noise ratio .*; behaves as TF32 inputs: .* instead of .* \(--probe-allow=tf32 accepts it\)"
    assert re.fullmatch(pattern, results[0]["reason"])


def test_allowed_it_passes_and_the_results_say_so(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    pytester.makeconftest(CONFTEST)
    make_dump()
    passed = pytester.runpytest(*ARGUMENTS, "--probe-allow=ftz,tf32", "--probe-out=out")
    passed.assert_outcomes(passed=2)
    passed.stdout.fnmatch_lines(["probe: cpu, *, ftz, tf32 allowed"])
    lines = (pytester.path / "out" / "results.jsonl").read_text().splitlines()
    assert [output["metrics"]["mode"] for line in lines for output in json.loads(line)["outputs"]] == ["tf32"] * 3
    run = json.loads((pytester.path / "out" / "run.json").read_text())
    assert (run["settings"]["allow"], run["devices"][0]["modes"]) == (["ftz", "tf32"], "ftz, tf32")
