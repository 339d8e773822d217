"""Limits, bias, what counts above the limits, scalars and factories."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from msgspec.structs import replace

from cases.kernels.parts import attention
from pytest_probe.check import comparisons, device_call, judging, resolve, structure
from pytest_probe.check.large import cuts
from pytest_probe.model.comparison import Comparison
from pytest_probe.numerics import arrays, mean_errors, noise_limits, noise_ratio
from pytest_probe.numerics.dtypes import AnyArray, round_to, widen
from pytest_probe.numerics.mean_errors import Bias
from pytest_probe.standards.noise import bias as biased
from pytest_probe.standards.noise import edges, scales, stages, steps, summed_terms
from pytest_probe.standards.noise.summed_terms import Terms
from pytest_probe.standards.tables import classes_of
from tests.evidence.clause import Clause, Off, normal, without_row, without_runs
from tests.evidence.kernels import KERNELS
from tests.evidence.winograd import winograd
from tests.support.emulated import to_bits

HALF, BRAIN = torch.float16, torch.bfloat16
Tensor = torch.Tensor
measure, biases, bias = noise_ratio.measure_noise, mean_errors.biases, biased.bias
ROTARY = KERNELS["rotary embedding, rounded between its steps"]


# Calls


def total(x: Tensor) -> Tensor:
    return x.sum(-1)


def one_by_one(x: Tensor) -> Tensor:
    result = torch.zeros_like(x[:, 0])
    for column in x.unbind(1):
        result = result + column
    return result


def four_normalised(x: Tensor) -> Tensor:
    return F.layer_norm(x, [4])


def equal_terms() -> list[Tensor]:
    return [torch.full((3, 1000), 0.7)]


def near_zero_beside_one() -> list[Tensor]:
    x = normal(3, 1000, scale=1e-9)
    x[:, 0] = 0.3
    return [x]


def softmax_one_by_one(x: Tensor, dim: int = 1) -> Tensor:
    terms = torch.exp(x - x.amax(dim, keepdim=True))
    return terms / one_by_one(terms)[:, None]


def sequential(a: Tensor, b: Tensor) -> Tensor:
    """A product in float32, summed one by one and rounded once."""
    result = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        result = result + a[:, k : k + 1].float() * b[k].float()
    return result.to(a.dtype)


def deep_convolution() -> list[Any]:
    return [normal(2, 128, 16, 16), normal(64, 128, 3, 3, seed=1), normal(64, seed=2), 1, 1]


def pooled(factor: float, x: Tensor) -> Tensor:
    """A pooling, and its gradient times a factor, or divided by it, in turn: sums tell nothing."""
    odd = torch.arange(x.shape[-1]) % 2 == torch.arange(x.shape[-2])[:, None] % 2
    factors = torch.where(odd, factor, 1 / factor).to(x.dtype)
    x = x * factors - x.detach() * (factors - 1)
    return F.max_pool2d(x, 3)


def pooled_to_the_last(x: Tensor) -> Tensor:
    """Of equal elements the gradient goes to the last, not to the first."""
    return F.max_pool2d(x.flip(2, 3), 3).flip(2, 3)


def rounded_images() -> list[Tensor]:
    return [(normal(2, 4, 24, 24) * 4).round() / 4]


def few_rows() -> list[Tensor]:
    a = normal(400, 64)
    a[4:] = 0
    return [a, normal(64, 50, seed=1)]


def in_18_bits(a: Tensor, b: Tensor) -> Tensor:
    rounding = to_bits(18)
    return torch.matmul(rounding(a), rounding(b))


def cancelling() -> list[Tensor]:
    """Operands of a product in which one half of the terms takes away most of the other."""
    a, b = normal(200, 64, scale=4.0), normal(64, 200, seed=1)
    rest, others = normal(200, 64, scale=0.02, seed=2), normal(64, 200, scale=0.02, seed=3)
    return [torch.cat([a, -a + rest], 1).to(BRAIN), torch.cat([b, b + others], 0).to(BRAIN)]


def off_by(factor: float, shift: float) -> Any:
    return lambda a, b: (torch.matmul(a.float(), b.float()) * factor + shift).to(a.dtype)


def constants() -> list[Tensor]:
    return [torch.full((16, 4000), 1.2734375).to(BRAIN), torch.full((4000, 16), 1.5234375).to(BRAIN)]


def one_crossing() -> list[Tensor]:
    """Operands of a product with one element that float32 sums one by one take across a tie."""
    return [normal(16, 4096, dtype=BRAIN), normal(4096, 16, seed=1, dtype=BRAIN)]


def padded() -> list[Tensor]:
    a, b = one_crossing()
    return [a.repeat(200, 1), b]


def divided(x: Tensor, divisor: float) -> Tensor:
    return (x.float() / divisor).to(x.dtype)


def multiples() -> list[Any]:
    return [(torch.arange(1, 4000) / 64).half(), 0.3]


def product_of_rows(x: Tensor) -> Tensor:
    return torch.prod(x, -1)


def thrice_the_error(x: Tensor) -> Tensor:
    right = torch.prod(x.double(), -1)
    return (right + 3 * (torch.prod(x, -1).double() - right)).to(x.dtype)


def near_one() -> list[Tensor]:
    return [1 + normal(32, 50, dtype=BRAIN, scale=0.1)]


def own_conv_transpose2d(image: Tensor, weight: Tensor) -> Tensor:
    """torch's own kernel also on processors that compute in float16, where oneDNN would take the call."""
    with torch.backends.mkldnn.flags(enabled=False):
        return F.conv_transpose2d(image, weight)


