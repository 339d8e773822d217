"""Matrix products: split-K, epilogues, tensor cores, int8 weights, groups: open entries."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from cases.kernels import defects
from cases.kernels.entry import ACCELERATOR, BF16, F16, F32, NARROW, Entry, Task
from cases.kernels.making import normal
from cases.kernels.parts.gemm import GROUPED, INT8, LINEAR, MATMUL, WIDE, Tensor, grouped, linear_inputs, split_k
from cases.kernels.rounding import (
    added_in,
    after,
    cut,
    once,
    stepwise,
    tiles,
    toward_zero,
    ulp_up,
    up,
    with_gradient,
)


def tensor_cores(a: Tensor, b: Tensor, bits: int = 25) -> Tensor:
    """Products of four are added to the accumulator, aligned and cut as Volta's to Hopper's tensor cores do."""
    total = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype)
    for left, right in zip(tiles(a, 4, 1), tiles(b, 4, 0), strict=True):
        total = cut((total.double() + left.double() @ right.double()).to(a.dtype), min(bits, 24))
    return total


def matmul_gradient(g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return g @ b.t(), a.t() @ g


def biased_gelu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.gelu(x @ w.t() + b)


EPILOGUE = Task("linear, bias and GELU", "gemm", once(biased_gelu), biased_gelu, linear_inputs, backward=True)


def kahan(a: Tensor, b: Tensor) -> Tensor:
    total, rest = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype), torch.zeros((), dtype=a.dtype)
    for column, row in zip(a.t(), b, strict=True):
        term = column[:, None] * row - rest
        after_it = total + term
        total, rest = after_it, (after_it - total) - term
    return total


ENTRIES: tuple[Entry, ...] = (
    MATMUL.healthy("in float32"),
    MATMUL.healthy("tensor cores that cut", once(tensor_cores), dtypes=NARROW, devices=ACCELERATOR, backward=False),
    MATMUL.healthy("own backward", with_gradient(torch.matmul, matmul_gradient)),
    MATMUL.fault("NaN tail", "the last four elements are NaN", after(MATMUL.kernel, defects.tail(4, float("nan")))),
    MATMUL.fault("last k lost", "the loop over K ends one early", once(lambda a, b: a[:, :-1] @ b[:-1])),
    MATMUL.fault("last row zero", "the last row is not written", after(MATMUL.kernel, defects.last_row_zero)),
    MATMUL.fault("last column zero", "the last column is not written", after(MATMUL.kernel, defects.last_column_zero)),
    MATMUL.fault(
        "partial sums in 16 bit",
        "rounds the split-K parts of 25 to the tensors' dtype",
        lambda a, b: once(
            lambda a2, b2: torch.stack(
                [stepwise(a.dtype)(x @ y) for x, y in zip(tiles(a2, 25, 1), tiles(b2, 25, 0), strict=True)]
            ).sum(0)
        )(a, b),
        dtypes=NARROW,
    ),
    MATMUL.fault(
        "14-bit accumulation",
        "the accumulator keeps 14 bits, as Hopper's float8 tensor cores do",
        once(lambda a, b: tensor_cores(a, b, 14)),
    ),
    MATMUL.fault(
        "TF32 unasked", "cuts float32 operands to 11 bits", once(lambda a, b: cut(a, 11) @ cut(b, 11)), dtypes=(F32,)
    ),
    MATMUL.fault(
        "bfloat16 unasked",
        "rounds operands to bfloat16",
        once(lambda a, b: stepwise(BF16)(a) @ stepwise(BF16)(b)),
        dtypes=(F32, F16),
    ),
    MATMUL.fault("one ulp up", "rounds everything one step too high", once(torch.matmul, ulp_up), dtypes=NARROW),
    MATMUL.fault("factor 1.004", "is 0.4 % too large", once(lambda a, b: a @ b * 1.004)),
    MATMUL.fault("saturated", "clamps at 30", after(MATMUL.kernel, defects.saturated(30.0))),
    MATMUL.fault("one element off by 2 %", "one element is 2 % too large", after(MATMUL.kernel, defects.one(5, 1.02))),
    MATMUL.wrong_gradient(
        "gradient of b without the last row",
        "the gradient of b sums 23 of 24 rows",
        with_gradient(torch.matmul, lambda g, a, b: (g @ b.t(), a[:23].t() @ g[:23])),
    ),
    WIDE.healthy("split-K"),
    WIDE.healthy("tensor cores that cut", lambda a, b: tensor_cores(up(a), up(b)), devices=ACCELERATOR),
    WIDE.fault(
        "rounded to 16 bit",
        "rounds the float32 result to the inputs' dtype",
        lambda a, b: stepwise(a.dtype)(up(a) @ up(b)),
    ),
    EPILOGUE.healthy("one epilogue in float32"),
    EPILOGUE.healthy("three kernels in 16 bit", biased_gelu, dtypes=NARROW, devices=ACCELERATOR),
    LINEAR.healthy(
        "bias in the accumulator",
        once(
            lambda x, w, b: b + torch.stack([p @ q.t() for p, q in zip(tiles(x, 16), tiles(w, 16), strict=True)]).sum(0)
        ),
    ),
    EPILOGUE.fault(
        "GELU by tanh", "takes the tanh formula", once(lambda x, w, b: F.gelu(x @ w.t() + b, approximate="tanh"))
    ),
    EPILOGUE.fault(
        "bias after GELU", "adds the bias after the activation", once(lambda x, w, b: F.gelu(x @ w.t()) + b)
    ),
    LINEAR.fault("no bias", "leaves the bias out", once(lambda x, w, b: x @ w.t())),
    LINEAR.fault("bias once a split", "each of two K splits adds the bias", once(lambda x, w, b: x @ w.t() + 2 * b)),
    LINEAR.fault(
        "bias of the first row only",
        "adds the bias to the first 16 rows",
        once(lambda x, w, b: x @ w.t() + b * (torch.arange(24) < 16)[:, None]),
    ),
    LINEAR.wrong_gradient(
        "bias gradient in 16 bit",
        "adds the bias's gradient up in bfloat16",
        with_gradient(F.linear, lambda g, x, w, b: (g @ w, g.t() @ x, added_in(BF16, g))),
        dtypes=(F32, BF16),
        inputs=lambda dtype, g: [normal(g, dtype, 600, 8), normal(g, dtype, 12, 8), normal(g, dtype, 12)],
    ),
    INT8.healthy(
        "weights in the tensor's dtype first",
        lambda x, q, s: once(lambda a, w: a @ w.t())(x, (q.to(s.dtype) * s[:, None])),
        dtypes=NARROW,
        devices=ACCELERATOR,
    ),
    INT8.fault("as uint8", "takes the bytes for unsigned", once(lambda x, q, s: x @ (q.to(x.dtype) % 256).t() * s)),
    INT8.fault(
        "scale of the first channel",
        "takes one scale for all channels",
        once(lambda x, q, s: x @ q.to(x.dtype).t() * s[0]),
    ),
    INT8.fault("zero point of one", "takes 1 from each weight", once(lambda x, q, s: x @ (q.to(x.dtype) - 1).t() * s)),
    GROUPED.fault(
        "end as last", "takes the end for the last row", once(lambda x, w, ends: grouped(x, w, (11, 11, 32, 48)))
    ),
    MATMUL.healthy("split-K of 8", once(split_k)),
    MATMUL.healthy("one k at a time", once(lambda a, b: split_k(a, b, 1)), backward=False),
    MATMUL.healthy("Kahan", once(kahan), backward=False),
    MATMUL.fault("zeros", "gives zeros", after(MATMUL.kernel, defects.zeros)),
    MATMUL.fault("last K tile lost", "K's ragged last tile of 8 is left out", once(lambda a, b: a[:, :192] @ b[:192])),
    MATMUL.fault("rows swapped", "two rows change places", after(MATMUL.kernel, defects.swapped_rows)),
    MATMUL.fault(
        "16-bit accumulation",
        "adds up in the tensors' dtype",
        lambda a, b: once(lambda a2, b2: added_in(a.dtype, a2.t()[:, :, None] * b2[:, None]))(a, b),
        dtypes=NARROW,
    ),
    MATMUL.fault("truncated", "cuts where it should round", once(torch.matmul, toward_zero), dtypes=NARROW),
    MATMUL.fault(
        "tile added twice", "one split's part is added twice", once(lambda a, b: a @ b + a[:, 40:48] @ b[40:48])
    ),
    MATMUL.wrong_gradient(
        "gradient of a by float8",
        "the gradient of a takes g in float8_e5m2",
        with_gradient(torch.matmul, lambda g, a, b: (stepwise(torch.float8_e5m2)(g) @ b.t(), a.t() @ g)),
    ),
    WIDE.fault(
        "partial sums in float16",
        "rounds split-K parts to float16",
        lambda a, b: torch.stack(
            [stepwise(F16)(up(x) @ up(y)) for x, y in zip(tiles(a, 25, 1), tiles(b, 25, 0), strict=True)]
        ).sum(0),
    ),
    LINEAR.wrong_gradient(
        "bias gradient by the mean",
        "the bias's gradient is the rows' mean",
        with_gradient(F.linear, lambda g, x, w, b: (g @ w, g.t() @ x, g.mean(0))),
    ),
    INT8.healthy("scale in the epilogue"),
    INT8.fault("no -128", "clamps at -127", once(lambda x, q, s: x @ q.clamp_min(-127).to(x.dtype).t() * s)),
    GROUPED.healthy("in float32"),
    GROUPED.fault(
        "groups in tiles",
        "a tile of 8 rows takes its first row's expert",
        once(lambda x, w, ends: grouped(x, w, (16, 16, 32, 48))),
    ),
    GROUPED.fault(
        "empty group skipped",
        "an empty group moves the experts up",
        once(lambda x, w, ends: grouped(x, w[[0, 2, 1, 2]], ends)),
    ),
)
