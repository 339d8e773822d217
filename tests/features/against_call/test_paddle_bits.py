"""The calls of Paddle and of torch side by side."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.installed import needs_paddle

pytestmark = needs_paddle

LINES = """\
paddle.add(Tensor([4, 8],"float32"), Tensor([4, 8],"float32"), )
paddle.nn.functional.softmax(Tensor([16, 64],"float32"), axis=-1, )
paddle.randn(list[2,3,], )
"""


def run(pytester: pytest.Pytester) -> tuple[pytest.RunResult, dict[str, Any]]:
    pytester.makefile(".txt", calls=LINES)
    result = pytester.runpytest("--probe-dump=calls.txt", "--probe-against-framework=torch", "--probe-out=out")
    with Path("out/answers.csv").open(encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    return result, {f"{row['api'].rpartition('.')[2]} {row['direction']}": row for row in rows}


def test_bits_of_paddle_and_torch_are_counted(pytester: pytest.Pytester) -> None:
    result, rows = run(pytester)
    result.assert_outcomes(passed=4, skipped=1)
    result.stdout.fnmatch_lines(
        ["probe: A is what paddle computes, B what torch does", "A against B, 5 cases: *; equal bits *"]
    )
    assert float(rows["add forward"]["equal_bits share"]) == 1.0
    assert 0.3 < float(rows["softmax forward"]["equal_bits share"]) < 1.0
    assert 1.0 <= float(rows["softmax forward"]["ulp_max"]) < 8.0
    assert rows["randn forward"]["equal_bits of"] == ""


def test_a_wrong_paddle_kernel_is_named_as_the_side_that_errs(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        "import paddle\n"
        "def pytest_probe_register(registry):\n"
        "    registry.calls['paddle.nn.functional.softmax'] = softmax\n"
        "def softmax(x, axis):\n"
        "    return paddle.nn.functional.softmax(x, axis) * 1.001\n"
    )
    result, _ = run(pytester)
    result.assert_outcomes(passed=2, failed=2, skipped=1)
    found = [json.loads(line) for line in Path("out/results.jsonl").read_text().splitlines()]
    assert {row["answers"][0]["pair"]["suspect"] for row in found if row["verdict"] == "error"} == {"A"}
