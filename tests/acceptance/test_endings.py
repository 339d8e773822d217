"""However a call of the user's ends, it is that item's failure, in ten lines at most; Ctrl-C ends the run."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.acceptance.conftest import DumpMaker, backward, forward, tensor, written
from tests.support.endings import ENDINGS
from tests.support.running import ran

ROOT = Path(__file__).parent.parent.parent
# The record's first extent says which ending. What a standard judges in two dimensions ends there.
CONFTEST = """
    import sys
    import types

    import torch
    from tests.support.endings import ENDINGS

    from pytest_probe.standards import STANDARDS

    def end(x, *others):
        return list(ENDINGS.values())[x.shape[0] - 1]()

    class Ends(torch.autograd.Function):
        forward = staticmethod(lambda ctx, x: torch.nn.functional.silu(x))
        backward = staticmethod(lambda ctx, gradient: end(gradient))

    class Mine:
        name = "mine"
        def judge(self, comparison):
            return end(comparison.actual) if comparison.actual.ndim == 2 else STANDARDS["auto"].judge(comparison)

    sys.modules["ending_kernels"] = types.SimpleNamespace(relu=end)
    torch.nn.functional.celu = end

    def pytest_probe_register(registry):
        registry.calls["Functional.relu"] = registry.references["Functional.gelu"] = end
        registry.calls["Functional.silu"] = Ends.apply
        registry.namespaces["Mine"] = "ending_kernels"
        registry.standards["mine"] = Mine()

    def pytest_probe_inputs(case, arguments):
        if case.record.api == "elu":
            end(arguments.args[0].array)

    def pytest_probe_verdict(case, verdict):
        if case.record.api == "selu":
            end(verdict.outputs[0])
"""
# What ends in each place of a case.
PLACES = {
    "call": "Functional.relu", "reference": "Functional.gelu", "namespace": "Mine.relu", "patch": "Functional.celu",
    "gradient": "Functional.silu", "inputs": "Functional.elu", "verdict": "Functional.selu",
    "standard": "Functional.softplus",
}  # fmt: skip
HEALTHY = "Functional.mish"
TESTS = """
    import pytest, torch
    from tests.support.endings import ENDINGS

    @pytest.mark.parametrize("ending", ENDINGS)
    @pytest.mark.parametrize("side", ["function", "reference"])
    def test_kernel(probe, ending, side):
        sides = {"function": torch.relu, "reference": torch.relu, side: ENDINGS[ending]}
        probe.check(sides["function"], reference=sides["reference"], inputs=[torch.ones(3)])
"""


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ElementTree.Element]:
    """How each item ended, of one run."""
    folder = tmp_path_factory.mktemp("endings")
    data: dict[str, Any] = {}
    for place, api in {**PLACES, "": HEALTHY}.items():
        for number in range(len(ENDINGS)):
            x = tensor(number + 1, 1) if place == "standard" else tensor(number + 1)
            data[f"{api}.{number}.forward"] = forward(x, output=x)
            if place in ("call", "gradient"):
                data[f"{api}.{number}.backward"] = backward(x, x)
    written(folder / "dump.json", data)
    (folder / "conftest.py").write_text(dedent(CONFTEST))
    (folder / "test_mine.py").write_text(dedent(TESTS))
    ran(folder, "test_mine.py", "--probe-dump=dump.json", "--probe-standard=mine", "--junitxml=junit.xml")
    found = {str(case.get("name")): case for case in ElementTree.parse(folder / "junit.xml").iter("testcase")}
    assert len(found) == len(data) + 2 * len(ENDINGS)
    return found


@pytest.mark.parametrize("place", PLACES)
def test_an_exception_that_ends_a_process_fails_its_item(cases: dict[str, ElementTree.Element], place: str) -> None:
    found = {name: case for name, case in cases.items() if name.startswith(f"{PLACES[place]}.")}
    assert len(found) == len(ENDINGS) * (2 if place in ("call", "gradient") else 1)
    for name, case in found.items():
        outcomes = [child for child in case if child.tag != "properties"]
        if place == "gradient" and name.endswith("forward"):
            assert outcomes == []
            continue
        (outcome,) = outcomes
        said = list(ENDINGS)[int(name.split(".")[-2])]
        text = outcome.text or ""
        if said == "MemoryError":
            assert outcome.tag == "skipped"
            assert "memory ran out" in text
            continue
        # What both sides run, and both refuse, is no fault of the device.
        assert outcome.tag == "failure" or (place in ("namespace", "patch") and outcome.tag == "skipped"), name
        assert said.replace(" ", "") in "".join(text.split())
        assert "pytest-probe broke" not in text
        assert len(text.splitlines()) <= 10, text
        assert len(text) < 2000


def test_no_other_item_ends(cases: dict[str, ElementTree.Element]) -> None:
    found = [case for name, case in cases.items() if name.startswith(HEALTHY)]
    assert [child.tag for case in found for child in case if child.tag != "properties"] == []
    assert len(found) == len(ENDINGS)


@pytest.mark.parametrize("side", ["function", "reference"])
def test_each_ending_fails_a_test_of_the_users_own(cases: dict[str, ElementTree.Element], side: str) -> None:
    found = [case for name, case in cases.items() if name.startswith(f"test_kernel[{side}-")]
    for said, case in zip(ENDINGS, found, strict=True):
        (failure,) = case.iter("failure")
        assert said.replace(" ", "") in "".join(str(failure.text).split())
        assert len(str(failure.get("message")).splitlines()) == 1


# A call, and a hook.
INTERRUPTED = {
    "call": "def pytest_probe_register(registry): registry.calls['Functional.relu'] = interrupted",
    "inputs": "def pytest_probe_inputs(case, arguments): interrupted()",
}


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("where", INTERRUPTED)
def test_ctrl_c_ends_the_run(
    pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    make_dump()
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeconftest(f"from tests.support.endings import interrupted\n{INTERRUPTED[where]}")
    result = pytester.runpytest_subprocess("--probe-dump=dump.json", "--probe-device=cpu", "--probe-api=relu")
    assert result.ret == pytest.ExitCode.INTERRUPTED
