"""PyTorch: formulas that 16-bit kernels of torch's own CPU evaluate step by step, rounding each, as those steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from pytest_probe.frameworks.torch.cpu16.loops import beyond_vectors
from pytest_probe.frameworks.torch.cpu16.sequential import lanes, looped

ATEN = torch.ops.aten
# torch's numbers for the reductions of a loss.
NONE, MEAN, SUM = 0, 1, 2


def constant(value: float) -> torch.Tensor:
    """A Python float as a kernel has it, rounded like a tensor."""
    made: torch.Tensor = ATEN.full.default((), value, dtype=torch.float64)
    return made


def reduced(loss: torch.Tensor, reduction: int) -> torch.Tensor:
    if reduction == NONE:
        return loss
    return loss.mean() if reduction == MEAN else loss.sum()


def share(x: torch.Tensor, reduction: int) -> torch.Tensor:
    """What each element counts in the gradient of a loss."""
    return constant(1 / x.numel() if reduction == MEAN else 1.0)


def entr(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x < 0, -math.inf, torch.where(x == 0, 0.0, -x * x.log()))


def xlogy(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.where(x == 0, torch.where(y.isnan(), y, 0.0), x * y.log())


def xlog1py(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.where(x == 0, torch.where(y.isnan(), y, 0.0), x * y.log1p())


def logit(x: torch.Tensor, eps: float | None = None) -> torch.Tensor:
    inside = x if eps is None else torch.clamp(x, constant(eps), constant(1 - eps))
    return (inside / (1 - inside)).log()


def logit_backward(grad: torch.Tensor, x: torch.Tensor, eps: float | None = None) -> torch.Tensor:
    slope = grad / (x * (1 - x))
    if eps is None:
        return slope
    return torch.where((x < constant(eps)) | (x > constant(1 - eps)), 0.0, slope)


def addr(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, *, beta: float = 1, alpha: float = 1) -> torch.Tensor:
    product = constant(alpha) * y.unsqueeze(1) * z
    return product if beta == 0 else constant(beta) * x + product


def addmv(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    return NotImplemented if beta in (0, 1) else torch.addmv(x * beta, y, z, alpha=alpha)


def addbmm(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, *, beta: float = 1, alpha: float = 1) -> torch.Tensor:
    total = x
    for first, second in zip(y, z, strict=True):
        total = torch.addmm(total, first, second, beta=beta, alpha=alpha)
        beta = 1
    return total


def cross(x: torch.Tensor, y: torch.Tensor, *, dim: int = -1) -> torch.Tensor:
    after, before = ([1, 2, 0], [2, 0, 1])

    def part(tensor: torch.Tensor, order: list[int]) -> torch.Tensor:
        return tensor.index_select(dim, torch.tensor(order))

    x, y = torch.broadcast_tensors(x, y)  # type: ignore[no-untyped-call]
    return part(x, after) * part(y, before) - part(x, before) * part(y, after)


def mse(x: torch.Tensor, y: torch.Tensor, reduction: int = MEAN) -> torch.Tensor:
    gap = x - y
    return reduced(gap * gap, reduction)


def mse_backward(grad: torch.Tensor, x: torch.Tensor, y: torch.Tensor, reduction: int) -> torch.Tensor:
    norm = constant(2 / x.numel() if reduction == MEAN else 2.0)
    return norm * (x - y) * grad


def huber(x: torch.Tensor, y: torch.Tensor, reduction: int = MEAN, delta: float = 1.0) -> torch.Tensor:
    gap, edge = (x - y).abs(), constant(delta)
    loss = torch.where(gap < edge, 0.5 * gap * gap, edge * (gap - 0.5 * edge))
    return reduced(loss, reduction)


def huber_backward(grad: torch.Tensor, x: torch.Tensor, y: torch.Tensor, reduction: int, delta: float) -> torch.Tensor:
    """What no whole vector holds is compared with, and multiplied by, a delta that is not rounded."""
    gap, edge, norm = x - y, constant(delta), share(x, reduction)
    whole = norm * gap.clamp(-edge, edge) * grad
    outside = torch.where(gap < 0, -norm, norm) * grad * delta
    single = torch.where(gap.abs() < delta, norm * gap * grad, outside)
    return torch.where(beyond_vectors(looped(), x, y, grad), single, whole)


def smooth_l1(x: torch.Tensor, y: torch.Tensor, reduction: int = MEAN, beta: float = 1.0) -> torch.Tensor:
    gap, edge = (x - y).abs(), constant(beta)
    return reduced(torch.where(gap < edge, 0.5 * gap * gap / edge, gap - 0.5 * edge), reduction)


def sigmoid_backward(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return grad * (1 - y) * y


def each_rounded(loss: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """A loss whose elements are rounded before they are summed."""

    def function(x: torch.Tensor, y: torch.Tensor, reduction: int = MEAN, *more: float, **named: float) -> Any:
        return NotImplemented if reduction == NONE else reduced(loss(x, y, NONE, *more, **named), reduction)

    return function


def soft_margin(x: torch.Tensor, y: torch.Tensor, reduction: int = MEAN) -> torch.Tensor:
    return reduced((-x * y).exp().log1p(), reduction)


def soft_margin_backward(grad: torch.Tensor, x: torch.Tensor, y: torch.Tensor, reduction: int) -> torch.Tensor:
    powers = (-y * x).exp()
    return -share(x, reduction) * y * powers / (powers + 1) * grad


def binary_cross_entropy(
    x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor | None = None, reduction: int = MEAN
) -> torch.Tensor:
    # torch cuts logarithms at -100, and the backward's denominator at 1e-12, lest a certain and wrong answer gives inf.
    loss = (y - 1) * (-x).log1p().clamp(min=-100) - y * x.log().clamp(min=-100)
    return reduced(loss if weight is None else loss * weight, reduction)


def binary_cross_entropy_backward(
    grad: torch.Tensor, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor | None = None, reduction: int = MEAN
) -> torch.Tensor:
    slope = grad * (x - y) / ((1 - x) * x).clamp(min=1e-12)
    slope = slope if weight is None else slope * weight
    return slope / x.numel() if reduction == MEAN else slope


def binary_cross_entropy_with_logits(
    x: torch.Tensor,
    y: torch.Tensor,
    weight: torch.Tensor | None = None,
    positive: torch.Tensor | None = None,
    reduction: int = MEAN,
) -> torch.Tensor:
    logs = torch.nn.functional.logsigmoid(x)
    loss = (1 - y) * x - (logs if positive is None else ((positive - 1) * y + 1) * logs)
    return reduced(loss if weight is None else loss * weight, reduction)


def logsumexp(x: torch.Tensor, dims: list[int], keep: bool = False) -> torch.Tensor:
    largest = x.amax(dims, keepdim=True)
    largest = torch.where(largest.abs() == math.inf, 0.0, largest)
    sums = (x - largest).exp().sum(dims, keepdim=keep).log()
    return sums + largest.reshape(sums.shape)


def dist(x: torch.Tensor, y: torch.Tensor, p: float = 2) -> torch.Tensor:
    norm: torch.Tensor = torch.linalg.vector_norm(x - y, p)
    return norm


def ldexp(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * torch.pow(constant(2.0), y)


def truncated(x: torch.Tensor, y: torch.Tensor, *, rounding_mode: str | None) -> Any:
    """The quotient is rounded before it is cut, in the last elements of a vectorised loop."""
    return NotImplemented if rounding_mode != "trunc" else (x / y).trunc()


def power(x: torch.Tensor, exponent: float) -> torch.Tensor:
    """The exponent is rounded, also where an API computed it (lp_pool2d: 1 / 3)."""
    return torch.pow(x, float(constant(exponent)))


def power_by_products(x: torch.Tensor, exponent: float) -> torch.Tensor:
    """Cubes and inverse squares are products; an inverse root is that of a root where no vectors hold it."""
    if exponent == 3:
        return x * x * x
    if exponent == -0.5:
        return torch.where(beyond_vectors(2 * lanes(), x), x.sqrt().reciprocal(), torch.pow(x, exponent))
    return (x * x).reciprocal() if exponent == -2 else power(x, exponent)


def polygamma(factorial: Callable[[int], torch.Tensor]) -> Callable[..., Any]:
    """Of a factorial and a zeta function."""

    def function(n: int, x: torch.Tensor) -> Any:
        if n < 2:
            return NotImplemented
        return (factorial(n) if n % 2 else -factorial(n)) * torch.special.zeta(float(n + 1), x)

    return function


def rounded_factorial(n: int) -> torch.Tensor:
    return constant(math.factorial(n))


def factorial_by_logarithm(n: int) -> torch.Tensor:
    return constant(math.lgamma(n + 1)).exp()


def euclidean(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Distances by one matrix product."""
    x_norm, y_norm = x.square().sum(-1, keepdim=True), y.square().sum(-1, keepdim=True)
    left = torch.cat([x * -2, x_norm, torch.ones_like(x_norm)], -1)
    right = torch.cat([y, torch.ones_like(y_norm), y_norm], -1)
    return (left @ right.mT).clamp(min=0).sqrt()


