"""`--probe-repeat`: a device that does not give the same twice."""

from __future__ import annotations

import shlex

import pytest

from tests.acceptance.conftest import Probed, entries, forward, tensor

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
    wanted = ("Functional.relu.0.forward", "Functional.linear.0.forward", "Functional.linear.0.backward")
    data = {name: entries()[name] for name in wanted}
    probed(data=data, conftest=CONFTEST).result.assert_outcomes(passed=3)
    found = probed("--probe-repeat=5", data=data)
    found.result.assert_outcomes(passed=1, failed=2)
    command = "to reproduce: pytest 'dump.json::Functional.relu.0.forward' --probe-repeat=5"
    found.result.stdout.fnmatch_lines(
        [
            "note: non-deterministic: 1 of 5 runs differ from the first; output.0: *",
            command,
            "3 cases, 1 pass, 2 error",
            "2 cases non-deterministic: runs on the same inputs differ",
        ]
    )
    relu, forward, backward = (found.by_name[name] for name in wanted)
    note = "non-deterministic: 1 of 5 runs differ from the first; output.0: 1 of 6 elements, by up to 8 ULP"
    assert note in relu["notes"]
    assert (relu["outputs"][0]["metrics"]["repeats"], relu["outputs"][0]["metrics"]["spread_ulp"]) == (5, 8.0)
    assert found.run["settings"]["repeat"] == 5
    assert not [each for each in forward["notes"] if each.startswith("non-deterministic")]
    assert [(each["name"], each["verdict"], each["metrics"]["repeats"]) for each in backward["outputs"]] == [
        ("grad.input.0", "error", 5),
        ("grad.input.1", "pass", 5),
    ]
    assert backward["outputs"][0]["metrics"]["spread_ulp"] > 10_000
    assert backward["outputs"][1]["metrics"]["spread_ulp"] == 0
    [note] = (each for each in backward["notes"] if not each.startswith("called: "))
    assert note.startswith("non-deterministic: 1 of 5 runs differ from the first; grad.input.0: 6 of 6 elements, ")
    pytester.runpytest(*shlex.split(command)[3:]).assert_outcomes(failed=1)


def test_a_deterministic_device_has_equal_repeats_and_what_draws_runs_once(probed: Probed) -> None:
    dropout = {"Functional.dropout.0.forward": forward(tensor(40, 50), output=tensor(40, 50))}
    found = probed("--probe-repeat=3", "--junitxml=junit.xml", data=entries() | dropout)
    found.result.assert_outcomes(passed=6, skipped=1)
    found.result.stdout.no_fnmatch_line("*non-deterministic*")
    drawn = next(row for row in found.rows if row["api"] == "Functional.dropout")
    assert drawn["notes"] == []
    assert "repeats" not in drawn["outputs"][0]["metrics"]
    metrics = [output["metrics"] for row in found.rows if row is not drawn for output in row["outputs"]]
    others = [each for each in metrics if "repeats" in each]
    assert {(each["repeats"], each["spread_ulp"]) for each in others} == {(3, 0.0)}
    assert len(others) == len(metrics) - 1
    assert 'name="probe.spread_ulp" value="0.0"' in (found.folder / "junit.xml").read_text()


def test_own_functions_are_repeated(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import itertools
        import torch

        def test_unsteady(probe):
            runs = itertools.count()

            def unsteady(x):
                return torch.exp(x) * (1 + 1e-3 * (next(runs) == 2))

            probe.check(unsteady, reference=torch.exp, inputs=[probe.tensor((8,))])
            assert next(runs) == 1
        """
    )
    pytester.runpytest().assert_outcomes(passed=1)
    result = pytester.runpytest("--probe-repeat=3")
    result.stdout.fnmatch_lines(
        ["E       CheckFailed: unsteady.0.forward*", "E       note: non-deterministic: 1 of 3 *"]
    )
