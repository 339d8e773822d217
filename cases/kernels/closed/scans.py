"""Scans: state spaces, RWKV, log-sum-exp, gated and delta-rule attention, maxima, products: closed entries."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import NARROW, Entry, Task
from cases.kernels.making import normal, uniform
from cases.kernels.rounding import once, stepwise, tiles, with_gradient

Tensor = torch.Tensor


def selective_inputs(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """Two sequences of 50, 6 channels with 4 states; step sizes, decays, both projections, a skip, a gate."""
    return [
        normal(g, dtype, 2, 50, 6),
        normal(g, dtype, 2, 50, 6, mean=-1.0),
        -uniform(g, dtype, 6, 4, low=0.5, high=4.0),
        normal(g, dtype, 2, 50, 4),
        normal(g, dtype, 2, 50, 4),
        normal(g, dtype, 6),
        normal(g, dtype, 2, 50, 6),
    ]


def selective(
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor,
    z: Tensor,
    soft: bool = True,
    skip: str = "x",
    reset: int = 0,
    exact: bool = False,
    step: Any = None,
    late: bool = False,
    gate: Any = F.silu,
) -> Tensor:
    """Mamba's scan, step by step; reset: the state is lost every so many steps."""
    dt = F.softplus(dt) if soft else dt.exp()
    state, outs = torch.zeros(2, 6, 4, dtype=x.dtype), []
    for t in range(x.shape[1]):
        if reset and t and t % reset == 0:
            state = torch.zeros_like(state)
        decay = torch.exp(dt[:, t, :, None] * a)
        gain = (decay - 1) / a if exact else dt[:, t, :, None]
        old, state = state, decay * state + gain * b[:, t, None] * x[:, t, :, None]
        state = state if step is None else step(state)
        outs.append(((old if late else state) * c[:, t, None]).sum(-1))
    y = torch.stack(outs, 1)
    return (y + d * {"x": x, "dt": x * dt, "none": 0 * x}[skip]) * gate(z)


def selective_reference(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor, z: Tensor) -> Tensor:
    dt = F.softplus(dt)
    total = (dt[..., None] * a).cumsum(1)
    apart = total[:, :, None] - total[:, None]
    seen = (torch.ones(50, 50).tril() > 0)[:, :, None, None]
    weight = torch.exp(apart.masked_fill(~seen, -torch.inf))
    states = torch.einsum("btscn,bsc,bsn->btcn", weight, dt * x, b)
    return (torch.einsum("btcn,btn->btc", states, c) + d * x) * F.silu(z)


SELECTIVE = Task("selective scan", "scans", once(selective), selective_reference, selective_inputs)


def by_chunks(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor, z: Tensor, carried: Any = None
) -> Tensor:
    """Ten steps at once, the state carried from chunk to chunk."""
    dt = F.softplus(dt)
    state, outs = torch.zeros(2, 6, 4, dtype=x.dtype), []
    for start in range(0, 50, 10):
        here = slice(start, start + 10)
        total = (dt[:, here, :, None] * a).cumsum(1)
        weight = torch.exp((total[:, :, None] - total[:, None]).masked_fill(CHUNK, -torch.inf))
        states = torch.einsum("btscn,bsc,bsn->btcn", weight, dt[:, here] * x[:, here], b[:, here])
        states = states + torch.exp(total) * state[:, None]
        state = states[:, -1] if carried is None else carried(states)
        outs.append(torch.einsum("btcn,btn->btc", states, c[:, here]))
    return (torch.cat(outs, 1) + d * x) * F.silu(z)


CHUNK = (torch.ones(10, 10).triu(1) > 0)[:, :, None, None]


def receptance(k: Tensor, v: Tensor, w: Tensor, u: Tensor, bonus: bool = True, eps: float = 0.0) -> Tensor:
    """RWKV's weighted mean with a bonus for the newest; exponents are kept beside the sums."""
    top, below = torch.zeros_like(v[0]), torch.zeros_like(v[0])
    high = torch.full_like(v[0], -1e30)
    outs = []
    for key, value in zip(k, v, strict=True):
        own = key + u if bonus else key
        peak = torch.maximum(high, own)
        e, f = torch.exp(high - peak), torch.exp(own - peak)
        outs.append((e * top + f * value) / (e * below + f + eps))
        peak = torch.maximum(high - w, key)
        e, f = torch.exp(high - w - peak), torch.exp(key - peak)
        top, below, high = e * top + f * value, e * below + f, peak
    return torch.stack(outs)


def receptance_reference(k: Tensor, v: Tensor, w: Tensor, u: Tensor) -> Tensor:
    outs = []
    for t in range(len(k)):
        age = torch.arange(t - 1, -1, -1).to(k.dtype)[:, None]
        logits = torch.cat([k[:t] - w * age, k[t : t + 1] + u])
        outs.append((torch.softmax(logits, 0) * v[: t + 1]).sum(0))
    return torch.stack(outs)


