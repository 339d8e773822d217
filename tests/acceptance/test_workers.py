"""Under pytest-xdist: devices shared out, workers that die. What two workers write is in test_files.py."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_probe.frameworks.torch.framework import TorchFramework
from pytest_probe.plugin import xdist
from pytest_probe.plugin.session import make_probe
from pytest_probe.reports import running_case
from pytest_probe.reports.running_case import Running
from tests.acceptance.conftest import DumpMaker, Probed, entries
from tests.support.devices import Emulated
from tests.support.settings import settings_of

# Every argmax kills its worker.
KILLER = """
    import os, signal

    def pytest_probe_inputs(case, arguments):
        if case.record.api == "argmax":
            os.kill(os.getpid(), signal.SIGKILL)
"""


# What each API does to its worker, on its own side.
FAULTS = """
    import ctypes, os, torch

    def segfault(*args, **kwargs):
        ctypes.string_at(0)

    def leave(*args, **kwargs):
        os._exit(3)

    def pytest_probe_register(registry):
        registry.calls["Functional.relu"] = segfault
        registry.references["Torch.argmax"] = leave
"""


# One loses its device, as after an illegal address on a GPU: no other case runs in that process. Of another one Linux
# kills the process that takes too much memory, and counts.
LOSSES = """
        registry.calls["Functional.elu"] = loses_its_device
        registry.calls["Functional.selu"] = takes_all

    def loses_its_device(*args, **kwargs):
        TorchFramework.is_lost = lambda self, device: True
        raise RuntimeError("an illegal memory access was encountered")

    def takes_all(*args):
        with open("vmstat", "r+") as file:
            kills = int(file.read().split()[-1])
            file.seek(0)
            file.write(f"pgfault 5\\noom_kill {kills + 1}")
        os.kill(os.getpid(), signal.SIGKILL)

    import os, signal
    from pytest_probe.frameworks.torch.framework import TorchFramework

    def pytest_probe_inputs(case, arguments):
        assert not TorchFramework.is_lost(TorchFramework(), type("Device", (), {"name": "cpu"})())
        if case.record.api == "argmax":
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_every_item_runs_where_many_kill_their_worker(
    pytester: pytest.Pytester, probed: Probed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The death of a worker is one result of its item. Where memory ran out another process may have taken it the
    first time: the case runs again."""
    vmstat = pytester.path / "vmstat"
    vmstat.write_text("pgfault 5\noom_kill 7")
    monkeypatch.setattr(running_case, "_VMSTAT", vmstat)
    relu, argmax = entries()["Functional.relu.0.forward"], entries()["Torch.argmax.0.forward"]
    data = {f"Functional.{api}.0.forward": relu for api in ("elu", "gelu", "relu", "silu", "selu")}
    data |= {f"Torch.argmax.{number}.forward": argmax for number in range(2)}
    faults = FAULTS.replace("Torch.argmax", "Functional.silu").rstrip() + LOSSES
    found = probed("-n1", "--probe-seed=3", "--junitxml=junit.xml", data=data, conftest=faults)
    result = found.result
    result.stdout.fnmatch_lines(
        [
            "Torch.argmax.?.forward: the process died by SIGKILL while it ran; that was death 2 of this case, *",
            "to reproduce: pytest 'dump.json::Torch.argmax.?.forward' --probe-seed=3",
            "7 cases, 1 pass, 5 error, 1 skip",
            "2 errors: the process died by SIGKILL while it ran; that was death 2 of this",
            "  case, which is not run again, Torch.argmax, first in record argmax.0.forward",
            "*5 failed, 1 passed, 1 skipped*",
        ]
    )
    # Of the two the first is printed in full, and each has its line in the short summary.
    commands = [line for line in result.outlines if line.startswith("to reproduce: ")]
    assert sum("argmax" in line for line in commands) == 1
    summary = [line for line in result.outlines if line.startswith("FAILED dump.json::Torch.argmax.")]
    assert len(summary) == 2
    assert all("forward - Torch.argmax." in line for line in summary)
    assert found.verdicts.keys() == data.keys()
    rows = {
        row["api"]: (row["verdict"], row["kind"], row["reason"].partition("\n")[0])
        for row in found.rows
        if "argmax" not in row["id"]
    }
    assert vmstat.read_text() == "pgfault 5\noom_kill 9"
    assert rows == {
        "Functional.relu": ("error", "crash", "the process died by SIGSEGV while the device ran it"),
        "Functional.silu": ("skip", "no reference", "the process died with exit status 3 while its reference ran"),
        "Functional.gelu": ("pass", "", ""),
        "Functional.elu": ("error", "", "cpu raised RuntimeError: an illegal memory access was encountered"),
        "Functional.selu": (
            "error",
            "out of memory",
            "the process died by SIGKILL while the device ran it; that was death 2 of this case, which is not run "
            "again: the machine's memory ran out",
        ),
    }
    assert '<property name="probe.kind" value="crash" />' in (found.folder / "junit.xml").read_text()


# What the test has put in its place here has to be there in the workers, too, which find their devices themselves.
TWO_OF_A_KIND = """
    import os

    if "PYTEST_XDIST_WORKER" in os.environ:
        from pytest_probe.frameworks.torch.framework import TorchFramework

        TorchFramework.all_devices = lambda self, name: ("cpu:0", "cpu:1") if name == "cpu" else (name,)
"""


def test_a_kind_means_all_of_its_devices(probed: Probed, monkeypatch: pytest.MonkeyPatch) -> None:
    """-n auto is one worker for each, and each gets one. torch takes a CPU by a number as well. How devices that are
    named are shared out is in test_moving.py, in the row of multi_acc_check."""
    both = ("cpu:0", "cpu:1")
    monkeypatch.setattr(TorchFramework, "all_devices", lambda self, name: both if name == "cpu" else (name,))
    found = probed("--probe-device=cpu", "-n", "auto", "--probe-api=Functional.*", conftest=TWO_OF_A_KIND)
    found.result.stdout.fnmatch_lines(["created: 2/2 workers", "probe: cpu:0 cpu:1, torch *"])
    found.result.assert_outcomes(passed=4)
    assert {row["device"] for row in found.rows} == set(both)


def test_on_the_cpu_xdist_counts_workers(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    path = make_dump()
    config = pytester.parseconfig(f"--probe-dump={path}", "--probe-device=cpu")
    assert xdist.auto_workers(make_probe(config)) is None


def test_devices_of_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    there = SimpleNamespace(device_count=lambda: 3, set_device=chosen.append)
    monkeypatch.setattr(torch, "get_device_module", lambda kind: there)
    framework = TorchFramework()
    assert framework.all_devices("cuda") == ("cuda:0", "cuda:1", "cuda:2")
    assert framework.all_devices("cuda:1") == ("cuda:1",)
    assert framework.all_devices("cpu") == ("cpu",)
    for name in ("cuda:2", "cuda", "cpu"):
        framework.select(Emulated(name))
    assert chosen == [2]


def controller(*devices: str, **more: Any) -> xdist.Controller:
    options = {"tx": ["popen", "popen"], "maxworkerrestart": None, **more}
    option = SimpleNamespace(collectonly=False)
    config = SimpleNamespace(
        getoption=lambda name, default=None: options.get(name, default),
        option=option,
        invocation_params=SimpleNamespace(dir=Path.cwd()),
    )
    probe: Any = SimpleNamespace(
        config=config,
        settings=settings_of(devices=devices),
        shared_devices=devices,
        running_folder=Path("none"),
        width=80,
        features=(),
        has=lambda attribute: False,
        machines=None,
    )
    return xdist.Controller(probe)


def node() -> Any:
    class Node:
        workerinput: dict[str, str]

    made = Node()
    made.workerinput = {}
    return made


def test_a_freed_device_goes_to_the_next_worker() -> None:
    hands_out = controller("a", "b")
    first, second, third, fourth = (node() for _ in range(4))
    for worker in (first, second):
        hands_out.pytest_configure_node(worker)
    hands_out.pytest_testnodedown(second, None)
    for worker in (third, fourth):
        hands_out.pytest_configure_node(worker)
    devices = [worker.workerinput["probe_device"] for worker in (first, second, third, fourth)]
    assert devices == ["a", "b", "b", "a"]


def test_workers_of_one_kind_of_device_are_numbered() -> None:
    """Each finds its device by that itself; a freed number goes to the next one."""
    hands_out = controller("cuda", dist="load")
    first, second, third, fourth = (node() for _ in range(4))
    for worker in (first, second, third):
        hands_out.pytest_configure_node(worker)
    hands_out.pytest_testnodedown(second, None)
    hands_out.pytest_configure_node(fourth)
    assert [worker.workerinput["probe_slot"] for worker in (first, second, third, fourth)] == [0, 1, 2, 1]
    assert "probe_device" not in first.workerinput


TELLS_IMPORTS = """
    import os, sys

    def pytest_unconfigure(config):
        if not hasattr(config, "workerinput"):
            with open("imported", "w") as file:
                file.write(" ".join(sorted({"torch", "paddle", "sympy"} & sys.modules.keys())))
"""


def test_who_hands_out_items_imports_no_framework(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    pytester.makeconftest(TELLS_IMPORTS)
    result = pytester.runpytest_subprocess("--probe-dump=dump.json", "-n1", "--probe-out=out")
    result.stdout.fnmatch_lines(["created: 1/1 worker", "probe: * torch *, dtype recorded, *"])
    assert (pytester.path / "imported").read_text() == ""
    found = json.loads((pytester.path / "out/run.json").read_text())["devices"]
    assert [device["framework"] for device in found] == ["torch"]


def test_a_case_that_failed_before_the_run_was_ended_is_told(probed: Probed) -> None:
    """Reports are held until an item has ended, which it never does here."""
    conftest = """
        import pytest

        def pytest_probe_register(registry):
            registry.calls["Functional.relu"] = lambda x, inplace=False: x + 1

        def pytest_runtest_teardown(item):
            pytest.exit("enough")
    """
    data = {"Functional.relu.0.forward": entries()["Functional.relu.0.forward"]}
    probed("-n1", data=data, conftest=conftest).result.stdout.fnmatch_lines(["FAILED *::Functional.relu.0.forward*"])


def test_an_unknown_device_is_refused_before_a_test_runs(probed: Probed) -> None:
    found = probed("-n1", "--probe-device=tpu")
    assert (found.result.ret, found.rows) == (pytest.ExitCode.USAGE_ERROR, [])
    found.result.stderr.fnmatch_lines(["ERROR: --probe-device: 'tpu' cannot be used; torch says: *"])


def test_workers_that_die_before_any_item_end_the_run() -> None:
    hands_out = controller()
    for _ in range(8):
        hands_out.pytest_testnodedown(node(), "Not properly terminated")
    with pytest.raises(pytest.exit.Exception, match="9 workers died without an item to blame"):
        hands_out.pytest_testnodedown(node(), "Not properly terminated")


def test_the_cap_of_the_user_stays(probed: Probed) -> None:
    data = {f"Torch.argmax.{n}.forward": entries()["Torch.argmax.0.forward"] for n in range(3)}
    result = probed("-n1", "--max-worker-restart=0", data=data, conftest=KILLER).result
    result.stdout.fnmatch_lines(["1 case, 1 error", "2 items did not run"])


@pytest.mark.parametrize(
    ("status", "ran_out", "kind"),
    [(-9, True, "out of memory"), (-9, False, "crash"), (-11, True, "crash"), (1, True, "crash")],
)
def test_only_a_kill_is_for_memory(status: int, ran_out: bool, kind: str) -> None:
    """Meanwhile Linux may have killed another program."""
    died = running_case.verdict_on(
        Running("x", "x", "device"), running_case.Ending(status, ran_out), times=1, timed_out=False
    )
    assert (died.verdict, died.kind) == ("error", kind)
