"""`--probe-repeat`: a device that does not give the same twice."""

from __future__ import annotations

import shlex

import pytest

from tests.acceptance.conftest import Probed, entries, forward, tensor
from tests.support.running import collected

# The device's relu is wrong in its third run by 8 ULP of one element, its linear's gradient in the second.
CONFTEST = """
    import torch

    runs = {"relu": 0, "linear": 0}

    def relu(x):
        runs["relu"] += 1
        y = torch.relu(x)
        if runs["relu"] % 5 == 3:
            y = y.detach().clone()
            place = int(y.argmax())
            y.view(-1)[place] *= 1 + 8 * 2**-23
        return y

    class Linear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x @ weight.T

        @staticmethod
        def backward(ctx, gradient):
            runs["linear"] += 1
            x, weight = ctx.saved_tensors
            factor = 1.01 if runs["linear"] == 2 else 1
            return gradient @ weight * factor, gradient.T @ x

    def pytest_probe_register(registry):
        registry.calls["Functional.relu"] = relu
        registry.calls["Functional.linear"] = Linear.apply
"""


def test_the_worst_run_is_judged_of_outputs_and_gradients(pytester: pytest.Pytester, probed: Probed) -> None:
    """A deterministic call has equal repeats, and what draws runs once."""
    wanted = ("Functional.relu.0.forward", "Functional.linear.0.forward", "Functional.linear.0.backward")
    data = {name: entries()[name] for name in (*wanted, "Torch.argmax.0.forward")} | {
        f"Functional.{api}.0.forward": forward(tensor(40, 50), output=tensor(40, 50)) for api in ("gelu", "dropout")
    }
    found = probed("--probe-repeat=5", "--junitxml=junit.xml", data=data, conftest=CONFTEST)
    found.result.assert_outcomes(passed=4, failed=2)
    command = "to reproduce: pytest 'dump.json::Functional.relu.0.forward' --probe-repeat=5"
    found.result.stdout.fnmatch_lines(
        [
            "note: non-deterministic: 1 of 5 runs differ from the first; output.0: *",
            command,
            "6 cases, 4 pass, 2 error",
            "2 cases non-deterministic: runs on the same inputs differ",
        ]
    )
    relu, linear, backward = (found.by_name[name] for name in wanted)
    index = found.by_name["Torch.argmax.0.forward"]
    gelu, drawn = (found.by_name[f"Functional.{api}.0.forward"] for api in ("gelu", "dropout"))
    note = "non-deterministic: 1 of 5 runs differ from the first; output.0: 1 of 6 elements, by up to 8 ULP"
    assert note in relu["notes"]
    assert (relu["outputs"][0]["metrics"]["repeats"], relu["outputs"][0]["metrics"]["spread_ulp"]) == (5, 8.0)
    assert found.run["settings"]["repeat"] == 5
    assert not [each for each in linear["notes"] if each.startswith("non-deterministic")]
    assert [(each["name"], each["verdict"], each["metrics"]["repeats"]) for each in backward["outputs"]] == [
        ("grad.input.0", "error", 5),
        ("grad.input.1", "pass", 5),
    ]
    assert backward["outputs"][0]["metrics"]["spread_ulp"] > 10_000
    assert backward["outputs"][1]["metrics"]["spread_ulp"] == 0
    [note] = (each for each in backward["notes"] if not each.startswith("called: "))
    assert note.startswith("non-deterministic: 1 of 5 runs differ from the first; grad.input.0: 6 of 6 elements, ")
    equal = [each["outputs"][0]["metrics"] for each in (gelu, index)]
    assert [(each["repeats"], each["spread_ulp"]) for each in equal] == [(5, 0.0)] * 2
    assert 'name="probe.spread_ulp" value="0.0"' in (found.folder / "junit.xml").read_text()
    assert drawn["notes"] == gelu["notes"] == []
    assert "repeats" not in drawn["outputs"][0]["metrics"]
    assert collected(pytester, *shlex.split(command)[3:]) == ["dump.json::Functional.relu.0.forward"]
