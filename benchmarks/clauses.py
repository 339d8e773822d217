"""What clauses of the noise rule mend, as a Markdown table: `python benchmarks/clauses.py`.

The calls are those of tests/evidence/test_clauses.py: each is judged without its clause, and with it.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from pytest_probe.model.verdict import SEVERITY, OutputVerdict, Verdict  # noqa: E402
from tests.evidence.test_clauses import CLAUSES  # noqa: E402


def cell(verdict: Verdict) -> str:
    """The verdict on the worst output, with its largest and RMS noise ratio where it is judged by noise."""
    worst = max(verdict.outputs, key=badness)
    if "noise_ratio" not in worst.metrics:
        return worst.verdict
    return f"{worst.verdict} {' / '.join(number(float(worst.metrics[key])) for key in ('noise_ratio', 'noise_rms'))}"


def badness(output: OutputVerdict) -> tuple[int, float]:
    return SEVERITY[output.verdict], float(output.metrics.get("noise_ratio", 0.0))


def number(value: float) -> str:
    return f"{float(f'{value:.3g}'):,.0f}" if 1000 <= value < 1e5 else f"{value:.3g}"


def main() -> None:
    torch.set_num_threads(1)
    print("| clause | case | without | with |\n|---|---|---|---|")
    for clause in CLAUSES:
        name, case = (text.replace("|", r"\|") for text in (clause.name, clause.case))
        print(f"| {name} | {case} | {cell(clause.verdict_without())} | {cell(clause.verdict())} |", flush=True)


if __name__ == "__main__":
    main()
