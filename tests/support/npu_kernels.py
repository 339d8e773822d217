"""What torch_npu's fused operators compute, by other functions of torch's than the references use: in float64 to
compare them with, and in narrower dtypes as a healthy device. And calls of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

Kernel = Callable[..., Any]


def rms_norm(x: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6) -> tuple[torch.Tensor, torch.Tensor]:
    dims = tuple(range(x.dim() - gamma.dim(), x.dim()))
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    result = F.rms_norm(wide, gamma.shape, gamma.to(wide.dtype), epsilon).to(x.dtype)
    mean = torch.linalg.vector_norm(wide.detach(), dim=dims, keepdim=True) ** 2 / gamma.numel()
    return result, 1 / (mean + epsilon).sqrt()


def add_rms_norm(
    x1: torch.Tensor, x2: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    total = x1 + x2
    return (*rms_norm(total, gamma, epsilon), total)


def swiglu(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    half = x.shape[dim] // 2
    first, second = x.narrow(dim, 0, half), x.narrow(dim, half, half)
    wide = first.to(torch.promote_types(x.dtype, torch.float32))
    return (wide * torch.sigmoid(wide) * second).to(x.dtype)


def rotary_mul(x: torch.Tensor, r1: torch.Tensor, r2: torch.Tensor, rotary_mode: str = "half") -> torch.Tensor:
    """By a matrix that turns each pair."""
    places = x.shape[-1]
    turn = torch.zeros(places, places, dtype=x.dtype)
    for first in range(places // 2):
        pair = (first, first + places // 2) if rotary_mode == "half" else (2 * first, 2 * first + 1)
        turn[pair[1], pair[0]], turn[pair[0], pair[1]] = -1, 1
    return torch.addcmul(x * r1, x @ turn, r2)


def scaled_masked_softmax(
    x: torch.Tensor, mask: torch.Tensor, scale: float = 1.0, fixed_triu_mask: bool = False
) -> torch.Tensor:
    hidden = torch.ones(mask.shape).triu(1) > 0 if fixed_triu_mask else mask
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    scores = torch.where(hidden, torch.full_like(wide, -10000.0), scale * wide)
    return F.log_softmax(scores, -1).exp().to(x.dtype)


def fast_gelu(x: torch.Tensor) -> torch.Tensor:
    """As the document of torch_npu has it for older devices, whose exponent lacks a bracket there."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    size = wide.abs()
    return (wide * torch.exp(0.851 * (wide - size)) / (1 + torch.exp(-1.702 * size))).to(x.dtype)


def mish(x: torch.Tensor) -> torch.Tensor:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return (wide * torch.tanh(F.softplus(wide))).to(x.dtype)


def group_norm_silu(
    x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, group: int, eps: float = 1e-5
) -> tuple[torch.Tensor, ...]:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    groups = wide.detach().reshape(x.shape[0], group, -1)
    mean = groups.sum(-1) / groups.shape[-1]
    inverse = 1 / (groups.var(-1, correction=0) + eps).sqrt()
    result = F.silu(F.group_norm(wide, group, gamma.to(wide.dtype), beta.to(wide.dtype), eps))
    return result.to(x.dtype), mean.to(x.dtype), inverse.to(x.dtype)


