"""A device whose memory runs out: the case runs again, alone there, and is too large where that fails too."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from tests.acceptance.conftest import DumpMaker, backward, forward, tensor
from tests.device.conftest import ROOT
from tests.support.running import rows

if sys.platform != "linux":
    pytest.skip("the memory is counted by what Linux says of processes", allow_module_level=True)

# 1000 bytes. What a call takes beyond its arguments, and who is inside it, is noted.
CONFTEST = """
    import os
    import sys
    import time
    from pathlib import Path

    import torch

    sys.path.insert(0, {root!r})
    from tests.support.counted import Counted, Memory

    MEMORY = torch.hpu = Memory(Path({file!r}), 1000, torch.OutOfMemoryError)

    def until_both_workers(event):
        MEMORY.note(f"{{event}} of {{os.getpid()}}")
        until = time.time() + 240
        while os.environ.get("PYTEST_XDIST_WORKER_COUNT") == "2" and time.time() < until:
            time.sleep(0.01)
            if len({{seen for seen in MEMORY.events() if seen.startswith(event)}}) == 2:
                break

    def noting(api, extra=0, meeting=False):
        def call(x, *args):
            MEMORY.note(f"begin {{api}}")
            held = torch.empty(extra // 4)
            try:
                if meeting:
                    until_both_workers("came")
                MEMORY.take(extra, held)
                return getattr(torch.nn.functional, api)(x, *args)
            finally:
                if meeting:
                    until_both_workers("tried")
                time.sleep(0.05)
                MEMORY.note(f"end {{api}}")
        return call

    def pytest_collection_modifyitems(items):
        # Each worker begins with one of elu.
        items.sort(key=lambda item: ".elu." not in item.name)

    def pytest_probe_register(registry):
        registry.devices["hpu"] = lambda name: Counted("hpu", MEMORY)
        for api in ("relu", "gelu"):
            registry.calls[f"Functional.{{api}}"] = noting(api)
        registry.calls["Functional.elu"] = noting("elu", 360, meeting=True)
        registry.calls["Functional.silu"] = noting("silu", 600)
"""
# float32 of so many bytes.
SIZES = {"elu": 180, "relu": 200, "gelu": 640, "selu": 1600, "silu": 480}


def data() -> dict[str, Any]:
    """Two of elu fit beside one another, but for what they take besides."""
    found: dict[str, Any] = {}
    for api, size in [("elu", 180), *SIZES.items(), *SIZES.items()]:
        x, name = tensor(size // 4), f"Functional.{api}.{len(found)}"
        found[f"{name}.forward"] = forward(x, output=x)
        if len(found) < 12:
            found[f"{name}.backward"] = backward(x, x)
    return found


def too_large(needed: int, why: str) -> tuple[str, str, str]:
    said = f"its arguments and outputs take {needed:,} bytes; it was alone on hpu, where 1,000 are free: {why}"
    return "skip", "too large for the device", said


OF_SELU = too_large(3200, "its arguments alone take 1,600 bytes")
OF_SILU = too_large(960, "out of memory: tried to take 600 bytes")
FOUND = {
    "elu.forward": ("pass", "", ""),
    "elu.backward": ("pass", "", ""),
    "relu.forward": ("pass", "", ""),
    "relu.backward": ("pass", "", ""),
    "gelu.forward": ("pass", "", ""),  # with what relu left in the cache it does not fit
    "gelu.backward": too_large(1280, "out of memory: tried to take 640 bytes"),
    "selu.forward": OF_SELU,
    "selu.backward": OF_SELU,
    "silu.forward": OF_SILU,
    "silu.backward": OF_SILU,
}


def results(pytester: pytest.Pytester) -> dict[str, tuple[str, str, str]]:
    lines = rows(pytester.path / "out")
    assert len({line["id"] for line in lines}) == len(lines)
    return {
        line["id"].rpartition("::")[2]: (line["verdict"], line["kind"], line["reason"].partition("ward: ")[2])
        for line in lines
    }


@pytest.mark.parametrize("how", [[], ["--probe-isolate"], ["-n", "2"]], ids=["serial", "isolated", "workers"])
def test_a_case_runs_again_and_is_too_large_then(
    pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch, how: list[str]
) -> None:
    monkeypatch.setattr(torch, "hpu", None, raising=False)
    # That of the run of this test.
    monkeypatch.delenv("PYTEST_XDIST_WORKER_COUNT", raising=False)
    make_dump(data=data())
    memory = pytester.path / "memory.txt"
    pytester.makeconftest(CONFTEST.format(root=str(ROOT), file=str(memory)))
    pytester.runpytest("--probe-dump=dump.json", "--probe-device=hpu", "--probe-out=out", "--probe-timeout=300", *how)
    found = results(pytester)
    assert found == {name: FOUND[f"{name.split('.')[1]}.{name.split('.')[-1]}"] for name in data()}
    events = [line for line in memory.read_text().splitlines() if not line.startswith("bytes")]
    assert "ran out" in events
    if how == ["-n", "2"]:
        assert "ran out" in events[: events.index("end elu")]
        # What needs more than half of the memory was alone.
        for place, event in enumerate(events):
            if event in ("begin gelu", "begin silu"):
                assert events[place + 1] in ("ran out", f"end {event.split()[1]}")
    assert not (pytester.path / "out/running").exists()
