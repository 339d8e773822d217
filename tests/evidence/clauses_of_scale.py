"""What the allowed scale is made of: perturbed runs of each kind, how they are drawn, floors, overflow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from msgspec.structs import replace

from pytest_probe.check import comparisons, perturbed
from pytest_probe.check.perturbed import Draw
from pytest_probe.frameworks.torch import rounding
from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics import allowed_scale, noise_limits, noise_ratio
from pytest_probe.numerics.dtypes import AnyArray, float_format
from pytest_probe.numerics.ulp import ulp
from pytest_probe.standards.noise import scales, stages
from pytest_probe.standards.noise import standard as rule
from pytest_probe.standards.noise.explanation import Examined, Ruling
from tests.evidence.clause import Clause, Off, narrow_only, normal, without_row, without_runs
from tests.support.emulated import to_bits

HALF, BRAIN = torch.float16, torch.bfloat16
Tensor = torch.Tensor
by_scales, pooled, measure, allowed, gap, move = (
    rule._by_scales,
    allowed_scale.pooled,
    noise_ratio.measure_noise,
    allowed_scale.allowed_by,
    noise_ratio._gap,
    perturbed.perturbed,
)


# Calls


def determinants(rows: Tensor) -> tuple[Tensor, ...]:
    return tuple(row[0] * row[3] - row[1] * row[2] for row in rows)


def normalised(x: Tensor, weight: Tensor) -> Tensor:
    return F.layer_norm(x, [8], weight)


def with_gradient_off(x: Tensor, weight: Tensor) -> Tensor:
    """The weight's gradient is two roundoffs too large."""
    factor = 1 + 2.0**-10
    return F.layer_norm(x, [8], weight * factor - weight.detach() * (factor - 1))


def small_one_off(found: Tensor, sizes: Tensor, share: float) -> Tensor:
    """The same, but for the element of the smallest size."""
    found = found.clone()
    found[sizes.abs().argmin()] *= 1 + share
    return found


def of_many_sizes() -> list[Tensor]:
    return [1 + normal(4096) / 8, torch.exp(4 * normal(4096, seed=1))]


class SmallGradientOff(torch.autograd.Function):
    """tanh whose gradient is 1 % off where the incoming one is smallest."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(torch.tanh(x))
        return torch.tanh(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (result,) = ctx.saved_tensors
        return small_one_off(gradient * (1 - result * result), gradient, 0.01)


def near_a_tie() -> list[Tensor]:
    """A row of which 1 / std is 1.07e-8 from the middle of two float16 numbers, as a share of itself."""
    row = [0.73388671875, -1.1806640625, 0.779296875, -1.2939453125, 1.5859375, 0.34375, 0.1773681640625, 1.5888671875]
    return [torch.tensor([row], dtype=HALF), torch.ones(8, dtype=HALF)]


def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    high = x * 134217729.0 - (x * 134217729.0 - x)
    return high, x - high


def kahan_determinants(rows: Tensor) -> tuple[Tensor, ...]:
    """With the rounding error of one product, which is what fused multiply-add gives."""

    def one(row: Tensor) -> Tensor:
        product = row[1] * row[2]
        (high, low), (other_high, other_low) = halves(row[1]), halves(row[2])
        error = ((high * other_high - product) + high * other_low + low * other_high) + low * other_low
        return (row[0] * row[3] - product) - error

    return tuple(one(row) for row in rows)


def nearly_singular() -> list[Tensor]:
    a, b, c = normal(100, 3, dtype=torch.float64, seed=3).unbind(1)
    d = b * c / a * (1 + 1e-8 * normal(100, dtype=torch.float64, seed=9))
    return [torch.stack([a, b, c, d], 1)]


def opaque_difference(x: Tensor) -> Tensor:
    """sqrt(x + 1) - sqrt(x) where torch cannot see the steps."""
    values = x.numpy()
    return torch.from_numpy(np.sqrt(values + values.dtype.type(1)) - np.sqrt(values))


def difference_by_logarithms(x: Tensor) -> Tensor:
    return torch.exp2(torch.log2(x + 1) / 2) - torch.exp2(torch.log2(x) / 2)


def thousands() -> list[Tensor]:
    return [torch.linspace(1000, 2000, 500)]


def saturated() -> list[Tensor]:
    return [normal(1000, scale=2) + 12]


def barely_definite() -> list[Tensor]:
    """A hundred matrices of 2 x 2 that a few roundoffs may make indefinite."""
    b = torch.randint(5000, 5500, (100,), generator=torch.Generator().manual_seed(0)).double() // 3 * 3 + 1
    return [torch.stack([torch.full_like(b, 3), b, b, torch.ceil(b * b / 3) + 1], -1).view(100, 2, 2).float()]


def open_atanh(x: Tensor) -> Tensor:
    return torch.where(x > 0.9999999, torch.inf, torch.atanh(x))


def below_one() -> list[Tensor]:
    return [torch.cat([torch.linspace(-0.9, 0.9, 99), torch.tensor([1 - 2.0**-24])])]


def naive_logsigmoid(x: Tensor) -> Tensor:
    return torch.log(1 - torch.sigmoid(x))


class Broadcast(torch.autograd.Function):
    """512 rows of the same, whose gradient is summed one by one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.expand(512, 64)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = torch.zeros_like(gradient[0])
        for row in gradient:
            total = total + row
        return total