def moe_gating_top_k_softmax(
    x: torch.Tensor, finished: torch.Tensor | None = None, k: int = 1
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    weights, experts = torch.topk(wide, k, -1)
    weights = torch.exp(weights - torch.logsumexp(wide, -1, keepdim=True)).to(x.dtype)
    if finished is not None:
        experts = experts.masked_fill(finished[..., None], x.shape[-1])
    rows = weights[..., 0].numel()
    place = torch.arange(rows).reshape(*x.shape[:-1], 1) + rows * torch.arange(k)
    return weights, experts.int(), place.int()


def grouped_matmul(
    x: Sequence[torch.Tensor],
    weight: Sequence[torch.Tensor],
    *,
    bias: Sequence[torch.Tensor] | None = None,
    group_list: Sequence[int] | None = None,
    split_item: int = 0,
    group_type: int | None = None,
    group_list_type: int = 0,
) -> list[torch.Tensor]:
    """Groups of rows, one product after the other."""
    ends = torch.as_tensor([len(each) for each in x] if group_list is None else group_list)
    lengths = (
        ends if group_list_type == 1 or group_list is None else ends.diff(prepend=torch.zeros(1, dtype=ends.dtype))
    )
    parts, start, rows = [], 0, torch.cat(list(x))
    matrices = weight[0] if weight[0].dim() == 3 else weight
    for place, length in enumerate(lengths.tolist()):
        product = torch.einsum("mk,kn->mn", rows[start : start + length], matrices[place])
        parts.append(product if bias is None else product + bias[place])
        start += length
    return [torch.cat(parts)] if split_item > 1 else parts


def layer_norm(
    x: torch.Tensor,
    shape: Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Over the last dimension, with both or neither."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    centred = wide - wide.mean(-1, keepdim=True)
    result = centred / (wide.var(-1, correction=0, keepdim=True) + eps).sqrt()
    return (result if weight is None or bias is None else result * weight + bias).to(x.dtype)


def linear(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    wide = torch.promote_types(input.dtype, torch.float32)
    product = torch.einsum("mk,nk->mn", input.to(wide), weight.to(wide))
    return (product if bias is None else product + bias).to(input.dtype)


def bmm(self: torch.Tensor, mat2: torch.Tensor, output_sizes: Sequence[int]) -> torch.Tensor:
    product = torch.einsum("bmk,bkn->bmn", self, mat2)
    return product.sum(0) if output_sizes else product


def apply_adam(
    beta1_power: float,
    beta2_power: float,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    grad: torch.Tensor,
    use_locking: bool,
    use_nesterov: bool,
    *,
    out: Sequence[torch.Tensor],
) -> Sequence[torch.Tensor]:
    var, m, v = out
    m.mul_(beta1).add_(grad, alpha=1 - beta1)
    v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    step = m * beta1 + grad * (1 - beta1) if use_nesterov else m
    rate = lr * (1 - beta2_power) ** 0.5 / (1 - beta1_power)
    var.addcdiv_(step, v.sqrt() + epsilon, value=-rate)
    return out


def apply_adam_w(
    beta1_power: float,
    beta2_power: float,
    lr: float,
    weight_decay: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    grad: torch.Tensor,
    max_grad_norm: torch.Tensor | None,
    amsgrad: bool,
    maximize: bool,
    *,
    out: Sequence[torch.Tensor],
) -> Sequence[torch.Tensor]:
    """By torch's optimizer, at the step whose powers these are."""
    var, m, v = out
    options: Mapping[str, Any] = {
        "lr": lr,
        "betas": (beta1, beta2),
        "eps": epsilon,
        "weight_decay": weight_decay,
        "foreach": False,
    }
    parameter = torch.nn.Parameter(var.detach().clone())
    optimizer = torch.optim.AdamW([parameter], amsgrad=amsgrad, maximize=maximize, **options)
    done = math.log(beta1_power) / math.log(beta1)
    optimizer.state[parameter] = {"step": torch.tensor(done), "exp_avg": m, "exp_avg_sq": v}
    if amsgrad:
        assert max_grad_norm is not None
        optimizer.state[parameter]["max_exp_avg_sq"] = max_grad_norm.clone()
    parameter.grad = grad.detach().clone()
    optimizer.step()
    var.copy_(parameter.detach())
    return out


def box_overlap(kind: str) -> Kernel:
    """Box by box, as a loss is written down."""

    def overlap(self: torch.Tensor, gtboxes: torch.Tensor, trans: bool = False, is_cross: bool = False) -> torch.Tensor:
        first, second = (_corners(each) if trans else each for each in (self, gtboxes))
        if is_cross:
            rows = [torch.stack([_overlap(kind, one, two) for one in first.T]) for two in second.T]
            return torch.stack(rows)
        found = torch.stack([_overlap(kind, one, two) for one, two in zip(first.T, second.T, strict=True)])
        return found[:, None] if kind == "giou" else found[None]

    return overlap


def _corners(boxes: torch.Tensor) -> torch.Tensor:
    centre, size = boxes[:2], boxes[2:]
    return torch.cat((centre - size / 2, centre + size / 2))


def _overlap(kind: str, one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    low, high = torch.maximum(one[:2], two[:2]), torch.minimum(one[2:], two[2:])
    sides = torch.relu(high - low)
    inside = sides[0] * sides[1]
    around = torch.maximum(one[2:], two[2:]) - torch.minimum(one[:2], two[:2])
    eps = 0.0 if kind == "giou" else 1e-9
    lengths = [each[2:] - each[:2] for each in (one, two)]
    lengths = [torch.stack((each[0], each[1] + eps)) for each in lengths]
    union = lengths[0].prod() + lengths[1].prod() - inside + (eps or 1e-16)
    iou = inside / union
    if kind == "giou":
        return iou - (around.prod() - union) / around.prod()
    apart = ((two[:2] + two[2:]) / 2 - (one[:2] + one[2:]) / 2).square().sum()
    found = iou - apart / (around.square().sum() + eps)
    if kind == "diou":
        return found
    unlike = 4 / math.pi**2 * (torch.atan2(*lengths[1]) - torch.atan2(*lengths[0])) ** 2
    return found - (unlike / (1 + eps - iou + unlike)).detach() * unlike


def fusion_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    head_num: int,
    input_layout: str,
    *,
    pse: torch.Tensor | None = None,
    atten_mask: torch.Tensor | None = None,
    scale: float = 1.0,
    pre_tockens: int = 2147483647,
    next_tockens: int = 2147483647,
    actual_seq_qlen: Sequence[int] = (),
    actual_seq_kvlen: Sequence[int] = (),
    sparse_mode: int = 0,
) -> tuple[Any, ...]:
    """By torch's own attention, whose mask is written element by element."""
    if input_layout == "TND":
        ends = zip([0, *actual_seq_qlen], actual_seq_qlen, [0, *actual_seq_kvlen], actual_seq_kvlen, strict=False)
        parts = [
            fusion_attention(
                query[None, a:b],
                key[None, c:d],
                value[None, c:d],
                head_num,
                "BSND",
                atten_mask=atten_mask,
                scale=scale,
                sparse_mode=sparse_mode,
            )
            for a, b, c, d in ends
        ]
        tokens, heads = query.shape[:2]
        state = [torch.cat([part[place].flatten() for part in parts]).reshape(tokens, heads, 8) for place in (1, 2)]
        return (
            torch.cat([part[0][0] for part in parts]),
            *state,
            query.new_empty(0),
            0,
            0,
            sum(part[6] for part in parts),
        )
    q, k, v = (_as_bnsd(each, input_layout, head_num, query) for each in (query, key, value))
    rows, columns = q.shape[2], k.shape[2]
    scores_shape = (q.shape[0], q.shape[1], rows, columns)
    added = torch.zeros(scores_shape, dtype=q.dtype)
    if pse is not None:
        added = added + pse * scale
    if atten_mask is not None:
        shown = [
            [_shown(i, j, rows, columns, sparse_mode, pre_tockens, next_tockens) for j in range(columns)]
            for i in range(rows)
        ]
        hidden = ~torch.tensor(shown)
        if sparse_mode < 2:
            hidden = atten_mask[..., :rows, :columns].bool()
        added = added.masked_fill(hidden, -math.inf)
    result = F.scaled_dot_product_attention(q, k, v, attn_mask=added, scale=scale, enable_gqa=True)
    wide = torch.promote_types(q.dtype, torch.float32)
    with torch.no_grad():
        scores = torch.einsum("bnid,bnjd->bnij", q.to(wide), k.repeat_interleave(q.shape[1] // k.shape[1], 1).to(wide))
        scores = scores * scale + added
        largest = scores.max(-1, keepdim=True).values
        total = (scores - largest).exp().sum(-1, keepdim=True)
    state = [each.repeat(1, 1, 1, 8) for each in (largest, total)]
    return _from_bnsd(result, input_layout), *state, query.new_empty(0), 0, 0, math.prod(scores_shape)


def _shown(i: int, j: int, rows: int, columns: int, mode: int, before: int, after: int) -> bool:
    if mode == 2:
        return j <= i
    if mode == 3:
        return j - columns <= i - rows
    if mode == 4:
        return -before <= (j - columns) - (i - rows) <= after
    return True


def _as_bnsd(tensor: torch.Tensor, layout: str, heads: int, query: torch.Tensor) -> torch.Tensor:
    if layout in ("BSH", "SBH"):
        depth = query.shape[-1] // heads
        tensor = tensor.reshape(*tensor.shape[:2], -1, depth)
    order = {"BSH": (0, 2, 1, 3), "BSND": (0, 2, 1, 3), "SBH": (1, 2, 0, 3), "BNSD": (0, 1, 2, 3)}[layout]
    return tensor.permute(order)


def _from_bnsd(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    order = {"BSH": (0, 2, 1, 3), "BSND": (0, 2, 1, 3), "SBH": (2, 0, 1, 3), "BNSD": (0, 1, 2, 3)}[layout]
    placed = tensor.permute(order)
    return placed.reshape(*placed.shape[:2], -1) if layout in ("BSH", "SBH") else placed.contiguous()


KERNELS: Mapping[str, Kernel] = {
    "npu_rms_norm": rms_norm,
    "npu_add_rms_norm": add_rms_norm,
    "npu_swiglu": swiglu,
    "npu_rotary_mul": rotary_mul,
    "npu_scaled_masked_softmax": scaled_masked_softmax,
    "npu_fusion_attention": fusion_attention,
    "npu_grouped_matmul": grouped_matmul,
    "npu_moe_gating_top_k_softmax": moe_gating_top_k_softmax,
    "npu_linear": linear,
    "npu_bmmV2": bmm,
    "fast_gelu": fast_gelu,
    "npu_fast_gelu": fast_gelu,
    "npu_mish": mish,
    "npu_group_norm_silu": group_norm_silu,
    "npu_apply_adam": apply_adam,
    "npu_apply_adam_w": apply_adam_w,
    "npu_layer_norm_eval": layer_norm,
    "npu_giou": box_overlap("giou"),
    "npu_diou": box_overlap("diou"),
    "npu_ciou": box_overlap("ciou"),
}


class Example(NamedTuple):
    """A call: tensors of float64, numbers, lists of both."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = {}


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _mask(*shape: int) -> torch.Tensor:
    """One that hides no row."""
    mask = normal(*shape, seed=9) > 0
    mask[..., 0] = False
    return mask


TRIANGLE = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
_Q, _K, _V = normal(2, 6, 4, 8), normal(2, 6, 4, 8, seed=1), normal(2, 6, 4, 8, seed=2)
_LONG = normal(2, 9, 4, 8, seed=3)
_BOXES = torch.cat((normal(2, 12, seed=4), normal(2, 12, seed=5).abs() + 0.5))
_OTHERS = torch.cat((normal(2, 12, seed=6), normal(2, 12, seed=7).abs() + 0.5))
_STATE = (normal(5, 7), normal(5, 7, seed=1), normal(5, 7, seed=2).square())


def _attention(*args: Any, **kwargs: Any) -> Example:
    return Example("npu_fusion_attention", args, {"scale": 0.3, **kwargs})


EXAMPLES: Mapping[str, Example] = {
    "rms_norm": Example("npu_rms_norm", (normal(3, 5, 16), normal(16, seed=1))),
    "rms_norm of two dimensions": Example(
        "npu_rms_norm", (normal(3, 4, 16), normal(4, 16, seed=1)), {"epsilon": 0.01}
    ),
    "add_rms_norm": Example("npu_add_rms_norm", (normal(3, 5, 16), normal(3, 5, 16, seed=2), normal(16, seed=1), 1e-5)),
    "swiglu": Example("npu_swiglu", (normal(4, 32),)),
    "swiglu along the first dimension": Example("npu_swiglu", (normal(8, 5),), {"dim": 0}),
    "rotary": Example(
        "npu_rotary_mul", (normal(2, 5, 3, 16), normal(1, 5, 1, 16, seed=1), normal(1, 5, 1, 16, seed=2))
    ),
    "rotary of neighbours": Example(
        "npu_rotary_mul",
        (normal(2, 3, 5, 16), normal(1, 1, 5, 16, seed=1), normal(1, 1, 5, 16, seed=2)),
        {"rotary_mode": "interleave"},
    ),
    "scaled_masked_softmax": Example(
        "npu_scaled_masked_softmax", (normal(2, 3, 8, 32), _mask(2, 1, 8, 32), 0.7, False)
    ),
    "scaled_masked_softmax of a triangle": Example(
        "npu_scaled_masked_softmax", (normal(2, 3, 8, 8), _mask(1, 1, 8, 8)), {"scale": 2.0, "fixed_triu_mask": True}
    ),
    "scaled_masked_softmax of hidden rows": Example(
        "npu_scaled_masked_softmax", (normal(2, 3, 8, 8), torch.ones(8, 8, dtype=torch.bool)), {}
    ),
    "attention BSND": _attention(_Q, _K, _V, 4, "BSND"),
    "attention BNSD": _attention(*(each.transpose(1, 2) for each in (_Q, _K, _V)), 4, "BNSD"),
    "attention BSH": _attention(*(each.flatten(2) for each in (_Q, _K, _V)), 4, "BSH"),
    "attention SBH": _attention(*(each.flatten(2).transpose(0, 1) for each in (_Q, _K, _V)), 4, "SBH"),
    "attention of grouped heads": _attention(_Q, _K[:, :, :2], _V[:, :, :2], 4, "BSND"),
    "attention with a bias": _attention(_Q, _K, _V, 4, "BSND", pse=normal(1, 4, 6, 6, seed=5)),
    "attention with a mask": _attention(_Q, _K, _V, 4, "BSND", atten_mask=_mask(2, 1, 6, 6), sparse_mode=1),
    "attention with a band": _attention(
        _Q,
        _K,
        _V,
        4,
        "BSND",
        atten_mask=~(torch.ones(6, 6).tril(1).triu(-2) > 0),
        pre_tockens=2,
        next_tockens=1,
    ),
    "attention causal from the first": _attention(_Q, _LONG, _LONG, 4, "BSND", atten_mask=TRIANGLE, sparse_mode=2),
    "attention causal from the last": _attention(_Q, _LONG, _LONG, 4, "BSND", atten_mask=TRIANGLE, sparse_mode=3),
    "attention with a band from the last": _attention(
        _Q, _LONG, _LONG, 4, "BSND", atten_mask=TRIANGLE, sparse_mode=4, pre_tockens=3, next_tockens=1
    ),
    "attention of sequences": _attention(
        normal(9, 4, 8),
        normal(12, 2, 8, seed=1),
        normal(12, 2, 8, seed=2),
        4,
        "TND",
        atten_mask=TRIANGLE,
        sparse_mode=3,
        actual_seq_qlen=[4, 9],
        actual_seq_kvlen=[5, 12],
    ),
    "grouped_matmul": Example(
        "npu_grouped_matmul",
        ([normal(3, 8), normal(5, 8, seed=1)], [normal(8, 6, seed=2), normal(8, 4, seed=3)]),
        {"bias": [normal(6, seed=4), normal(4, seed=5)]},
    ),
    "grouped_matmul of rows": Example(
        "npu_grouped_matmul",
        ([normal(9, 8)], [normal(3, 8, 6, seed=2)]),
        {"group_list": torch.tensor([2, 5, 9]), "split_item": 3, "group_type": 0},
    ),
    "grouped_matmul of counted rows": Example(
        "npu_grouped_matmul",
        ([normal(9, 8)], [normal(8, 6, seed=2), normal(8, 6, seed=3)]),
        {"group_list": torch.tensor([4, 5]), "split_item": 2, "group_type": 0, "group_list_type": 1},
    ),
    "gating": Example("npu_moe_gating_top_k_softmax", (normal(6, 16),), {"k": 3}),
    "gating with finished rows": Example(
        "npu_moe_gating_top_k_softmax", (normal(2, 3, 16), normal(2, 3, seed=1) > 0, 2)
    ),
    "linear": Example("npu_linear", (normal(5, 16), normal(7, 16, seed=1), normal(7, seed=2))),
    "bmm": Example("npu_bmmV2", (normal(3, 5, 16), normal(3, 16, 7, seed=1), [])),
    "bmm summed": Example("npu_bmmV2", (normal(3, 5, 16), normal(3, 16, 7, seed=1), [5, 7])),
    "fast_gelu": Example("fast_gelu", (3 * normal(64),)),
    "mish": Example("npu_mish", (3 * normal(64),)),
    "group_norm_silu": Example(
        "npu_group_norm_silu", (normal(2, 6, 4, 5), normal(6, seed=1), normal(6, seed=2), 3, 1e-5)
    ),
    "layer_norm": Example(
        "npu_layer_norm_eval", (normal(4, 16), [16], normal(16, seed=1), normal(16, seed=2)), {"eps": 0.01}
    ),
    "adam": Example(
        "npu_apply_adam", (0.81, 0.998001, 0.01, 0.9, 0.999, 1e-8, normal(5, 7, seed=3), False, False), {"out": _STATE}
    ),
    "adam with nesterov": Example(
        "npu_apply_adam", (0.81, 0.998001, 0.01, 0.9, 0.999, 1e-8, normal(5, 7, seed=3), False, True), {"out": _STATE}
    ),
    "adamw": Example(
        "npu_apply_adam_w",
        (0.81, 0.998001, 0.01, 0.1, 0.9, 0.999, 1e-8, normal(5, 7, seed=3), None, False, False),
        {"out": _STATE},
    ),
    "adamw with the largest moment": Example(
        "npu_apply_adam_w",
        (0.81, 0.998001, 0.01, 0.1, 0.9, 0.999, 1e-8, normal(5, 7, seed=3), normal(5, 7, seed=4).square(), True, True),
        {"out": _STATE},
    ),
    "giou": Example("npu_giou", (_BOXES, _OTHERS), {"trans": True}),
    "diou": Example("npu_diou", (_BOXES, _OTHERS, True)),
    "diou of all pairs": Example("npu_diou", (_BOXES, _OTHERS[:, :5]), {"trans": True, "is_cross": True}),
    "ciou": Example("npu_ciou", (_BOXES, _OTHERS, True, False)),
}  # fmt: skip


def mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A tree of arguments with each tensor changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {name: mapped(each, change) for name, each in value.items()}
    return type(value)(mapped(each, change) for each in value) if isinstance(value, (list, tuple)) else value
