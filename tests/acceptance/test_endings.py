"""However a call of the user's ends, it is that item's failure, in ten lines at most; Ctrl-C ends the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import DumpMaker, backward, forward, tensor
from tests.support.endings import ENDINGS

ROOT = Path(__file__).parent.parent.parent
# The record's first extent says which ending.
HEAD = """
    from msgspec.structs import replace
    import torch
    from tests.support.endings import ENDINGS, interrupted

    def end(x, *others):
        return list(ENDINGS.values())[x.shape[0] - 1]()
"""
PLACES = {
    "call": """
    def pytest_probe_register(registry):
        registry.calls["Functional.relu"] = end
    """,
    "reference": """
    def pytest_probe_register(registry):
        registry.references["Functional.relu"] = end
    """,
    "namespace": """
    import types, sys
    def pytest_probe_register(registry):
        sys.modules["ending_kernels"] = types.SimpleNamespace(relu=end)
        registry.namespaces["Functional"] = "ending_kernels"
    """,
    "patch": """
    torch.nn.functional.relu = end
    """,
    "gradient": """
    class Ends(torch.autograd.Function):
        forward = staticmethod(lambda ctx, x: x.clamp(min=0))
        backward = staticmethod(lambda ctx, gradient: end(gradient))

    def pytest_probe_register(registry):
        registry.calls["Functional.relu"] = Ends.apply
    """,
    "inputs": """
    def pytest_probe_inputs(case, arguments):
        end(arguments.args[0].array)
    """,
    "verdict": """
    def pytest_probe_verdict(case, verdict):
        end(verdict.outputs[0])
    """,
    "standard": """
    class Mine:
        name = "mine"
        def judge(self, comparison):
            end(comparison.actual)

    def pytest_probe_register(registry):
        registry.standards["mine"] = Mine()
    """,
}


@pytest.fixture(autouse=True)
def _functions_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.nn.functional, "relu", torch.nn.functional.relu)


@pytest.mark.parametrize("place", PLACES)
def test_an_exception_that_ends_a_process_fails_its_item(
    pytester: pytest.Pytester, make_dump: DumpMaker, place: str
) -> None:
    data: dict[str, Any] = {}
    for number in range(len(ENDINGS)):
        x = tensor(number + 1)
        data |= {
            f"Functional.relu.{number}.forward": forward(x, output=x),
            f"Functional.relu.{number}.backward": backward(x, x),
        }
    x = tensor(3)
    make_dump(data={**data, "Functional.gelu.0.forward": forward(x, output=x)})
    pytester.makeconftest(HEAD + PLACES[place])
    standard = ["--probe-standard=mine", "--probe-api=relu"] if place == "standard" else []
    direction = "backward" if place == "gradient" else "both" if place == "call" else "forward"
    run = pytester.inline_run(
        "--probe-dump=dump.json", "--probe-device=cpu", f"--probe-direction={direction}", *standard
    )
    reports = {report.nodeid: report for report in run.getreports("pytest_runtest_logreport") if report.when == "call"}
    assert len(reports) == len(ENDINGS) * (2 if direction == "both" else 1) + (not standard and direction != "backward")
    for name, report in reports.items():
        if "gelu" in name:
            # A hook is asked for this one as well, and the namespace has none of its name.
            assert report.passed or place in ("inputs", "verdict", "namespace")
            continue
        said = list(ENDINGS)[int(name.split(".")[-2])]
        if said == "MemoryError":
            assert report.skipped
            assert "memory ran out" in str(report.longrepr)
            continue
        # What both sides run, and both refuse, is no fault of the device.
        refused = place in ("namespace", "patch") and report.skipped
        assert report.failed or refused, name
        text = str(report.longrepr) if refused else report.longreprtext
        assert said.replace(" ", "") in "".join(text.split())
        assert "pytest-probe broke" not in report.longreprtext
        assert len(report.longreprtext.splitlines()) <= 10, report.longreprtext
        assert len(report.longreprtext) < 2000


@pytest.mark.parametrize("side", ["function", "reference"])
def test_each_ending_fails_a_test_of_the_users_own(pytester: pytest.Pytester, side: str) -> None:
    pytester.makepyfile(f"""
        import pytest, torch
        from tests.support.endings import ENDINGS

        @pytest.mark.parametrize("ending", ENDINGS)
        def test_kernel(probe, ending):
            sides = {{"function": torch.relu, "reference": torch.relu, "{side}": ENDINGS[ending]}}
            probe.check(sides["function"], reference=sides["reference"], inputs=[torch.ones(3)])
    """)
    run = pytester.inline_run("--probe-device=cpu")
    reports = [report for report in run.getreports("pytest_runtest_logreport") if report.when == "call"]
    assert [report.outcome for report in reports] == ["failed"] * len(ENDINGS)
    for said, report in zip(ENDINGS, reports, strict=True):
        crash = report.longrepr.reprcrash  # type: ignore[union-attr]
        assert said.replace(" ", "") in "".join(report.longreprtext.split())
        assert len(crash.message.splitlines()) == 1


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("place", ["call", "inputs"])
def test_ctrl_c_ends_the_run(
    pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    make_dump()
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeconftest(f"{HEAD.replace('list(ENDINGS.values())[x.shape[0] - 1]()', 'interrupted()')}{PLACES[place]}")
    result = pytester.runpytest_subprocess("--probe-dump=dump.json", "--probe-device=cpu", "--probe-api=relu")
    assert result.ret == pytest.ExitCode.INTERRUPTED
