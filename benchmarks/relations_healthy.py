"""Does torch's CPU break a relation? `python benchmarks/relations_healthy.py [DTYPE...]` (float32 and bfloat16).

All relations are asked of torch's own samples of its operators (OpInfo), two an operator, forward and backward. Printed
are the counts, and each relation that is an error, and each `again` that is broken, by its call.
"""

from __future__ import annotations

import sys
from collections import Counter

from benchmarks.quality.opinfo import samples
from benchmarks.quality.samples import LeftOut, Wish
from pytest_probe.check import CaseOutcome, Checker, RunRequest
from pytest_probe.features.relations.checks import Relations
from pytest_probe.model.verdict import RELATION
from pytest_probe.options import RELATION_NAMES
from pytest_probe.registry import Registry


def main() -> None:
    checker = Checker(RunRequest(device="cpu", diagnosed=False), Registry.default())
    relations, counts = Relations(checker, RELATION_NAMES), Counter[tuple[str, str]]()
    cases = 0
    for dtype in sys.argv[1:] or ["float32", "bfloat16"]:
        for sample in samples(Wish(dtype, 2)):
            if isinstance(sample, LeftOut):
                continue
            checked: CaseOutcome | None = None
            for case in sample.cases(checker):
                checked = checker.run(case, checked)
                cases += 1
                for output in relations.of(checked).verdict.outputs:
                    if output.name.startswith(RELATION):
                        counts[output.name.removeprefix(RELATION), output.verdict] += 1
                        if output.verdict == "error" or (output.verdict == "warning" and "again" in output.name):
                            print(f"{sample.label} {dtype} {case.direction}: {output.name}: {output.reason}")
    print(f"{cases:,} cases")
    for name in RELATION_NAMES:
        words = ", ".join(f"{counts[name, outcome]:,} {outcome}" for outcome in ("pass", "warning", "error", "skip"))
        print(f"{name}: {words}")


if __name__ == "__main__":
    main()