def image_and_weight() -> list[Tensor]:
    return [normal(2, 3, 9, 7, dtype=HALF), normal(3, 5, 3, 3, dtype=HALF, seed=1)]


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def softmax_by_steps(x: Tensor) -> Tensor:
    powers = torch.exp(x - x.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)


def rounds_the_scalar(x: Tensor, threshold: float) -> Tensor:
    return x > torch.tensor(threshold).to(x.dtype)


def tenths(dtype: torch.dtype) -> Any:
    return lambda: [torch.full((10,), 0.1).to(dtype), 0.1]


# What stands in for a clause


def rms_of_all(*args: Any, **more: Any) -> noise_ratio.Noise:
    found = measure(*args, **more)
    return replace(found, rms=float(np.sqrt(np.mean(found.ratios**2))))


def smoothed_loss(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x, target, label_smoothing=0.05)


def classes() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn((7, 10, 30), generator=generator).half()
    return [x, torch.randint(0, 10, (7, 30), generator=generator)]


def halves_of_three() -> list[Any]:
    """Logits at which the CPU's 16-bit steps lead away from its own reading of 0.1, nearer to that of 16 bit."""
    generator = torch.Generator().manual_seed(20)
    logits = (torch.randint(-16, 16, (64, 3), generator=generator) + 0.5).to(BRAIN)
    return [logits, torch.randint(0, 3, (64,), generator=generator), None, None, -100, None, "none", 0.1]


def near_equal_logits() -> list[Any]:
    logits = normal(64, 100, scale=0.016, dtype=HALF)
    return [logits, torch.arange(64), None, None, -100, None, "mean", 0.1]


def overflowing_weights() -> list[Any]:
    """Losses of both signs, each beyond float16."""
    logits = torch.tensor([[60000.0, -60000, 0], [0, 50000, -60000], [-40000, 0, 60000]]).to(HALF)
    return [logits, torch.tensor([1, 0, 2]), torch.tensor([2000.0, -2000, 1]).to(HALF), None, -100, None, "sum"]


def nearest_alone(sides: list[structure.OutputPairs]) -> structure.OutputPairs:
    return min(sides, key=lambda item: arrays.distance(item.actual, item.expected))


@torch.library.custom_op("evidence::nan_in_half", mutates_args=(), schema="(Tensor x) -> Tensor")
def nan_in_half(x: Tensor) -> Tensor:
    """A kernel whose fault is in float16 alone."""
    return torch.tanh(x) * (math.nan if x.dtype is HALF else 1.0)


def both_lost(comparison: Comparison, theirs: AnyArray) -> AnyArray:
    return np.isnan(theirs) & np.isnan(widen(comparison.actual))


def without_bias(place: int) -> Off:
    def others(*args: Any) -> tuple[Bias, ...]:
        return tuple(Bias(0.0, 0.0) if index == place else bias for index, bias in enumerate(biases(*args)))

    return mean_errors, "biases", others


def no_result(comparison: Any, stage: Any) -> None:
    return None


