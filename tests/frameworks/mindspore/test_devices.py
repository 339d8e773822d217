"""What MindSpore says where its CPU has no kernel."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_probe import frameworks
from tests.support.installed import needs_mindspore

pytestmark = [pytest.mark.mindspore, needs_mindspore]
if not frameworks.unavailable("mindspore"):
    frameworks.load("mindspore").device("CPU")
    from mindspore import Tensor, mint

IMAGES = np.ones((2, 3, 4, 4), np.float32)


def test_a_function_without_a_kernel_is_unsupported_and_a_wrong_call_is_not() -> None:
    framework = frameworks.load("mindspore")
    functional = mint.nn.functional
    for call in (
        lambda: functional.dropout2d(Tensor(IMAGES), 0.0),
        lambda: functional.adaptive_avg_pool3d(Tensor(IMAGES), (2, 2, 2)),
    ):
        with pytest.raises(RuntimeError) as missing:
            call()
        assert framework.has_no_kernel(missing.value)
    with pytest.raises((RuntimeError, ValueError)) as wrong:
        mint.reshape(Tensor(IMAGES), (7,))
    assert not framework.has_no_kernel(wrong.value)
