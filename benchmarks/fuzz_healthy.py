"""Searches on healthy torch, on the CPU: what is found there is torch's own fault, or ours.

    python -m benchmarks.fuzz_healthy [examples] [seed] [device] [dtype ...]

device is cpu, or emulated: the CPU under another name, whose kernels are judged as an accelerator's. docs/findings.md
lists what it prints as found, with the proof that it is torch's.
"""

from __future__ import annotations

import sys
import warnings

from benchmarks.fuzzing.running import checker, search
from pytest_probe.features.fuzz.drawn import arguments_text

# Forty of the table: the most used, of each kind.
OPERATORS = (
    *("Torch.exp Torch.log Torch.log1p Torch.sqrt Torch.rsqrt Torch.sin Torch.cos Torch.tanh Torch.sigmoid".split()),
    *("Torch.erf Torch.abs Torch.neg Torch.square Functional.relu Functional.gelu Functional.silu".split()),
    *("Functional.softplus Torch.round Torch.floor Torch.add Torch.mul Torch.div Torch.maximum Torch.where".split()),
    *("Functional.softmax Functional.log_softmax Torch.sum Torch.mean Torch.amax Torch.cumsum".split()),
    *("Functional.layer_norm Functional.group_norm Functional.linear Torch.matmul Torch.bmm".split()),
    *("Functional.conv2d Functional.embedding Torch.gather Torch.cat Functional.cross_entropy".split()),
)


def main(examples: str = "500", seed: str = "0", device: str = "cpu", *dtypes: str) -> None:
    drawn = rejected = 0
    asked = dtypes or ("float32",)
    for dtype in asked:
        for api in OPERATORS:
            found = search(checker(device=device), api, dtype, int(examples), int(seed))
            drawn, rejected = drawn + found.examples, rejected + sum(found.rejected.values())
            if found.failed is not None:
                call, each = found.failed
                assert each.failing is not None
                print(
                    f"{dtype} found: {call}: {each.failing.case.direction}: {each.failing.verdict.reason}", flush=True
                )
            for each in found.contracts.values():
                print(f"{dtype} contract: {arguments_text(api, each.arguments)}: {each.contract}", flush=True)
    words = f"{len(OPERATORS)} operators, {', '.join(asked)} on {device}"
    print(f"{words}: {drawn:,} calls, {rejected / drawn:.1%} rejected by the reference")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
