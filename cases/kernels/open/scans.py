"""Scans: cumulative sums and products, linear recurrences as in Mamba, linear attention: open entries."""

from __future__ import annotations

import torch

from cases.kernels.entry import BF16, NARROW, Entry, Task
from cases.kernels.making import uniform
from cases.kernels.parts.scans import CUMSUM, LINEAR, SCAN, Tensor, by_blocks, by_state, recurrence, running
from cases.kernels.rounding import once, stepwise, tiles, toward_zero, with_gradient


def doubling(x: Tensor, dim: int) -> Tensor:
    """Hillis and Steele: each step adds what lies twice as far before."""
    step = 1
    while step < x.shape[-1]:
        x = x + torch.nn.functional.pad(x[..., :-step], (step, 0))
        step *= 2
    return x


def chunked(a: Tensor, b: Tensor, size: int = 8, carry: bool = True, decay: bool = True) -> Tensor:
    """Chunks by themselves; the state before them decays in."""
    done, h = [], torch.zeros_like(b[..., :1])
    for ga, gb in zip(tiles(a, size), tiles(b, size), strict=True):
        shares = torch.cumprod(ga, -1) if decay else torch.ones_like(ga)
        states = recurrence(ga, gb) + shares * h
        done.append(states)
        h = states[..., -1:] if carry else h
    return torch.cat(done, -1)


def associative(a: Tensor, b: Tensor) -> Tensor:
    """Pairs (a, b) joined at doubling distances."""
    step = 1
    while step < a.shape[-1]:
        earlier_a = torch.nn.functional.pad(a[..., :-step], (step, 0), value=1.0)
        earlier_b = torch.nn.functional.pad(b[..., :-step], (step, 0))
        a, b = a * earlier_a, a * earlier_b + b
        step *= 2
    return b


def _rounded_state(a: Tensor, b: Tensor) -> Tensor:
    h, states = torch.zeros_like(b[..., 0]), []
    for n in range(b.shape[-1]):
        h = stepwise(BF16)(a[..., n] * h + b[..., n])
        states.append(h)
    return torch.stack(states, -1)


def _scan_gradient(g: Tensor, a: Tensor, b: Tensor, late: int = 1) -> tuple[Tensor, Tensor]:
    h = recurrence(a, b)
    ahead = torch.cat([a[..., 1:], torch.zeros_like(a[..., :1])], -1)
    gb = recurrence(ahead.flip(-1), g.flip(-1)).flip(-1)
    return gb * torch.nn.functional.pad(h, (late, 0))[..., : h.shape[-1]], gb


CUMPROD = Task(
    "cumprod",
    "scans",
    once(lambda x, d: torch.stack([x[..., : n + 1].prod(-1) for n in range(x.shape[-1])], -1)),
    torch.cumprod,
    lambda dtype, g: [uniform(g, dtype, 12, 60, low=0.8, high=1.2), -1],
    "Torch.cumprod",
)


ENTRIES: tuple[Entry, ...] = (
    CUMSUM.healthy("blocks of 32"),
    CUMSUM.healthy("by doubling", once(doubling)),
    CUMSUM.fault(
        "carry of one block",
        "a block takes the sum of the block before alone",
        once(lambda x, d: by_blocks(x, d, carry=False)),
    ),
    CUMSUM.fault("exclusive", "leaves the own element out", once(lambda x, d: by_blocks(x, d) - x)),
    CUMSUM.fault(
        "last block lost",
        "the ragged last block has no carry",
        once(lambda x, d: torch.cat([torch.cumsum(x[:, :224], -1), torch.cumsum(x[:, 224:], -1)], -1)),
    ),
    CUMSUM.fault(
        "16-bit carry",
        "rounds the running sum to the tensor's dtype",
        lambda x, d: once(lambda y, d: running(x.dtype, y))(x, d),
        dtypes=NARROW,
    ),
    CUMSUM.fault("over the rows", "sums down the columns", once(lambda x, d: torch.cumsum(x, 0))),
    CUMSUM.wrong_gradient(
        "gradient from the front",
        "the backward sums from the front",
        with_gradient(by_blocks, lambda g, x, d: (by_blocks(g, -1), None)),
    ),
    CUMSUM.fault("truncated", "cuts where it should round", once(by_blocks, toward_zero), dtypes=NARROW),
    SCAN.healthy("step by step"),
    SCAN.healthy("chunks of 8", once(chunked)),
    SCAN.healthy("associative", once(associative)),
    SCAN.fault(
        "state lost between chunks",
        "each chunk begins with an empty state",
        once(lambda a, b: chunked(a, b, carry=False)),
    ),
    SCAN.fault(
        "state does not decay",
        "the chunk's first state is added undecayed",
        once(lambda a, b: chunked(a, b, decay=False)),
    ),
    SCAN.fault(
        "16-bit state", "rounds the state to bfloat16 after each chunk of 1", once(lambda a, b: _rounded_state(a, b))
    ),
    SCAN.fault(
        "last step lost",
        "the last step repeats the one before",
        once(lambda a, b: torch.cat([recurrence(a, b)[..., :-1], recurrence(a, b)[..., -2:-1]], -1)),
    ),
    SCAN.wrong_gradient(
        "gradient of the decay by the own state",
        "the decay's gradient takes h for the h before",
        with_gradient(recurrence, lambda g, a, b: _scan_gradient(g, a, b, late=0)),
    ),
    SCAN.healthy("own backward", with_gradient(recurrence, _scan_gradient)),
    LINEAR.fault(
        "float8 state",
        "keys times values go through float8_e4m3",
        once(lambda q, k, v: by_state(q, stepwise(torch.float8_e4m3fn)(k), v)),
    ),
    CUMSUM.healthy(
        "backward from behind", with_gradient(by_blocks, lambda g, x, d: (by_blocks(g.flip(-1), -1).flip(-1), None))
    ),
    CUMPROD.healthy("product by product"),
    CUMPROD.fault(
        "by logarithms in 16 bit", "sums bfloat16 logarithms", once(lambda x, d: torch.exp(running(BF16, x.log())))
    ),
    CUMPROD.fault("starts at 0.99", "begins with 0.99", once(lambda x, d: torch.cumprod(x, d) * 0.99)),
    SCAN.fault(
        "decay one step late", "takes the decay of the step before", once(lambda a, b: recurrence(a.roll(1, -1), b))
    ),
    SCAN.fault("reversed", "runs from the end", once(lambda a, b: recurrence(a.flip(-1), b.flip(-1)).flip(-1))),
    LINEAR.healthy("chunks of 8"),
    LINEAR.fault(
        "own key left out", "a query does not see its own key", once(lambda q, k, v: by_state(q, k, v, own=-1))
    ),
    LINEAR.fault("sees one key ahead", "a query sees the next key", once(lambda q, k, v: (q @ k.mT).tril(1) @ v)),
)
