"""Verdicts of a dump of Paddle's by Paddle alone, and by torch on a side: python -m benchmarks.mapping.verdicts DUMP

It prints the verdicts, whether all are those of Paddle alone, and the CPU time of a case: the least of three runs in
one process, behind one that imports both frameworks.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

from msgspec.structs import replace

from pytest_probe.check import Case, CaseOutcome, Checker, RunRequest
from pytest_probe.model.case import floating_dtypes
from pytest_probe.records import read_dump
from pytest_probe.registry import Registry
from pytest_probe.selection import Selection, select

_SIDES: dict[str, dict[str, str]] = {
    "Paddle alone": {},
    "device by torch": {"framework": "torch"},
    "float64 by torch": {"reference_framework": "torch"},
}


def main() -> None:
    dump = read_dump(Path(sys.argv[1]))
    found = [Case(dump, *each) for each in select(dump, Selection(), floating_dtypes)]
    own = dict[str, str]()
    for words, sides in _SIDES.items():
        checker = Checker(replace(RunRequest(device="cpu"), **sides), Registry.default(), framework="paddle")
        seconds, verdicts = list[float](), dict[str, str]()
        for _ in range(4):
            begin = time.process_time()
            previous: CaseOutcome | None = None
            for case in found:
                previous = checker.run(case, previous)
                verdicts[case.id] = previous.verdict.verdict
            seconds.append(time.process_time() - begin)
        own = own or verdicts
        print(
            f"{words}: {dict(Counter(verdicts.values()))}, {1000 * min(seconds[1:]) / len(found):.2f} ms of CPU a case"
        )
        print("    all as by Paddle alone" if verdicts == own else "    others than by Paddle alone")


main()
