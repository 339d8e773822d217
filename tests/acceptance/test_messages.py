"""What a new user reads first: names, and the reason why something is not there."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from pytest_probe.capture.snapshot import Seen
from pytest_probe.capture.statistics import count_large, fill_together
from pytest_probe.cli import main
from pytest_probe.numerics.dtypes import AnyArray
from tests.acceptance.conftest import DumpMaker, entries
from tests.support.running import refusal

OPERATOR = """
    import torch

    @torch.library.custom_op("mylib::softcap", mutates_args=())
    def softcap(x: torch.Tensor, cap: float) -> torch.Tensor:
        return 2 * torch.tanh(x / cap) * cap

    def test_softcap(probe):
        right = lambda x, cap: torch.tanh(x / cap) * cap
        probe.check(softcap, reference=right, inputs=[probe.tensor((4, 5)), 3.0])
"""


def test_an_operator_of_the_users_has_its_own_name(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=OPERATOR)
    result = pytester.runpytest()
    result.assert_outcomes(failed=1)
    assert "mylib::softcap.0.forward in float32 on cpu: error" in result.stdout.str()
    assert "CustomOpDef" not in result.stdout.str().partition("short test summary")[2]


def test_a_device_of_another_package_names_the_package(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    said = refusal(pytester, "--probe-dump=dump.json", "--probe-device=npu")
    said.fnmatch_lines(["*torch has npu with the package torch_npu alone, which is not installed here*"])


def test_show_begins_with_what_computes(make_dump: DumpMaker, capsys: pytest.CaptureFixture[str]) -> None:
    found = entries()
    relu, linear = found["Functional.relu.0.forward"], found["Functional.linear.0.forward"]
    data = {"Torch.clone.0.forward": relu, "Tensor.zero_.0.forward": relu}
    path = make_dump(data={**data, "Functional.relu.0.forward": relu, "Functional.linear.0.forward": linear})
    assert main(["show", str(path)]) == 0
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line]
    assert [name.rpartition(".0.")[0] for name in shown if name.endswith(".forward")] == [
        "Functional.relu", "Functional.linear", "Torch.clone", "Tensor.zero_",
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_memory_that_nothing_was_written_to_warns_of_nothing(dtype: str) -> None:
    """It may hold NaN that signal."""
    bits: dict[str, AnyArray] = {
        "float16": np.array([0x7D01, 0xFC01, 1], np.uint16),
        "float32": np.array([0x7F800001, 1, 2], np.uint32),
    }
    values = np.tile(bits[dtype], 9000).view(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        count_large(values, large := Seen("torch.Tensor", dtype, [values.size], False))
        fill_together(values[:3], [3], [Seen("torch.Tensor", dtype, [3], False)])
    assert large.nan
