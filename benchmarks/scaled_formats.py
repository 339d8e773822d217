"""What is found of faults in scaled products, and how often healthy kernels are flagged, by recipe.

    python -m benchmarks.scaled_formats [--seeds N]

Kernels are emulated under another device name (tests/support/scaled.py). Prints the tables of docs/scaled-formats.md.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import torch

from pytest_probe.model.verdict import Verdict
from pytest_probe.numerics.scaled import RECIPES
from pytest_probe.standards.quantisers import Wanted, judge
from tests.evidence.test_scaled_products import CAUSES, DTYPES, FAST, FP8, HEALTHY, judged
from tests.standards import test_quantisers as quantisers
from tests.support import scaled
from tests.support.scaled import FAULTS, FORMATS, Kernel, Product


def verdict_on(call: Product, kernel: Kernel, allow: str = "none") -> Verdict:
    with tempfile.TemporaryDirectory() as folder:
        return judged(Path(folder), call, kernel, allow=allow)


def on_groups(name: str, seed: int) -> Verdict:
    api, args, kernel = scaled.grouped(name, seed)
    return verdict_on(Product(args, np.zeros(0), api), scaled.late(kernel))


def named(fault: str, verdict: Verdict) -> bool:
    """Does the error say what it is?"""
    diagnosis = verdict.outputs[0].diagnosis
    words = tuple(filter(None, CAUSES[fault]))
    return diagnosis is not None and diagnosis.cause.startswith(words)


def faults() -> Iterator[str]:
    yield "| fault | recipes | found | cause named |"
    yield "|---|---|---|---|"
    for fault, names in FAULTS.items():
        found = [
            verdict_on(*scaled.planted(fault, name, seed, dtype)) for name in names for seed, dtype in enumerate(DTYPES)
        ]
        errors = [verdict for verdict in found if verdict.verdict == "error"]
        told = sum(named(fault, verdict) for verdict in errors)
        yield f"| {fault} | {'; '.join(names)} | {len(errors)} of {len(found)} | {told} of {len(errors)} |"
    names = ("bfloat16", "row-wise", "mxfp8")
    errors = [verdict for name in names for seed in range(3) if (verdict := on_groups(name, seed)).verdict == "error"]
    told = sum("group 0 ends at 41 instead of 40" in verdict.reason for verdict in errors)
    yield f"| one group's offset by one | {'; '.join(names)} | {len(errors)} of 9 | {told} of {len(errors)} |"
    yield from wrong_quantisers()


# Formats by what docs/scaled-formats.md calls them. float4 has no number beyond its largest: it saturates by itself.
DATA = [quantisers.data(seed) for seed in range(3)]
MX = dict(zip(("mxfp8", "mxfp8, e5m2", "mxfp4"), quantisers.FORMATS, strict=True))
SATURATED = {
    "mxfp8": (MX["mxfp8"], "floor"),
    "mxfp8, e5m2": (MX["mxfp8, e5m2"], "floor"),
    "mxfp8 by even": (MX["mxfp8"], "even"),
}


def wrong_quantisers() -> Iterator[str]:
    by_another = [
        quantisers.outcomes(x, quantisers.mx(x, dtype, "ceil"), rule="floor")[0] for dtype in MX.values() for x in DATA
    ]
    yield _of_quantisers("maximum rounded by another rule", MX, by_another, "scales follow ceil, not floor")
    lost = [
        quantisers.outcomes(x, quantisers.mx(x, dtype, rule, round_=lambda scaled: scaled), rule=rule)[1]
        for dtype, rule in SATURATED.values()
        for x in DATA
    ]
    yield _of_quantisers("saturation lost", SATURATED, lost, "elements are not saturated")


def _of_quantisers(fault: str, names: Iterable[str], reasons: list[str], words: str) -> str:
    errors = [reason for reason in reasons if reason]
    told = sum(words in reason for reason in errors)
    return f"| {fault} | {'; '.join(names)} | {len(errors)} of {len(reasons)} | {told} of {len(errors)} |"


def healthy(seeds: int) -> Iterator[str]:
    yield "| kernel | recipes | flagged |"
    yield "|---|---|---|"
    ways = [(name, kernel, list(FORMATS), "none") for name, kernel in HEALTHY.items()]
    ways.append(("14 bits, `--probe-allow=short-accumulation`", FAST, FP8, "short-accumulation"))
    for name, kernel, formats, allow in ways:
        flagged = 0
        for seed in range(seeds):
            shape = (64, 512, 48) if kernel is FAST else (160, 512, 96)
            call = scaled.product(formats[seed % len(formats)], seed, shape, DTYPES[seed % len(DTYPES)])
            flagged += verdict_on(call, kernel, allow).verdict != "pass"
        yield f"| {name} | {len(formats)} | {flagged} of {seeds} |"
    for rule in ("floor", "ceil", "even", "rceil", "0.75"):
        flagged = 0
        for seed in range(seeds):
            x, dtype = quantisers.data(seed), quantisers.FORMATS[seed % len(quantisers.FORMATS)]
            flagged += quantisers.outcomes(x, quantisers.mx(x, dtype, rule), rule=rule) != ("", "")
        yield f"| quantiser, scales by {rule} | {len(quantisers.FORMATS)} | {flagged} of {seeds} |"
    wanted, flagged = Wanted(RECIPES["BlockWise1x32"], "grid", rounding="stochastic"), 0
    for seed in range(seeds):
        x = quantisers.data(seed)
        draws = [quantisers.by_chance(x, 1000 * seed + draw) for draw in range(32)]
        flagged += any(verdict.verdict != "pass" for verdict in judge(x, draws, wanted))
    yield f"| quantiser, stochastic rounding | 1 | {flagged} of {seeds} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    seeds = parser.parse_args().seeds
    torch.set_num_threads(1)
    for line in chain(faults(), [""], healthy(seeds)):
        print(line, flush=True)


if __name__ == "__main__":
    main()
