"""Calls that would end the process, or that read memory nobody has written, are refused; what is right passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("paddle")

from pytest_probe.core.arguments import Leaf
from pytest_probe.errors import UnsafeArguments
from pytest_probe.frameworks.paddle.safety import check_arguments
from pytest_probe.frameworks.paddle.signatures import bind

X = Leaf(np.ones((3, 5), np.float32))
NOTHING = Leaf(np.ones((3, 0), np.float32))
SCORES = Leaf(np.ones((2, 6, 4, 5), np.float32))


def integers(*values: Any) -> Leaf:
    return Leaf(np.array(values, np.int64))


LABELS, STEPS, LENGTHS = integers([1, 2, 4], [3, 3, 1]), integers(6, 5), integers(3, 0)
ROWS, STARTS = integers(1, 2, 0, 1), integers(0, 2, 3, 4)
RIGHT: tuple[tuple[str, list[Any], dict[str, Any]], ...] = (
    ("nn.functional.rnnt_loss", [SCORES, LABELS, STEPS, LENGTHS], {}),
    ("geometric.sample_neighbors", [ROWS, STARTS, integers(0, 2)], {}),
    ("geometric.weighted_sample_neighbors", [ROWS, STARTS, X, integers(0, 2)], {}),
    ("amax", [X], {}),
    ("amax", [NOTHING], {"axis": 0}),
    ("argmin", [NOTHING, -2], {}),
    ("nn.functional.conv1d", [SCORES, X], {}),
    ("select_scatter", [X, X, 1, 4], {}),
    ("select_scatter", [X, X, 0, -3], {}),
)
WRONG: tuple[tuple[str, list[Any], dict[str, Any], str], ...] = (
    ("nn.functional.rnnt_loss", [SCORES, LABELS, STEPS, integers(3, 4)], {}, "label_lengths from 3 to 4, expected num"),
    ("nn.functional.rnnt_loss", [SCORES, LABELS, integers(7, 5), LENGTHS], {}, "input_lengths from 5 to 7"),
    ("nn.functional.rnnt_loss", [SCORES, integers([1, 2, 5], [0, 0, 0]), STEPS, LENGTHS], {}, "labels from 0 to 5"),
    (
        "nn.functional.rnnt_loss",
        [SCORES, LABELS, integers(6), LENGTHS],
        {},
        "labels and lengths of shapes [[2, 3], [1]",
    ),
    (
        "geometric.sample_neighbors",
        [ROWS, integers(0, 2, 5), integers(0)],
        {},
        "colptr that does not rise from 0 to the 4",
    ),
    ("geometric.sample_neighbors", [ROWS, integers(0, 3, 2), integers(0)], {}, "colptr that does not rise from 0"),
    (
        "geometric.sample_neighbors",
        [ROWS, STARTS, integers(0, 3)],
        {},
        "input_nodes from 0 to 3, expected nodes from 0",
    ),
    ("amax", [NOTHING], {}, "a tensor of [3, 0], which has no largest or smallest number along [0, 1]"),
    (
        "amin",
        [NOTHING, [-1]],
        {"keepdim": True},
        "a tensor of [3, 0], which has no largest or smallest number along [1]",
    ),
    ("argmax", [NOTHING], {"axis": 1}, "a tensor of [3, 0], which has no largest"),
    ("nn.functional.hsigmoid_loss", [X, LENGTHS, 6, X], {"is_sparse": True}, "is_sparse, whose gradient reads rows"),
    ("nn.functional.conv1d", [SCORES, NOTHING], {}, "a weight of [3, 0] for an input of [2, 6, 4, 5]"),
    ("nn.functional.conv2d", [SCORES, NOTHING], {"data_format": "NHWC"}, "a weight of [3, 0] for an input of"),
    ("select_scatter", [NOTHING, X, 1, 0], {}, "index 0 in a dimension of 0"),
    ("select_scatter", [X, X, -1, -6], {}, "index -6 in a dimension of 5"),
)


@pytest.mark.parametrize(("api", "args", "kwargs"), RIGHT)
def test_what_is_right_passes(api: str, args: list[Any], kwargs: dict[str, Any]) -> None:
    check_arguments(bind(f"paddle.{api}", args, kwargs))


@pytest.mark.parametrize(("api", "args", "kwargs", "found"), WRONG)
def test_what_is_wrong_is_refused(api: str, args: list[Any], kwargs: dict[str, Any], found: str) -> None:
    with pytest.raises(UnsafeArguments) as caught:
        check_arguments(bind(f"paddle.{api}", args, kwargs))
    assert str(caught.value).startswith(f"paddle.{api}: found {found}")
