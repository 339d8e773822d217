"""How often healthy 16-bit kernels pass, and faulty ones fail: `python benchmarks/kernel_seeds.py [SEEDS]`.

The kernels are those of tests/evidence/kernels.py: healthy on the inputs of 1,000 seeds, forward and backward; with
each fault on a fifth of the seeds, forward.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from pytest_probe import Checker, Conditions, Registry, Verdict  # noqa: E402
from tests.evidence.kernels import FAULTS, KERNELS, SUBTLE, Kernel, faulty  # noqa: E402

SEEDS, FAULTY = 1000, 5
COLUMNS = (*FAULTS, *SUBTLE)


def verdicts(checker: Checker, kernel: Kernel, seed: int, backward: bool) -> tuple[Verdict, ...]:
    """Of one kernel on one seed's inputs."""
    inputs = kernel.inputs(torch.Generator().manual_seed(seed))
    return checker.compare(kernel.function, kernel.reference, inputs, backward=backward, key=f"kernel.{seed}")


def nearest(found: tuple[Verdict, ...]) -> float:
    """How near a limit the worst output came, in units of the limit; less, where more perturbed runs had been made."""
    metrics = [output.metrics for verdict in found for output in verdict.outputs]
    names = ("noise_ratio", "noise_rms")
    return max(float(item[name]) / float(item[f"{name}_limit"]) for item in metrics for name in names)


def row(checker: Checker, name: str, kernel: Kernel, seeds: int) -> str:
    """A table row: healthy runs that passed, how near they came to a limit, and faulty runs that failed."""
    passed, worst = 0, 0.0
    for seed in range(seeds):
        healthy = verdicts(checker, kernel, seed, backward=True)
        passed += all(verdict.verdict == "pass" for verdict in healthy)
        worst = max(worst, nearest(healthy))
    failed = [str(failures(checker, faulty(kernel, fault), seeds // FAULTY)) for fault in COLUMNS]
    return f"| {name} | {passed:,} | {worst:.2g} | {' | '.join(failed)} |"


def failures(checker: Checker, kernel: Kernel, seeds: int) -> int:
    """In how many of the seeds a kernel fails."""
    return sum(verdicts(checker, kernel, seed, backward=False)[0].verdict == "error" for seed in range(seeds))


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS
    torch.set_num_threads(1)  # so small that threads cost more than they save
    checker = Checker(Conditions(device="cpu"), Registry.default())
    faults = " | ".join(f"{fault}: failed of {seeds // FAULTY:,}" for fault in COLUMNS)
    print(f"| | healthy: passed of {seeds:,} | largest share of a limit | {faults} |")
    print(f"|---|---|---|{'---|' * len(COLUMNS)}")
    for name, kernel in KERNELS.items():
        print(row(checker, name, kernel, seeds), flush=True)


if __name__ == "__main__":
    main()
