"""--probe-unique: records that are alike run once."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import DumpMaker, backward, forward, tensor
from tests.support.dumps import unpack
from tests.support.running import collected, timeless

# Wrong where a value is large; right for all others. Each silu kills its process.
FAULTY = """
    import os, signal, torch

    def pytest_probe_inputs(case, arguments):
        if case.record.api == "silu":
            os.kill(os.getpid(), signal.SIGABRT)

    def pytest_probe_register(registry):
        registry.calls["Functional.gelu"] = lambda x: torch.where(x.abs() > 30, 0.99, 1.0) * torch.nn.functional.gelu(x)
"""
RUN = ("--probe-dump=dump.json", "--probe-device=cpu", "-p", "no:randomly")


def gelu(largest: float, norm: float) -> dict[str, Any]:
    x = {**tensor(64, 8), "Max": largest, "Norm": norm}
    return forward(x, output=tensor(64, 8))


@pytest.fixture
def alike(make_dump: DumpMaker) -> Path:
    """Four gelus, of which the third alone has large values, and three silus."""
    data = {f"Functional.gelu.{number}.forward": gelu(1.0, 9.0) for number in range(4)}
    data["Functional.gelu.2.forward"] = gelu(40.0, 60.0)
    data |= {f"Functional.silu.{number}.forward": gelu(1.0, 9.0) for number in range(3)}
    return make_dump(data={**data, "Torch.abs.0.forward": forward(tensor(2), output=tensor(2))})


def test_a_fault_of_one_record_and_a_death_show_in_the_first(pytester: pytest.Pytester, alike: Path) -> None:
    pytester.makeconftest(FAULTY)
    run = pytester.runpytest(*RUN, "--probe-unique", "--probe-out=out", "-v", "--junitxml=junit.xml", "-n1")
    run.assert_outcomes(passed=1, failed=2, deselected=5)
    found = timeless()
    assert {name: (line["verdict"], line.get("folded", 0)) for name, line in found.items()} == {
        "Functional.gelu.0.forward": ("error", 3),
        "Functional.silu.0.forward": ("error", 2),
        "Torch.abs.0.forward": ("pass", 0),
    }
    run.stdout.fnmatch_lines_random(
        [
            "*FAILED +3*",
            "+5 folded: 3 of 8 cases ran, one of those whose records are alike",
            "*2 failed, 1 passed, 5 deselected*",
        ]
    )
    assert '<property name="probe.folded" value="+3" />' in (pytester.path / "junit.xml").read_text()
    (command,) = (line.removeprefix("to reproduce: ") for line in run.outlines if " -k " in line)
    again = pytester.runpytest(*shlex.split(command)[1:], "--probe-out=again")
    again.assert_outcomes(failed=1, deselected=7)
    assert timeless("again")["Functional.gelu.0.forward"] == found["Functional.gelu.0.forward"]


def test_over_all_dumps_and_no_further_than_the_selection(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    for folder, largest in (("a", 1.0), ("b", 40.0)):
        make_dump(f"{folder}/dump.json", data={f"Functional.gelu.{n}.forward": gelu(largest, largest) for n in (3, 4)})
    pytester.makeconftest(FAULTY)
    both = ("--probe-dump=a", "--probe-dump=b", "--probe-unique", "-p", "no:randomly")
    run = pytester.runpytest(*both, "--probe-out=out")
    run.assert_outcomes(failed=1, deselected=3)
    assert set(timeless()) == {"Functional.gelu.3.forward"}
    command = next(line for line in run.outlines if line.startswith("to reproduce: ")).removeprefix("to reproduce: ")
    assert collected(pytester, *shlex.split(command)[1:]) == ["a/dump.json::Functional.gelu.3.forward"]
    assert collected(pytester, *both, "--probe-api=*.gelu.4") == ["a/dump.json::Functional.gelu.4.forward"]


@pytest.mark.usefixtures("alike")
@pytest.mark.parametrize("number", [0, 2, 3])
def test_an_item_that_is_named_runs(pytester: pytest.Pytester, number: int) -> None:
    name = f"dump.json::Functional.gelu.{number}.forward"
    assert collected(pytester, name, "--probe-unique") == [name]


def test_both_directions_are_of_the_same_call_as_in_a_baseline(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    x = tensor(4, 4)
    data: dict[str, Any] = {}
    for number in range(3):
        data[f"Functional.relu.{number}.forward"] = forward({**x, "Max": 1.0 + number}, output=x)
        data[f"Functional.relu.{number}.backward"] = backward(x, x)
    make_dump(data=data)
    unique = (*RUN, "--probe-unique", "--probe-dtype=recorded,float16", "--probe-baseline=b.jsonl")
    run = pytester.runpytest(*unique, "--probe-baseline-update", "--probe-out=out")
    run.assert_outcomes(passed=4, deselected=8)
    assert {line["folded"] for line in timeless().values()} == {2}
    pytester.runpytest(*unique, "--probe-strict").assert_outcomes(passed=4, deselected=8)


def test_the_gpt_step_has_few_items(pytester: pytest.Pytester) -> None:
    dump = unpack("msprobe-1.0.4/gpt", pytester.path)
    assert len(json.loads(dump.read_text())["data"]) == 338
    assert len(collected(pytester, f"--probe-dump={dump}", "--probe-unique")) == 112
