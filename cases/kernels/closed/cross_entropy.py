"""Losses of classes: chunks, shards of the vocabulary, soft targets, focal, contrastive, CTC: closed entries."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import Entry, Task
from cases.kernels.making import integers, normal
from cases.kernels.rounding import once, tiles, with_gradient

Tensor = torch.Tensor


def classes(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """Some rows are ignored."""
    target = integers(g, 37, 48)
    target[::7] = -1
    return [normal(g, dtype, 48, 37, scale=2.5), target]


def of_classes(x: Tensor) -> Tensor:
    """Weights from 0 to 2."""
    return (torch.arange(37) % 5).to(x.dtype) / 2


def weighted(smooth_weighted: bool = True, valid: bool = True, smoothing: float = 0.25, norm: str = "weights") -> Any:
    """Class weights and label smoothing as torch has them."""

    def run(x: Tensor, t: Tensor) -> Tensor:
        w = of_classes(x)
        logp = x - torch.logsumexp(x, -1, keepdim=True)
        kept = (t >= 0) if valid else torch.ones_like(t, dtype=torch.bool)
        own = t.clamp_min(0)
        hard = -logp.gather(1, own[:, None])[:, 0] * w[own]
        even = -(logp * (w if smooth_weighted else 0.5)).sum(-1) / 37
        rows = torch.where(kept, (1 - smoothing) * hard + smoothing * even, 0.0)
        return rows.sum() / (w[own][kept].sum() if norm == "weights" else kept.sum())

    return run


def weighted_gradient(ignored: bool = True, upstream: bool = True, scale: float = 1.0) -> Any:
    def gradient(g: Tensor, x: Tensor, t: Tensor) -> Any:
        w = of_classes(x)
        kept, own = t >= 0, t.clamp_min(0)
        p = torch.softmax(x, -1)
        mass = 0.75 * F.one_hot(own, 37) * w[own][:, None] + 0.25 * w / 37
        rows = (p * mass.sum(-1, keepdim=True) - mass) * (kept[:, None] if ignored else 1.0)
        found = scale * rows / w[own][kept].sum()
        return (found * g if upstream else found), None

    return with_gradient(weighted(), gradient)


WEIGHTED = Task(
    "weights and smoothing",
    "softmax",
    once(weighted()),
    lambda x, t: F.cross_entropy(x, t, of_classes(x), None, -1, None, "mean", 0.25),
    classes,
    backward=True,
)


def shards(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    return [normal(g, dtype, 40, 96, scale=3.0), integers(g, 96, 40)]


def sharded(max_of_all: bool = True, owners: Any = None, offset: int = 0, joined: int = 4) -> Any:
    """The vocabulary lies on four ranks; row losses."""

    def run(x: Tensor, t: Tensor) -> Tensor:
        parts = list(x.split(24, -1))
        high = torch.stack([part.amax(-1) for part in (parts if max_of_all else parts[:1])]).amax(0)
        total = torch.stack([torch.exp(part - high[:, None]).sum(-1) for part in parts[:joined]]).sum(0)
        own = torch.zeros_like(high)
        for rank, part in enumerate(parts):
            local = t - rank * 24 + offset * (rank > 0)
            here = (local >= 0) & (local < 24) if owners is None else owners(local)
            own = own + torch.where(here, part.gather(1, local.clamp(0, 23)[:, None])[:, 0], 0.0)
        return high + torch.log(total) - own

    return run


SHARDED = Task(
    "cross entropy on four ranks",
    "softmax",
    once(sharded()),
    lambda x, t: F.cross_entropy(x, t, reduction="none"),
    shards,
    backward=True,
)


def soft_targets(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    return [normal(g, dtype, 32, 60, scale=3.0), normal(g, dtype, 32, 60, scale=3.0), 2.0]


def distilled(square: bool = True, mean: float = 32.0, turned: bool = False, warm: bool = True) -> Any:
    """Kullback-Leibler of student and teacher at a temperature, times its square."""

    def run(student: Tensor, teacher: Tensor, heat: float) -> Tensor:
        s = F.log_softmax(student / heat, -1)
        t = F.log_softmax(teacher / (heat if warm else 1.0), -1)
        s, t = (t, s) if turned else (s, t)
        return (t.exp() * (t - s)).sum() * (heat**2 if square else 1.0) / mean

    return run


DISTILLED = Task(
    "distillation",
    "losses",
    once(lambda s, t, heat: sum(distilled()(a, b, heat) for a, b in zip(tiles(s, 8, 0), tiles(t, 8, 0), strict=True))),
    lambda s, t, heat: (
        F.kl_div(F.log_softmax(s / heat, -1), F.log_softmax(t / heat, -1), reduction="batchmean", log_target=True)
        * heat**2
    ),
    soft_targets,
    backward=True,
)


def focal(gamma: float = 2.0, alpha: float = 0.25, own: bool = True, slope: bool = True) -> Any:
    """By logits; alpha weighs the ones and 1 - alpha the zeros."""

    def run(x: Tensor, t: Tensor) -> Tensor:
        z = torch.where(t > 0.5, x, -x)
        miss = torch.sigmoid(-z if own else -x)
        miss = miss if slope else miss.detach()
        weight = torch.where(t > 0.5, alpha, 1 - alpha)
        return (weight * miss**gamma * F.softplus(-z)).mean()

    return run


def focal_reference(x: Tensor, labels: Tensor) -> Tensor:
    t = labels.to(x.dtype)
    ce = F.binary_cross_entropy_with_logits(x, t, reduction="none")
    p = torch.sigmoid(x)
    agreed = p * t + (1 - p) * (1 - t)
    return ((0.25 * t + 0.75 * (1 - t)) * (1 - agreed) ** 2 * ce).mean()


FOCAL = Task(
    "focal loss",
    "losses",
    once(focal()),
    focal_reference,
    lambda dtype, g: [normal(g, dtype, 3000, scale=3.0), (torch.rand(3000, generator=g) < 0.2).long()],
    backward=True,
)


def pairs(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    x = normal(g, torch.float64, 32, 48)
    return [x.to(dtype), (x + 2.0 * torch.randn(32, 48, generator=g, dtype=torch.float64)).to(dtype), 0.1]


def contrastive(sides: str = "both", heat_power: int = 1, normed: bool = True, own: bool = True) -> Any:
    """Images and texts: each row is to find its own among the others, both ways."""

    def run(x: Tensor, y: Tensor, heat: float) -> Tensor:
        x = x * torch.rsqrt(x.square().sum(-1, keepdim=True)) if normed else x / 7
        y = y * torch.rsqrt(y.square().sum(-1, keepdim=True))
        scores = x @ y.t() / heat**heat_power
        hidden = scores if own else scores.masked_fill(torch.eye(32) > 0, -torch.inf)
        rows, columns = torch.logsumexp(hidden, 1), torch.logsumexp(hidden, 0)
        total = {"both": (rows + columns) / 2, "rows": rows, "sum": rows + columns - scores.diagonal()}[sides]
        return (total - scores.diagonal()).mean()

    return run


def chunked_contrast(x: Tensor, y: Tensor, heat: float) -> Tensor:
    x, y = x / x.norm(dim=-1, keepdim=True), y / y.norm(dim=-1, keepdim=True)
    rows = torch.cat([torch.logsumexp(part @ y.t() / heat, 1) for part in tiles(x, 8, 0)])
    columns = torch.cat([torch.logsumexp(part @ x.t() / heat, 1) for part in tiles(y, 8, 0)])
    return ((rows + columns) / 2 - (x * y).sum(-1) / heat).mean()


def contrastive_reference(x: Tensor, y: Tensor, heat: float) -> Tensor:
    scores = F.normalize(x) @ F.normalize(y).t() / heat
    own = torch.arange(32)
    return (F.cross_entropy(scores, own) + F.cross_entropy(scores.t(), own)) / 2


CONTRASTIVE = Task("contrastive loss", "losses", once(contrastive()), contrastive_reference, pairs, backward=True)


def alignments(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """Targets with equal neighbours; inputs of unlike length."""
    x = torch.log_softmax(normal(g, torch.float64, 20, 3, 6), -1).to(dtype)
    targets = torch.tensor([[1, 2, 2, 5], [3, 3, 3, 0], [4, 1, 0, 0]])
    return [x, targets, torch.tensor([20, 17, 9]), torch.tensor([4, 3, 2])]


def ctc(skip_equals: bool = False, last_blank: bool = True, all_steps: bool = False) -> Any:
    """The forward recurrence over blanks and labels, in logarithms."""

    def run(x: Tensor, targets: Tensor, steps: Tensor, lengths: Tensor) -> Tensor:
        rows = []
        for b in range(3):
            labels = [0]
            for label in targets[b, : int(lengths[b])].tolist():
                labels += [label, 0]
            rows.append(_ctc_row(x[: 20 if all_steps else int(steps[b]), b], labels, skip_equals, last_blank))
        return torch.stack(rows)

    return run


def _ctc_row(x: Tensor, labels: list[int], skip_equals: bool, last_blank: bool) -> Tensor:
    none = x.new_full((), -1e30)
    alpha = [x[0, labels[0]], x[0, labels[1]], *[none] * (len(labels) - 2)]
    for step in x[1:]:
        new = []
        for s, label in enumerate(labels):
            ways = alpha[max(0, s - 1) : s + 1]
            if s > 1 and label and (skip_equals or label != labels[s - 2]):
                ways = [*ways, alpha[s - 2]]
            new.append(torch.logsumexp(torch.stack(ways), 0) + step[label])
        alpha = new
    return -torch.logsumexp(torch.stack(alpha[-2:] if last_blank else alpha[-2:-1]), 0)


CTC = Task(
    "CTC loss",
    "losses",
    once(ctc()),
    lambda x, t, steps, lengths: F.ctc_loss(x, t, steps, lengths, reduction="none"),
    alignments,
)

ENTRIES: tuple[Entry, ...] = (
    WEIGHTED.healthy("by log-sum-exp"),
    WEIGHTED.healthy("gradient by hand", weighted_gradient(), backward=True),
    WEIGHTED.fault("unweighted smoothing", "classes smooth by 1/2 whatever their weight", once(weighted(False))),
    WEIGHTED.fault("ignored counted", "rows to be ignored take part as class 0", once(weighted(valid=False))),
    WEIGHTED.fault("mean over rows", "divides by the number of rows kept", once(weighted(norm="rows"))),
    WEIGHTED.wrong_gradient("ignored rows pull", "ignored rows have the gradient of class 0", weighted_gradient(False)),
    WEIGHTED.wrong_gradient("own scale", "the incoming gradient is not applied", weighted_gradient(upstream=False)),
    SHARDED.healthy("one maximum for all"),
    SHARDED.healthy(
        "sums by rank",
        once(
            lambda x, t: (
                torch.logsumexp(torch.stack([torch.logsumexp(part, -1) for part in x.split(24, -1)]), 0)
                - x.gather(1, t[:, None])[:, 0]
            )
        ),
    ),
    SHARDED.fault(
        "no owner",
        "a rank that does not own the target gives its nearest logit",
        once(sharded(owners=lambda local: local > -24)),
    ),
    SHARDED.fault("border", "from the second rank on targets are one off", once(sharded(offset=1))),
    SHARDED.fault("three ranks", "the sum lacks the last rank", once(sharded(joined=3))),
    DISTILLED.healthy("rows in chunks"),
    DISTILLED.fault("not squared", "lacks the square of the temperature", once(distilled(False))),
    DISTILLED.fault("mean over all", "divides by all elements", once(distilled(mean=32.0 * 60))),
    DISTILLED.fault("other way round", "student and teacher are swapped", once(distilled(turned=True))),
    DISTILLED.fault("teacher cold", "the teacher has no temperature", once(distilled(warm=False))),
    FOCAL.healthy("by one sign"),
    FOCAL.fault("gamma of 1", "a power of 1", once(focal(1.0))),
    FOCAL.fault("alpha swapped", "weighs zeros by 0.25", once(focal(alpha=0.75))),
    FOCAL.fault("miss of the ones", "zeros are weighed as if they were ones", once(focal(own=False))),
    FOCAL.wrong_gradient("weight held", "the backward holds the miss constant", once(focal(slope=False))),
    CONTRASTIVE.healthy("one matrix"),
    CONTRASTIVE.healthy("rows in chunks", once(chunked_contrast)),
    CONTRASTIVE.fault("one way", "texts alone are sought", once(contrastive("rows"))),
    CONTRASTIVE.fault("both added", "both directions are added, not averaged", once(contrastive("sum"))),
    CONTRASTIVE.fault("own left out", "the row's own is not in the sum", once(contrastive(own=False))),
    CONTRASTIVE.fault("one side normalised", "images are not normalised", once(contrastive(normed=False))),
    CTC.healthy("in logarithms"),
    CTC.fault("equals skipped", "goes from a label to its equal without a blank", once(ctc(skip_equals=True))),
    CTC.fault("ends on a label", "paths that end on a blank are lost", once(ctc(last_blank=False))),
    CTC.fault("all steps", "padded steps take part", once(ctc(all_steps=True))),
)