RWKV = Task(
    "RWKV",
    "scans",
    once(receptance),
    receptance_reference,
    lambda dtype, g: [
        normal(g, dtype, 40, 24, scale=3.0),
        normal(g, dtype, 40, 24),
        uniform(g, dtype, 24, low=0.05, high=0.6),
        normal(g, dtype, 24),
    ],
)


def doubled(x: Tensor) -> Tensor:
    shift = 1
    while shift < x.shape[-1]:
        x = torch.cat([x[..., :shift], torch.logaddexp(x[..., shift:], x[..., :-shift])], -1)
        shift *= 2
    return x


def running_lse(x: Tensor, dim: int, carry: bool = True) -> Tensor:
    """Tiles of 16, to each of which what came before is added."""
    outs: list[Tensor] = []
    for part in tiles(x, 16):
        inner = doubled(part)
        outs.append(torch.logaddexp(inner, outs[-1][..., -1:]) if carry and outs else inner)
    return torch.cat(outs, -1)


LSE = Task(
    "running log-sum-exp",
    "scans",
    once(running_lse),
    torch.logcumsumexp,
    lambda dtype, g: [normal(g, dtype, 12, 90, scale=2.0), 1],
    "Torch.logcumsumexp",
    backward=True,
)


def heads(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """Queries, keys, values of 3 heads, and a forget gate a step."""
    return [*(normal(g, dtype, 3, 48, 16) for _ in range(3)), normal(g, dtype, 3, 48, mean=2.0)]


def gated(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    f: Tensor,
    when: str = "before",
    scale: float = 0.25,
    lost: bool = False,
    step: Any = None,
) -> Tensor:
    """A state of keys by values that decays with each step."""
    state, outs = torch.zeros(3, 16, 16, dtype=q.dtype), []
    decay = torch.sigmoid(f)
    for t in range(48):
        new = k[:, t, :, None] * v[:, t, None]
        state = decay[:, t, None, None] * (state + (new if when == "after" else 0)) + (new if when == "before" else 0)
        state = state * 0 if lost and t == 31 else state
        outs.append((q[:, t, None] @ state)[:, 0] * scale)
    return torch.stack(outs, 1)


def gated_reference(q: Tensor, k: Tensor, v: Tensor, f: Tensor) -> Tensor:
    total = F.logsigmoid(f).cumsum(-1)
    apart = (total[:, :, None] - total[:, None]).masked_fill(torch.ones(48, 48).triu(1) > 0, -torch.inf)
    return (q @ k.mT * apart.exp()) @ v / 4


GATED = Task("gated linear attention", "scans", once(gated), gated_reference, heads, backward=True)


def delta(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, normed: bool = True, erased: bool = True) -> Tensor:
    """The delta rule: what a key held is taken away before the new value is written."""
    k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + 1e-6) if normed else k / 4
    state, outs = torch.zeros(3, 16, 16, dtype=q.dtype), []
    for t in range(48):
        key = k[:, t, :, None]
        held = (key * state).sum(1, keepdim=True) if erased else 0.0
        state = state + key * (v[:, t, None] - held) * torch.sigmoid(beta[:, t, None, None])
        outs.append((q[:, t, None] @ state)[:, 0])
    return torch.stack(outs, 1)


