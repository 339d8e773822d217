from __future__ import annotations

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe import frameworks
from pytest_probe.errors import FrameworkTooOld
from pytest_probe.frameworks import check_installed
from pytest_probe.frameworks.paddle.references import EPS
from pytest_probe.model.run import Arguments, Leaf, Way

FRAMEWORK = frameworks.load("paddle")


def test_the_framework_describes_itself() -> None:
    found = FRAMEWORK.describe()
    assert (found["framework"], found["version"]) == ("paddle", paddle.__version__)
    assert found["FLAGS_paddle_num_threads"] == "1"
    assert (FRAMEWORK.default_device(), FRAMEWORK.memory_left(FRAMEWORK.device("cpu"))) == ("cpu", None)


def test_kernels_that_are_not_there() -> None:
    half = Leaf(np.ones(3, np.float16))
    with pytest.raises(RuntimeError) as caught:
        FRAMEWORK.run(paddle.add, Arguments((half, half), {}, None), Way(FRAMEWORK.device("cpu")))
    assert FRAMEWORK.has_no_kernel(caught.value)
    assert FRAMEWORK.has_no_kernel(NotImplementedError("(Unimplemented) only supports GPU now"))
    assert not FRAMEWORK.has_no_kernel(ValueError("(InvalidArgument) Broadcast dimension mismatch."))


def test_an_old_release_of_paddle_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_installed("paddle")
    monkeypatch.setattr(paddle, "__version__", "2.6.2")
    with pytest.raises(FrameworkTooOld, match=r"paddle 2.6.2 is installed, and pytest-probe needs paddle 3.0 or newer"):
        check_installed("paddle")


def test_defaults_are_those_of_float32() -> None:
    """A rank of 2 beside float32's roundoff, 3 beside float64's."""
    matrix = Leaf(np.diag([1.0, 1.0, EPS / 4]).astype(np.float32))
    rank = FRAMEWORK.as_single(paddle.linalg.matrix_rank, 3.4e38, "matrix_rank")
    assert FRAMEWORK.run(rank, Arguments((matrix,), {}, None), Way(dtype="float64")).outputs["output.0"] == 2
    plain = FRAMEWORK.run(paddle.linalg.matrix_rank, Arguments((matrix,), {}, None), Way(dtype="float64"))
    assert plain.outputs["output.0"] == 3
    limited = FRAMEWORK.as_single(paddle.nan_to_num, 7.0, "nan_to_num")
    values = Leaf(np.array([np.inf, -np.inf, np.nan, 2.0], np.float32))
    found = FRAMEWORK.run(limited, Arguments((values,), {}, None), Way(dtype="float64")).outputs
    assert found["output.0"].tolist() == [7, -7, 0, 2]
