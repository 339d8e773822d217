from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import torch

from pytest_probe.errors import UnsafeArguments
from pytest_probe.frameworks.torch.safety import check_arguments, check_backward
from pytest_probe.frameworks.torch.signatures import bind
from tests.support.odd import ODD
from tests.support.replaying import leaf, normal

X, ROWS = normal(3, 5), normal(5)
STEP = leaf(3)
LENGTHS, OFFSETS = leaf([1, 2], "int64"), leaf([0, 1, 3], "int64")
LU, PIVOTS = normal(2, 4, 3), leaf(np.ones((2, 3)), "int32")

RIGHT: tuple[tuple[str, list[Any], dict[str, Any]], ...] = (
    ("Torch._foreach_add_", [[X, ROWS], [X, ROWS]], {}),
    ("Torch._foreach_addcmul_", [[X, X], [X, X], [X, X], [1.0, 2.0]], {}),
    ("Torch._foreach_norm", [[X, ROWS, ROWS], 2], {}),
    ("Torch._fused_sgd_", [[X], [X], [X]], {"lr": 0.1}),
    ("Torch._fused_sgd_", [[X], [X], []], {"lr": 0.1, "momentum": 0.0}),
    ("Torch._fused_adam_", [[X, ROWS], [X, ROWS], [X, ROWS], [X, ROWS], [], [STEP, STEP]], {"amsgrad": False}),
    ("Torch._fused_adagrad_", [[X], [X], [X], [STEP]], {}),
    ("Torch._foreach_mm", [[X], [normal(5, 2)]], {}),
    ("Torch._foreach_addcmul_", [[X], [X], [ROWS]], {}),
    ("Torch.segment_reduce", [X, "sum"], {"lengths": leaf([[2, 3]] * 3, "int64"), "axis": 1}),
    ("Torch.segment_reduce", [X, "sum"], {"lengths": LENGTHS}),
    ("Torch.segment_reduce", [X, "sum"], {"offsets": OFFSETS}),
    ("Torch.lu_unpack", [LU, PIVOTS], {}),
    ("Torch.native_batch_norm", [X, None, None, ROWS, ROWS, False, 0.1, 1e-5], {}),
    ("Torch.native_batch_norm", [X, ROWS, ROWS, None, None, True, 0.1, 1e-5], {}),
    ("Functional.pdist", [X], {}),
    ("Functional.ctc_loss", [normal(9, 2, 5), leaf([[1, 4], [2, 3]], "int64"), [9, 9], [2, 2]], {}),
    ("Torch.linalg.lstsq", [X, X], {}),
    ("Torch.add", [[X, ROWS], [X]], {}),
)
WRONG: tuple[tuple[str, list[Any], dict[str, Any], str], ...] = (
    ("Torch._foreach_lerp_", [[X, X], [X, X], []], {}, "found lists of other lengths, input.0 of 2, input.1 of 2, inp"),
    ("Torch._fused_sgd_", [[X, ROWS], [X, X], []], {}, "found shapes [5] and [3, 5] at place 1 of the lists, expected"),
    ("Torch._fused_sgd_", [[X, X], [X, X], [X]], {}, "found lists of other lengths"),
    ("Torch._fused_sgd_", [[X], [X], []], {"momentum": 0.9}, "found lists of other lengths"),
    ("Torch._fused_adam_", [[X], [X], [X], [X], [], [STEP]], {"amsgrad": True}, "found lists of other lengths"),
    ("Torch._fused_adam_", [[X], [X], [X], [X], [], [X]], {}, "found input.5 with something else than single numbers"),
    ("Torch.segment_reduce", [X, "sum"], {"lengths": leaf([1, 9], "int64")}, "found lengths that do not rise from 0"),
    ("Torch.segment_reduce", [X, "sum"], {"lengths": leaf([-1, 4], "int64")}, "found lengths that do not rise from 0"),
    ("Torch.segment_reduce", [X, "sum"], {"offsets": leaf([0, 100], "int64")}, "found offsets that do not rise from 0"),
    ("Torch.segment_reduce", [X, "sum"], {"lengths": LENGTHS, "axis": 3}, "found axis 3, expected one of the data's"),
    ("Torch.lu_unpack", [LU, leaf(np.ones(3), "int32")], {}, "found pivots of shape [3] for a matrix of [2, 4, 3]"),
    ("Torch.lu_unpack", [LU, leaf(np.full((2, 3), 9), "int32")], {}, "found pivots from 9 to 9, expected numbers from"),
    ("Torch.native_batch_norm", [X, None, None, None, None, False, 0.1, 1e-5], {}, "found no running_mean outside of "),
    ("Torch.native_batch_norm", [X, ROWS, normal(4), ROWS, ROWS, True, 0.1, 1e-5], {}, "found bias of shape [4], exp"),
    ("Torch.batch_norm_update_stats", [X, ROWS, normal(4), 0.1], {}, "found running_var of shape [4], expected [5]"),
    ("Functional.ctc_loss", [normal(9, 1, 5), leaf([[1, 5]], "int64"), [9], [2]], {}, "found targets from 1 to 5, ex"),
    ("Functional.pdist", [normal(0, 3)], {}, "found input of shape [0, 3], expected a tensor with elements"),
    ("Torch.linalg.lstsq", [X, normal(3, 0)], {}, "of shape [3, 0], expected a tensor with elements"),
    ("Torch.fbgemm_pack_gemm_matrix_fp16", [X], {}, "found a part of a quantisation library"),
    ("Torch.quantized_lstm_cell", [X], {}, "found a part of a quantisation library"),
)  # fmt: skip