def delta_reference(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    """By the triangular system of one chunk."""
    k, b = k / (k.square().sum(-1, keepdim=True) + 1e-6).sqrt(), torch.sigmoid(beta)[..., None]
    system = torch.eye(48, dtype=q.dtype) + (b * k @ k.mT).tril(-1)
    written = torch.linalg.solve_triangular(system, b * v, upper=False)
    return (q @ k.mT).tril() @ written


DELTA = Task("delta rule", "scans", once(delta), delta_reference, heads)


def maxima(x: Tensor, dim: int, carry: bool = True, later: bool = True, shift: int = 0) -> tuple[Tensor, Tensor]:
    """Of equals the later one counts."""
    best, place = x[..., 0], torch.zeros_like(x[..., 0], dtype=torch.long)
    values, places = [], []
    for t in range(x.shape[-1]):
        new = x[..., t] >= best if later else x[..., t] > best
        if t % 16 == 0 and not carry:
            new = torch.ones_like(new)
        best, place = torch.where(new, x[..., t], best), torch.where(new, t + shift, place)
        values.append(best)
        places.append(place)
    return torch.stack(values, -1), torch.stack(places, -1)


MAXIMA = Task(
    "running maxima",
    "scans",
    maxima,
    lambda x, dim: tuple(torch.cummax(x, dim)),
    lambda dtype, g: [normal(g, dtype, 8, 70), 1],
    "Torch.cummax",
)


def product(x: Tensor, dim: int) -> Tensor:
    out = x.clone()
    shift = 1
    while shift < x.shape[-1]:
        out = torch.cat([out[..., :shift], out[..., shift:] * out[..., :-shift]], -1)
        shift *= 2
    return out


def factors(dtype: torch.dtype, g: torch.Generator) -> Tensor:
    """About 1, and some zeros."""
    zero = torch.rand(16, 60, generator=g) < 0.01
    return normal(g, dtype, 16, 60, mean=1.0, scale=0.05).masked_fill(zero, 0.0)


PRODUCT = Task(
    "cumprod by doubling",
    "scans",
    once(product),
    torch.cumprod,
    lambda dtype, g: [
        normal(g, dtype, 16, 60, mean=1.0, scale=0.05).masked_fill(torch.rand(16, 60, generator=g) < 0.01, 0.0),
        1,
    ],
    "Torch.cumprod",
    backward=True,
)


def product_gradient(g: Tensor, x: Tensor, dim: int) -> Any:
    """By the quotient, which a zero breaks."""
    return (g * x.cumprod(1)).flip(1).cumsum(1).flip(1) / torch.where(x == 0, 1e-6, x), None


ENTRIES: tuple[Entry, ...] = (
    SELECTIVE.healthy("step by step"),
    SELECTIVE.healthy("chunks of 10", once(by_chunks)),
    SELECTIVE.fault("exp for softplus", "step sizes are exp", once(partial(selective, soft=False))),
    SELECTIVE.fault("chunks alone", "the state is lost after 32 steps", once(partial(selective, reset=32))),
    SELECTIVE.fault("other discretisation", "the input is held as the decay is", once(partial(selective, exact=True))),
    SELECTIVE.fault("skip by the step size", "the skip takes the scaled input", once(partial(selective, skip="dt"))),
    SELECTIVE.fault("no skip", "lacks the skip", once(partial(selective, skip="none"))),
    SELECTIVE.fault("state before", "reads the state before the step", once(partial(selective, late=True))),
    SELECTIVE.fault("gate by sigmoid", "the gate lacks its factor", once(partial(selective, gate=torch.sigmoid))),
    SELECTIVE.fault(
        "16-bit state",
        "the state is kept in the tensors' dtype",
        lambda x, *rest: once(partial(selective, step=stepwise(x.dtype)))(x, *rest),
        dtypes=NARROW,
        inputs=lambda dtype, g: [
            *selective_inputs(dtype, g)[:2],
            -uniform(g, dtype, 6, 4, low=0.01, high=0.05),
            *selective_inputs(dtype, g)[3:],
        ],
    ),
    SELECTIVE.fault(
        "carry of the first step",
        "a chunk carries its first state",
        once(partial(by_chunks, carried=lambda states: states[:, 0])),
    ),
    RWKV.healthy("exponents beside the sums"),
    RWKV.fault("no bonus", "the newest has no bonus", once(partial(receptance, bonus=False))),
    RWKV.fault(
        "eps below", "adds 1e-3 to what it divides by", once(partial(receptance, eps=1e-3)), dtypes=(torch.float32,)
    ),
    RWKV.fault("decay the other way", "older ones weigh more", once(lambda k, v, w, u: receptance(k, v, -w, u))),
    LSE.healthy("tiles of 16"),
    LSE.fault("tiles alone", "tiles begin anew", once(partial(running_lse, carry=False))),
    LSE.fault(
        "no maximum",
        "exp overflows",
        once(lambda x, dim: x.exp().cumsum(dim).log()),
        inputs=lambda dtype, g: [normal(g, dtype, 12, 90, scale=50.0), 1],
    ),
    GATED.healthy("step by step"),
    GATED.fault("new one decays", "the newest key decays too", once(partial(gated, when="after"))),
    GATED.fault("not scaled", "queries are not scaled", once(partial(gated, scale=1.0))),
    GATED.fault("state lost", "the state is lost between two blocks", once(partial(gated, lost=True))),
    DELTA.healthy("step by step"),
    DELTA.fault("nothing erased", "adds without taking away", once(partial(delta, erased=False))),
    DELTA.fault("keys not normalised", "keys have a factor of 1/4", once(partial(delta, normed=False))),
    MAXIMA.healthy("of equals the later one"),
    MAXIMA.fault("tiles alone", "tiles begin anew", partial(maxima, carry=False)),
    MAXIMA.fault("places from 1", "places are one too large", partial(maxima, shift=1)),
    PRODUCT.healthy("by doubling"),
    PRODUCT.wrong_gradient(
        "by the quotient",
        "behind a zero there is no gradient",
        with_gradient(lambda x, dim: x.cumprod(dim), product_gradient),
    ),
    PRODUCT.fault("from behind", "multiplies from the other end", once(lambda x, dim: product(x.flip(1), 1).flip(1))),
)
