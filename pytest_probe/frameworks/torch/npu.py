"""torch_npu's fused operators as formulas of torch, for dumps of Ascend's devices. torch_npu is not imported.

Parameters, defaults, and which outputs have a gradient are those of torch_npu's schemas and derivative formulas
(op-plugin, op_plugin_functions.yaml and derivatives.yaml); what they compute is documented in op-plugin, docs/zh.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pytest_probe import references
from pytest_probe.errors import NoKernel, NoReference
from pytest_probe.frameworks.torch.npu_attention import npu_fusion_attention
from pytest_probe.references.arguments import check_known, check_shapes, check_unset

PREFIX = "NPU"
MODULE = "torch_npu"


def npu_rms_norm(input: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    result, inverse = references.rms_norm(input, gamma, epsilon)
    return result, inverse.detach()


def npu_add_rms_norm(x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor, Tensor]:
    result, inverse, total = references.add_rms_norm(x1, x2, gamma, epsilon)
    return result, inverse.detach(), total


def npu_swiglu(input: Tensor, dim: int = -1) -> Tensor:
    return references.swiglu(input, dim)


def npu_rotary_mul(input: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str = "half", rotate: Any = None) -> Tensor:
    check_unset(rotate=rotate)
    return references.rotary(input, r1, r2, rotary_mode)


def npu_scaled_masked_softmax(x: Tensor, mask: Tensor, scale: float = 1, fixed_triu_mask: bool = False) -> Tensor:
    if fixed_triu_mask:
        mask = torch.ones_like(mask, dtype=torch.bool).triu(1)
    return references.scaled_masked_softmax(x, mask, scale)


def npu_group_norm_silu(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, group: int, eps: float = 1e-5
) -> tuple[Tensor, Tensor, Tensor]:
    result, mean, inverse = references.group_norm_silu(input, weight, bias, group, eps)
    return result, mean.detach(), inverse.detach()


def npu_moe_gating_top_k_softmax(
    x: Tensor, finished: Tensor | None = None, k: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    return references.top_k_gating(x, k, finished)


def fast_gelu(input: Tensor) -> Tensor:
    return references.fast_gelu(input)


def npu_mish(input: Tensor) -> Tensor:
    return torch.nn.functional.mish(input)


def npu_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return torch.nn.functional.linear(input, weight, bias)


def npu_bmmV2(input: Tensor, mat2: Tensor, output_sizes: Sequence[int]) -> Tensor:
    """output_sizes: what the product is summed to, as the gradient of a broadcast operand is; [] for all of it."""
    product = (input[None] if input.dim() == 1 else input) @ (mat2[:, None] if mat2.dim() == 1 else mat2)
    if not output_sizes:
        return product
    aligned = [1] * (product.dim() - len(output_sizes)) + list(output_sizes)
    return product.sum_to_size(aligned).reshape(list(output_sizes))


def npu_grouped_matmul(
    x: Sequence[Tensor],
    weight: Sequence[Tensor],
    *,
    bias: Sequence[Tensor] | None = None,
    group_list: Tensor | Sequence[int] | None = None,
    split_item: int | None = 0,
    group_type: int | None = None,
    group_list_type: int | None = 0,
    act_type: int | None = 0,
    output_dtype: torch.dtype | None = None,
    tuning_config: Any = None,
    **quantised: Any,
) -> list[Tensor]:
    """Groups of rows of one x, or of its columns (group_type 2), or an x for each weight."""
    check_unset(**quantised)
    check_known("act_type", act_type, (0, None))
    check_known("group_list_type", group_list_type, (0, 1, None))
    check_known("group_type", group_type, (-1, 0, 2, None))
    matrices = list(weight[0]) if len(weight) == 1 and weight[0].dim() == 3 else list(weight)
    biases = bias or None
    if biases is not None and len(biases) == 1 and biases[0].dim() == 2:
        biases = list(biases[0])
    if len(x) > 1 or group_list is None:
        parts = references.grouped_matmul(x, matrices, biases)
    elif group_type == 2:
        lengths = _lengths(group_list, group_list_type)
        one = len(weight) == 1 and weight[0].dim() == 2
        check_shapes(one, f"{len(weight)} weights", "one matrix for groups along the columns of x")
        _check_lengths(lengths, x[0].shape[1])
        parts = references.grouped_matmul(torch.split(x[0], lengths, 1), torch.split(weight[0], lengths))
        return [torch.stack(parts)]
    else:
        lengths = _lengths(group_list, group_list_type)
        _check_lengths(lengths, x[0].shape[0])
        parts = references.grouped_matmul(torch.split(x[0], lengths), matrices, biases)
    parts = parts if output_dtype is None else [each.to(output_dtype) for each in parts]
    return [torch.cat(parts)] if split_item in (2, 3) else parts


def _lengths(group_list: Tensor | Sequence[int], kind: int | None) -> list[int]:
    """Places of each group; kind 1: they are given, else where each group ends."""
    given = [int(each) for each in (group_list.tolist() if isinstance(group_list, Tensor) else group_list)]
    return given if kind == 1 else [end - start for start, end in zip([0, *given], given, strict=False)]


def _check_lengths(lengths: list[int], extent: int) -> None:
    check_shapes(
        sum(lengths) == extent and min(lengths, default=0) >= 0,
        f"group_list of groups of {lengths} places",
        f"groups of {extent} places together",
    )


def npu_apply_adam(
    beta1_power: float,
    beta2_power: float,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    grad: Tensor,
    use_locking: bool | None,
    use_nesterov: bool | None,
    *,
    out: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    return references.adam(
        *_state(out),
        grad,
        lr=lr,
        beta1=beta1,
        beta2=beta2,
        eps=epsilon,
        beta1_power=beta1_power,
        beta2_power=beta2_power,
        nesterov=bool(use_nesterov),
    )


def npu_apply_adam_w(
    beta1_power: float,
    beta2_power: float,
    lr: float,
    weight_decay: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    grad: Tensor,
    max_grad_norm: Tensor | None,
    amsgrad: bool | None,
    maximize: bool | None,
    *,
    out: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    return references.adamw(
        *_state(out),
        grad,
        lr=lr,
        beta1=beta1,
        beta2=beta2,
        eps=epsilon,
        weight_decay=weight_decay,
        beta1_power=beta1_power,
        beta2_power=beta2_power,
        largest=max_grad_norm if amsgrad else None,
        maximize=bool(maximize),
    )


def _state(out: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    check_shapes(len(out) == 3, f"out of {len(out)} tensors", "the parameter and its two moments")
    parameter, first, second = out
    return parameter, first, second


def npu_layer_norm_eval(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    return torch.nn.functional.layer_norm(input, list(normalized_shape), weight, bias, eps)


def npu_confusion_transpose(input: Tensor, perm: Sequence[int], shape: Sequence[int], transpose_first: bool) -> Tensor:
    return input.permute(*perm).reshape(shape) if transpose_first else input.reshape(shape).permute(*perm)


def npu_transpose(
    input: Tensor, perm: Sequence[int], require_contiguous: bool = True, *, out: Tensor | None = None
) -> Tensor:
    return _into(out, input.permute(*perm))


def npu_broadcast(input: Tensor, size: Sequence[int], *, out: Tensor | None = None) -> Tensor:
    return _into(out, input.expand(*size))


def npu_dtype_cast(input: Tensor, dtype: torch.dtype, input_dtype: Any = None) -> Tensor:
    check_unset(input_dtype=input_dtype)
    return input.to(dtype)


def npu_one_hot(
    input: Tensor, num_classes: int = -1, depth: int = 1, on_value: float = 1, off_value: float = 0
) -> Tensor:
    """num_classes is the dimension of the classes in the result."""
    hot = input[..., None] == torch.arange(depth, device=input.device)
    return torch.where(hot.movedim(-1, num_classes), float(on_value), float(off_value))


def npu_pad(input: Tensor, paddings: Sequence[int]) -> Tensor:
    """paddings: places before and behind each dimension, from the first on."""
    pairs = [paddings[place : place + 2] for place in range(0, len(paddings), 2)]
    return torch.nn.functional.pad(input, [places for pair in reversed(pairs) for places in pair])


def npu_slice(input: Tensor, offsets: Sequence[int], size: Sequence[int], *, out: Tensor | None = None) -> Tensor:
    for dim, (start, length) in enumerate(zip(offsets, size, strict=True)):
        input = input.narrow(dim, start, input.shape[dim] - start if length == -1 else length)
    return _into(out, input)


def npu_max(input: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    values, indices = input.max(dim, keepdim)
    return values, indices.to(torch.int32)


def npu_sort_v2(input: Tensor, dim: int = -1, descending: bool = False, *, out: Tensor | None = None) -> Tensor:
    return _into(out, input.sort(dim, descending).values)


def npu_giou(input: Tensor, gtboxes: Tensor, trans: bool = False, is_cross: bool = False, mode: int = 0) -> Tensor:
    check_known("trans", trans, (True,))
    check_known("is_cross", is_cross, (False,))
    check_known("mode", mode, (0,))
    return references.generalized_iou(input, gtboxes)[:, None]


def npu_diou(input: Tensor, gtboxes: Tensor, trans: bool = False, is_cross: bool = False, mode: int = 0) -> Tensor:
    check_known("mode", mode, (0,))
    result = references.distance_iou(input, gtboxes, corners=not trans, cross=is_cross)
    return result if is_cross else result[None]


def npu_ciou(
    input: Tensor,
    gtboxes: Tensor,
    trans: bool = False,
    is_cross: bool = True,
    mode: int = 0,
    atan_sub_flag: bool = False,
) -> Tensor:
    check_known("mode", mode, (0,))
    result = references.complete_iou(input, gtboxes, corners=not trans, cross=is_cross)
    return result if is_cross else result[None]


def one_(input: Tensor) -> Tensor:
    return input.fill_(1)


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose first tensor may be called as Python has it, `input`, or as the schema, `self`."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        named = {"input" if name == "self" else name: value for name, value in kwargs.items()}
        return function(*args, **named)

    return called


def _into(out: Tensor | None, result: Tensor) -> Tensor:
    return result if out is None else out.copy_(result)


# By name: all the functions above that have a name of torch_npu's, and one of a file of its own.
OPERATORS: Mapping[str, Callable[..., Any]] = {
    **{name: _named(function) for name, function in list(globals().items()) if name.startswith("npu_")},
    "npu_fusion_attention": _named(npu_fusion_attention),
    **dict.fromkeys(("fast_gelu", "npu_fast_gelu"), _named(fast_gelu)),
    "one_": _named(one_),
}
_NMS = "the order of boxes with equal scores is not documented"
_STATUS = "it reads or clears a flag of the device, and computes nothing"
_IOU = "kernels add 0.01 to the sides of boxes, those of Ascend 950 to their intersection too; no document says which"
# Operators that have no reference, and why.
WITHOUT: Mapping[str, str] = {
    **dict.fromkeys(("npu_nms_v4", "npu_nms_with_mask", "npu_nms_rotated", "npu_batch_nms"), _NMS),
    **dict.fromkeys(("npu_alloc_float_status", "npu_get_float_status", "npu_clear_float_status"), _STATUS),
    **dict.fromkeys(("npu_iou", "npu_ptiou"), _IOU),
    "npu_sub_sample": "it draws random boxes",
    "npu_random_choice_with_mask": "it draws random places",
    "_npu_dropout": "it draws random numbers",
    "npu_format_cast": "it changes how the device stores a tensor, and computes nothing",
}


def reference(name: str) -> Callable[..., Any] | None:
    """The formula of an operator ("npu_swiglu"); None without one. Raises NoReference where that has a reason
    that is known."""
    if name in WITHOUT:
        raise NoReference(WITHOUT[name])
    return OPERATORS.get(name)


def operator(name: str) -> Callable[..., Any]:
    """torch_npu's own function. torch imports torch_npu where it is installed, so a missing one is no device here.
    Raises NoKernel."""
    module = sys.modules.get(MODULE)
    function: Callable[..., Any] | None = getattr(module, name, None)
    if function is None:
        found = f"{MODULE} is not imported here" if module is None else f"this release of {MODULE} has no {name}"
        raise NoKernel(f"{found}; --probe-device=recorded judges what a dump stored")
    return function
