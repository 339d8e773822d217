"""PyTorch: special functions whose 16-bit kernels on torch's own CPU round inside.

Written as they run: each takes the dtype to round to and then the kernel's own arguments, in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from pytest_probe.frameworks.torch.cpu16.loops import beyond_vectors
from pytest_probe.frameworks.torch.cpu16.sequential import fuses, looped, rounded_once

ATEN = torch.ops.aten
# Cephes' Chebyshev coefficients of i0e on [0, 8], and of i0e times the root on [8, inf]; what 16 bits lose is left out.
BELOW = (
    2.65982372468238665035e-9, -1.30002500998624804212e-8, 6.04699502254191894932e-8, -2.67079385394061173391e-7,
    1.11738753912010371815e-6, -4.41673835845875056359e-6, 1.64484480707288970893e-5, -5.75419501008210370398e-5,
    1.88502885095841655729e-4, -5.76375574538582365885e-4, 1.63947561694133579842e-3, -4.32430999505057594430e-3,
    1.05464603945949983183e-2, -2.37374148058994688156e-2, 4.93052842396707084878e-2, -9.49010970480476444210e-2,
    1.71620901522208775349e-1, -3.04682672343198398683e-1, 6.76795274409476084995e-1,
)  # fmt: skip
ABOVE = (
    3.39623202570838634515e-9, 2.26666899049817806459e-8, 2.04891858946906374183e-7, 2.89137052083475648297e-6,
    6.88975834691682398426e-5, 3.36911647825569408990e-3, 8.04490411014108831608e-1,
)  # fmt: skip
# Where one series ends and the other begins, in Cephes.
EDGE = 8.0


def i0e(dtype: torch.dtype, x: torch.Tensor) -> torch.Tensor:
    size = x.abs()
    below = _series(dtype, rounded_once(rounded_once(size / 2, dtype) - 2, dtype), BELOW)
    above = _series(dtype, rounded_once(rounded_once(4 * EDGE / size, dtype) - 2, dtype), ABOVE) / size.sqrt()
    whole: torch.Tensor = ATEN.special_i0e.default(x)
    stepwise = torch.where(size <= EDGE, below, above)
    return torch.where(beyond_vectors(looped(), x), stepwise, whole) if fuses() else stepwise


def _series(dtype: torch.dtype, x: torch.Tensor, coefficients: Sequence[float]) -> torch.Tensor:
    """Clenshaw's sum of a Chebyshev series, each step rounded."""
    total = last = before = torch.zeros_like(x)
    for coefficient in rounded_once(x.new_tensor(coefficients), dtype):
        last, before = total, last
        total = rounded_once(rounded_once(rounded_once(x * last, dtype) - before, dtype) + coefficient, dtype)
    return rounded_once(rounded_once(total - before, dtype) / 2, dtype)


def kaiser_window(
    to: torch.dtype, count: int, periodic: bool = True, beta: float = 12.0, **kwargs: Any
) -> torch.Tensor:
    """Places are rounded, and nothing else: bfloat16 holds no odd number above 256."""
    last = count if periodic else count - 1
    places = rounded_once(torch.arange(count).double(), to)
    if count < 2:
        return torch.ones_like(places)
    distance = (1 - (2 * places / last - 1).square()).abs().sqrt()
    return torch.i0(beta * distance) / torch.i0(places.new_tensor(beta))


KAISER = ATEN.kaiser_window
SPECIAL: Mapping[Any, Callable[..., Any]] = {
    ATEN.special_i0e.default: i0e,
    KAISER.default: kaiser_window,
    KAISER.periodic: kaiser_window,
    KAISER.beta: kaiser_window,
}
