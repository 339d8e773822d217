"""How two tensors compare of which both dumps have statistics alone."""

from __future__ import annotations

import math

from msgspec.structs import replace

from pytest_probe.features.against.sides import statistics_gap
from pytest_probe.model.dump import TensorSpec
from pytest_probe.numerics.scaled import BlockStatistics

BLOCKS = BlockStatistics(48, 6.0, 0, 0.25, 0.5, 0.0, 0.0)
OPERAND = TensorSpec("float8_e4m3fn", (16, 96), max=448.0, min=-448.0, mean=0.0, norm=900.0, blocks=BLOCKS)


def test_operands_are_equal_where_their_blocks_are() -> None:
    assert statistics_gap(OPERAND, OPERAND) == 0
    assert statistics_gap(OPERAND, replace(OPERAND, blocks=None)) == 0
    # 16 roundoffs of the dtype are 1.
    assert statistics_gap(OPERAND, replace(OPERAND, blocks=replace(BLOCKS, binades=3.0))) == 0.5
    assert statistics_gap(OPERAND, replace(OPERAND, blocks=replace(BLOCKS, clipped=0.125))) == 0.125
    assert statistics_gap(OPERAND, replace(OPERAND, blocks=replace(BLOCKS, not_finite=1))) == math.inf
