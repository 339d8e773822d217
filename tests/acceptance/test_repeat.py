"""`--probe-repeat`: a device that does not give the same twice."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import DumpMaker, entries, forward, tensor
from tests.support.running import refusal

# The device's relu is wrong in its third run by `error` ULP of one element, its linear's gradient in the second.
CONFTEST = """
    import torch

    runs = {{"relu": 0, "linear": 0}}

    def relu(x):
        runs["relu"] += 1
        y = torch.relu(x)
        if runs["relu"] % 5 == 3:
            y = y.detach().clone()
            place = int(y.argmax())
            y.view(-1)[place] *= 1 + {error} * 2**-23
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


def results(folder: Path) -> dict[str, dict[str, Any]]:
    lines = (folder / "out/results.jsonl").read_text().splitlines()
    return {found["id"]: found for found in map(json.loads, lines)}


def test_the_worst_run_is_judged(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump(data={"Functional.relu.0.forward": entries()["Functional.relu.0.forward"]})
    pytester.makeconftest(CONFTEST.format(error=8))
    pytester.runpytest("--probe-dump=dump.json").assert_outcomes(passed=1)
    result = pytester.runpytest("--probe-dump=dump.json", "--probe-repeat=5", "--probe-out=out")
    result.assert_outcomes(failed=1)
    note = "non-deterministic: 1 of 5 runs differ from the first; output.0: 1 of 6 elements, by up to 8 ULP"
    command = "to reproduce: pytest 'dump.json::Functional.relu.0.forward' --probe-repeat=5"
    result.stdout.fnmatch_lines(
        [
            "note: non-deterministic: 1 of 5 runs differ from the first; output.0: *",
            command,
            "1 case, 1 error",
            "1 case non-deterministic: runs on the same inputs differ",
        ]
    )
    [found] = results(pytester.path).values()
    assert note in found["notes"]
    assert (found["outputs"][0]["metrics"]["repeats"], found["outputs"][0]["metrics"]["spread_ulp"]) == (5, 8.0)
    assert json.loads((pytester.path / "out/run.json").read_text())["settings"]["repeat"] == 5
    pytester.runpytest(*shlex.split(command)[3:]).assert_outcomes(failed=1)


def test_gradients_are_repeated_too(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    pytester.makeconftest(CONFTEST.format(error=0))
    result = pytester.runpytest("--probe-dump=dump.json", "--probe-repeat=3", "--probe-out=out", "--probe-api=linear")
    result.assert_outcomes(passed=1, failed=1)
    found = results(pytester.path)
    forward = found["dump.json::Functional.linear.0.forward"]
    assert not [note for note in forward["notes"] if note.startswith("non-deterministic")]
    backward = found["dump.json::Functional.linear.0.backward"]
    assert [(each["name"], each["verdict"], each["metrics"]["repeats"]) for each in backward["outputs"]] == [
        ("grad.input.0", "error", 3),
        ("grad.input.1", "pass", 3),
    ]
    assert backward["outputs"][0]["metrics"]["spread_ulp"] > 10_000
    assert backward["outputs"][1]["metrics"]["spread_ulp"] == 0
    [note] = (note for note in backward["notes"] if not note.startswith("called: "))
    assert note.startswith("non-deterministic: 1 of 3 runs differ from the first; grad.input.0: 6 of 6 elements, ")


def test_a_deterministic_device_has_equal_repeats(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    result = pytester.runpytest("--probe-dump=dump.json", "--probe-repeat=3", "--probe-out=out", "--junitxml=junit.xml")
    result.assert_outcomes(passed=5, skipped=1)
    result.stdout.no_fnmatch_line("*non-deterministic*")
    metrics = [output["metrics"] for found in results(pytester.path).values() for output in found["outputs"]]
    assert {(each["repeats"], each["spread_ulp"]) for each in metrics} == {(3, 0.0)}
    assert 'name="probe.spread_ulp" value="0.0"' in (pytester.path / "junit.xml").read_text()


def test_what_draws_random_numbers_runs_once(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump(data={"Functional.dropout.0.forward": forward(tensor(40, 50), output=tensor(40, 50))})
    result = pytester.runpytest("--probe-dump=dump.json", "--probe-repeat=3", "--probe-out=out")
    result.assert_outcomes(passed=1)
    [found] = results(pytester.path).values()
    assert found["notes"] == []
    assert "repeats" not in found["outputs"][0]["metrics"]


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
    pytester.runpytest("--probe-repeat=2").assert_outcomes(failed=1)  # of its own assertion
    result = pytester.runpytest("--probe-repeat=3")
    result.stdout.fnmatch_lines(
        ["E       CheckFailed: unsteady.0.forward*", "E       note: non-deterministic: 1 of 3 *"]
    )


@pytest.mark.parametrize("value", ["0", "-1", "x", "1.5", "9999999999"])
def test_an_unusable_number_of_repeats_is_refused(pytester: pytest.Pytester, make_dump: DumpMaker, value: str) -> None:
    make_dump()
    said = refusal(pytester, "--probe-dump=dump.json", f"--probe-repeat={value}")
    said.fnmatch_lines([f"--probe-repeat: '{value}' cannot be used; give a whole number, 1 or more*"])
