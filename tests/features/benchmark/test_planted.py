"""The errors that are planted in tests/data/paddleapex/gpt_outputs.txz, on a replay: `auto` finds all of them."""

from __future__ import annotations

import pytest

from tests.support.paddle_dumps import unpack
from tests.support.running import rows

pytest.importorskip("paddle")

# By the sum of the code points of a record's name modulo 7, as in those folders.
CONFTEST = """
    import numpy as np, paddle, pytest

    now = {}
    plants = {
        0: lambda a: a * np.float32(1.01),
        1: lambda a: a + np.float32(1e-4) * np.random.default_rng(0).standard_normal(a.shape).astype(np.float32),
        2: lambda a: a * np.float32(1.5),
        3: lambda a: a + np.float32(0.1) * (np.arange(a.size) == 0).reshape(a.shape),
    }

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(item):
        name, _, number = item.case.record.name.rpartition(".")
        now["kind"] = sum(map(ord, f"{name}*{number}")) % 7

    class Device:
        def __init__(self, name):
            self.name = name
        def put(self, tensor):
            return tensor
        def get(self, tensor):
            plant = plants.get(now.get("kind"))
            if plant is None or tensor.dtype != paddle.float32:
                return tensor
            return paddle.to_tensor(np.asarray(plant(tensor.numpy()), np.float32))
        def call(self, function, args, kwargs):
            return function(*args, **kwargs)

    def pytest_probe_register(registry):
        registry.devices["npu"] = Device
"""


def test_auto_finds_every_planted_error_and_flags_no_other(pytester: pytest.Pytester) -> None:
    unpack("gpt_random_nodedup", pytester.path)
    pytester.makeconftest(CONFTEST)
    pytester.runpytest("--probe-dump=forward_rank0_all.json", "--probe-device=npu", "--probe-out=out")
    found: dict[bool, list[str]] = {True: [], False: []}
    for result in rows():
        call = result["id"].partition("::")[2].rpartition(".")[0]
        name, _, number = call.rpartition(".")
        planted = sum(map(ord, f"{name}*{number}")) % 7 < 4
        floats = [output for output in result["outputs"] if output["dtype"] == "float32"]
        found[planted] += [each["verdict"] for each in floats if each["name"].startswith(("output", "grad"))]
    assert set(found[True]) == {"error"}
    assert set(found[False]) == {"pass"}
    assert [len(verdicts) for verdicts in found.values()] == [75, 93]
