"""Under pytest-xdist: devices shared out, workers that die. What two workers write is in test_files.py."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_probe.plugin import xdist
from pytest_probe.settings import Settings
from tests.acceptance.conftest import DumpMaker, entries

# Every argmax kills its worker.
KILLER = """
    import os, signal

    def pytest_probe_inputs(case, arguments):
        if case.record.api == "argmax":
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_every_item_runs_where_many_kill_their_worker(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    pytester.makeconftest(KILLER)
    argmax = entries()["Torch.argmax.0.forward"]
    data = {f"Torch.argmax.{number}.forward": argmax for number in range(5)}
    make_dump(data={**data, "Functional.relu.0.forward": entries()["Functional.relu.0.forward"]})
    result = pytester.runpytest("--probe-dump=dump.json", "-n1", "--probe-out=out", "--probe-seed=3")
    result.stdout.fnmatch_lines(
        [
            "Torch.argmax.?.forward: the worker process died while it ran this case *",
            "to reproduce: pytest 'dump.json::Torch.argmax.?.forward' --probe-seed=3",
            "6 cases, 1 pass, 5 error",
            "*5 failed, 1 passed*",
        ]
    )
    lines = [json.loads(line) for line in (pytester.path / "out/results.jsonl").read_text().splitlines()]
    crashed = sorted(line["id"] for line in lines if line["verdict"] == "error")
    assert crashed == [f"dump.json::Torch.argmax.{number}.forward" for number in range(5)]
    assert {line["api"] for line in lines} == {"Torch.argmax", "Functional.relu"}


def test_devices_are_shared_out(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    pytester.makeconftest(
        """
        class Device:
            def __init__(self, name): self.name = name
            def put(self, tensor): return tensor.clone()
            def call(self, function, args, kwargs): return function(*args, **kwargs)
            def get(self, tensor): return tensor

        def pytest_probe_register(registry):
            registry.devices["fake"] = Device
        """
    )
    result = pytester.runpytest(
        "--probe-dump=dump.json", "--probe-device=fake:0,fake:1", "-n2", "--probe-out=out", "--probe-api=Functional.*"
    )
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["probe: fake:0 fake:1, torch *"])
    lines = (pytester.path / "out/results.jsonl").read_text().splitlines()
    assert {json.loads(line)["device"] for line in lines} == {"fake:0", "fake:1"}


def controller(*devices: str) -> xdist.Controller:
    options = {"tx": ["popen", "popen"], "maxworkerrestart": None}
    config = SimpleNamespace(getoption=lambda name, default=None: options.get(name, default), option=SimpleNamespace())
    probe: Any = SimpleNamespace(config=config, settings=Settings(devices=devices), carried_gate=None)
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


def test_workers_that_die_before_any_item_end_the_run() -> None:
    hands_out = controller()
    for _ in range(8):
        hands_out.pytest_testnodedown(node(), "Not properly terminated")
    with pytest.raises(pytest.exit.Exception, match="9 workers died without an item to blame"):
        hands_out.pytest_testnodedown(node(), "Not properly terminated")


def test_the_cap_of_the_user_stays(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    pytester.makeconftest(KILLER)
    make_dump(data={f"Torch.argmax.{n}.forward": entries()["Torch.argmax.0.forward"] for n in range(3)})
    result = pytester.runpytest("--probe-dump=dump.json", "-n1", "--max-worker-restart=0")
    result.stdout.fnmatch_lines(["1 case, 1 error", "2 items did not run"])
