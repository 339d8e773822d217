"""How often healthy 16-bit kernels pass, and faulty ones fail: `python benchmarks/kernel_seeds.py [SEEDS]`.

The kernels are those of tests/faults/kernels.py, forward and backward, each on the inputs of 1,000 seeds.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from pytest_probe import Checker, Conditions, Registry, Verdict  # noqa: E402
from tests.faults.kernels import FAULTS, KERNELS, Kernel, faulty  # noqa: E402

SEEDS = 1000


def verdicts(checker: Checker, kernel: Kernel, seed: int, backward: bool) -> tuple[Verdict, ...]:
    """Of one kernel on one seed's inputs."""
    inputs = kernel.inputs(torch.Generator().manual_seed(seed))
    return checker.compare(kernel.function, kernel.reference, inputs, backward=backward, key=f"kernel.{seed}")


def nearest(found: tuple[Verdict, ...]) -> float:
    """How near a limit the worst output came: its largest noise ratio in units of the limit."""
    metrics = [output.metrics for verdict in found for output in verdict.outputs]
    names = ("noise_ratio", "noise_rms")
    return max(float(item[name]) / float(item[f"{name}_limit"]) for item in metrics for name in names)


def row(checker: Checker, name: str, kernel: Kernel, seeds: int) -> str:
    """A table row: healthy runs that passed, how near they came to a limit, and faulty runs that failed."""
    passed, worst = 0, 0.0
    failed: Counter[str] = Counter()
    for seed in range(seeds):
        healthy = verdicts(checker, kernel, seed, backward=True)
        passed += all(verdict.verdict == "pass" for verdict in healthy)
        worst = max(worst, nearest(healthy))
        for fault in FAULTS:
            failed[fault] += verdicts(checker, faulty(kernel, fault), seed, backward=False)[0].verdict == "error"
    return f"| {name} | {passed:,} | {worst:.2g} | {' | '.join(f'{failed[fault]:,}' for fault in FAULTS)} |"


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS
    torch.set_num_threads(1)  # so small that threads cost more than they save
    checker = Checker(Conditions(device="cpu"), Registry.default())
    faults = " | ".join(f"{fault}, failed" for fault in FAULTS)
    print(f"| of {seeds:,} seeds | healthy, passed | nearest to a limit | {faults} |")
    print(f"|---|---|---|{'---|' * len(FAULTS)}")
    for name, kernel in KERNELS.items():
        print(row(checker, name, kernel, seeds), flush=True)


if __name__ == "__main__":
    main()
