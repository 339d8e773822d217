"""The standard `finite` at the terminal: how many overflows of which kind, and the first that nothing explains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import DumpMaker, forward, tensor

# A device whose exp gives inf where float32 has a number, and whose softmax gives NaN for large scores.
CONFTEST = """
import torch
from tests.support.devices import Emulated

class Wrong(Emulated):
    def call(self, function, args, kwargs):
        found = function(*args, **kwargs)
        if "exp" in str(function):
            found = torch.where(args[0] > 70, torch.inf, found)
        if "softmax" in str(function):
            found = torch.where(args[0] > 700, torch.nan, found)
        if "mul" in str(function):
            found = found.clamp(max=torch.finfo(found.dtype).max)
        return found

def pytest_probe_register(registry):
    registry.devices["wrong"] = Wrong
"""


def constant(value: float, *shape: int, dtype: str = "float32") -> dict[str, Any]:
    found = tensor(*shape, dtype=dtype)
    norm = abs(value) * len(shape)
    return found | {"Max": value, "Min": value, "Mean": value, "Norm": norm}


@pytest.fixture
def dump(make_dump: DumpMaker) -> Path:
    x, y = constant(80.0, 4), constant(1000.0, 4)
    calls = {
        "Functional.relu.0.forward": forward(constant(1.0, 4), output=constant(1.0, 4)),
        "Functional.softmax.0.forward": forward(y, {"type": "int", "value": 0}, output=constant(0.25, 4)),
        "Torch.exp.0.forward": forward(x, output=constant(5.5e34, 4)),
        "Torch.mul.0.forward": forward(*[constant(300.0, 4, dtype="float16")] * 2, output=tensor(4, dtype="float16")),
    }
    path = make_dump(data=calls)
    frame = "File /me/train.py, line 7, in step, \n y = softmax(x)"
    path.with_name("stack.json").write_text(json.dumps({"Functional.softmax.0.forward": [frame]}))
    return path


def told(result: pytest.RunResult) -> list[str]:
    """What the summary says of overflows."""
    lines = result.outlines
    start = next(place for place, line in enumerate(lines) if line.startswith("overflows: "))
    end = next(place for place, line in enumerate(lines) if place > start and line.startswith("==="))
    return lines[start:end]


def test_a_device_that_overflows_is_found_with_its_call(pytester: pytest.Pytester, dump: Path) -> None:
    pytester.makeconftest(CONFTEST)
    args = ("--probe-dump=dump.json", "--probe-standard=finite", "--probe-device=wrong")
    result = pytester.runpytest(*args, "-v", "-n1")
    # A saturation is a warning.
    assert result.parseoutcomes() == {"failed": 2, "passed": 1, "warned": 1}
    assert told(result)[:6] == [
        "overflows: 1 saturated, 2 abnormal",
        "The Functional.softmax.0 overflow is an abnormal overflow.",
        "The Torch.exp.0 overflow is an abnormal overflow.",
        "The Torch.mul.0 overflow is an abnormal overflow.",
        "first abnormal: dump.json::Functional.softmax.0.forward",
        "  called at /me/train.py:7 in step: y = softmax(x)",
    ]


def test_self_tells_the_overflows_that_its_own_question_finds(pytester: pytest.Pytester, dump: Path) -> None:
    """Without -v in one line; docs/overflows.md has runs of healthy devices."""
    result = pytester.runpytest("--probe-dump=dump.json", "--probe-standard=self", "--probe-api=Torch.mul")
    result.assert_outcomes(passed=1)
    assert [line for line in told(result) if "overflow" in line] == ["overflows: 1 normal"]
