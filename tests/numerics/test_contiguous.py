from __future__ import annotations

import numpy as np
import pytest

from pytest_probe.numerics.contiguous import in_order

X = np.arange(6.0).reshape(2, 3)
FIXED = X.copy()
FIXED.flags.writeable = False


def test_what_lies_in_order_is_itself() -> None:
    assert in_order(X) is X


@pytest.mark.parametrize("array", [X[:, ::-1], X.T, X[:1][::-1], X[:, ::2], FIXED])
def test_what_does_not_or_is_fixed_is_copied(array: np.ndarray) -> None:
    copied = in_order(array)
    assert not np.shares_memory(copied, array)
    assert copied.flags.carray
    assert min(copied.strides) >= 0
    assert copied.tolist() == array.tolist()