def no_trouble(*errors: Any, unit: str = "") -> str:
    return ""


def without_ties(
    actual: AnyArray, rounded: AnyArray, center: AnyArray, expected: AnyArray, allowed: AnyArray
) -> tuple[Bias, ...]:
    return biases(actual, round_to(center, actual.dtype), center, expected, allowed)


def of_every_element(
    actual: AnyArray, rounded: AnyArray, center: AnyArray, expected: AnyArray, allowed: AnyArray
) -> tuple[Bias, ...]:
    shift = (widen(actual) - widen(rounded)) / allowed
    return tuple(map(mean_errors._bias, (shift, shift * np.sign(expected))))


def unlike_reference(comparison: Any, stage: Any, beside: AnyArray | None = None) -> str | None:
    return bias(comparison, stage) if beside is None else None


# A bias that is not measured beside the kernel's steps, which explain some as well.
ALONE: Off = (biased, "bias_beside_steps", biased.bias)
# Of a large call all elements, and no drawn ones alone.
IN_FULL: Off = (cuts, "LARGE", math.inf)


# Sums of a choice that are not compared with those of rounding, which some differences move as well.
UNROUNDED: Off = (edges, "_rounded", lambda comparison: [])


def no_factory(name: str) -> frozenset[str]:
    return classes_of(name) - {"factory"}


