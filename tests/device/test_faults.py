"""Kernels in C that end their process, hang or fail: each is one result, and every other case has its own."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import forward, tensor
from tests.device.conftest import ROOT
from tests.device.test_check import LOADED

FAULTS = """
import torch

def pytest_probe_register(registry):
    registry.calls["Functional.relu"] = lambda x: torch.ops.pretend.fault(x)
"""
# By the number of rows, as in pretend.cpp: verdict, kind, and what is said of how it died.
FOUND = {
    1: ("pass", "", ""),
    2: ("error", "crash", "the process died by SIGSEGV while the device ran it"),
    3: ("error", "crash", "the process died by SIGABRT while the device ran it"),
    4: ("error", "crash", "the process died with exit status 3 while the device ran it"),
    5: ("error", "timeout", "the process was ended by --probe-timeout while the device ran it"),
    6: ("skip", "too large for the device", "the device is out of memory"),
    7: ("error", "", "no such kernel here today"),
    8: ("error", "", ""),
    9: ("pass", "", ""),
}
# A serial run that died says nothing any more: the one that goes on knows that it did, and runs the case once more.
RESUMED = "the process died in a way that nobody saw while the device ran it; that was death 2 of this case"
ENDINGS = [-signal.SIGSEGV, -signal.SIGSEGV, 3, 3, -signal.SIGALRM, 1]
# Without the plugins that are not needed a process starts in half the time.
PLUGINS = ("-p", "xdist.plugin", "-p", "xdist.looponfail", "-p", "pytest_probe.plugin")


@pytest.fixture(scope="module")
def conftest(library: Path) -> str:
    return LOADED.format(root=str(ROOT), library=str(library))


@pytest.fixture
def dump(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    data = {
        f"Functional.{api}.{rows}.forward": forward(tensor(rows, 3), output=tensor(rows, 3))
        for rows in FOUND
        for api in ("relu", "gelu")
    }
    header = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    (pytester.path / "dump.json").write_text(json.dumps({**header, "data": data}))


@pytest.fixture(scope="module")
def healthy() -> dict[str, dict[str, Any]]:
    """The results of a device without faults, from the first test that has them."""
    return {}


def run(pytester: pytest.Pytester, out: str, *how: str) -> int:
    limit = "--probe-timeout=20"
    return int(pytester.runpytest_subprocess(*PLUGINS, "--probe-dump=dump.json", f"--probe-out={out}", limit, *how).ret)


def results(pytester: pytest.Pytester, folder: str) -> dict[str, dict[str, Any]]:
    lines = (pytester.path / folder / "results.jsonl").read_text().splitlines()
    found = [{**json.loads(line), "duration": 0, "parts": {}} for line in lines]
    assert len({result["id"] for result in found}) == len(found)
    return {result["id"]: result for result in found}


def check(pytester: pytest.Pytester, conftest: str, healthy: dict[str, dict[str, Any]], *, resumed: bool) -> None:
    """Each fault has its result, and every other case that of a healthy run."""
    if not healthy:
        pytester.makeconftest(conftest)
        assert run(pytester, "healthy") == 0
        healthy |= results(pytester, "healthy")
    faulty = results(pytester, "faulty")
    left_out = "relu.3" if resumed else "relu.5"
    assert healthy.keys() - faulty.keys() <= {f"dump.json::Functional.{left_out}.forward"}
    assert faulty.keys() <= healthy.keys()
    for name, result in faulty.items():
        if "gelu" in name:
            assert result == healthy[name]
            continue
        verdict, kind, said = FOUND[int(name.split(".")[-2])]
        assert (result["verdict"], result["kind"]) == (verdict, kind), result["reason"]
        assert (RESUMED if resumed and kind == "crash" else said) in result["reason"]


# The one that hangs costs its time limit: once is enough.
@pytest.mark.parametrize("how", [["--probe-isolate"], ["-n", "1", "-k", "not relu.5"]], ids=["isolated", "workers"])
@pytest.mark.usefixtures("dump")
def test_each_fault_is_one_result(
    pytester: pytest.Pytester, conftest: str, healthy: dict[str, dict[str, Any]], how: list[str]
) -> None:
    pytester.makeconftest(conftest + FAULTS)
    assert run(pytester, "faulty", *how) == 1
    check(pytester, conftest, healthy, resumed=False)


@pytest.mark.usefixtures("dump")
def test_a_serial_run_that_goes_on_gets_past_all(
    pytester: pytest.Pytester, conftest: str, healthy: dict[str, dict[str, Any]]
) -> None:
    """Each fault that ends the process ends it twice, but for the one that hangs: its file tells why. One signal and
    one exit are enough: nobody sees either."""
    pytester.makeconftest(conftest + FAULTS)
    how = ["-k", "not relu.3"]
    statuses = [run(pytester, "faulty", *how, *["--probe-resume"] * bool(number)) for number in range(len(ENDINGS))]
    assert statuses == ENDINGS
    check(pytester, conftest, healthy, resumed=True)
