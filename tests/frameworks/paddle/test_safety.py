from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

pytest.importorskip("paddle")

from pytest_probe.errors import UnsafeArguments
from pytest_probe.frameworks.paddle.safety import check_arguments
from pytest_probe.frameworks.paddle.signatures import bind
from pytest_probe.model.run import Leaf
from tests.support.odd import ODD

X = Leaf(np.ones((3, 5), np.float32))
NOTHING = Leaf(np.ones((3, 0), np.float32))
SCORES = Leaf(np.ones((2, 6, 4, 5), np.float32))


def integers(*values: Any) -> Leaf:
    return Leaf(np.array(values, np.int64))


LABELS, STEPS, LENGTHS = integers([1, 2, 4], [3, 3, 1]), integers(6, 5), integers(3, 0)
ROWS, STARTS = integers(1, 2, 0, 1), integers(0, 2, 3, 4)


def tensor(*shape: int) -> Leaf:
    return Leaf(np.ones(shape, np.float32))


ONE, STATE, IMAGES, PAIRS = tensor(1), Leaf(np.ones(1, np.uint8)), tensor(2, 3, 8, 8), tensor(5, 2)
BOXES, SEQUENCE, ROW, ADAM = tensor(4, 4), tensor(9, 1, 4), integers([1, 1, 1]), [X, X, ONE, X, X, None, ONE, ONE, None]
RATES = [0.9, 0.99, 1e-8]
GRU = [tensor(12, 3), tensor(12, 4), tensor(12), tensor(12)]
LAYER = [0.0, False, 3, 4, 1, "GRU", 0, False]
RIGHT: tuple[tuple[str, list[Any], dict[str, Any]], ...] = (
    ("nn.functional.rnnt_loss", [SCORES, LABELS, STEPS, LENGTHS], {}),
    ("geometric.sample_neighbors", [ROWS, STARTS, integers(0, 2)], {}),
    ("geometric.weighted_sample_neighbors", [ROWS, STARTS, X, integers(0, 2)], {}),
    ("_C_ops.adamw_", [*ADAM, None, *RATES, 1.0, 0.1, True, False, 9, False, False, False], {}),
    ("_C_ops.adam_", [X, X, ONE, X, X, X, ONE, ONE, X, None, *RATES, False, 9, True, False, True], {}),
    ("_C_ops.sgd_", [X, ONE, X, None, False], {}),
    ("_C_ops.momentum_", [X, X, X, ONE, None, 0.9, False, "", 0.0, False, 1.0], {}),
    ("_C_ops.nadam_", [X, X, ONE, X, X, X, X, X, None, *RATES, 0.1, False], {}),
    ("_C_ops.rprop_", [X, X, X, X, None, tensor(1, 2), tensor(1, 2), False], {}),
    ("_C_ops.merged_momentum_", [[X], [X], [X], [ONE], None, 0.9, False, [""], [0.0], False, 1.0], {}),
    ("unstack", [X], {"axis": -2}),
    ("remainder", [integers(7, 5), integers(2, -1)], {}),
    ("remainder", [X, 0], {}),
    ("remainder", [Leaf(np.ones((3, 0), np.int64)), integers(0)], {}),
    ("geometric.segment_sum", [NOTHING, integers(0, 0, 1)], {}),
    ("geometric.segment_sum", [PAIRS, integers(0, 0, 1, 2, 2)], {}),
    ("geometric.send_u_recv", [PAIRS, integers(0, 4), integers(0, 1)], {}),
    ("vision.ops.roi_align", [IMAGES, BOXES, integers(1, 3), 2], {}),
    ("nn.functional.ctc_loss", [SEQUENCE, ROW, integers(9), integers(3)], {}),
    ("geometric.send_uv", [X, X, integers(0, 2), integers(0, 1)], {}),
    ("nn.functional.affine_grid", [SCORES, integers(2, 3, 4, 5)], {}),
    ("flatten", [X, 0, 1], {}),
    ("_C_ops.rnn", [tensor(2, 5, 3), [tensor(1, 5, 4)], GRU, None, STATE, *LAYER], {}),
    ("amax", [X], {}),
    ("amax", [NOTHING], {"axis": 0}),
    ("argmin", [NOTHING, -2], {}),
    ("nn.functional.conv1d", [SCORES, X], {}),
    ("select_scatter", [X, X, 0, -3], {}),
    ("Tensor.__add__", [X, 1], {}),
    ("Tensor.__neg__", [X], {}),
    ("Tensor.is_same_shape", [X, X], {}),
    ("Tensor.sum", [X, 0, "float64"], {"keepdim": True}),
    ("nanmean", [X, 0, True], {}),
    ("as_strided", [X, [2, 3], [5, 1]], {"offset": 4 * 7}),
    ("as_strided", [X, [0, 9], [5, 1]], {}),
    ("eye", [3, None], {}),
    ("Tensor.unfold", [X, -1, 5, 1], {}),
    ("nn.functional.unfold", [SCORES, [2, 2]], {}),
    ("nn.functional.label_smooth", [X], {"epsilon": 0.1}),
    ("rand", [[2, 3]], {}),
    ("cast", [X, "float64"], {}),
    ("sparse.cast", [X, "int32", "float64"], {}),
    ("Tensor.fill_diagonal_", [X, 1.0], {}),
    ("Tensor.expand_as", [X, X], {}),
    ("fft.fftn", [X], {}),
    ("split", [X, [2, 3], 1], {}),
    ("split", [X], {"num_or_sections": 1}),
    ("unsqueeze", [X, [0, -1]], {}),
    ("take_along_axis", [X, integers([0, 2])], {"axis": 0}),
    ("Tensor.__getitem__", [X, integers(0, -3)], {}),
    ("Tensor.__getitem__", [X, [2, 0]], {}),
    ("Tensor.__getitem__", [X, (slice(None), integers(4))], {}),
    ("Tensor.__getitem__", [X, (Ellipsis, 4)], {}),
)
WRONG: tuple[tuple[str, list[Any], dict[str, Any], str], ...] = (
    ("nn.functional.rnnt_loss", [SCORES, LABELS, STEPS, integers(3, 4)], {}, "label_lengths from 3 to 4, expected num"),
    ("nn.functional.rnnt_loss", [SCORES, LABELS, integers(7, 5), LENGTHS], {}, "input_lengths from 5 to 7"),
    ("nn.functional.rnnt_loss", [SCORES, integers([1, 2, 5], [0, 0, 0]), STEPS, LENGTHS], {}, "labels from 0 to 5, ex"),
    ("nn.functional.rnnt_loss", [SCORES, LABELS, integers(6), LENGTHS], {}, "labels and lengths of shapes [[2, 3], [1"),
    ("nn.functional.ctc_loss", [SEQUENCE, ROW, integers(9), integers(0)], {}, "label_lengths [0], expected one above"),
    ("nn.functional.ctc_loss", [SEQUENCE, ROW, integers(9), integers(4)], {}, "label_lengths from 4 to 4, expected nu"),
    ("nn.functional.ctc_loss", [SEQUENCE, ROW, integers(10), integers(3)], {}, "input_lengths from 10 to 10, expected"),
    ("vision.ops.roi_align", [IMAGES, BOXES, integers(1, 9), 2], {}, "boxes of shape [4, 4] and boxes_num of shape [2"),
    ("vision.ops.roi_align", [IMAGES, BOXES, integers(4), 2], {}, "boxes of shape [4, 4] and boxes_num of shape [1]"),
    ("geometric.segment_sum", [PAIRS, integers(3, 0, 1, 2, 1)], {}, "segment_ids that do not rise"),
    ("geometric.segment_sum", [PAIRS, integers(0, 1)], {}, "segment_ids of shape [2] for data of [5, 2]"),
    ("geometric.segment_sum", [tensor(0, 5), integers()], {}, "segment_ids of shape [0] for data of [0, 5], expected"),
    ("geometric.send_u_recv", [PAIRS, integers(0, 9), integers(0, 1)], {}, "src_index from 0 to 9"),
    ("geometric.send_uv", [X, X, integers(0, 3), integers(0)], {}, "src_index from 0 to 3, expected rows from 0 to 2"),
    ("geometric.sample_neighbors", [ROWS, integers(0, 2, 5), integers(0)], {}, "colptr that does not rise from 0 to t"),
    ("geometric.sample_neighbors", [ROWS, integers(0, 3, 2), integers(0)], {}, "colptr that does not rise from 0"),
    ("geometric.sample_neighbors", [ROWS, STARTS, integers(0, 3)], {}, "input_nodes from 0 to 3, expected nodes from"),
    ("linalg.pca_lowrank", [PAIRS], {}, "a call whose gradient needs both factors of a QR"),
    ("_C_ops.sgd_", [X, ONE, X, None, True], {}, "multi_precision without master_param"),
    ("_C_ops.sgd_", [X, tensor(2), X, None, False], {}, "lr of [2], expected one number"),
    ("_C_ops.momentum_", [X, ONE, X, ONE, None], {}, "grad of [1] for a parameter of [3, 5]"),
    ("_C_ops.adam_", [*ADAM, None, *RATES, False, 9, False, False, True], {}, "amsgrad without moment2_max"),
    ("_C_ops.nadam_", [X, X, ONE, X, ONE, X, X, X, None, *RATES, 0.1, False], {}, "beta2_pow of [1] for a parameter"),
    ("_C_ops.adamax_", [X, X, ONE, X, X, X, None, *RATES, False], {}, "beta1_pow of [3, 5], expected one number"),
    ("_C_ops.rmsprop_", [X, X, X, X, ONE, None, None, *RATES, True, False], {}, "centered without mean_grad"),
    ("_C_ops.rprop_", [X, X, X, X, None, ONE, tensor(1, 2), False], {}, "range of [1], expected two numbers"),
    ("_C_ops.merged_momentum_", [[X, X], [X], [X, X], [ONE, ONE], None], {}, "1 of grad for 2 parameters"),
    ("_C_ops.merged_momentum_", [[X], [X], [ONE], [ONE], None], {}, "velocity of [1] for a parameter of [3, 5]"),
    ("unbind", [tensor()], {}, "dimension 0 of a tensor of []"),
    ("_C_ops.unbind", [tensor(1), -5], {}, "dimension -5 of a tensor of [1]"),
    ("unstack", [X], {"axis": 2}, "dimension 2 of a tensor of [3, 5]"),
    ("remainder", [integers(7), integers(2, 0)], {}, "a divisor of 0"),
    ("Tensor.__mod__", [integers(-(2**63)), -1], {}, "a divisor of -1 for -9223372036854775808"),
    ("floor_mod", [integers(1, -(2**63)), integers(-1)], {}, "a divisor of -1 for -9223372036854775808"),
    ("mode", [NOTHING, 1], {}, "a tensor of [3, 0], which has no number along [1]"),
    ("amax", [NOTHING], {}, "a tensor of [3, 0], which has no number along [0, 1]"),
    ("amin", [NOTHING, [-1]], {"keepdim": True}, "a tensor of [3, 0], which has no number along [1]"),
    ("argmax", [NOTHING], {"axis": 1}, "a tensor of [3, 0], which has no number"),
    ("nn.functional.hsigmoid_loss", [X, integers(6), 6, X], {}, "labels from 6 to 6, expected classes from 0 to 5"),
    ("nn.functional.hsigmoid_loss", [X, LENGTHS, 6, X], {"is_sparse": True}, "is_sparse, whose gradient reads rows"),
    ("nn.functional.affine_grid", [X, integers(2, 3, 0, 4)], {}, "out_shape of [2, 3, 0, 4], expected 4 or 5 sizes"),
    ("flatten", [X, integers(0)], {}, "a tensor in the place of a number"),
    ("eye", [LENGTHS], {}, "a tensor in the place of a number"),
    ("_C_ops.rnn", [tensor(2, 5, 3), [tensor(1, 5, 4)], GRU[:2], None, STATE, *LAYER], {}, "weights of [(12, 3), (12"),
    ("_C_ops.rnn", [tensor(0, 5, 3), [tensor(1, 5, 4)], GRU, None, STATE, *LAYER], {}, "arguments that are none of"),
    ("_C_ops.rnn", [tensor(2, 5, 3), [X], GRU, None, STATE, *LAYER], {}, "states of [(3, 5)]"),
    ("_C_ops.rnn", [tensor(2, 2, 3), [tensor(1, 2, 4)], GRU, LENGTHS, STATE, *LAYER], {}, "lengths [3, 0], expected i"),
    ("nn.functional.conv1d", [SCORES, NOTHING], {}, "a weight of [3, 0] for an input of [2, 6, 4, 5]"),
    ("nn.functional.conv2d", [SCORES, NOTHING], {"data_format": "NHWC"}, "a weight of [3, 0] for an input of"),
    ("select_scatter", [NOTHING, X, 1, 0], {}, "index from 0 to 0, expected numbers from 0 to -1"),
    ("select_scatter", [X, X, -1, -6], {}, "index from -6 to -6, expected numbers from -5 to 4"),
    ("Tensor.__rmatmul__", [X], {}, "one operand, expected two"),
    ("Tensor.__add__", [X], {"size": 3}, "one operand, expected two"),
    ("Tensor.is_same_shape", [X], {}, "one operand, expected two"),
    ("Tensor.sum", [X, 0, X], {}, "a tensor in the place of dtype"),
    ("nansum", [X, 1, False], {}, "bool in the place of dtype"),
    ("argmax", [X, None, None, X], {}, "a tensor in the place of dtype"),
    ("count_nonzero", [X, None, 7], {}, "int in the place of keepdim"),
    ("sparse.cast", [X, 0], {}, "int in the place of dtype"),
    ("as_strided", [X, [2, 3], [5, 1], 4 * 8], {}, "a view that ends at element 15, expected one of the 15"),
    ("as_strided", [X], {"shape": [2], "stride": [-1]}, "sizes [2], strides [-1] and offset 0, expected lists"),
    ("Tensor.unfold", [X, 0, 4, 1], {}, "windows of 4 along dimension 0, 1 apart, of a tensor of [3, 5]"),
    ("Tensor.unfold", [X, 2**31, 1, LENGTHS], {}, "windows of 1 along dimension 2147483648"),
    ("Tensor.unfold", [X, 0, -1, 1], {}, "windows of -1 along dimension 0"),
    ("Tensor.unfold", [X, 0, 1, 0], {}, "windows of 1 along dimension 0, 0 apart"),
    ("nn.functional.label_smooth", [X, NOTHING], {}, "a tensor without elements"),
    ("rand", [-5, -5], {}, "a shape of -5, expected no size below 0"),
    ("Tensor.fill_diagonal_", [LENGTHS, 1.0], {}, "a tensor of [2], expected one of two dimensions"),
    ("Tensor.expand_as", [NOTHING, X], {}, "a tensor of [3, 0], expected one with elements"),
    ("fft.fftn", [X, []], {}, "a transform over no dimension"),
    ("fft.ihfftn", [Leaf(np.ones(()))], {}, "a transform over no dimension"),
    ("split", [X, -5], {}, "-5 pieces, expected 1 or more"),
    ("unsqueeze", [X, [2**40]], {}, "axis from 1099511627776 to 1099511627776, expected numbers from -3 to 2"),
    ("take_along_axis", [X, X, 0], {}, "indices of float32, expected int32 or int64"),
    ("Tensor.__getitem__", [X, integers(0, 3)], {}, "indices from 0 to 3, expected numbers from -3 to 2"),
    ("Tensor.__getitem__", [X, ([0], [5])], {}, "indices from 5 to 5, expected numbers from -5 to 4"),
)


@pytest.mark.parametrize(("api", "args", "kwargs"), RIGHT)
def test_what_is_right_passes(api: str, args: list[Any], kwargs: dict[str, Any]) -> None:
    check_arguments(bind(f"paddle.{api}", args, kwargs))


@pytest.mark.parametrize(("api", "args", "kwargs", "found"), WRONG)
def test_what_is_wrong_is_refused(api: str, args: list[Any], kwargs: dict[str, Any], found: str) -> None:
    with pytest.raises(UnsafeArguments) as caught:
        check_arguments(bind(f"paddle.{api}", args, kwargs))
    assert str(caught.value).startswith(f"paddle.{api}: found {found}")


@pytest.mark.parametrize(("api", "args", "kwargs"), RIGHT, ids=[row[0] for row in RIGHT])
def test_odd_arguments_are_refused_or_pass(api: str, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Nothing else is raised, wherever they stand."""
    for place in range(len(args)):
        for odd in ODD:
            with contextlib.suppress(UnsafeArguments):
                check_arguments(bind(f"paddle.{api}", [*args[:place], odd, *args[place + 1 :]], kwargs))
