"""`probe.check_quantizer` and `pytest_probe.dequantize` in a project's own tests."""

from __future__ import annotations

from textwrap import dedent

import pytest
import torch

pytestmark = pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="torch has no float4 before 2.8")

MINE = """
    import numpy as np
    import pytest_probe
    import torch
    from torch.testing._internal.common_quantized import to_mxfp

    def mxfp8(x):
        scales, values = to_mxfp(x, format="mxfp8")
        return values, scales

    def mxfp4(x):
        scales, values = to_mxfp(x, format="mxfp4")
        return values, scales

    def last_rows_late(x):
        values, scales = mxfp8(x)
        scales = scales.view(torch.uint8).clone()
        scales[-1] = scales[0]
        return values, scales.view(torch.float8_e8m0fnu)
"""


def run(pytester: pytest.Pytester, text: str) -> pytest.RunResult:
    pytester.makepyfile(test_mine=dedent(MINE) + dedent(text))
    return pytester.runpytest("-p", "no:cacheprovider")


def test_torchs_own_quantisers_follow_rceil(pytester: pytest.Pytester) -> None:
    text = """
    def test_mine(probe):
        x = probe.tensor((64, 256), "bfloat16")
        for quantizer, recipe in ((mxfp8, "mxfp8"), (mxfp4, "mxfp4")):
            found = probe.check_quantizer(quantizer, x, recipe=recipe, rule="rceil")
            assert [output.name for output in found.outputs] == ["scales", "elements"]
        values, scales = mxfp8(x)
        numbers = pytest_probe.dequantize(values, scales, "mxfp8")
        assert np.abs(numbers - x.double().numpy()).max() <= 0.25
    """
    result = run(pytester, text)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["2 cases, 2 pass"])


def test_a_wrong_scale_fails_the_test_and_says_what_it_is(pytester: pytest.Pytester) -> None:
    text = """
    def test_mine(probe):
        probe.check_quantizer(last_rows_late, probe.tensor((64, 256), "bfloat16"), recipe="mxfp8", rule="rceil")

    def test_other_rule(probe):
        probe.check_quantizer(mxfp8, probe.tensor((64, 256), "bfloat16"), recipe="mxfp8", rule="floor")
    """
    result = run(pytester, text)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*scales follow no rule: * blocks of 512 are unlike rceil; block [[]63, *"])
    result.stdout.fnmatch_lines(["*scales follow rceil, not floor: *"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("mxfp8, x, recipe='fp8'", "the recipe is 'fp8', expected one of TensorWise, RowWise"),
        ("mxfp8, x, recipe='mxfp8', rule='round'", "quantizer: rule: 'round' cannot be used; give one of"),
        ("mxfp8, x, recipe='mxfp8', rounding='up'", "quantizer: rounding: 'up' cannot be used"),
        ("mxfp8, x, recipe='nvfp4'", "the quantiser gave BlockWise1x16: scales of float8_e8m0fnu, expected"),
        ("lambda x: x, x, recipe='mxfp8'", "the quantiser gave 1 outputs"),
        ("lambda x: 1 / 0, x, recipe='mxfp8'", "cpu raised ZeroDivisionError"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_said_in_a_sentence(pytester: pytest.Pytester, call: str, message: str) -> None:
    text = f"""
    def test_mine(probe):
        x = probe.tensor((64, 256), "bfloat16")
        probe.check_quantizer({call})
    """
    result = run(pytester, text)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{message.replace('[', '[[]')}*"])
