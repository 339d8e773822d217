"""How often a cause is named for a fault that is not its own: `python benchmarks/false_causes.py [--call NAME]`.

Fourteen calls, each with faults of many kinds and with devices that round on purpose. A row of the table is a cause by
its first words: how often it is named, and how often of another fault. Those are listed below the table.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import Tensor  # noqa: E402

import pytest_probe  # noqa: E402


def experts(x: Tensor, router: Tensor, weight: Tensor, bits: int = 0) -> Tensor:
    """Two experts for each row; bits: significand bits that the choice is made with."""
    scores = x @ router if not bits else rounded(x, bits) @ rounded(router, bits)
    best, chosen = torch.softmax(scores, -1).topk(2, -1)
    results = torch.einsum("td,edf->tef", x, weight)
    found = results.gather(1, chosen[..., None].expand(-1, -1, results.shape[-1]))
    return (found * (best / best.sum(-1, keepdim=True))[..., None]).sum(1)


def gated(x: Tensor, gate: Tensor, weight: Tensor) -> Tensor:
    return torch.where(x @ gate > 0, x @ weight, 0.1 * (x @ weight))


def nearest(x: Tensor, codes: Tensor) -> Tensor:
    return codes[torch.argmax(x @ codes.T, -1)]


def rounded(values: Tensor, bits: int, *, cut: bool = False) -> Tensor:
    """float32 numbers with so many significand bits."""
    step = 1 << (24 - bits)
    return ((values.contiguous().view(torch.int32) + (0 if cut else step // 2)) & -step).view(torch.float32)


def _calls() -> Mapping[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]]:
    generator = torch.Generator().manual_seed(1)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    return {
        "matmul": (torch.matmul, (drawn(48, 128), drawn(128, 40))),
        "matmul, positive": (torch.matmul, (drawn(48, 128).abs(), drawn(128, 40).abs())),
        "linear": (F.linear, (drawn(32, 256), drawn(48, 256), drawn(48))),
        "conv2d": (F.conv2d, (drawn(4, 16, 12, 32), drawn(8, 16, 3, 3))),
        "attention": (F.scaled_dot_product_attention, (drawn(3, 2, 16, 24), drawn(3, 2, 16, 24), drawn(3, 2, 16, 24))),
        "softmax": (lambda x: F.softmax(x, -1), (drawn(32, 48) * 3,)),
        "layer_norm": (lambda x, w, b: F.layer_norm(x, (48,), w, b), (drawn(32, 48), drawn(48), drawn(48))),
        "gelu": (F.gelu, (drawn(32, 48),)),
        "sum": (lambda x: torch.sum(x, -1), (drawn(24, 40, 64),)),
        "cumsum": (lambda x: torch.cumsum(x, 1), (drawn(16, 96),)),
        "add": (torch.add, (drawn(32, 48), drawn(32, 48))),
        "experts": (experts, (drawn(256, 64), drawn(64, 32), drawn(32, 64, 16))),
        "gated": (gated, (drawn(48, 64), drawn(64, 40), drawn(64, 40))),
        "nearest": (nearest, (drawn(48, 32), drawn(64, 32))),
    }


CALLS = _calls()
# Calls whose products a device may round, as emulated.
PRODUCTS = ("matmul", "matmul, positive", "linear", "conv2d", "attention", "experts", "gated")


def noise(values: Tensor) -> Tensor:
    return torch.randn(values.shape, generator=torch.Generator().manual_seed(5))


def _size(values: Tensor) -> Tensor:
    return values.pow(2).mean().sqrt()


def _put(values: Tensor, place: Any, new: Any) -> Tensor:
    changed = values.clone()
    changed[place] = new
    return changed


def _element(values: Tensor, new: Callable[[Tensor], Tensor]) -> Tensor:
    flat = values.reshape(-1)
    return _put(flat, 7, new(flat)).reshape(values.shape)


def _rows(values: Tensor) -> Tensor:
    return torch.arange(len(values)).reshape(-1, *(1,) * (values.dim() - 1))


# What is wrong with a right output, and what it may be called.
FAULTS: Mapping[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "a row of other numbers": (lambda y: _put(y, 1, noise(y[0]) * _size(y)), "-"),
    "times 1.01": (lambda y: y * 1.01, "all times"),
    "times 1.0003": (lambda y: y * 1.0003, "all times"),
    "two rows swapped": (lambda y: y[[1, 0, *range(2, len(y))]], "swapped"),
    "negated": (lambda y: -y, "negated"),
    "a stale row": (lambda y: _put(y, -1, y[-2]), "stale"),
    "a stale element": (lambda y: _element(y, lambda flat: flat[6]), "stale"),
    "an element 5 % off": (lambda y: _element(y, lambda flat: flat[7] * 1.05), "-"),
    "a quarter unwritten": (lambda y: _put(y, (..., slice(y.shape[-1] * 3 // 4, None)), 0.0), "zeros"),
    "transposed": (lambda y: y.transpose(-1, -2).contiguous().reshape(y.shape), "transposed"),
    "shifted": (lambda y: y.roll(1, -1), "shifted"),
    "plus 0.01": (lambda y: y + 0.01, "all plus"),
    "ten NaN": (lambda y: _put(y.reshape(-1), slice(3, 13), float("nan")).reshape(y.shape), "NaN"),
    "clamped": (lambda y: y.clamp(-_size(y), _size(y)), "clamped"),
    "rows times 1 to 1.1": (lambda y: y * (1 + 0.1 * _rows(y) / len(y)), "a factor for each"),
    "every second one 0.5 % off": (lambda y: y * (1 + 0.005 * (torch.arange(y.numel()) % 2).view_as(y)), "the wrong"),
    "a tenth 1 % off": (lambda y: torch.where(noise(y) > 1.28, y * 1.01, y), "the wrong ones times"),
    "a column of random errors": (lambda y: _put(y, (..., 3), y[..., 3] + 0.01 * _size(y) * noise(y[..., 3])), "-"),
    "means of neighbours": (lambda y: (y + y.roll(1, -1)) / 2, "off by"),
    "1 % of another place": (lambda y: y + 0.01 * y.flip(-1), "errors of 2^-"),
    "random errors of 2^-12": (lambda y: y + 2.0**-12 * _size(y) * noise(y), "errors of 2^-"),
    "random errors of 2^-10": (lambda y: y + 2.0**-10 * _size(y) * noise(y), "errors of 2^-"),
    "random errors of 2^-7": (lambda y: y + 2.0**-7 * _size(y) * noise(y), "errors of 2^-"),
    "random errors of 2^-10 of each": (lambda y: y * (1 + 2.0**-10 * noise(y)), "errors of 2^-"),
}  # fmt: skip


def _of(change: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda call, *args: call(*map(change, args))


def _half_sums(_: Callable[..., Tensor], x: Tensor, weight: Tensor) -> Tensor:
    total = torch.zeros(len(x), weight.shape[1], dtype=torch.float16)
    for place in range(x.shape[1]):
        total = (total.float() + torch.outer(x[:, place], weight[place])).half()
    return total.float()


# Devices that round on purpose: how, the calls that this concerns, and what it may be called.
DEVICES: Mapping[str, tuple[Callable[..., Tensor], tuple[str, ...], str]] = {
    "TF32 rounded": (_of(lambda x: rounded(x, 11)), PRODUCTS, "behaves as TF32"),
    "TF32 cut": (_of(lambda x: rounded(x, 11, cut=True)), PRODUCTS, "behaves as TF32"),
    "HF32": (_of(lambda x: rounded(x, 12)), PRODUCTS, "behaves as HF32"),
    "bfloat16 inputs": (_of(lambda x: x.bfloat16().float()), PRODUCTS, "behaves as bfloat16"),
    "bfloat16 results": (lambda call, *args: call(*args).bfloat16().float(), tuple(CALLS), "all results are bfloat16"),
    "float16 sums": (_half_sums, ("matmul",), "has errors as large as with float16"),
    "another route": (lambda _, *args: partial(experts, bits=11)(*args), ("experts",), "errors of 2^-"),
}


def faulty(name: str) -> Iterator[tuple[str, Callable[..., Tensor], str]]:
    """The kernels of a call: what each is, and what its error may be called."""
    call = CALLS[name][0]
    for fault, (change, fair) in FAULTS.items():
        yield fault, lambda *args, change=change: change(call(*args)), fair
    for fault, (device, calls, fair) in DEVICES.items():
        if name in calls:
            yield fault, lambda *args, device=device: device(call, *args), fair


def cause(name: str, kernel: Callable[..., Tensor]) -> str | None:
    """What the error of a call's kernel is called, "" where it has no name; None where nothing is wrong."""
    reference, inputs = CALLS[name]
    verdicts = pytest_probe.check(kernel, reference=reference, inputs=list(inputs), device="cpu", allow=())
    failed = next((output for each in verdicts for output in each.outputs if output.verdict == "error"), None)
    return None if failed is None else failed.diagnosis.cause if failed.diagnosis else ""


def main() -> None:
    parser = argparse.ArgumentParser(description="How often a cause is named for a fault that is not its own")
    parser.add_argument("--call", action="append", choices=CALLS, help="repeatable; default: all")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    named, false, below = Counter[str](), Counter[str](), []
    for name in options.call or CALLS:
        for fault, kernel, fair in faulty(name):
            words = cause(name, kernel)
            if words:
                first = " ".join(re.sub(r"\d\S*", "N", words.partition(":")[0]).split()[:6])
                named[first] += 1
                if not words.startswith(fair):
                    false[first] += 1
                    below.append(f"- {name}, {fault}: {words}")
    print("| cause | named | of another fault |\n|---|---|---|")
    print("\n".join(f"| {first} | {count} | {false[first]} |" for first, count in named.most_common()))
    print(f"| all | {named.total()} | {false.total()} |\n\n" + "\n".join(below))


if __name__ == "__main__":
    main()
