"""What Paddle and the tools around it call dtypes."""

from __future__ import annotations

import re

from pytest_probe.model.dump import DtypeSpec
from pytest_probe.records.fields import DUMP_DTYPES

# Paddle 2 has short names where Paddle 3 has those of NumPy: FP32, FLOAT32.
_SHORT = re.compile(r"(b?)fp(\d+)")
_LONG = {"bf16": "bfloat16"}


def bare(text: str) -> str:
    """The name of a dtype as NumPy and ml_dtypes have it, where there is one: float32 of FP32, FLOAT32,
    paddle.float32 and VarType.FP32."""
    name = text.rpartition(".")[2].lower().rstrip("_")  # NumPy writes bool_
    return _LONG.get(name) or _SHORT.sub(r"\1float\2", name)


def text_or_dtype(text: str) -> str | DtypeSpec:
    """A text that was passed as an argument; where it names a dtype, which Paddle takes as such, that dtype."""
    name = text.removeprefix("paddle.")
    return DtypeSpec(name) if name in DUMP_DTYPES else text
