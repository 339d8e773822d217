"""Failing asserts of known cause: what a kernel gave, what its test expected, and words for the cause.

They were written before the rules that name causes, and every third one was looked at only when the rules stood.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional as F

Pair = tuple[torch.Tensor, torch.Tensor]
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


@dataclass(frozen=True)
class Case:
    """words: a section that says one of them names the cause; without any there is nothing that it can name. place: how
    it says where."""

    make: Callable[[], Pair]
    tolerance: Mapping[str, float]
    words: tuple[str, ...]
    place: str


TABLE: dict[str, Case] = {}


def case(*words: str, place: str = "", rtol: float = 0.0, atol: float = 0.0) -> Callable[[Callable[[], Pair]], None]:
    def add(make: Callable[[], Pair]) -> None:
        TABLE[make.__name__] = Case(make, {"rtol": rtol, "atol": atol}, words, place)

    return add


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def added_up(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """a @ b, with each product and each sum rounded to dtype."""
    total = torch.zeros(a.shape[0], b.shape[1], dtype=dtype)
    for k in range(a.shape[1]):
        total = (total + (a[:, k, None].to(dtype) * b[None, k].to(dtype))).to(dtype)
    return total


# Rounding.


@case("one bfloat16 rounding", rtol=1e-4, atol=1e-5)
def softmax_in_bfloat16_against_float32() -> Pair:
    x = randn(32, 128)
    return x.softmax(-1).to(BF16), x.softmax(-1)


@case("bfloat16 numbers", "one bfloat16 rounding", rtol=1e-4, atol=1e-5)
def float32_that_went_through_bfloat16() -> Pair:
    x = randn(48, 96, seed=2)
    return torch.tanh(x).to(BF16).float(), torch.tanh(x)


@case("towards zero", rtol=1e-3)
def cut_to_bfloat16_instead_of_rounded() -> Pair:
    x = randn(64, 64, seed=3)
    return (x.view(torch.int32) & ~0xFFFF).view(F32).to(BF16), x


@case("to either side", "TF32", "steps that", rtol=1e-5, atol=1e-5)
def product_of_tf32_operands() -> Pair:
    a, b = randn(64, 256, seed=4), randn(256, 64, seed=5)
    narrow = [((t.view(torch.int32) + 0x1000) & ~0x1FFF).view(F32) for t in (a, b)]
    return narrow[0] @ narrow[1], a @ b


# The dtype of a sum.


@case("to either side", rtol=1e-3, atol=1e-3)
def product_added_up_in_float16() -> Pair:
    a, b = randn(32, 512, dtype=F16), randn(512, 32, seed=1, dtype=F16)
    return added_up(a, b, F16), (a.float() @ b.float()).to(F16)


# Factors.


@case("times 1.004", rtol=1e-3, atol=1e-6)
def all_of_float32_times_a_factor_near_one() -> Pair:
    x = randn(32, 64, seed=7)
    return x * 1.004, x


@case("times 64/63", "times 1.016", rtol=1e-3)
def variance_of_64_numbers_by_63() -> Pair:
    x = randn(256, 64, seed=8)
    return x.var(-1), x.var(-1, correction=0)


@case("times 8", "times 1/8", rtol=1.6e-2, atol=1e-2)
def logits_in_bfloat16_without_their_scale() -> Pair:
    q, k = randn(32, 64, seed=9), randn(48, 64, seed=10)
    return (q @ k.T).to(BF16), (q @ k.T / 8).to(BF16)


@case("a factor for each index of dim 0", rtol=1e-3, atol=1e-4)
def rms_norm_with_another_eps() -> Pair:
    x = randn(64, 128, seed=11) * torch.logspace(-2, 0, 64)[:, None]
    return F.rms_norm(x, (128,), eps=1e-3), F.rms_norm(x, (128,), eps=1e-6)


@case("negated", rtol=1e-2, atol=1e-3)
def gradient_in_float16_with_the_other_sign() -> Pair:
    x = randn(40, 50, seed=12, dtype=F16)
    return -x, x


# A tail, a tile, a row.


@case("zeros", place="last 3 of dim 0", rtol=1.6e-2, atol=1e-3)
def last_rows_of_bfloat16_not_written() -> Pair:
    x = randn(67, 64, seed=13)
    out = x.exp().to(BF16)
    out[-3:] = 0
    return out, x.exp().to(BF16)


@case("NaN", place="last 28 of dim -1", rtol=1e-3, atol=1e-4)
def last_tile_of_float16_is_nan() -> Pair:
    x = randn(32, 156, seed=14, dtype=F16)
    out = x.clone()
    out[:, 128:] = float("nan")
    return out, x


@case("NaN", place="row 5 of dim 0", rtol=1e-5, atol=1e-6)
def masked_row_of_a_softmax_is_nan() -> Pair:
    x = randn(16, 64, seed=15)
    x[5] = float("-inf")
    return x.softmax(-1), torch.nan_to_num(x.softmax(-1), nan=0.0)


@case(place="every 64th of dim", rtol=1e-3, atol=1e-3)
def one_column_in_64_with_noise() -> Pair:
    x = randn(64, 512, seed=16)
    out = x.clone()
    out[:, 63::64] += randn(64, 8, seed=17)
    return out, x


@case("swapped: indices 3 and 7", place="dim 0", rtol=1e-4, atol=1e-5)
def two_rows_swapped() -> Pair:
    x = randn(16, 96, seed=18)
    return x[[0, 1, 2, 7, 4, 5, 6, 3, *range(8, 16)]], x


@case("stale: index 9 of dim 0 equals index 8", rtol=1.6e-2, atol=1e-2)
def row_of_bfloat16_that_kept_the_one_before() -> Pair:
    x = randn(24, 80, seed=19, dtype=BF16)
    out = x.clone()
    out[9] = out[8]
    return out, x


# A mask.


@case("numbers where zeros are expected", place="one above the diagonal", rtol=1e-3, atol=1e-3)
def mask_below_the_diagonal_off_by_one() -> Pair:
    x = randn(48, 48, seed=20)
    return x.tril(1), x.tril()


@case("numbers where zeros are expected", place="index 20 of dim", rtol=1e-2, atol=1e-3)
def padding_of_float16_off_by_one() -> Pair:
    x = randn(8, 32, seed=21, dtype=F16)
    keep = torch.arange(32)
    return x * (keep <= 20), x * (keep < 20)


# The rest.


@case("transposed", rtol=1e-4, atol=1e-4)
def strides_ignored() -> Pair:
    x = randn(32, 48, seed=25)
    return x.T.contiguous().reshape(32, 48), x


@case("shifted by +1 along dim", rtol=1.6e-2, atol=1e-3)
def bfloat16_shifted_by_one() -> Pair:
    x = randn(16, 100, seed=26, dtype=BF16)
    return x.roll(1, 1), x


@case("a number added for each index of dim", rtol=1e-3, atol=1e-3)
def bias_added_twice() -> Pair:
    x, bias = randn(64, 96, seed=27), randn(96, seed=28)
    return x + 2 * bias, x + bias


@case("clamped at 448", rtol=1e-2)
def clamped_as_float8() -> Pair:
    x = randn(64, 64, seed=29) * 200
    return x.clamp(-448, 448), x


@case("inf", rtol=1e-3)
def squares_that_overflow_float16() -> Pair:
    x = randn(32, 64, seed=30) * 150
    return (x * x).to(F16), x * x


@case("one lower", "one nearer to zero", rtol=0.0, atol=0.1)
def integers_cut_instead_of_rounded() -> Pair:
    x = randn(64, 64, seed=31) * 40
    return x.floor().to(torch.int8), x.round().to(torch.int8)
