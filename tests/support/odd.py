"""Values that no call expects in the place of an argument."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pytest_probe.model.run import Leaf

ODD: list[Any] = [None, 2**70, math.nan, "x", [1, [2]], {}, Leaf(np.full(3, math.nan, "float32"))]
ODD += [Leaf(np.full(shape, 2, dtype)) for shape in ((), 0, (2, 3)) for dtype in ("bool", "int64", "complex64")]