def affine_grid(theta: torch.Tensor, size: Sequence[int], align: bool) -> torch.Tensor:
    """Coordinates from -1 to 1, rounded, times the matrices; the last coordinate is the innermost dimension's."""
    count, extents = size[0], size[2:]
    base = theta.new_ones(count, *extents, len(extents) + 1)
    for dim, extent in enumerate(reversed(extents)):
        base[..., dim].copy_(_coordinates(extent, align).view(-1, *[1] * dim))
    return (base.view(count, -1, len(extents) + 1) @ theta.mT).view(count, *extents, len(extents))


def _coordinates(extent: int, align: bool) -> torch.Tensor:
    if extent <= 1:
        return torch.zeros(1, dtype=torch.float64)
    made = linspace(-1.0, 1.0, extent)
    return made if align else made * (extent - 1) / extent


def linspace(start: float, end: float, steps: int, **kwargs: Any) -> torch.Tensor:
    """From both ends to the middle; of one step the start."""
    first, last = constant(start), constant(end)
    step = (last - first) / constant(max(steps - 1, 1))
    places = torch.arange(steps)
    from_first, from_last = places.double() * step, (steps - 1 - places).double() * step
    return torch.where(places < max(steps // 2, 1), first + from_first, last - from_last)


def window(shape: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A window from what it is of 0, 1, 2, ... and their last; a periodic one lacks its last value."""

    def function(count: int, periodic: bool = True, *more: float, **kwargs: Any) -> torch.Tensor:
        last = count if periodic else count - 1
        places = torch.arange(last + 1).double()
        return torch.ones(count, dtype=torch.float64) if count <= 1 else shape(places, last, *more).narrow(0, 0, count)

    return function


def mvlgamma(x: torch.Tensor, p: int) -> torch.Tensor:
    terms = torch.lgamma(x.unsqueeze(-1) + torch.arange(1 - p, 1) / 2)
    return terms.sum(-1) + constant(p * (p - 1) / 4 * math.log(math.pi))


def hamming(places: torch.Tensor, last: int, alpha: float = 0.54, beta: float = 0.46) -> torch.Tensor:
    return (places * constant(2 * math.pi / last)).cos() * constant(-beta) + constant(alpha)


def hann(places: torch.Tensor, last: int) -> torch.Tensor:
    return hamming(places, last, 0.5, 0.5)


def bartlett(places: torch.Tensor, last: int) -> torch.Tensor:
    rising = places * constant(2 / last)
    falling = rising * -1 + 2
    return torch.where(torch.arange(last + 1) <= last // 2, rising, falling)


def blackman(places: torch.Tensor, last: int) -> torch.Tensor:
    angles = places * constant(math.pi / last)
    return (angles * 4).cos() * constant(0.08) - (angles * 2).cos() * 0.5 + constant(0.42)


def window_functions(name: str, shape: Callable[..., torch.Tensor]) -> dict[Any, Callable[..., Any]]:
    """The window for all ways to ask for it."""
    packet = getattr(ATEN, name)
    return {getattr(packet, way): window(shape) for way in packet.overloads() if not way.endswith("out")}


FORMULAS: Mapping[Any, Callable[..., Any]] = {
    **window_functions("hamming_window", hamming),
    **window_functions("hann_window", hann),
    **window_functions("bartlett_window", bartlett),
    **window_functions("blackman_window", blackman),
    ATEN.special_entr.default: entr,
    ATEN.dist.default: dist,
    ATEN.ldexp.Tensor: ldexp,
    ATEN.div.Tensor_mode: truncated,
    ATEN._euclidean_dist.default: euclidean,
    ATEN.linspace.default: linspace,
    ATEN.affine_grid_generator.default: affine_grid,
    ATEN.xlogy.Tensor: xlogy,
    ATEN.special_xlog1py.default: xlog1py,
    ATEN.logit.default: logit,
    ATEN.logit_backward.default: logit_backward,
    ATEN.addr.default: addr,
    ATEN.addbmm.default: addbmm,
    ATEN.addmv.default: addmv,
    ATEN.linalg_cross.default: cross,
    ATEN.mse_loss.default: mse,
    ATEN.mse_loss_backward.default: mse_backward,
    ATEN.huber_loss_backward.default: huber_backward,
    ATEN.soft_margin_loss.default: soft_margin,
    ATEN.soft_margin_loss_backward.default: soft_margin_backward,
    ATEN.binary_cross_entropy.default: binary_cross_entropy,
    ATEN.binary_cross_entropy_backward.default: binary_cross_entropy_backward,
    ATEN.binary_cross_entropy_with_logits.default: binary_cross_entropy_with_logits,
    ATEN.logsumexp.default: logsumexp,
    ATEN.mvlgamma.default: mvlgamma,
}
# What only one of the dtypes computes in its own precision.
OF_DTYPE: Mapping[torch.dtype, Mapping[Any, Callable[..., Any]]] = {
    torch.bfloat16: {
        ATEN.huber_loss.default: huber,
        ATEN.smooth_l1_loss.default: each_rounded(ATEN.smooth_l1_loss.default),
        ATEN.pow.Tensor_Scalar: power_by_products,
        ATEN.polygamma.default: polygamma(rounded_factorial),
    },
    torch.float16: {
        ATEN.huber_loss.default: each_rounded(ATEN.huber_loss.default),
        ATEN.smooth_l1_loss.default: smooth_l1,
        ATEN.pow.Tensor_Scalar: power,
        ATEN.sigmoid_backward.default: sigmoid_backward,
        ATEN.polygamma.default: polygamma(factorial_by_logarithm),
    },
}
