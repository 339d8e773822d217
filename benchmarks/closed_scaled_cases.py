"""How many faults are found, and healthy kernels flagged, of cases of scaled products on which no rule was tuned.

    python -m benchmarks.closed_scaled_cases [--seeds N]

The cases are those of tests/evidence/test_scaled_cases.py, each with N seeds that the tests do not have. Prints
a line for each that is not judged as it should be, and the counts that docs/scaled-formats.md has.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch

from tests.evidence.test_scaled_cases import FAULTS, GROUPS, HEALTHY
from tests.evidence.test_scaled_products import judged
from tests.support.scaled import Kernel, Product

WANTED = {"healthy": "pass", "faulty": "error"}
FIRST = 1000


def cases(seed: int) -> Iterator[tuple[str, str, Product, Kernel]]:
    """Whether a case is healthy, its name, its call and its kernel."""
    for kind, products in (("healthy", HEALTHY), ("faulty", FAULTS)):
        for name, case in products.items():
            yield kind, name, case.call(seed), case.kernel
    for name, groups in GROUPS.items():
        for kind, late in (("healthy", 0), ("faulty", 1)):
            call, result, _ = groups.product(seed, late)
            yield kind, name, call, lambda *_, result=result: result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=12)
    seeds = parser.parse_args().seeds
    torch.set_num_threads(1)
    right, tried = Counter[str](), Counter[str]()
    for seed in range(FIRST, FIRST + seeds):
        for kind, name, call, kernel in cases(seed):
            with tempfile.TemporaryDirectory() as folder:
                verdict = judged(Path(folder), call, kernel)
            tried[kind] += 1
            right[kind] += verdict.verdict == WANTED[kind]
            if verdict.verdict != WANTED[kind]:
                print(f"{kind}: {name}, seed {seed}: {verdict.verdict}: {verdict.reason}", flush=True)
    print(f"faulty: {right['faulty']} of {tried['faulty']} are errors")
    print(f"healthy: {tried['healthy'] - right['healthy']} of {tried['healthy']} are flagged")


if __name__ == "__main__":
    main()
