from __future__ import annotations

import pytest
import torch

from tests.frameworks.torch.cpu16.rounding import DTYPES, different, threads


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("shape", [(5, 3), (100,), ()])
def test_a_bessel_function_where_no_vector_holds_it(shape: tuple[int, ...], scale: float, dtype: torch.dtype) -> None:
    x = (scale * torch.randn(shape, generator=torch.Generator().manual_seed(0))).to(dtype)
    apart = x.repeat_interleave(2, -1)[..., ::2] if shape else x
    with threads(1):
        assert different(torch.special.i0e, (x,), dtype)[0] == 0
        assert different(torch.special.i0e, (apart,), dtype)[0] == 0
