"""Searches on healthy torch, on the CPU: what is found there is torch's own fault, or ours.

    python -m benchmarks.fuzz_healthy [examples] [seed] [dtype ...]

docs/findings.md lists what it prints as found, with the proof that it is torch's.
"""

from __future__ import annotations

import sys
import warnings

from benchmarks.fuzzing.running import checker, search

# Forty of the table: the most used, of each kind.
OPERATORS = (
    *("Torch.exp Torch.log Torch.log1p Torch.sqrt Torch.rsqrt Torch.sin Torch.cos Torch.tanh Torch.sigmoid".split()),
    *("Torch.erf Torch.abs Torch.neg Torch.square Functional.relu Functional.gelu Functional.silu".split()),
    *("Functional.softplus Torch.round Torch.floor Torch.add Torch.mul Torch.div Torch.maximum Torch.where".split()),
    *("Functional.softmax Functional.log_softmax Torch.sum Torch.mean Torch.amax Torch.cumsum".split()),
    *("Functional.layer_norm Functional.group_norm Functional.linear Torch.matmul Torch.bmm".split()),
    *("Functional.conv2d Functional.embedding Torch.gather Torch.cat Functional.cross_entropy".split()),
)


def main(examples: int = 500, seed: int = 0, dtypes: tuple[str, ...] = ("float32",)) -> None:
    drawn = rejected = 0
    for dtype in dtypes:
        for api in OPERATORS:
            found = search(checker(), api, dtype, examples, seed)
            drawn, rejected = drawn + found.examples, rejected + sum(found.rejected.values())
            if found.failed is not None:
                call, each = found.failed
                assert each.failing is not None
                print(
                    f"{dtype} found: {call}: {each.failing.case.direction}: {each.failing.verdict.reason}", flush=True
                )
            for reason, (call, _) in found.contracts.items():
                print(f"{dtype} contract: {call}: {reason}", flush=True)
    print(f"{len(OPERATORS)} operators, {drawn:,} calls, {rejected / drawn:.1%} rejected by the reference")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    numbers = [int(text) for text in sys.argv[1:3]]
    main(numbers[0] if numbers else 500, numbers[1] if len(numbers) > 1 else 0, tuple(sys.argv[3:]) or ("float32",))
