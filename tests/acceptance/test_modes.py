"""--probe-allow: the results, the command that reproduces a failure."""

from __future__ import annotations

import re

from tests.acceptance.conftest import Probed

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


def test_a_mode_is_named_where_it_is_not_allowed_and_passes_where_it_is(probed: Probed) -> None:
    args = ("--probe-api=*linear*", "--probe-device=cpu")
    failed = probed(*args, "--probe-allow=none", conftest=CONFTEST)
    failed.result.assert_outcomes(failed=2)
    failed.result.stdout.fnmatch_lines(["to reproduce: *--probe-device=cpu --probe-allow=none*"])
    pattern = r"output\.0: noise ratio .*; behaves as TF32 inputs: .* instead of .* \(--probe-allow=tf32 accepts it\)"
    assert re.fullmatch(pattern, failed.rows[0]["reason"])
    passed = probed(*args, "--probe-allow=ftz,tf32")
    passed.result.assert_outcomes(passed=2)
    passed.result.stdout.fnmatch_lines(["probe: cpu, *, ftz, tf32 allowed"])
    assert [output["metrics"]["mode"] for row in passed.rows for output in row["outputs"]] == ["tf32"] * 3
    run = passed.run
    assert (run["settings"]["allow"], run["devices"][0]["modes"]) == (["ftz", "tf32"], "ftz, tf32")
