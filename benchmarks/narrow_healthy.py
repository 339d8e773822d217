"""How many healthy 16-bit items do not pass where torch's own CPU is the device: warnings and errors, by source.

    python benchmarks/narrow_healthy.py [DUMPS ...] [--source dumps|drawn|table|calls|opinfo] [--examples 15]

Items are cases of dumps (those below DUMPS, else those of tests/data and cases/) in bfloat16 and float16, drawn calls
of the forty operators that benchmarks/fuzz_healthy.py names ("drawn") or of forty that are taken at random from the
table of searches ("table"), drawn calls of all APIs (benchmarks/quality/calls.py), and torch's own samples (OpInfo).
Sources may be given more than once; without one all are taken. Under the table each item is listed that does not pass.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct, field

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from benchmarks.fuzz_healthy import OPERATORS  # noqa: E402
from benchmarks.fuzzing.running import seeded, trials  # noqa: E402
from benchmarks.quality import calls, dumps, opinfo  # noqa: E402
from benchmarks.quality.samples import LeftOut, Samples, Source, Wish, seed_of  # noqa: E402
from pytest_probe import frameworks  # noqa: E402
from pytest_probe.check import Case, CaseOutcome, Checker, RunRequest  # noqa: E402
from pytest_probe.features.fuzz.search import Effort, Search  # noqa: E402
from pytest_probe.features.fuzz.templates import table, template_from_table  # noqa: E402
from pytest_probe.model.verdict import Verdict  # noqa: E402
from pytest_probe.records import find_dumps  # noqa: E402
from pytest_probe.registry import Registry  # noqa: E402
from tests.support.dumps import DUMPS, unpack  # noqa: E402

DTYPES = ("bfloat16", "float16")
SOURCES = ("dumps", "drawn", "table", "calls", "opinfo")
# Samples of each operator, of those that are no dump's.
SAMPLES = 4


class Items(Struct):
    """What became of the items of one source in one dtype."""

    verdicts: Counter[str] = field(default_factory=Counter)
    others: list[str] = field(default_factory=list)

    def add(self, label: str, verdict: Verdict) -> None:
        self.verdicts[verdict.verdict] += 1
        if verdict.verdict in ("warning", "error"):
            self.others.append(f"{verdict.verdict}: {label}: {verdict.reason}")

    def row(self, source: str, dtype: str) -> str:
        judged = sum(count for verdict, count in self.verdicts.items() if verdict != "skip")
        cells = (
            f"{self.verdicts[name]:,} ({self.verdicts[name] / max(judged, 1):.2%})" for name in ("warning", "error")
        )
        return f"| {source} | {dtype} | {judged:,} | {' | '.join(cells)} |"


class Counting(Checker):
    """A checker of the CPU that counts what it judges."""

    def __init__(self, items: Items) -> None:
        super().__init__(RunRequest(device="cpu", diagnosed=False), Registry.default())
        self.items = items

    def run(self, case: Case, previous: CaseOutcome | None = None) -> CaseOutcome:
        found = super().run(case, previous)
        self.items.add(f"{case.record.name} {case.direction}", found.verdict)
        return found


def of_samples(samples: Samples, items: Items) -> None:
    checker = Counting(items)
    for sample in samples:
        if isinstance(sample, LeftOut):
            continue
        sample.seed(seed_of(sample.label))
        previous: CaseOutcome | None = None
        for case in sample.cases(checker):
            previous = checker.run(case, previous)


def of_operators(operators: Sequence[str], dtype: str, examples: int, items: Items) -> None:
    """No search ends at what it finds, and none makes it smaller: those would be further items of one kind."""
    for api in operators:
        template = template_from_table(api, frameworks.signatures(), (dtype,))
        with seeded(0):
            Search(trials(Counting(items), api), [template], fails=lambda _: False).run(Effort(examples))


def from_table() -> list[str]:
    """Forty operators of the table, at random."""
    names = random.Random(0).sample(sorted(table()), 40)
    return [f"{'Functional' if hasattr(torch.nn.functional, name) else 'Torch'}.{name}" for name in names]


def folder_of_dumps(given: Sequence[Path], folder: Path) -> list[Path]:
    if given:
        return [path for root in given for path in find_dumps(root)]
    return [*(unpack(name, folder) for name in DUMPS), ROOT / "cases/gpt/dump.json"]


def counted(source: str, dtype: str, paths: Sequence[Path], examples: int) -> Items:
    items, wish = Items(), Wish(dtype, SAMPLES)
    if source in ("drawn", "table"):
        of_operators(OPERATORS if source == "drawn" else from_table(), dtype, examples, items)
    else:
        known: dict[str, Source] = {
            "dumps": partial(dumps.samples, paths),
            "calls": calls.samples,
            "opinfo": opinfo.samples,
        }
        of_samples(known[source](wish), items)
    return items


def lines(sources: Sequence[str], paths: Sequence[Path], examples: int) -> Iterator[str]:
    yield "| source | dtype | items | warning | error |\n|---|---|---|---|---|"
    others: list[str] = []
    for source in sources:
        for dtype in DTYPES:
            items = counted(source, dtype, paths, examples)
            others += [f"- {source} {dtype}: {line}" for line in items.others]
            yield items.row(source, dtype)
    yield from ("", *others)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dumps", nargs="*", type=Path)
    parser.add_argument("--source", action="append", choices=SOURCES)
    parser.add_argument("--examples", type=int, default=15, help="drawn calls of each operator")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        for line in lines(options.source or SOURCES, folder_of_dumps(options.dumps, Path(folder)), options.examples):
            print(line, flush=True)


if __name__ == "__main__":
    main()
