"""How far two devices' outputs may lie apart where nobody knows which one is right: the tolerances of torch.testing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from pytest_probe.numerics.arrays import PASS, blocks
from pytest_probe.numerics.dtypes import AnyArray, widen

# rtol and atol of torch.testing.assert_close in torch 2.13; dtypes without an entry are exact.
_TOLERANCES: Mapping[str, tuple[float, float]] = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}


def not_close(a: AnyArray, b: AnyArray, dtypes: Iterable[str]) -> str:
    """How many elements have |A - B| > atol + rtol |B|, with the larger tolerances of both dtypes; "" where none has.
    NaN is close to NaN."""
    rtol, atol = (max(values) for values in zip(*(_TOLERANCES.get(name, (0.0, 0.0)) for name in dtypes), strict=True))
    far = 0
    for one, other in blocks(a, b, PASS):
        close = np.isclose(widen(one), widen(other), rtol=rtol, atol=atol, equal_nan=True)
        far += int(np.count_nonzero(~close))
    return f"{far:,} of {a.size:,} elements are not close (rtol {rtol:g}, atol {atol:g})" if far else ""