class Lost(torch.autograd.Function):
    """A millionth of x, whose gradient underflows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1e-6

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return torch.zeros_like(gradient)


class OneSided(torch.autograd.Function):
    """l1_loss whose gradient is 1 where both are equal."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return (x - y).abs().mean()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        of_x = torch.where(x >= y, 1.0, -1.0) * gradient / x.numel()
        return of_x, -of_x


def cut_exp(x: Tensor) -> Tensor:
    """exp into the subnormal numbers, cut to them rather than rounded."""
    return (torch.floor(torch.exp(x.double()) * 2.0**149) * 2.0**-149).float()


def cos_below(x: Tensor) -> Tensor:
    cos = torch.cos(x)
    return torch.nextafter(cos, torch.zeros_like(cos))


def convolution(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv1d(x[:, None], weight[None, None])[:, 0]


def fft_convolution(x: Tensor, weight: Tensor) -> Tensor:
    width = x.shape[-1] + weight.shape[-1] - 1
    product = torch.fft.rfft(x, width) * torch.fft.rfft(weight.flip(-1), width)
    return torch.fft.irfft(product, width)[..., weight.shape[-1] - 1 : x.shape[-1]]


def half_empty() -> list[Tensor]:
    x = normal(8, 256)
    x[:, 64:192] = 0
    return [x, normal(9, seed=1)]


def decades(last: float) -> Any:
    return lambda: [10.0 ** torch.linspace(-6, last, 2000)]


def own_tf32(a: Tensor, b: Tensor) -> Tensor:
    rounding = to_bits(11)
    return torch.matmul(rounding(a), rounding(b))


def product(k: int, dtype: torch.dtype = torch.float32) -> Any:
    return lambda: [normal(16, k, dtype=dtype), normal(k, 8, seed=1, dtype=dtype)]


def wide_inverse(x: Tensor) -> Tensor:
    return torch.linalg.inv(x.float()).to(x.dtype)


def layer_norm(eps: float) -> Any:
    return lambda x: F.layer_norm(x, (64,), eps=eps)


def nan_for_the_largest(x: Tensor) -> Tensor:
    return torch.where(x == x.amax(), torch.nan, torch.exp(x))


def polar_square(z: Tensor) -> Tensor:
    return torch.polar(z.abs() ** 2, 2 * z.angle())


def negative_reals() -> list[Tensor]:
    return [torch.complex(-torch.linspace(1, 2, 50), torch.zeros(50))]


# What stands in for a clause


def as_another_device(output: Examined) -> Ruling:
    comparison = output.comparison
    elsewhere = replace(comparison, case=replace(comparison.case, on_cpu=False))
    return by_scales(replace(output, comparison=elsewhere))


def unclamped(values: AnyArray, draw: Draw, size: float, inward: bool) -> AnyArray:
    xi = math.sqrt(3) * (2 * draw(values) - 1)
    return np.asarray(values * (1 - size * np.abs(xi)) if inward else values * (1 + size * xi))


def still_gradients(array: AnyArray, draw: Draw, size: float, inward: bool, dtype: str) -> AnyArray:
    return move(array, draw, 0.0 if array.shape == (512, 64) else size, inward, dtype)


def apart(*args: Any, **kwargs: Any) -> perturbed.Perturbation:
    return replace(perturbed.Perturbation(*args, **kwargs), together=False)


def by_first_argument(comparison: Comparison, spread: Any) -> Any:
    order = comparison.call.argument("input")
    return None if spread is None else pooled(spread, order, np.ones(order.shape))


def always_finite(actual: AnyArray, expected: AnyArray, spread: Any, **more: Any) -> noise_ratio.Noise:
    still = None if spread is None else replace(spread, disagree=np.zeros_like(spread.disagree))
    return measure(actual, expected, still, **more)


def nan_is_content(actual: AnyArray, expected: AnyArray, *args: Any, **more: Any) -> noise_ratio.Noise:
    return measure(np.where(np.isnan(actual), expected, actual), expected, *args, **more)


def no_ulp(actual: AnyArray, expected: AnyArray, dtype: Any) -> tuple[AnyArray, AnyArray]:
    distance, unit = gap(actual, expected, dtype)
    return distance, np.zeros_like(unit)


def endless(actual: AnyArray, expected: AnyArray, dtype: Any) -> tuple[AnyArray, AnyArray]:
    largest = float_format(dtype).max
    return np.abs(actual - expected), ulp(np.clip(expected, -largest, largest), dtype)


def no_roundoff(*args: Any, **more: Any) -> AnyArray:
    return allowed(*args, **{**more, "roundoff": 0.0})


def no_subnormal(*args: Any, **more: Any) -> AnyArray:
    return allowed(*args, **{**more, "dtype": np.float64})


def a_normal(*args: Any, dtype: Any, **more: Any) -> AnyArray:
    return np.maximum(allowed(*args, dtype=dtype, **more), 2.0 ** float_format(dtype).min_exponent)


def judged_by_parts() -> Off:
    judge = rule.NoiseStandard.judge

    def by_parts(self: rule.NoiseStandard, comparison: Comparison) -> OutputVerdict:
        actual, expected = comparison.actual.view(np.float32), comparison.expected.view(np.float64)
        evidence = comparison.evidence.transformed(lambda run: run.view(np.float64))
        parts = replace(comparison, actual=actual, expected=expected, precision=actual.dtype, evidence=evidence)
        return judge(self, parts)

    return rule.NoiseStandard, "judge", by_parts


NO_AMONG: Off = (allowed_scale, "among", lambda runs, dtype: None)

CLAUSES = (
    Clause(
        "perturbed inputs in float64", "float64 determinants of nearly singular 2 x 2 matrices with fused multiply-add",
        kahan_determinants, determinants, nearly_singular, (without_runs("perturbed"),), "pass", "error",
    ),
    Clause(
        "K up to 4, not 1", "the same",
        kahan_determinants, determinants, nearly_singular,
        (without_row("float64, K = 2", "float64, K = 4"),), "pass", "error",
    ),
    Clause(
        "perturbed incoming gradients", "gradient of a broadcast, summed one by one",
        Broadcast.apply, lambda x: x.expand(512, 64), lambda: [normal(64)],
        ((perturbed, "perturbed", still_gradients),), "pass", "warning", api="Torch.expand", backward=True,
    ),
    Clause(
        "steps", "gradient of a saturated sigmoid, torch's own kernel",
        torch.sigmoid, torch.sigmoid, saturated, (without_runs("float32_steps"),), "pass", "error",
        api="Torch.sigmoid", backward=True,
    ),
    Clause(
        "float32 among themselves", "sqrt(x + 1) - sqrt(x) in a library that torch cannot look into",
        opaque_difference, opaque_difference, thousands, (NO_AMONG,), "pass", "error",
    ),
    Clause(
        "neither against R on the CPU", "the CPU's own exp times 1.001",
        *2 * (narrow_only(lambda x: torch.exp(x) * 1.001, torch.exp),), lambda: [normal(1000)],
        ((rule, "_by_scales", as_another_device),), "error", "pass", api="Torch.exp",
    ),
    Clause(
        "limits of 16 and 4 among themselves", "the CPU's own matmul in TF32, K = 16,384",
        *2 * (narrow_only(own_tf32, torch.matmul),), product(16384),
        ((scales, "LIMITS_AMONG_FLOAT32_RUNS", noise_limits.Limits(math.inf, noise_limits.RMS)),), "error", "pass",
        api="Torch.matmul",
    ),
    Clause(
        "float32 against R on another device", "the same difference by logarithms",
        difference_by_logarithms, opaque_difference, thousands, (without_runs("float32"),), "pass", "error",
        place="other",
    ),
    Clause(
        "two roundoffs", "bfloat16 layer_norm with eps 1e-3 for 1e-5",
        narrow_only(layer_norm(1e-3), layer_norm(1e-5)), layer_norm(1e-5), lambda: [normal(32, 64, dtype=BRAIN)],
        ((comparisons, "SINGLE", 2.0**-8),), "error", "pass", api="Functional.layer_norm",
    ),
    Clause(
        "clamping", "inf for atanh of the largest float32 below 1",
        open_atanh, torch.atanh, below_one, ((perturbed, "_moved", unclamped),), "error", "pass", api="Torch.atanh",
    ),
    Clause(
        "redrawing", "cholesky of barely definite matrices, torch's own kernel",
        torch.linalg.cholesky, torch.linalg.cholesky, barely_definite, ((perturbed, "REDRAWS", 1),),
        "pass", "error",
    ),
    Clause(
        "equal values move together", "gradient of l1_loss is 1 where both arguments are equal",
        OneSided.apply, F.l1_loss, lambda: [normal(200).round(decimals=1), normal(200, seed=1).round(decimals=1)],
        ((comparisons, "Perturbation", apart),), "error", "pass", api="Functional.l1_loss", backward=True,
    ),
    Clause(
        "neighbours' spread, element by element", "gradient of gelu in its tail, torch's own kernel",
        F.gelu, F.gelu, lambda: [torch.linspace(-8, -3, 20_000)],
        ((stages, "pooled_spread", lambda comparison, spread: spread),),
        "pass", "error", api="Functional.gelu", backward=True,
    ),
    Clause(
        "of like results, where several arguments decide", "a product with numbers of many sizes, the smallest 1 % off",
        lambda x, y: small_one_off(x * y, y, 0.01), torch.mul, of_many_sizes,
        ((stages, "pooled_spread", by_first_argument),), "error", "pass", api="Torch.mul",
    ),
    Clause(
        "gradients count in units of the incoming ones", "gradient of tanh, 1 % off where the incoming one is smallest",
        SmallGradientOff.apply, torch.tanh, lambda: [normal(4096)],
        ((allowed_scale, "pooled", lambda spread, order, unit: pooled(spread, order, np.ones(unit.shape))),),
        "error", "pass", api="Torch.tanh", backward=True,
    ),
    Clause(
        "undecided elements", "log(1 - sigmoid(x)) overflows where sigmoid rounds to 1",
        naive_logsigmoid, naive_logsigmoid, lambda: [torch.linspace(5, 25, 100)],
        ((noise_ratio, "measure_noise", always_finite),),
        "pass", "error",
    ),
    Clause(
        "NaN is an error", "exp gives NaN for its largest argument",
        nan_for_the_largest, torch.exp, lambda: [normal(100)], ((noise_ratio, "measure_noise", nan_is_content),),
        "error", "pass", api="Torch.exp",
    ),
    Clause(
        "overflow is right beyond the range", "float16 inverse of 40 rows and 1e-5 on the diagonal",
        wide_inverse, torch.linalg.inv, lambda: [torch.block_diag(normal(40, 40), torch.tensor([[1e-5]])).half()],
        ((noise_ratio, "_gap", endless),), "pass", "error", place="other",
    ),
    Clause(
        "half an ulp", "bfloat16 matmul in float32, rounded once",
        lambda a, b: (a.float() @ b.float()).to(a.dtype), torch.matmul, product(64, BRAIN),
        ((noise_ratio, "_gap", no_ulp), without_row("own kernel")),
        "pass", "error", api="Torch.matmul",
    ),
    Clause(
        "u_c |R|", "cos of small x, one float32 below",
        cos_below, torch.cos, lambda: [torch.linspace(1e-6, 1e-5, 100)], ((allowed_scale, "allowed_by", no_roundoff),),
        "pass", "error", api="Torch.cos",
    ),
    Clause(
        "half the smallest subnormal", "float32 exp cut to subnormal numbers",
        narrow_only(cut_exp, torch.exp), torch.exp, lambda: [torch.linspace(-103, -90, 5000)],
        ((allowed_scale, "allowed_by", no_subnormal),), "pass", "error", api="Torch.exp",
    ),
    Clause(
        "not the smallest normal", "zeros for float16 gradients of 1e-6",
        Lost.apply, lambda x: x * 1e-6, lambda: [normal(100, dtype=HALF)], ((allowed_scale, "allowed_by", a_normal),),
        "error", "pass", api="Torch.mul", backward=True,
    ),
    Clause(
        "c = 1/2", "convolution by FFT of a signal with an empty half",
        fft_convolution, convolution, half_empty, ((allowed_scale, "FLOOR", 0.0),), "pass", "error",
    ),
    Clause(
        "c = 0 element by element", "naive log1p",
        narrow_only(lambda x: torch.log(1 + x), torch.log1p), torch.log1p, decades(6),
        ((stages, "floor_of", lambda comparison: allowed_scale.FLOOR),), "error", "pass", api="Torch.log1p",
    ),
    Clause(
        "c = 0 element by element", "naive expm1",
        narrow_only(lambda x: torch.exp(x) - 1, torch.expm1), torch.expm1, decades(1),
        ((stages, "floor_of", lambda comparison: allowed_scale.FLOOR),), "error", "pass", api="Torch.expm1",
    ),
    Clause(
        "steps are computed before they are rounded", "gradient of float16 layer_norm's weight, torch's own kernel",
        normalised, normalised, near_a_tie, ((rounding, "COMPUTED", 0.0),), "pass", "error",
        api="Functional.layer_norm", backward=True,
    ),
    Clause(
        "steps are computed in float32", "the same, two roundoffs too large",
        with_gradient_off, normalised, near_a_tie, ((rounding, "COMPUTED", 2.0**-9),), "error", "pass",
        api="Functional.layer_norm", backward=True,
    ),
    Clause(
        "complex by modulus", "complex square of negative reals by polar coordinates",
        polar_square, torch.square, negative_reals, (judged_by_parts(),), "pass", "error", api="Torch.square",
    ),
)  # fmt: skip
