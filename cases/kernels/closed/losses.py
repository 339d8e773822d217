"""Losses: smooth L1, BCE with weights, dice, likelihoods, triplets, policies, divergences: closed entries."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import NARROW, Entry, Task
from cases.kernels.making import normal, uniform
from cases.kernels.rounding import added_in, once, tiles, with_gradient

Tensor = torch.Tensor


def smooth(beta_over: bool = True, half: float = 0.5, root: bool = False) -> Any:
    """Squares below beta, magnitudes above."""

    def run(x: Tensor, t: Tensor, a: Any, b: Any, reduction: str, beta: float) -> Tensor:
        d = (x - t).abs()
        inner = half * d * d / (beta if beta_over else 1.0)
        rows = torch.where(d < beta, inner, d - (half * beta if not root else half))
        return torch.stack([part.sum() for part in tiles(rows.flatten(), 256)]).sum() / rows.numel()

    return run


def smooth_gradient(g: Tensor, x: Tensor, t: Tensor, *rest: Any) -> Any:
    slope = g * ((x - t) / rest[-1]).clamp(-1, 1) / x.numel()
    return slope, -slope, *(None for _ in rest)


SMOOTH = Task(
    "smooth L1",
    "losses",
    once(smooth()),
    F.smooth_l1_loss,
    lambda dtype, g: [normal(g, dtype, 40, 50), normal(g, dtype, 40, 50), None, None, "mean", 0.5],
    "Functional.smooth_l1_loss",
    backward=True,
)


def labelled(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """Logits of which many are saturated, labels, and weights of the ones."""
    labels = (torch.rand(60, 30, generator=g) < 0.3).to(dtype)
    return [normal(g, dtype, 60, 30, scale=12.0), labels, uniform(g, dtype, 30, low=0.5, high=4.0)]


def positive(share: str = "ones", form: str = "stable") -> Any:
    """Binary cross entropy of each element, ones with a weight a class."""

    def run(x: Tensor, t: Tensor, w: Tensor) -> Tensor:
        if form == "log":
            p = torch.sigmoid(x)
            return -(w * t * (p + 1e-7).log() + (1 - t) * (1 - p + 1e-7).log())
        weight = {"ones": 1 + (w - 1) * t, "all": w * torch.ones_like(t), "zeros": w + (1 - w) * t}[share]
        return (1 - t) * x + weight * (torch.log1p(torch.exp(-x.abs())) + (-x).clamp_min(0))

    return run


POSITIVE = Task(
    "BCE with weighted ones",
    "losses",
    once(positive()),
    lambda x, t, w: F.binary_cross_entropy_with_logits(x, t, pos_weight=w, reduction="none"),
    labelled,
)


def dice(squared: bool = False, twice: float = 2.0, eps: float = 1.0, each: bool = True) -> Any:
    """1 minus the overlap's share, class by class."""

    def run(x: Tensor, t: Tensor) -> Tensor:
        p, y = torch.softmax(x, 1), F.one_hot(t, 4).movedim(-1, 1).to(x.dtype)
        dims = (0, 2, 3) if each else (0, 1, 2, 3)
        size = (p.square() + y).sum(dims) if squared else (p + y).sum(dims)
        return 1 - ((twice * (p * y).sum(dims) + eps) / (size + eps)).mean()

    return run


def dice_reference(x: Tensor, t: Tensor) -> Tensor:
    p = torch.softmax(x, 1)
    shares = []
    for c in range(4):
        own = (t == c).to(x.dtype)
        shares.append((2 * (p[:, c] * own).sum() + 1) / (p[:, c].sum() + own.sum() + 1))
    return 1 - torch.stack(shares).mean()


DICE = Task(
    "dice loss",
    "losses",
    once(dice()),
    dice_reference,
    lambda dtype, g: [normal(g, dtype, 2, 4, 9, 9, scale=2.0), torch.randint(0, 4, (2, 9, 9), generator=g)],
    backward=True,
)


def gaussian(bounded: bool = True, half: float = 0.5, full: bool = True) -> Any:
    def run(x: Tensor, t: Tensor, var: Tensor, constant: bool, eps: float) -> Tensor:
        v = var.clamp_min(eps) if bounded else var + eps
        end = 0.9189385332046727 if constant and full else 0.0
        return (half * (v.log() + (x - t).square() / v) + end).mean()

    return run


