"""Clauses of the noise rule that no exact test of a judge holds: with each the verdict is right, without it wrong.

The others are held by tests/standards/noise, tests/numerics and tests/check: each was taken out, and a test failed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from msgspec.structs import replace

from cases.kernels.parts import attention
from pytest_probe.check import comparisons, device_call, judging, perturbed, resolve, structure
from pytest_probe.check.perturbed import Draw
from pytest_probe.frameworks.torch import rounding
from pytest_probe.model.comparison import Comparison
from pytest_probe.numerics import allowed_scale, arrays, noise_ratio
from pytest_probe.numerics.allowed_scale import Spread
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.standards.noise import stages, steps, summed_terms
from pytest_probe.standards.tables import classes_of
from tests.evidence.clause import Clause, narrow_only, normal, without_row, without_runs
from tests.support.gradients import with_gradient

HALF, BRAIN = torch.float16, torch.bfloat16
Tensor = torch.Tensor
pooled, move = allowed_scale.pooled, perturbed.perturbed


def determinants(rows: Tensor) -> tuple[Tensor, ...]:
    return tuple(row[0] * row[3] - row[1] * row[2] for row in rows)


def normalised(x: Tensor, weight: Tensor) -> Tensor:
    return F.layer_norm(x, [8], weight)


def with_gradient_off(x: Tensor, weight: Tensor) -> Tensor:
    """The weight's gradient is two roundoffs too large."""
    factor = 1 + 2.0**-10
    return F.layer_norm(x, [8], weight * factor - weight.detach() * (factor - 1))


def with_floor(_: Comparison, spread: Spread | None) -> float:
    return 0.0 if spread is None else allowed_scale.RMS_SHARE * allowed_scale.root_mean_square(spread.size)


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


def decades(last: float) -> Any:
    return lambda: [10.0 ** torch.linspace(-6, last, 2000)]


def layer_norm(eps: float) -> Any:
    return lambda x: F.layer_norm(x, (64,), eps=eps)


def one_by_one(x: Tensor) -> Tensor:
    result = torch.zeros_like(x[:, 0])
    for column in x.unbind(1):
        result = result + column
    return result


def near_zero_beside_one() -> list[Tensor]:
    x = normal(3, 1000, scale=1e-9)
    x[:, 0] = 0.3
    return [x]


def softmax_one_by_one(x: Tensor, dim: int = 1) -> Tensor:
    terms = torch.exp(x - x.amax(dim, keepdim=True))
    return terms / one_by_one(terms)[:, None]


def rounds_the_scalar(x: Tensor, threshold: float) -> Tensor:
    return x > torch.tensor(threshold).to(x.dtype)


def tenths(dtype: torch.dtype) -> Any:
    return lambda: [torch.full((10,), 0.1).to(dtype), 0.1]


def halves_of_three() -> list[Any]:
    """Logits at which the CPU's 16-bit steps lead away from its own reading of 0.1, nearer to that of 16 bit."""
    generator = torch.Generator().manual_seed(20)
    logits = (torch.randint(-16, 16, (64, 3), generator=generator) + 0.5).to(BRAIN)
    return [logits, torch.randint(0, 3, (64,), generator=generator), None, None, -100, None, "none", 0.1]


def near_equal_logits() -> list[Any]:
    logits = normal(64, 100, scale=0.016, dtype=HALF)
    return [logits, torch.arange(64), None, None, -100, None, "mean", 0.1]


def one_row_larger(gradient: Tensor) -> Tensor:
    found = gradient.clone()
    found[2600] *= 1.03
    return found


# What stands in for a clause


def still_gradients(array: AnyArray, draw: Draw, size: float, inward: bool, dtype: str) -> AnyArray:
    return move(array, draw, 0.0 if array.shape == (512, 64) else size, inward, dtype)


def apart(*args: Any, **kwargs: Any) -> perturbed.Perturbation:
    return replace(perturbed.Perturbation(*args, **kwargs), together=False)


def by_first_argument(comparison: Comparison, spread: Any, **_: Any) -> Any:
    order = comparison.call.argument("input")
    return None if spread is None else pooled(spread, order, np.ones(order.shape))


def nearest_alone(sides: list[structure.OutputPairs]) -> structure.OutputPairs:
    return min(sides, key=lambda item: arrays.distance(item.actual, item.expected))


