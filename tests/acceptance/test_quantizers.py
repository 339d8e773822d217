"""`probe.check_quantizer` and `pytest_probe.dequantize` in a project's own tests."""

from __future__ import annotations

import pytest
import torch

from tests.support.suites import Suite, suite

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


TEXTS = {
    "right": """
    def test_mine(probe):
        x = probe.tensor((64, 256), "bfloat16")
        for quantizer, recipe in ((mxfp8, "mxfp8"), (mxfp4, "mxfp4")):
            found = probe.check_quantizer(quantizer, x, recipe=recipe, rule="rceil")
            assert (found.verdict, [output.name for output in found.outputs]) == ("pass", ["scales", "elements"])
        values, scales = mxfp8(x)
        numbers = pytest_probe.dequantize(values, scales, "mxfp8")
        assert np.abs(numbers - x.double().numpy()).max() <= 0.25
    """
}
# A check that fails, and what it says.
FAILING = [
    ("last_rows_late, x, recipe='mxfp8', rule='rceil'", "scales follow no rule: * blocks of 512 are unlike rceil; *"),
    ("mxfp8, x, recipe='mxfp8', rule='floor'", "scales follow rceil, not floor: "),
    ("mxfp8, x, recipe='fp8'", "the recipe is 'fp8', expected one of TensorWise, RowWise"),
    ("mxfp8, x, recipe='mxfp8', rule='round'", "quantizer: rule: 'round' cannot be used; give one of"),
    ("mxfp8, x, recipe='mxfp8', rounding='up'", "quantizer: rounding: 'up' cannot be used"),
    ("mxfp8, x, recipe='nvfp4'", "the quantiser gave BlockWise1x16: scales of float8_e8m0fnu, expected"),
    ("lambda x: x, x, recipe='mxfp8'", "the quantiser gave 1 outputs"),
    ("lambda x: 1 / 0, x, recipe='mxfp8'", "cpu raised ZeroDivisionError"),
]
CHECK = """
def test_mine(probe):
    x = probe.tensor((64, 256), "bfloat16")
    probe.check_quantizer({})
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    failing = {f"failing_{number}": CHECK.format(check) for number, (check, _) in enumerate(FAILING)}
    return suite(tmp_path_factory.mktemp("quantizers"), MINE, {**TEXTS, **failing})


def test_torchs_own_quantisers_follow_rceil(told: Suite) -> None:
    assert told.of("right").outcomes == {"passed": 1}


@pytest.mark.parametrize("number", range(len(FAILING)))
def test_a_wrong_quantizer_and_what_cannot_be_used_fail_with_a_sentence(told: Suite, number: int) -> None:
    found = told.of(f"failing_{number}")
    assert found.outcomes == {"failed": 1}
    found.shows(f"*{FAILING[number][1]}*")
