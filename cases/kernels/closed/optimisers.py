"""Optimisers: Lion, Adafactor, AMSGrad, LAMB, RMSprop, momentum, averages, scaled gradients: closed entries."""

from __future__ import annotations

from typing import Any

import torch

from cases.kernels.entry import F16, NARROW, Entry, Task
from cases.kernels.making import normal, state, uniform
from cases.kernels.rounding import stepwise, tiles, up

Tensor = torch.Tensor
N = 2500


def in_float32(step: Any) -> Any:
    """A step computed wide; the first output is rounded to the parameters' dtype."""

    def run(p: Tensor, *rest: Any) -> Any:
        new, *others = step(up(p), *(up(item) if isinstance(item, torch.Tensor) else item for item in rest))
        return new.to(p.dtype), *others

    return run


def lion_inputs(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """Some gradients are 0, with a momentum of 0."""
    grad, momentum = normal(g, dtype, N, scale=0.01), normal(g, state(dtype), N, scale=0.005)
    grad[:50], momentum[:50] = 0.0, 0.0
    return [normal(g, dtype, N, scale=0.05), grad, momentum]


def lion(look: float = 0.9, keep: float = 0.99, decay: float = 0.5, late: bool = False, zero: float = 0.0) -> Any:
    def run(p: Tensor, grad: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        new = keep * m + (1 - keep) * grad
        mixed = look * (new if late else m) + (1 - look) * grad
        sign = torch.where(mixed == 0, zero, torch.sign(mixed))
        return p - 0.02 * (sign + decay * p), new

    return run


LION = Task("Lion", "optimisers", in_float32(lion()), lion(), lion_inputs)


def amsgrad(largest: str = "kept", moment: str = "ours", eps: str = "out") -> Any:
    """Adam with the largest second moment so far."""

    def run(p: Tensor, grad: Tensor, m: Tensor, v: Tensor, high: Tensor, step: int) -> Any:
        m, v = m + 0.1 * (grad - m), 0.98 * v + 0.02 * grad * grad
        high = {"kept": torch.maximum(high, v), "new": v, "stale": high}[largest]
        corrected = high / (1 - 0.98**step)
        root = corrected.sqrt() + 1e-4 if eps == "out" else (corrected + 1e-4).sqrt()
        return p - 0.2 * m / (1 - 0.9**step) / root, m, v, high

    return run


AMSGRAD = Task(
    "Adam with AMSGrad",
    "optimisers",
    in_float32(amsgrad()),
    amsgrad(),
    lambda dtype, g: [
        normal(g, dtype, N, scale=0.5),
        normal(g, dtype, N, scale=1e-2),
        normal(g, state(dtype), N, scale=5e-3),
        *(uniform(g, state(dtype), N, low=1e-6, high=2e-4) for _ in range(2)),
        6,
    ],
)


def adafactor(bound: str = "rms", clip: float = 1.0, relative: bool = True, decay: float = 0.95) -> Any:
    """Second moments by row and column, an update bounded by its RMS."""

    def run(p: Tensor, grad: Tensor, row: Tensor, column: Tensor) -> Any:
        squares = grad * grad + 1e-30
        row = decay * row + (1 - decay) * squares.mean(1)
        column = decay * column + (1 - decay) * squares.mean(0)
        update = grad * torch.rsqrt(row / row.mean())[:, None] * torch.rsqrt(column)
        size = update.square().mean().sqrt() if bound == "rms" else update.abs().amax()
        update = update / (size / clip).clamp_min(1.0)
        rate = 0.1 * (p.square().mean().sqrt().clamp_min(1e-3) if relative else 1.0)
        return p - rate * update, row, column

    return run


def adafactor_in_tiles(p: Tensor, grad: Tensor, row: Tensor, column: Tensor) -> Any:
    squares = grad * grad + 1e-30
    row = torch.lerp(squares.mean(1), row, 0.95)
    column = torch.lerp(torch.stack([part.sum(0) for part in tiles(squares, 8, 0)]).sum(0) / 50, column, 0.95)
    update = grad / (row[:, None] * column / row.mean()).sqrt()
    rms = (torch.stack([part.square().sum() for part in tiles(update, 8, 0)]).sum() / update.numel()).sqrt()
    return p - 0.1 * p.square().mean().sqrt().clamp_min(1e-3) * update / rms.clamp_min(1.0), row, column


ADAFACTOR = Task(
    "Adafactor",
    "optimisers",
    in_float32(adafactor()),
    adafactor(),
    lambda dtype, g: [
        normal(g, dtype, 50, 60, scale=0.3),
        normal(g, dtype, 50, 60, scale=0.1),
        uniform(g, state(dtype), 50, low=1e-4, high=4e-3),
        uniform(g, state(dtype), 60, low=1e-4, high=4e-3),
    ],
)


def lamb(trust: Any = None, decayed: bool = True) -> Any:
    """Adam's direction with the decay, as long as the weights."""

    def run(p: Tensor, grad: Tensor, m: Tensor, v: Tensor) -> Any:
        m, v = 0.9 * m + 0.1 * grad, 0.99 * v + 0.01 * grad * grad
        update = m / (v.sqrt() + 1e-6) + 0.1 * p
        measured = update if decayed else update - 0.1 * p
        ratio = p.norm() / measured.norm() if trust is None else trust(p, measured)
        return p - 0.3 * ratio * update, m, v

    return run


LAMB = Task(
    "LAMB",
    "optimisers",
    in_float32(lamb()),
    lamb(),
    lambda dtype, g: [
        normal(g, dtype, N, scale=2.0),
        normal(g, dtype, N, scale=0.1),
        normal(g, state(dtype), N, scale=0.03),
        uniform(g, state(dtype), N, low=1e-3, high=1e-2),
    ],
)


def rmsprop(centred: bool = True, eps: str = "out", old: bool = False) -> Any:
    def run(p: Tensor, grad: Tensor, square: Tensor, mean: Tensor, buffer: Tensor) -> Any:
        new, average = 0.99 * square + 0.01 * grad * grad, 0.99 * mean + 0.01 * grad
        used = square if old else new
        var = used - average * average if centred else used
        root = var.sqrt() + 1e-2 if eps == "out" else (var + 1e-2).sqrt()
        buffer = 0.9 * buffer + grad / root
        return p - 0.1 * buffer, new, average, buffer

    return run


RMSPROP = Task(
    "centred RMSprop",
    "optimisers",
    in_float32(rmsprop()),
    rmsprop(),
    lambda dtype, g: [
        normal(g, dtype, N),
        normal(g, dtype, N, scale=0.2),
        uniform(g, state(dtype), N, low=0.02, high=0.06),
        normal(g, state(dtype), N, scale=0.05),
        normal(g, state(dtype), N),
    ],
)


def sgd(first: str = "grad", decay: str = "grad", damp: float = 0.0, rows: int = N) -> Any:
    """Momentum whose first step takes the gradient as it is; a flag says that it is the first."""

    def run(p: Tensor, grad: Tensor, buffer: Tensor, begins: bool) -> Any:
        full = grad + 0.1 * p if decay == "grad" else grad
        new = full if begins and first == "grad" else 0.9 * buffer + (1 - damp) * full
        stepped = p - 0.2 * new - (0.02 * p if decay == "apart" else 0.0)
        return torch.cat([stepped[:rows], p[rows:]]), new

    return run


def sgd_inputs(begins: bool) -> Any:
    return lambda dtype, g: [normal(g, dtype, N), normal(g, dtype, N), normal(g, state(dtype), N), begins]


SGD = Task("momentum and decay", "optimisers", in_float32(sgd()), sgd(), sgd_inputs(False))
FIRST = Task("first step with momentum", "optimisers", in_float32(sgd()), sgd(), sgd_inputs(True))


def several(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """Gradients of three tensors, scaled by 1,024."""
    return [normal(g, dtype, n, scale=s) for n, s in ((3000, 40.0), (7, 900.0), (400, 5.0))] + [1024.0, 0.5]


def clipped(unscaled: bool = True, squares: Any = None, used: int = 3, each: bool = False) -> Any:
    """Gradients without their scale, clipped by their common norm."""

    def run(*args: Any) -> Any:
        grads, scale, limit = [up(item) for item in args[:3]], args[3], args[4]
        sums = [(item.square() if squares is None else squares(item)).sum() for item in grads]
        norm = torch.stack(sums[:used]).sum().sqrt() / (scale if unscaled else 1.0)
        norms = [s.sqrt() / scale for s in sums] if each else [norm] * 3
        outs = [g / scale * (limit / (n + 1e-6)).clamp_max(1.0) for g, n in zip(grads, norms, strict=True)]
        return *(out.to(own.dtype) for out, own in zip(outs, args, strict=False)), norm

    return run


def clipped_reference(a: Tensor, b: Tensor, c: Tensor, scale: float, limit: float) -> Any:
    grads = [item / scale for item in (a, b, c)]
    norm = torch.cat(grads).norm()
    return *(item * (limit / (norm + 1e-6)).clamp_max(1.0) for item in grads), norm


CLIPPED = Task("scaled and clipped", "optimisers", clipped(), clipped_reference, several)


def average(p: Tensor, shadow: Tensor, step: int) -> Tensor:
    """The decay grows with the steps."""
    decay = min(0.999, (1 + step) / (10 + step))
    return decay * shadow + (1 - decay) * p


AVERAGE = Task(
    "warm average",
    "optimisers",
    lambda p, s, n: torch.lerp(s, up(p), 1 - min(0.999, (1 + n) / (10 + n))),
    average,
    lambda dtype, g: [normal(g, dtype, N), normal(g, state(dtype), N), 20],
)

ENTRIES: tuple[Entry, ...] = (
    LION.healthy("in float32"),
    LION.fault("new momentum", "the sign is that of the new momentum's mixture", in_float32(lion(late=True))),
    LION.fault("one beta", "the momentum is kept by 0.9", in_float32(lion(keep=0.9))),
    LION.fault("sign of zero", "a mixture of 0 steps as if it were positive", in_float32(lion(zero=1.0))),
    LION.fault("no decay", "the parameters do not decay", in_float32(lion(decay=0.0))),
    AMSGRAD.healthy("in float32"),
    AMSGRAD.fault("newest moment", "the largest is overwritten by the newest", in_float32(amsgrad("new"))),
    AMSGRAD.fault("largest a step late", "the largest is the one before this step", in_float32(amsgrad("stale"))),
    AMSGRAD.fault("eps in the root", "adds eps below the root", in_float32(amsgrad(eps="in"))),
    ADAFACTOR.healthy("in float32"),
    ADAFACTOR.healthy("rows in tiles", in_float32(adafactor_in_tiles)),
    ADAFACTOR.fault("bounded by the largest", "the update is divided by its largest", in_float32(adafactor("largest"))),
    ADAFACTOR.fault("not bounded", "the update is not bounded by its RMS", in_float32(adafactor(clip=1e9))),
    ADAFACTOR.fault("absolute rate", "the rate is not relative", in_float32(adafactor(relative=False))),
    ADAFACTOR.fault("decay of 0.9", "the moments decay by 0.9", in_float32(adafactor(decay=0.9))),
    LAMB.healthy("in float32"),
    LAMB.fault("no trust ratio", "steps as Adam does", in_float32(lamb(lambda p, u: 1.0))),
    LAMB.fault("ratio upside down", "the ratio is turned over", in_float32(lamb(lambda p, u: u.norm() / p.norm()))),
    LAMB.fault("ratio without decay", "measures the update before the decay", in_float32(lamb(decayed=False))),
    LAMB.fault(
        "norm of the first blocks",
        "norms lack the last 452 elements",
        in_float32(lamb(lambda p, u: p[:2048].norm() / u.norm())),
    ),
    RMSPROP.healthy("in float32"),
    RMSPROP.fault("not centred", "the mean is not taken away", in_float32(rmsprop(False))),
    RMSPROP.fault("eps in the root", "adds eps below the root", in_float32(rmsprop(eps="in"))),
    RMSPROP.fault("stale squares", "divides by the squares before this step", in_float32(rmsprop(old=True))),
    SGD.healthy("in float32"),
    SGD.fault("decay apart", "the decay does not go through the momentum", in_float32(sgd(decay="apart"))),
    SGD.fault("last block not stepped", "the last 452 parameters stay", in_float32(sgd(rows=2048))),
    SGD.fault("dampened", "the gradient is weighed by 0.1", in_float32(sgd(damp=0.9))),
    FIRST.healthy("buffer overwritten"),
    FIRST.fault("old memory", "the first step adds to an unwritten buffer", in_float32(sgd("memory"))),
    CLIPPED.healthy("squares by tensor"),
    CLIPPED.fault("norm with the scale", "the norm is that of the scaled gradients", clipped(False)),
    CLIPPED.fault(
        "third tensor lost",
        "the norm lacks the last tensor",
        clipped(used=2),
        inputs=lambda dtype, g: ([*several(dtype, g)[:2], normal(g, dtype, 400, scale=60.0), 1024.0, 0.5]),
    ),
    CLIPPED.fault("each by its own", "each tensor is clipped by its own norm", clipped(each=True)),
    CLIPPED.fault(
        "squares in float16",
        "squares of scaled gradients overflow in float16",
        clipped(squares=lambda x: stepwise(F16)(x * x)),
    ),
    AVERAGE.healthy("lerp"),
    AVERAGE.fault("no warmup", "the decay is 0.999 from the start", lambda p, s, n: torch.lerp(s, up(p), 0.001)),
    AVERAGE.fault(
        "16-bit difference",
        "the difference is rounded to the parameters' dtype",
        lambda p, s, n: s + (1 - 21 / 30) * (p - s.to(p.dtype)).to(s.dtype),
        dtypes=NARROW,
    ),
)