CLAUSES = (
    Clause(
        "elements that leap grant others nothing", "gradient of a max pooling of one's own, 2 % off",
        partial(pooled, 1.02), partial(pooled, 1.0), rounded_images,
        ((scales, "_without_unstable", lambda *args: None),),
        "error", "pass", backward=True,
    ),
    Clause(
        "fan-in", "sums of 16,384 terms one by one",
        one_by_one, total, lambda: [normal(64, 16384)], ((noise_limits, "FAN_IN_CAP", 1.0),), "pass", "warning",
        api="Torch.sum",
    ),
    Clause(
        "fan-in of an unknown API", "the same",
        one_by_one, total, lambda: [normal(64, 16384)], ((stages, "summed_terms", lambda comparison: Terms(1, True)),),
        "pass", "warning",
    ),
    Clause(
        "fan-in counts 8 times at most", "a mean of a million, 0.006 % too large",
        lambda x: x.mean() * 1.00006, torch.mean, lambda: [normal(2**20) + 1],
        ((noise_limits, "FAN_IN_CAP", math.inf),),
        "error", "pass", api="Torch.mean",
    ),
    Clause(
        "equal terms", "a sum of 1,000 equal terms one by one",
        one_by_one, total, equal_terms, ((scales, "repeats", lambda comparison: False),), "pass", "warning",
        api="Torch.sum",
    ),
    Clause(
        "equal terms", "softmax of 1,000 numbers near zero, exponentials added one by one",
        softmax_one_by_one, partial(torch.softmax, dim=1), near_zero_beside_one,
        ((summed_terms, "terms_of", lambda comparison, values: [values]),), "pass", "warning", api="Torch.softmax",
    ),
    Clause(
        "equal terms count 64 times at most", "a sum of 4,096 equal terms, a quarter of one of them too large",
        lambda x: x.sum(1) + x[:, 0] / 4, total, lambda: [torch.full((64, 4096), 0.1)],
        ((noise_limits, "EQUAL_TERMS_CAP", math.inf),), "error", "pass", api="Torch.sum",
    ),
    Clause(
        "a choice moves as far for smaller perturbations", "layer norm of four numbers near 10^6",
        four_normalised, four_normalised, lambda: [normal(1, 4, seed=0) + 1e6],
        ((edges, "unstable", lambda comparison, spread: np.ones(spread.size.shape, bool)), UNROUNDED), "pass", "error",
        api="Functional.layer_norm",
    ),
    Clause(
        "Winograd", "convolution of 128 channels by F(4x4, 3x3)",
        winograd, F.conv2d, deep_convolution, ((stages, "may_use_winograd", lambda comparison: False),),
        "pass", "error", api="Functional.conv2d",
    ),
    Clause(
        "few elements", "one sum of 1,000 terms one by one",
        one_by_one, total, lambda: [normal(1, 1000) + 1],
        ((noise_limits, "SMALL_SAMPLE", 0.0), (noise_limits, "CHANCE", 0.0)), "pass", "warning", api="Torch.sum",
    ),
    Clause(
        "copies count once", "gelu of 2,048 copies of -3, 2,200 roundoffs too large as with AVX-512",
        lambda x: (F.gelu(x.double()) * (1 + 2200 * 2.0**-24)).float(), F.gelu, lambda: [torch.full((2048,), -3.0)],
        ((noise_limits, "for_copies", lambda limits, expected: limits),), "pass", "error", api="Functional.gelu",
    ),
    Clause(
        "copies: numbers of their own count", "gelu of 2,000 numbers and 20 copies of one, 12 roundoffs too large",
        lambda x: (F.gelu(x.double()) * (1 + 12 * 2.0**-24)).float(), F.gelu,
        lambda: [torch.cat([normal(2000), torch.full((20,), -1.0)])],
        ((noise_limits, "for_copies", lambda limits, expected: replace(limits, rms=limits.largest)),), "error", "pass",
        api="Functional.gelu",
    ),
    Clause(
        "copies: twice at most", "silu of 1,000 copies of -7.25, 100 roundoffs too large",
        lambda x: F.silu(x) * (1 + 100 * 2.0**-24), F.silu, lambda: [torch.full((1000,), -7.25)],
        ((noise_limits, "COPIES_CAP", math.inf),), "error", "pass", api="Functional.silu",
    ),
    Clause(
        "RMS of what is not zero", "matmul in 18 bits with four rows of 400 that are not zero",
        in_18_bits, torch.matmul, few_rows, ((noise_ratio, "measure_noise", rms_of_all),), "error", "pass",
        api="Torch.matmul",
    ),
    Clause(
        "bias: shift", "bfloat16 matmul plus 1e-4",
        off_by(1.0, 1e-4), torch.matmul, cancelling, (without_bias(0),), "error", "pass", api="Torch.matmul",
    ),
    Clause(
        "bias: scale", "bfloat16 matmul times 1.00008",
        off_by(1.00008, 0.0), torch.matmul, cancelling, (without_bias(1),), "error", "pass", api="Torch.matmul",
    ),
    Clause(
        "bias: either neighbour near a tie", "float16 quotients by 0.3 on another device",
        divided, torch.div, multiples, ((mean_errors, "biases", without_ties),), "pass", "error", api="Torch.div",
        place="other",
    ),
    Clause(
        "bias: t above 10", "bfloat16 matmul one by one, one rounding to the other side",
        sequential, torch.matmul, one_crossing,
        ((mean_errors, "BIAS_T", 0.0), ALONE), "pass", "error", api="Torch.matmul",
    ),
    Clause(
        "bias: equal elements count once", "the same for 200 copies of each row on another device, as of padding",
        lambda a, b: sequential(a[:16], b).repeat(200, 1), torch.matmul, padded,
        ((mean_errors, "biases", of_every_element), ALONE, IN_FULL), "pass", "error",
        api="Torch.matmul",
        place="other",
    ),
    Clause(
        "bias: 32 distinct values", "bfloat16 matmul of constants one by one",
        sequential, torch.matmul, constants, ((mean_errors, "BIAS_DISTINCT", 1),), "pass", "error", api="Torch.matmul",
    ),
    Clause(
        "16-bit steps", "bfloat16 rotary embedding, rounded between its steps",
        ROTARY.function, ROTARY.reference, lambda: ROTARY.inputs(torch.Generator().manual_seed(0)),
        (without_runs("narrow_steps"),), "pass", "error",
    ),
    Clause(
        "bias: 16-bit steps explain it", "gradient of float16 cross_entropy with label_smoothing, torch's own kernel",
        smoothed_loss, smoothed_loss, classes, (without_row("rounded constant"),), "pass", "error",
        api="Functional.cross_entropy", backward=True,
    ),
    Clause(
        "inputs perturbed by u_o where a kernel rounds inside", "float16 transposed convolution, torch's own kernel",
        own_conv_transpose2d, F.conv_transpose2d, image_and_weight,
        (without_runs("perturbed_narrow"),), "pass", "error",
        api="Functional.conv_transpose2d",
    ),
    Clause(
        "rounds between its kernels", "bfloat16 rotary embedding on another device, rounded between its kernels",
        ROTARY.function, ROTARY.reference, lambda: ROTARY.inputs(torch.Generator().manual_seed(0)),
        (without_row("between kernels", "as the CPU"),),
        "pass", "error", place="other",
    ),
    Clause(
        "many runs where few leave an element", "float16 attention in 16-bit operations, another device",
        attention.plain, F.scaled_dot_product_attention,
        lambda: attention.qkv(torch.float16, torch.Generator().manual_seed(27)),
        ((steps, "MANY_DRAWN", steps.DRAWN), (steps, "ROOM", 1.0)),
        "pass", "error", api="Functional.scaled_dot_product_attention", place="other", key="27",
    ),
    Clause(
        "one kernel rounds once", "bfloat16 softmax in bfloat16 steps, another device",
        softmax_by_steps, softmax, lambda: [normal(32, 100, dtype=BRAIN, scale=3)],
        ((steps, "_rounds_inside", lambda comparison, sample: True), (steps, "unlike_rounding", no_trouble),
         (steps, "too_far", no_trouble), (steps, "direction", no_trouble)),
        "error", "pass", api="Torch.softmax", place="other",
    ),
    Clause(
        "as-cpu", "bfloat16 prod on another device, which rounds as torch's own kernel",
        product_of_rows, product_of_rows, near_one, ((steps, "by_cpu_result", no_result),),
        "pass", "error", api="Torch.prod", place="other",
    ),
    Clause(
        "as-cpu: twice and 1.5 times", "the same with three times that error",
        thrice_the_error, product_of_rows, near_one,
        ((steps, "CPU_LARGEST", math.inf), (steps, "CPU_RMS", math.inf), (steps, "LOST_DIGITS", math.inf),
         (steps, "unlike_rounding", no_trouble), (steps, "too_far", no_trouble)),
        "error", "warning", api="Torch.prod", place="other",
    ),
    Clause(
        "as-cpu: NaN of 16-bit steps", "float16 cross_entropy whose weighted losses overflow, torch's own kernel",
        F.cross_entropy, F.cross_entropy, overflowing_weights,
        ((steps, "_lost_in_steps", lambda comparison, theirs: np.zeros(theirs.shape, bool)),),
        "warning", "error", api="Functional.cross_entropy", place="other",
    ),
    Clause(
        "as-cpu: NaN only of 16-bit steps", "float16 tanh that is NaN on the CPU as well, on another device",
        nan_in_half, nan_in_half, lambda: [normal(30, dtype=HALF)], ((steps, "_lost_in_steps", both_lost),),
        "error", "warning", place="other",
    ),
    Clause(
        "as-cpu: the same bias", "gradient of float16 cross_entropy of nearly equal logits, torch's own kernel",
        F.cross_entropy, F.cross_entropy, near_equal_logits,
        (without_row("biased as the CPU"),),
        "pass", "error", api="Functional.cross_entropy", backward=True, place="other", key="b",
    ),
    Clause(
        "as-cpu: that bias alone", "bfloat16 matmul plus 1e-4 on another device",
        off_by(1.0, 1e-4), torch.matmul, cancelling, ((biased, "bias", unlike_reference),),
        "error", "pass", api="Torch.matmul", place="other",
    ),
    Clause(
        "either reading", "gradient of bfloat16 cross_entropy with label_smoothing 0.1, torch's own kernel",
        F.cross_entropy, F.cross_entropy, halves_of_three, ((judging, "nearest_structure", nearest_alone),),
        "pass", "error", api="Functional.cross_entropy", backward=True, place="other",
    ),
    Clause(
        "scalars in float32", "x > 0.1 for float32 numbers 0.1",
        torch.gt, torch.gt, tenths(torch.float32), ((resolve, "with_float32", lambda arguments: arguments),),
        "pass", "error", api="Torch.gt",
    ),
    Clause(
        "scalars in the tensors' 16-bit dtype", "x > 0.1 for bfloat16 numbers 0.1, on a device that rounds the scalar",
        rounds_the_scalar, torch.gt, tenths(BRAIN), ((device_call, "other_reading", lambda reference: None),),
        "pass", "error", api="Torch.gt",
    ),
    Clause(
        "factories", "blackman_window, torch's own kernel, on another device",
        torch.blackman_window, lambda size: torch.blackman_window(size, dtype=torch.float64), lambda: [101],
        ((comparisons, "classes_of", no_factory),), "pass", "error", api="Torch.blackman_window", place="other",
    ),
)  # fmt: skip