@pytest.mark.parametrize(("api", "args", "kwargs"), RIGHT, ids=[row[0] for row in RIGHT])
def test_what_is_right_passes(api: str, args: list[Any], kwargs: dict[str, Any]) -> None:
    check_arguments(bind(api, args, kwargs))


@pytest.mark.parametrize(("api", "args", "kwargs", "said"), WRONG, ids=[row[0] for row in WRONG])
def test_what_is_wrong_is_named(api: str, args: list[Any], kwargs: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsafeArguments) as caught:
        check_arguments(bind(api, args, kwargs))
    assert str(caught.value).startswith(f"{api}: found ")
    assert said in str(caught.value)
    assert caught.value.kind == "unsafe arguments"


@pytest.mark.parametrize(("api", "args", "kwargs"), RIGHT, ids=[row[0] for row in RIGHT])
def test_odd_arguments_are_refused_or_pass(api: str, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Nothing else is raised, wherever they stand."""
    for place in range(len(args)):
        for odd in ODD:
            with contextlib.suppress(UnsafeArguments):
                check_arguments(bind(api, [*args[:place], odd, *args[place + 1 :]], kwargs))


def group_norm(*, layout: torch.memory_format, asked: bool) -> torch.Tensor:
    images = torch.ones(2, 4, 3, 3).to(memory_format=layout).requires_grad_(asked)
    return torch.nn.functional.group_norm(images, 2, torch.ones(4, requires_grad=True))


def test_a_backward_that_ends_the_process() -> None:
    """torch 2.13 writes a gradient of group_norm's input that nobody asked for, where its channels are last."""
    with pytest.raises(UnsafeArguments, match="group_norm: found an input with its channels last that requires no"):
        check_backward([group_norm(layout=torch.channels_last, asked=False).relu() * 2])


@pytest.mark.parametrize(
    ("layout", "asked"),
    [(torch.channels_last, True), (torch.contiguous_format, True), (torch.contiguous_format, False)],
)
def test_backwards_of_group_norm_that_run(layout: torch.memory_format, asked: bool) -> None:
    output = group_norm(layout=layout, asked=asked)
    check_backward([output, torch.ones(3)])
    output.sum().backward()
