"""What is found of faults in scaled products, and how often healthy kernels are flagged, by recipe.

    python -m benchmarks.scaled_formats [--seeds N]

Kernels are emulated under another device name (tests/support/scaled.py). Prints the tables of docs/scaled-formats.md.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from pytest_probe.model.verdict import Verdict
from tests.evidence.test_scaled_products import CAUSES, DTYPES, FAST, FP8, HEALTHY, judged
from tests.support import scaled
from tests.support.scaled import FAULTS, FORMATS, Kernel, Product


def verdict_on(call: Product, kernel: Kernel, allow: str = "none") -> Verdict:
    with tempfile.TemporaryDirectory() as folder:
        return judged(Path(folder), call, kernel, allow=allow)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    seeds = parser.parse_args().seeds
    torch.set_num_threads(1)
    for line in (*faults(), "", *healthy(seeds)):
        print(line, flush=True)


if __name__ == "__main__":
    main()