GAUSSIAN = Task(
    "Gaussian likelihood",
    "losses",
    once(gaussian()),
    F.gaussian_nll_loss,
    lambda dtype, g: [
        normal(g, dtype, 30, 40, scale=0.3),
        normal(g, dtype, 30, 40, scale=0.3),
        uniform(g, dtype, 30, 40, low=0.0, high=0.2),
        True,
        1e-2,
    ],
    "Functional.gaussian_nll_loss",
)


def triples(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    return [*(normal(g, dtype, 64, 24) for _ in range(3)), 1.0]


def triplet(square: bool = False, margin: float = 1.0, active: bool = False) -> Any:
    def run(a: Tensor, p: Tensor, n: Tensor, gap: float) -> Tensor:
        near, far = (a - p + 1e-6).square().sum(-1), (a - n + 1e-6).square().sum(-1)
        rows = ((near - far) if square else (near.sqrt() - far.sqrt())) + gap * margin
        kept = rows.clamp_min(0)
        return kept.sum() / (kept > 0).sum() if active else kept.mean()

    return run


TRIPLET = Task(
    "triplets",
    "losses",
    once(triplet()),
    F.triplet_margin_loss,
    triples,
    "Functional.triplet_margin_loss",
    backward=True,
)


def steps(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """Log-probabilities of new, old and reference policy; advantages; which tokens count."""
    old = normal(g, torch.float64, 24, 40, scale=0.7, mean=-1.5).clamp_max(-0.01)
    new, kept = (old + normal(g, torch.float64, 24, 40, scale=0.3), old + normal(g, torch.float64, 24, 40, scale=0.2))
    mask = torch.arange(40) < torch.randint(8, 41, (24, 1), generator=g)
    return [new.to(dtype), old.to(dtype), kept.to(dtype), normal(g, dtype, 24), mask]


def far(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """The reference policy is another one."""
    made = steps(dtype, g)
    return [*made[:2], normal(g, dtype, 24, 40, scale=0.7, mean=-2.5), *made[3:]]


def policy(
    clip: str = "smaller", high: float = 1.28, kl: str = "k3", mean: str = "tokens", weight: float = 0.04
) -> Any:
    """Group-relative clipped objective with a penalty for leaving the reference."""

    def run(new: Tensor, old: Tensor, ref: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
        ratio, a = torch.exp(new - old), advantage[:, None]
        bounded = ratio.clamp(0.8, high) * a
        gain = {
            "smaller": torch.minimum(ratio * a, bounded),
            "only": bounded,
            "larger": torch.maximum(ratio * a, bounded),
        }
        apart = ref - new
        penalty = {"k3": torch.expm1(apart) - apart, "k1": -apart, "turned": torch.expm1(-apart) + apart}[kl]
        rows = torch.where(mask, weight * penalty - gain[clip], 0.0)
        if mean == "tokens":
            return rows.sum() / mask.sum()
        return rows.mean() if mean == "all" else (rows.sum(-1) / mask.sum(-1)).mean()

    return run


def policy_reference(new: Tensor, old: Tensor, ref: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    ratio, a = torch.exp(new - old), advantage[:, None].expand_as(new)
    gain = torch.where(a > 0, ratio.clamp_max(1.28), ratio.clamp_min(0.8)) * a
    penalty = torch.exp(ref - new) - 1 - (ref - new)
    return (0.04 * penalty - gain)[mask].mean()


POLICY = Task("clipped policy", "losses", once(policy()), policy_reference, steps)


def by_rate(x: Tensor, t: Tensor, logs: bool, full: bool) -> Tensor:
    return (x - t * (x.abs() + 1e-8).log()).mean()


POISSON = Task(
    "Poisson likelihood",
    "losses",
    once(lambda x, t, logs, full: (torch.exp(x) - t * x).mean()),
    F.poisson_nll_loss,
    lambda dtype, g: [normal(g, dtype, 40, 40), torch.randint(0, 9, (40, 40), generator=g).to(dtype), True, False],
    "Functional.poisson_nll_loss",
)


def mean_in(dtype: torch.dtype) -> Any:
    """Tiles of 16 rows whose sums are added up in a dtype."""
    return lambda x: added_in(dtype, torch.stack([part.sum() for part in tiles(x.flatten(), 16)])) / x.numel()


def divergence(average: Any = None, mix: float = 0.5) -> Any:
    """Jensen-Shannon of two sets of logits."""

    def run(x: Tensor, y: Tensor) -> Tensor:
        p, q = F.log_softmax(x, -1), F.log_softmax(y, -1)
        m = torch.logaddexp(p + float(torch.tensor(mix).log()), q + float(torch.tensor(1 - mix).log()))
        m = m.double() if x.dtype is torch.float64 else m
        rows = (p.exp() * (p - m) + q.exp() * (q - m)).sum(-1) / 2
        return rows.mean() if average is None else average(rows)

    return run


def divergence_reference(x: Tensor, y: Tensor) -> Tensor:
    p, q = torch.softmax(x, -1), torch.softmax(y, -1)
    m = (p + q) / 2
    return ((p * (p / m).log()).sum(-1) + (q * (q / m).log()).sum(-1)).mean() / 2


DIVERGENCE = Task(
    "Jensen-Shannon",
    "losses",
    once(divergence()),
    divergence_reference,
    lambda dtype, g: [normal(g, dtype, 600, 20, scale=1.5) for _ in range(2)],
)

ENTRIES: tuple[Entry, ...] = (
    SMOOTH.healthy("tiles of 256"),
    SMOOTH.healthy("gradient by hand", with_gradient(smooth(), smooth_gradient)),
    SMOOTH.fault("beta not divided", "squares are not over beta", once(smooth(False))),
    SMOOTH.fault("half of one", "the line lies 1/2 lower whatever beta", once(smooth(root=True))),
    SMOOTH.wrong_gradient(
        "target's sign",
        "the target has the input's gradient",
        with_gradient(smooth(), lambda g, x, t, *rest: (smooth_gradient(g, x, t, *rest)[0],) * 2 + (None,) * 4),
    ),
    SMOOTH.wrong_gradient(
        "incoming once",
        "the incoming gradient is taken as 1",
        with_gradient(smooth(), lambda g, x, t, *rest: smooth_gradient(torch.ones_like(g), x, t, *rest)),
    ),
    POSITIVE.healthy("by log1p"),
    POSITIVE.fault("weight for all", "zeros have the weight of ones", once(positive("all"))),
    POSITIVE.fault("weight for zeros", "zeros alone have the weight", once(positive("zeros"))),
    POSITIVE.fault("by the probability", "logarithms of the sigmoid and 1e-7", once(positive(form="log"))),
    DICE.healthy("sums over pixels"),
    DICE.fault("squares below", "the probabilities are squared below", once(dice(True))),
    DICE.fault("overlap once", "the overlap is not doubled", once(dice(twice=1.0))),
    DICE.fault(
        "all classes at once",
        "one share for all classes",
        once(dice(each=False)),
        inputs=lambda dtype, g: [
            normal(g, dtype, 2, 4, 9, 9, scale=2.0),
            torch.randint(0, 9, (2, 9, 9), generator=g).clamp_max(3),
        ],
    ),
    GAUSSIAN.healthy("by the variance"),
    GAUSSIAN.fault("eps added", "adds eps to the variance", once(gaussian(False))),
    GAUSSIAN.fault("no constant", "lacks log(2 pi) / 2", once(gaussian(full=False))),
    GAUSSIAN.fault("no half", "is not halved", once(gaussian(half=1.0))),
    TRIPLET.healthy("by distances"),
    TRIPLET.fault("squared", "distances are squared", once(triplet(True))),
    TRIPLET.fault("no margin", "lacks the margin", once(triplet(margin=0.0))),
    TRIPLET.fault("mean of the active", "divides by the triplets beyond the margin", once(triplet(active=True))),
    POLICY.healthy("in float32"),
    POLICY.fault("always clipped", "clips where the unclipped one is smaller too", once(policy("only"))),
    POLICY.fault("larger", "takes the larger of both", once(policy("larger"))),
    POLICY.fault("same ends", "the upper end is 1.2", once(policy(high=1.2))),
    POLICY.fault(
        "penalty of the difference",
        "the penalty is the mere difference",
        once(policy(kl="k1")),
        inputs=lambda dtype, g: (
            [*steps(dtype, g)[:2], normal(g, dtype, 24, 40, scale=0.7, mean=-2.5), *steps(dtype, g)[3:]]
        ),
    ),
    POLICY.fault("mean of rows", "averages the rows' means", once(policy(mean="rows"))),
    POLICY.fault("padding counted", "divides by all tokens", once(policy(mean="all"))),
    POISSON.healthy("by exp"),
    POISSON.fault("not by exp", "takes the input as the rate", once(by_rate)),
    DIVERGENCE.healthy("by logarithms", close=1e-6),
    DIVERGENCE.fault(
        "16-bit mean",
        "rows' losses are added up in the tensors' dtype",
        lambda x, y: once(divergence(mean_in(x.dtype)))(x, y),
        dtypes=NARROW,
    ),
    DIVERGENCE.fault("uneven mixture", "mixes 0.4 and 0.6", once(divergence(mix=0.4))),
)
