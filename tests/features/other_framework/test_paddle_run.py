"""Records of Paddle by torch, and of torch by Paddle."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from tests.support import paddle_dumps
from tests.support.installed import needs_paddle
from tests.support.running import rows

pytestmark = needs_paddle

LINES = """\
paddle.nn.functional.softmax(Tensor([4, 8],"float32"), axis=-1, )
paddle.Tensor.add_(Tensor([4, 8],"float32"), Tensor([4, 8],"float32"), )
paddle.matmul(Tensor([4, 8],"float32"), Tensor([8, 3],"float32"), )
paddle.split(Tensor([4, 8],"float32"), list[3,5,], axis=1, )
paddle.nn.functional.sigmoid(Tensor([4, 8],"float32"), )
paddle.nn.functional.embedding(Tensor([4],"int64"), Tensor([8, 3],"float32"), max_norm=1.0, )
paddle.incubate.nn.functional.fused_rms_norm(Tensor([4, 8],"float32"), Tensor([8],"float32"), None, 1e-05, 1, )
"""
# Paddle's own kernel of fused_rms_norm ends the process on a processor without AVX512.
MADE_BY_PADDLE = "".join(line for line in LINES.splitlines(keepends=True) if "fused_rms_norm" not in line)

WRONG_SOFTMAX = """
import paddle

def pytest_probe_register(registry):
    registry.calls["paddle.nn.functional.softmax"] = lambda x, axis: paddle.nn.functional.softmax(x, axis) * 1.001
"""


def run(pytester: pytest.Pytester, *args: str, lines: str = LINES) -> tuple[pytest.RunResult, dict[str, Any]]:
    pytester.makefile(".txt", calls=lines)
    result = pytester.runpytest("--probe-dump=calls.txt", "--probe-out=out", "--probe-direction=forward", *args)
    return result, {row["api"].rpartition(".")[2]: row for row in rows()}


@pytest.mark.parametrize(
    ("args", "device", "reference"),
    [
        (("--probe-framework=torch",), "torch", "paddle"),
        (("--probe-reference-framework=torch",), "paddle", "torch"),
        (("--probe-framework=torch", "--probe-reference-framework=torch", "-n2"), "torch", "torch"),
    ],
)
def test_calls_of_paddle_are_made_by_torch(
    pytester: pytest.Pytester, args: tuple[str, ...], device: str, reference: str
) -> None:
    result, found = run(pytester, *args)
    result.stdout.fnmatch_lines([f"probe: paddle records: the device's calls by {device}, float64 by {reference}"])
    passed = [name for name, row in found.items() if row["verdict"] == "pass"]
    assert sorted(passed) == ["add_", "matmul", "sigmoid", "softmax", "split"]
    assert {(row["framework"], row["reference_framework"]) for row in found.values()} == {(device, reference)}
    assert {name: row["kind"] for name, row in found.items() if row["verdict"] == "skip"} == {
        "embedding": "no counterpart for max_norm",
        "fused_rms_norm": "no counterpart",
    }


def test_a_wrong_paddle_kernel_is_an_error_by_torch_too(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(WRONG_SOFTMAX)
    result, found = run(pytester, "--probe-reference-framework=torch")
    assert found["softmax"]["verdict"] == "error"
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_where_paddle_and_torch_mean_different_things_it_is_a_skip(pytester: pytest.Pytester) -> None:
    # Without a weight Paddle 3.3.1 leaves a term of the gradient out.
    pytester.makefile(".txt", calls='paddle.nn.functional.group_norm(Tensor([2, 4, 8],"float32"), 2, )\n')
    result = pytester.runpytest("--probe-dump=calls.txt", "--probe-reference-framework=torch", "-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*frameworks differ: in float64 on the CPU, too, *"])


def test_the_paddle_gpt_has_the_verdicts_of_its_own_float64(pytester: pytest.Pytester) -> None:
    paddle_dumps.unpack("gpt_random", pytester.path)
    verdicts = []
    for place, args in enumerate(((), ("--probe-framework=torch",), ("--probe-reference-framework=torch",))):
        pytester.runpytest("--probe-dump=forward_rank0_all.json", f"--probe-out=out{place}", *args)
        verdicts.append({row["id"]: row["verdict"] for row in rows(f"out{place}")})
    assert len(verdicts[0]) > 100
    assert verdicts[1] == verdicts[2] == verdicts[0]


def test_entries_that_paddle_users_register_count(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        "import torch\n"
        "from pytest_probe.frameworks.mapping import Mapping\n"
        "def pytest_probe_register(registry):\n"
        "    entry = Mapping('rms(x norm_weight norm_bias epsilon begin_norm_axis=1)', function=rms)\n"
        "    registry.mappings['paddle.incubate.nn.functional.fused_rms_norm'] = entry\n"
        "def rms(x, norm_weight, norm_bias, epsilon, begin_norm_axis):\n"
        "    return (torch.nn.functional.rms_norm(x, x.shape[1:], norm_weight, epsilon),)\n"
    )
    _, found = run(pytester, "--probe-framework=torch", "--probe-reference-framework=torch")
    assert found["fused_rms_norm"]["verdict"] == "pass"


def test_torch_has_a_second_opinion_on_an_error_of_paddle(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(WRONG_SOFTMAX)
    _, found = run(pytester, lines=MADE_BY_PADDLE)
    assert found["softmax"]["verdict"] == "error"
    (words,) = [note for note in found["softmax"]["notes"] if "torch errs" in note]
    assert words.startswith("on the CPU torch errs by a noise ratio of ")
    assert words.endswith(", which is right")
    assert not {"framework", "reference_framework"} & found["softmax"].keys()
    assert not any("torch errs" in note for name, row in found.items() if name != "softmax" for note in row["notes"])


SIDES = """\
paddle.add(Tensor([4, 8],"float32"), Tensor([4, 8],"float32"), )
paddle.nn.functional.softmax(Tensor([16, 64],"float32"), axis=-1, )
paddle.randn(list[2,3,], )
"""


def bits(pytester: pytest.Pytester) -> tuple[pytest.RunResult, dict[str, Any]]:
    """The calls of Paddle and of torch side by side: the run, and the answers by call and direction."""
    pytester.makefile(".txt", calls=SIDES)
    result = pytester.runpytest("--probe-dump=calls.txt", "--probe-against-framework=torch", "--probe-out=out")
    with Path("out/answers.csv").open(encoding="utf-8-sig") as file:
        return result, {f"{row['api'].rpartition('.')[2]} {row['direction']}": row for row in csv.DictReader(file)}


def test_bits_of_paddle_and_torch_are_counted(pytester: pytest.Pytester) -> None:
    result, found = bits(pytester)
    result.assert_outcomes(passed=4, skipped=1)
    result.stdout.fnmatch_lines(
        ["probe: A is what paddle computes, B what torch does", "A against B, 5 cases: *; equal bits *"]
    )
    assert float(found["add forward"]["equal_bits share"]) == 1.0
    assert 0.3 < float(found["softmax forward"]["equal_bits share"]) < 1.0
    assert 1.0 <= float(found["softmax forward"]["ulp_max"]) < 8.0
    assert found["randn forward"]["equal_bits of"] == ""


def test_a_wrong_paddle_kernel_is_named_as_the_side_that_errs(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(WRONG_SOFTMAX)
    result, _ = bits(pytester)
    result.assert_outcomes(passed=2, failed=2, skipped=1)
    assert {row["answers"][0]["pair"]["suspect"] for row in rows() if row["verdict"] == "error"} == {"A"}
