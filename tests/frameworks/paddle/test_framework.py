from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe import frameworks
from pytest_probe.errors import FrameworkTooOld, SettingsError, UnsafeArguments
from pytest_probe.frameworks import check_installed
from pytest_probe.frameworks.paddle.references import EPS
from pytest_probe.frameworks.paddle.signatures import bind
from pytest_probe.model.run import BoundCall, Leaf, Way

FRAMEWORK = frameworks.load("paddle")


def test_the_framework_describes_itself() -> None:
    found = FRAMEWORK.describe()
    assert (found["framework"], found["version"]) == ("paddle", paddle.__version__)
    assert found["FLAGS_paddle_num_threads"] == "1"
    assert (FRAMEWORK.name, FRAMEWORK.default_device(), FRAMEWORK.memory_left(FRAMEWORK.device("cpu"))) == (
        "paddle",
        "cpu",
        None,
    )


@pytest.mark.parametrize("name", ["gpu", "nothing:3"])
def test_a_device_that_is_not_there(name: str) -> None:
    with pytest.raises(SettingsError, match=rf"'{name}' cannot be used; Paddle says: .*; found here: cpu"):
        FRAMEWORK.device(name)
    assert paddle.device.get_device() == "cpu"


def test_kernels_that_are_not_there() -> None:
    half = Leaf(np.ones(3, np.float16))
    with pytest.raises(RuntimeError) as caught:
        FRAMEWORK.run(paddle.add, [half, half], {}, Way(FRAMEWORK.device("cpu")))
    assert FRAMEWORK.has_no_kernel(caught.value)
    assert FRAMEWORK.has_no_kernel(NotImplementedError("(Unimplemented) only supports GPU now"))
    assert not FRAMEWORK.has_no_kernel(ValueError("(InvalidArgument) Broadcast dimension mismatch."))


def test_tensors_are_saved(tmp_path: Path) -> None:
    FRAMEWORK.save(tmp_path / "saved.pt", {"input.0": np.arange(3.0)})
    assert paddle.load(str(tmp_path / "saved.pt"))["input.0"].numpy().tolist() == [0, 1, 2]


def test_an_old_release_of_paddle_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_installed("paddle")
    monkeypatch.setattr(paddle, "__version__", "2.6.2")
    with pytest.raises(FrameworkTooOld, match=r"paddle 2.6.2 is installed, and pytest-probe needs paddle 3.0 or newer"):
        check_installed("paddle")


def test_defaults_are_those_of_float32() -> None:
    """A rank of 2 beside float32's roundoff, 3 beside float64's."""
    matrix = Leaf(np.diag([1.0, 1.0, EPS / 4]).astype(np.float32))
    rank = FRAMEWORK.as_single(paddle.linalg.matrix_rank, 3.4e38, "matrix_rank")
    assert FRAMEWORK.run(rank, [matrix], {}, Way(dtype="float64")).outputs["output.0"] == 2
    plain = FRAMEWORK.run(paddle.linalg.matrix_rank, [matrix], {}, Way(dtype="float64"))
    assert plain.outputs["output.0"] == 3
    limited = FRAMEWORK.as_single(paddle.nan_to_num, 7.0, "nan_to_num")
    values = Leaf(np.array([np.inf, -np.inf, np.nan, 2.0], np.float32))
    assert FRAMEWORK.run(limited, [values], {}, Way(dtype="float64")).outputs["output.0"].tolist() == [7, -7, 0, 2]


IMAGES, BOXES = Leaf(np.ones((2, 3, 8, 8))), Leaf(np.ones((4, 4)))
ROWS = Leaf(np.ones((5, 2)))
SCORES, LABELS = Leaf(np.ones((9, 1, 4))), Leaf(np.ones((1, 3), np.int32))


def integers(*values: int) -> Leaf:
    return Leaf(np.array(values, np.int32))


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (bind("paddle.vision.ops.roi_align", [IMAGES, BOXES, integers(1, 9), 2], {}), "adds up to 10"),
        (
            bind("paddle.vision.ops.roi_align", [IMAGES, BOXES, integers(4), 2], {}),
            r"shape \[1\] that adds up to 4 for 2",
        ),
        (bind("paddle.geometric.segment_sum", [ROWS, integers(3, 0, 1, 2, 1)], {}), "do not rise"),
        (bind("paddle.geometric.segment_sum", [ROWS, integers(0, 1)], {}), r"shape \[2\] for data of \[5, 2\]"),
        (bind("paddle.geometric.send_u_recv", [ROWS, integers(0, 9), integers(0, 1)], {}), "src_index from 0 to 9"),
        (bind("paddle.linalg.pca_lowrank", [ROWS], {}), "both factors of a QR"),
        (bind("paddle.nn.functional.ctc_loss", [SCORES, LABELS, integers(9), integers(0)], {}), "one above 0"),
        (bind("paddle.nn.functional.ctc_loss", [SCORES, LABELS, integers(9), integers(4)], {}), "numbers from 0 to 3"),
        (bind("paddle.nn.functional.ctc_loss", [SCORES, LABELS, integers(10), integers(3)], {}), "numbers from 0 to 9"),
    ],
)
def test_arguments_that_a_kernel_does_not_check(call: BoundCall, found: str) -> None:
    with pytest.raises(UnsafeArguments, match=found):
        FRAMEWORK.check_arguments(call)


def test_arguments_that_are_right() -> None:
    FRAMEWORK.check_arguments(bind("paddle.nn.functional.ctc_loss", [SCORES, LABELS, integers(9), integers(3)], {}))
    FRAMEWORK.check_arguments(bind("paddle.vision.ops.roi_align", [IMAGES, BOXES, integers(1, 3), 2], {}))
    FRAMEWORK.check_arguments(bind("paddle.geometric.segment_sum", [ROWS, integers(0, 0, 1, 2, 2)], {}))
    FRAMEWORK.check_arguments(bind("paddle.geometric.send_u_recv", [ROWS, integers(0, 4), integers(0, 1)], {}))