def no_factory(name: str) -> frozenset[str]:
    return classes_of(name) - {"factory"}


CLAUSES = (
    Clause(
        "perturbed inputs in float64", "float64 determinants of nearly singular 2 x 2 matrices with fused multiply-add",
        kahan_determinants, determinants, nearly_singular, (without_runs("perturbed"),), "pass", "error",
    ),
    Clause(
        "perturbed incoming gradients", "gradient of a broadcast, summed one by one",
        Broadcast.apply, lambda x: x.expand(512, 64), lambda: [normal(64)],
        ((perturbed, "perturbed", still_gradients),), "pass", "warning", api="Torch.expand", backward=True,
    ),
    Clause(
        "two roundoffs", "bfloat16 layer_norm with eps 1e-3 for 1e-5",
        narrow_only(layer_norm(1e-3), layer_norm(1e-5)), layer_norm(1e-5), lambda: [normal(32, 64, dtype=BRAIN)],
        ((comparisons, "SINGLE", 2.0**-8),), "error", "pass", api="Functional.layer_norm",
    ),
    Clause(
        "equal values move together", "gradient of l1_loss is 1 where both arguments are equal",
        OneSided.apply, F.l1_loss, lambda: [(normal(200, seed=seed) + 8).round(decimals=1) for seed in (0, 1)],
        ((comparisons, "Perturbation", apart),), "error", "pass", api="Functional.l1_loss", backward=True,
    ),
    Clause(
        "neighbours' spread, element by element", "gradient of gelu in its tail, torch's own kernel",
        F.gelu, F.gelu, lambda: [torch.linspace(-8, -3, 20_000)],
        ((stages, "pooled_spread", lambda comparison, spread, **_: spread),),
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
        "no share of the scatter of all, element by element", "naive log1p",
        narrow_only(lambda x: torch.log(1 + x), torch.log1p), torch.log1p, decades(6),
        ((stages, "share_of", with_floor),), "error", "pass", api="Torch.log1p",
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
        "equal terms", "softmax of 1,000 numbers near zero, exponentials added one by one",
        softmax_one_by_one, partial(torch.softmax, dim=1), near_zero_beside_one,
        ((summed_terms, "terms_of", lambda comparison, values: [values]),), "pass", "warning", api="Torch.softmax",
    ),
    Clause(
        "copies count once", "gelu of 2,048 copies of -3, 2,200 roundoffs too large as with AVX-512",
        lambda x: (F.gelu(x.double()) * (1 + 2200 * 2.0**-24)).float(), F.gelu, lambda: [torch.full((2048,), -3.0)],
        ((noise_ratio, "for_copies", lambda limits, expected: limits),), "pass", "error", api="Functional.gelu",
    ),
    Clause(
        "many runs where few leave an element", "float16 attention in 16-bit operations, another device",
        attention.plain, F.scaled_dot_product_attention,
        lambda: attention.qkv(torch.float16, torch.Generator().manual_seed(27)),
        ((steps, "MANY_DRAWN", steps.DRAWN), (steps, "ROOM", 1.0)),
        "pass", "error", api="Functional.scaled_dot_product_attention", place="other", key="27",
    ),
    Clause(
        "as-cpu: the same steps", "gradient of float16 cross_entropy of nearly equal logits, torch's own kernel",
        F.cross_entropy, F.cross_entropy, near_equal_logits,
        (without_row("as the CPU"),),
        "pass", "error", api="Functional.cross_entropy", backward=True, place="other", key="b",
    ),
    Clause(
        "as-cpu: errors in the units of their elements", "gradient of bfloat16 softmax, one row 3 % too large",
        lambda x: F.softmax(with_gradient(x, one_row_larger), 0), partial(F.softmax, dim=0),
        lambda: [normal(4096, 48, scale=3.0, dtype=BRAIN)],
        ((steps, "scaled", lambda errors, samples, values, unit: [errors, *samples]),),
        "error", "pass", api="Functional.softmax", backward=True, place="other",
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


@pytest.mark.usefixtures("no_causes")
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: f"{clause.name}: {clause.case}")
def test_the_verdict_is_right_with_the_clause_and_wrong_without(clause: Clause) -> None:
    found, without = clause.verdict(), clause.verdict_without()
    assert found.verdict == clause.right, found.reason
    assert without.verdict == clause.wrong, without.reason
