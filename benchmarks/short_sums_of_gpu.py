"""What an NVIDIA GPU's sums of FP8 products are: which way of cutting them gives its outputs to the last place.

    python -m benchmarks.short_sums_of_gpu [--device cuda]

Prints a table: of each shape and way of calling torch._scaled_mm, in float32, the share of elements that each variant
of `short-accumulation` gives exactly, and float64's. With --device cpu the variants are compared with float32 sums.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch

from pytest_probe.frameworks.torch.emulated_modes import emulated
from pytest_probe.model.device_modes import MODES, Mode
from tests.support import scaled

SHAPES = ((64, 128, 64), (64, 512, 64), (64, 4096, 64), (16, 1024, 16))


def variants() -> dict[str, Mode | None]:
    names = {
        f"{mode.short} bits, {mode.terms} terms, float32 after {mode.promoted or 'none'}": mode
        for mode in MODES["short-accumulation"].variants
    }
    return {"float64": None, **names}


def rows(device: str) -> Iterator[str]:
    yield "| M, K, N | fast | " + " | ".join(variants()) + " |"
    yield "|---" * (len(variants()) + 2) + "|"
    for shape in SHAPES:
        for fast in (False, True):
            call = scaled.inferred(scaled.product("tensor-wise", 0, shape, torch.float32), fast=fast)
            a, b, *_ = call.args
            one = torch.ones((), device=device)
            found = torch._scaled_mm(
                a.to(device), b.to(device), one, one, out_dtype=torch.float32, use_fast_accum=fast and device != "cpu"
            )
            shares = []
            for mode in variants().values():
                with emulated(mode, None):
                    expected = torch.mm(a.double(), b.double())
                shares.append(float((expected.float() == found.cpu()).double().mean()))
            yield f"| {', '.join(map(str, shape))} | {fast} | " + " | ".join(f"{share:.1%}" for share in shares) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    for line in rows(parser.parse_args().device):
        print(line, flush=True)


if __name__ == "__main__":
    main()
