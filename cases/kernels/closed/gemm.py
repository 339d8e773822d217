"""Matrix products: addmm, batches, int8 by int8, scaled blocks, gates, emulated float32: closed entries."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import ACCELERATOR, BF16, F16, F32, NARROW, Entry, Task
from cases.kernels.making import integers, normal, uniform
from cases.kernels.rounding import added_in, by_way_of, cut, once, stepwise, tiles, up, with_gradient

Tensor = torch.Tensor


def addmm(alpha: float = 0.5, beta: float = 1.5, both: bool = False, narrow: Any = None) -> Any:
    """K in tiles of 32; alpha and beta in the epilogue."""

    def run(c: Tensor, a: Tensor, b: Tensor) -> Tensor:
        total = sum(x @ y for x, y in zip(tiles(a, 32), tiles(b, 32, 0), strict=True))
        total = total if narrow is None else narrow(total)
        return alpha * (total + beta * c) if both else alpha * total + beta * c

    return run


ADDMM = Task(
    "alpha and beta",
    "gemm",
    once(addmm()),
    lambda c, a, b: torch.addmm(c, a, b, beta=1.5, alpha=0.5),
    lambda dtype, g: [normal(g, dtype, 40, 40, scale=4.0), normal(g, dtype, 40, 150), normal(g, dtype, 150, 40)],
    backward=True,
)


def overwritten(old: float) -> Any:
    def run(c: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return a @ b + (old * c if old else torch.zeros_like(c).masked_fill(c.isnan(), old))

    return run


ZERO = Task(
    "beta of zero",
    "gemm",
    once(overwritten(0.0)),
    lambda c, a, b: torch.addmm(c, a, b, beta=0),
    lambda dtype, g: [
        normal(g, dtype, 24, 40).masked_fill(torch.rand(24, 40, generator=g) < 0.01, torch.nan),
        normal(g, dtype, 24, 80),
        normal(g, dtype, 80, 40),
    ],
)


def batch(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """The second factor comes transposed."""
    return [normal(g, dtype, 5, 20, 72), normal(g, dtype, 5, 28, 72)]


def batched(a: Tensor, b: Tensor) -> Tensor:
    return a @ b.mT


def k_split(parts: int, lost: int = -1, twice: int = -1) -> Any:
    """Partial products of slices of K, those of one tile of rows lost or added again."""

    def run(a: Tensor, b: Tensor) -> Tensor:
        total = torch.zeros(a.shape[0], a.shape[1], b.shape[1], dtype=a.dtype)
        for n, (x, y) in enumerate(zip(tiles(a, 72 // parts), tiles(b, 72 // parts), strict=True)):
            product = x @ y.mT
            weight = torch.ones(a.shape[0], 1, 1)
            weight[2] = 0.0 if n == lost else 2.0 if n == twice else 1.0
            total = total + product * weight
        return total

    return run


def stale(a: Tensor, b: Tensor) -> Tensor:
    """The accumulator of the last tile of columns is not cleared in one batch."""
    out = a @ b.mT
    extra = torch.zeros_like(out)
    extra[3, :, 24:] = out[3, :, 20:24].detach()
    return out + extra


BATCHED = Task("batched, transposed", "gemm", once(batched), batched, batch, backward=True)


def next_batch(x: Tensor) -> Tensor:
    """The last batch by the stride of the one before."""
    return torch.cat([x[:-1], x[-2:-1]])


def batched_gradient(rows: int = 20, turned: bool = False) -> Any:
    def gradient(g: Tensor, a: Tensor, b: Tensor) -> Any:
        gb = g[:, :rows].mT @ a[:, :rows]
        return g @ b, gb.flip(0) if turned else gb

    return with_gradient(batched, gradient)


def int8(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """Rows and columns with a scale each; some products come near the ends of 16 bits."""
    a = integers(g, 128, 24, 96, low=-127).to(torch.int8)
    a[:3] = 127
    b = integers(g, 128, 96, 40, low=-127).to(torch.int8)
    b[:, :5] = 125
    scales = [uniform(g, dtype, n, low=0.01, high=0.05) for n in (24, 40)]
    return [scales[0], scales[1], a, b, normal(g, dtype, 40, scale=20.0)]


def int8_product(change: Any = None, rows: Any = None, late: bool = False) -> Any:
    def run(s: Tensor, t: Tensor, a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
        total = (a.to(torch.int32) @ b.to(torch.int32) if change is None else change(a, b)).to(s.dtype)
        s, t = (s, t) if rows is None else rows(s, t)
        return (total + bias) * s[:, None] * t if late else total * s[:, None] * t + bias

    return run


def saturating(a: Tensor, b: Tensor) -> Tensor:
    """Four products are added in 16 bits, which saturate."""
    products = a.int()[:, :, None] * b.int()
    return products.unflatten(1, (24, 4)).sum(2).clamp(-32768, 32767).sum(1)


def wrapping(a: Tensor, b: Tensor) -> Tensor:
    return (a.int() @ b.int()).to(torch.int16)


INT8 = Task(
    "int8 by int8",
    "gemm",
    once(int8_product()),
    lambda s, t, a, b, bias: (a.to(s.dtype) * s[:, None]) @ (b.to(s.dtype) * t) + bias,
    int8,
)


def blocks(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """Blocks of 32 along K have a scale a row, and a tile of columns."""
    a, b = normal(g, dtype, 32, 128), normal(g, dtype, 128, 32)
    return [a, b, uniform(g, dtype, 32, 4, low=0.1, high=2.0), uniform(g, dtype, 4, 1, low=0.1, high=2.0)]


def blocked(pick: Any = lambda n: n, own: Any = lambda n: n, last: bool = True, step: Any = None) -> Any:
    def run(a: Tensor, b: Tensor, s: Tensor, t: Tensor) -> Tensor:
        total = torch.zeros(32, 32, dtype=a.dtype)
        for n, (x, y) in enumerate(zip(tiles(a, 32), tiles(b, 32, 0), strict=True)):
            if last or n < 3:
                product = x @ y * s[:, pick(n), None] * t[own(n)]
                total = total + (product if step is None else step(product))
        return total

    return run


BLOCKED = Task(
    "blocks with scales",
    "gemm",
    once(blocked()),
    lambda a, b, s, t: (a * s.repeat_interleave(32, 1)) @ (b * t.repeat_interleave(32, 0)),
    blocks,
)


def gated(x: Tensor, gate: Tensor, value: Tensor, act: Any = F.silu) -> Tensor:
    return act(x @ gate) * (x @ value)


def both_at_once(x: Tensor, gate: Tensor, value: Tensor) -> Tensor:
    a, b = (x @ torch.cat([gate, value], 1)).chunk(2, 1)
    return a / (1 + torch.exp(-a)) * b


def gated_gradient(both: bool = True) -> Any:
    def gradient(g: Tensor, x: Tensor, gate: Tensor, value: Tensor) -> Any:
        a, b = x @ gate, x @ value
        s = torch.sigmoid(a)
        ga, gb = g * b * s * (1 + a * (1 - s)), g * a * s
        return ga @ gate.t() + (gb @ value.t() if both else 0.0), x.t() @ ga, x.t() @ gb

    return with_gradient(gated, gradient)


GATED = Task(
    "two products and a gate",
    "gemm",
    gated_gradient(),
    gated,
    lambda dtype, g: [normal(g, dtype, 24, 96), *(normal(g, dtype, 96, 40, scale=0.15) for _ in range(2))],
    backward=True,
)


def pieces(count: int, terms: int) -> Any:
    """float32 as a sum of bfloat16 pieces; as many of the products as the order allows."""

    def run(a: Tensor, b: Tensor) -> Tensor:
        left, right = _split(a, count), _split(b, count)
        pairs = [(i, j) for i in range(count) for j in range(count) if i + j < terms]
        return sum((left[i] @ right[j] for i, j in reversed(pairs)), torch.zeros(a.shape[0], b.shape[1]))

    return run


def _split(x: Tensor, count: int) -> list[Tensor]:
    found = []
    for n in range(count):
        part = x if n == count - 1 and x.dtype is not F32 else x.to(BF16).to(x.dtype)
        found.append(part)
        x = x - part
    return found


EMULATED = Task(
    "float32 by bfloat16 pieces",
    "gemm",
    pieces(3, 3),
    torch.matmul,
    lambda dtype, g: [normal(g, dtype, 24, 100), normal(g, dtype, 100, 32)],
    "Torch.matmul",
    dtypes=(F32,),
)


def vector(m: Tensor, v: Tensor, rows: int = 8) -> Tensor:
    """A row in that many lanes."""
    return (m * v).unflatten(1, (-1, rows)).sum(1).sum(-1)


def narrow_lanes(m: Tensor, v: Tensor) -> Tensor:
    total = added_in(m.dtype, (up(m) * up(v)).unflatten(1, (-1, 8)).transpose(0, 1))
    return total.sum(-1).to(m.dtype)


VECTOR = Task(
    "matrix by vector",
    "gemm",
    once(vector),
    torch.mv,
    lambda dtype, g: [normal(g, dtype, 300, 256), normal(g, dtype, 256)],
    "Torch.mv",
    backward=True,
)

WIDE = Task(
    "16 bit to float32, with bias",
    "gemm",
    lambda x, w, b: F.linear(up(x), up(w), up(b)),
    F.linear,
    lambda dtype, g: [normal(g, dtype, 24, 128), normal(g, dtype, 48, 128, scale=0.1), normal(g, dtype, 48, scale=5.0)],
    dtypes=NARROW,
)

ENTRIES: tuple[Entry, ...] = (
    ADDMM.healthy("tiles of 32"),
    ADDMM.healthy("beta first", once(lambda c, a, b: 1.5 * c + (0.5 * a) @ b)),
    ADDMM.fault("alpha for both", "scales c by alpha too", once(addmm(both=True))),
    ADDMM.fault("no beta", "adds c as it is", once(addmm(beta=1.0))),
    ADDMM.fault("c transposed", "reads c by columns", once(lambda c, a, b: addmm()(c.t(), a, b))),
    ADDMM.fault("c's first row", "the epilogue's row stride is 0", once(lambda c, a, b: addmm()(c[:1], a, b))),
    ZERO.healthy("c not read"),
    ZERO.fault("0 times NaN", "multiplies a c of NaN by 0", once(lambda c, a, b: a @ b + 0 * c)),
    BATCHED.healthy("in float32"),
    BATCHED.healthy("split over K", once(k_split(3))),
    BATCHED.healthy("own backward", batched_gradient()),
    BATCHED.fault("part lost", "one of three parts of a batch is lost", once(k_split(3, lost=1))),
    BATCHED.fault("part twice", "one of nine parts of a batch is added twice", once(k_split(9, twice=4))),
    BATCHED.fault("accumulator not cleared", "a tile begins with the sums of the tile before", once(stale)),
    BATCHED.fault(
        "stride of the last", "the last batch takes the weights before it", once(lambda a, b: batched(a, next_batch(b)))
    ),
    BATCHED.fault(
        "K tail of the next row",
        "the last 8 of K are read from the next row",
        once(lambda a, b: batched(a, torch.cat([b[..., :64], b[..., 64:].roll(-1, 1)], -1))),
    ),
    BATCHED.wrong_gradient("ragged rows", "the weight gradient lacks the rows of the last tile", batched_gradient(16)),
    BATCHED.wrong_gradient("batches reversed", "weight gradients are in reverse order", batched_gradient(turned=True)),
    INT8.healthy("32-bit sums"),
    INT8.fault("16-bit fours", "four products together saturate in 16 bits", once(int8_product(saturating))),
    INT8.fault("16-bit sums", "sums wrap in 16 bits", once(int8_product(wrapping))),
    INT8.fault("bias scaled", "the bias is added before the scales", once(int8_product(late=True))),
    INT8.fault("mean scale", "one scale for all rows", once(int8_product(rows=lambda s, t: (s * 0 + s.mean(), t)))),
    INT8.fault(
        "16-bit sums overflow",
        "sums beyond 65,504 are infinite in float16",
        once(int8_product(lambda a, b: (a.int() @ b.int()).to(F16))),
    ),
    BLOCKED.healthy("scaled by block"),
    BLOCKED.fault("first scale", "all blocks take the first scale of the row", once(blocked(lambda n: 0))),
    BLOCKED.fault("scale of the next", "columns' scales are a block late", once(blocked(own=lambda n: min(n + 1, 3)))),
    BLOCKED.fault("last block lost", "three blocks of four", once(blocked(last=False))),
    BLOCKED.fault(
        "blocks in float8",
        "each block's product goes through float8_e5m2",
        once(blocked(step=lambda x: x.to(torch.float8_e5m2).to(x.dtype))),
    ),
    GATED.healthy("own backward"),
    GATED.healthy("both products in one", once(both_at_once)),
    GATED.healthy("three kernels in 16 bit", gated, dtypes=NARROW, devices=ACCELERATOR, backward=False),
    GATED.fault("gate by sigmoid", "the gate is a sigmoid", once(partial(gated, act=torch.sigmoid))),
    GATED.fault(
        "value one tile short",
        "the value's product lacks the last 32 of K",
        once(lambda x, a, b: F.silu(x @ a) * (x[:, :64] @ b[:64])),
    ),
    GATED.wrong_gradient("gradient by the gate alone", "the value gives the input no gradient", gated_gradient(False)),
    EMULATED.healthy("three pieces", close=1e-6),
    EMULATED.fault("two pieces", "two bfloat16 pieces", pieces(2, 2)),
    EMULATED.fault("middle term lost", "the products of two second pieces and of a third are left out", pieces(3, 2)),
    EMULATED.fault("18-bit operands", "operands cut to 18 bits", lambda a, b: cut(a, 18) @ cut(b, 18)),
    VECTOR.healthy("eight lanes"),
    VECTOR.fault("lanes in 16 bit", "lane sums are rounded to the dtype every step", narrow_lanes, dtypes=NARROW),
    VECTOR.fault(
        "last row of the block",
        "the last 44 rows hold the row before them",
        once(lambda m, v: torch.cat([vector(m, v)[:256], vector(m, v)[255].expand(44)])),
    ),
    WIDE.healthy("one bias in float32"),
    WIDE.fault(
        "through float16",
        "the result goes through float16",
        lambda x, w, b: by_way_of(F16)(F.linear(up(x), up(w), up(b)), F32),
    ),
    WIDE.fault(
        "product rounded",
        "the product is rounded to 16 bit before the bias",
        lambda x, w, b: stepwise(x.dtype)(up(x) @ up(w).t()) + up(b),
    ),
)
