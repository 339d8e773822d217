"""What a report shows of a case."""

from __future__ import annotations

import math

import pytest

from pytest_probe.model.details import ARGUMENTS, FRAMES, LETTERS, Details, limit_share
from pytest_probe.model.dump import Frame
from pytest_probe.model.verdict import ArgumentRow


@pytest.mark.parametrize(
    ("metrics", "share"),
    [
        ({}, None),
        ({"max_ulp": 3.0}, None),
        ({"noise_ratio": 16.0, "noise_ratio_limit": 64.0, "noise_rms": 4.0, "noise_rms_limit": 8.0}, 0.5),
        ({"noise_ratio": "inf", "noise_ratio_limit": 64.0}, math.inf),
        ({"noise_ratio": "nan", "noise_ratio_limit": 64.0}, math.inf),
        ({"noise_ratio": 0.0, "noise_ratio_limit": 0.0}, 0.0),
        ({"noise_ratio": 1.0, "noise_ratio_limit": 0.0}, math.inf),
        ({"noise_ratio_limit": 64.0}, None),
    ],
)
def test_the_share_of_a_limit(metrics: dict[str, object], share: float | None) -> None:
    assert limit_share(metrics) == share


def test_the_stack_begins_with_the_users_own_frame() -> None:
    inner, own, outer = (Frame(f"{name}.py", 1, "f", "x") for name in ("torch", "model", "train"))
    found = Details.of("pytest x", (), (inner, own, outer), own, None)
    assert [frame.file for frame in found.stack] == ["model.py", "train.py"]
    assert [frame.file for frame in Details.of("", (), (inner,), None, None).stack] == ["torch.py"]


def test_what_is_too_much_is_left_out() -> None:
    frame, row = Frame("f" * 500, 1, "g", "x\ny"), ArgumentRow("a", (2,), "float32", "v" * 500)
    found = Details.of("pytest x", [row] * 100, (frame,) * 100, frame, None)
    assert (len(found.arguments), len(found.stack)) == (ARGUMENTS, FRAMES)
    assert found.stack[0].file == "f" * (LETTERS - 3) + "..."
    assert found.stack[0].code == "x\\ny"
    assert len(found.arguments[0].value) == LETTERS
