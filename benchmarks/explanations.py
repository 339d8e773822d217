"""The table of the noise rule, as docs/standards.md prints it; and what each of its rows is needed for.

    python benchmarks/explanations.py [--write]
    python benchmarks/explanations.py --yields [DUMPS ...] [--dtypes float32,bfloat16] [--samples 2] [--step 1]

Without options the table is printed; --write puts it on the page. --yields judges the calls of dumps (those below
DUMPS, else of tests/data) and drawn calls (--samples of each) by `auto`, with the CPU's name and with another one, and
what benchmarks/mutations.py makes of each output; of both sources each --step-th call is taken. Of healthy outputs a
row explains some *first*, and is *needed* by those whose verdict is worse without it: a later row may explain the same.
It *lets through* wrong outputs that are an error without it.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from msgspec import Struct, field  # noqa: E402
from msgspec.structs import replace  # noqa: E402

from benchmarks.mutations import mutants  # noqa: E402
from benchmarks.quality import calls, dumps  # noqa: E402
from benchmarks.quality.samples import LeftOut, Sample, Source, Wish, seed_of  # noqa: E402
from pytest_probe.check import Checked, Checker, Conditions  # noqa: E402
from pytest_probe.errors import Unsupported  # noqa: E402
from pytest_probe.model.comparison import Comparison  # noqa: E402
from pytest_probe.model.verdict import SEVERITY, OutputVerdict  # noqa: E402
from pytest_probe.numerics.dtypes import AnyArray  # noqa: E402
from pytest_probe.records import find_dumps  # noqa: E402
from pytest_probe.registry import Registry  # noqa: E402
from pytest_probe.standards import STANDARDS  # noqa: E402
from pytest_probe.standards.noise import standard  # noqa: E402
from pytest_probe.standards.noise.explanation import Examined, Explanation, Ruling, first  # noqa: E402
from pytest_probe.standards.noise.table import ANY, EXPLANATIONS  # noqa: E402
from tests.support.devices import Emulated  # noqa: E402
from tests.support.dumps import DUMPS, unpack  # noqa: E402

PAGE = ROOT / "docs/standards.md"
BEGIN, END = "<!-- explanations -->\n", "<!-- end of explanations -->\n"
HEAD = "| row | asked where | and it is | further runs | limits | verdict | reason |"


def table() -> str:
    """In Markdown."""
    rows = "".join(f"| {' | '.join(cells(row))} |\n" for row in EXPLANATIONS)
    return f"{HEAD}\n{'|---' * HEAD.count(' |')}|\n{rows}"


def cells(row: Explanation) -> Iterator[str]:
    yield row.name
    yield "any error" if row.of == ANY else ", ".join(row.of)
    yield "; ".join(str(condition.__doc__) for condition in row.applies)
    yield row.runs
    yield row.limits
    yield row.outcome
    yield f"`{row.words}`" if row.words else ""


def with_table(page: str) -> str:
    before, after = page.index(BEGIN) + len(BEGIN), page.index(END)
    return f"{page[:before]}\n{table()}\n{page[after:]}"


class Yields(Struct):
    """In the place of a standard: judges as `auto` does, and again without the row that explained the output."""

    name: str = "yields"
    case: str = ""
    outputs: Counter[str] = field(default_factory=Counter)
    first: Counter[str] = field(default_factory=Counter)
    needed: Counter[str] = field(default_factory=Counter)
    lets_through: Counter[str] = field(default_factory=Counter)
    rulings: list[str] = field(default_factory=list)

    def judge(self, comparison: Comparison) -> OutputVerdict:
        verdict, by = self._judged(comparison)
        self._count("healthy", verdict)
        self.first[by] += bool(by)
        if by and SEVERITY[self._without(by, comparison).verdict] > SEVERITY[verdict.verdict]:
            self.needed[by] += 1
        for _, changed in mutants(comparison, seed_of(self.case)):
            wrong = _with(comparison, changed)
            found, by = self._judged(wrong)
            self._count("mutated", found)
            if by and found.verdict != "error" and self._without(by, wrong).verdict == "error":
                self.lets_through[by] += 1
        return verdict

    def _count(self, what: str, verdict: OutputVerdict) -> None:
        self.outputs[what] += 1
        self.outputs[f"{what}: {verdict.verdict}"] += 1

    def _judged(self, comparison: Comparison) -> tuple[OutputVerdict, str]:
        """And the row that explained it; "" where none was asked, or none did."""
        original = standard.ruled

        def ruled(asked: Comparison) -> Ruling:
            ruling = original(asked)
            self.rulings.append(ruling.by)
            return ruling

        self.rulings.clear()
        with mock.patch.object(standard, "ruled", ruled):
            verdict = STANDARDS["auto"].judge(comparison)
        return verdict, self.rulings[-1] if self.rulings else ""

    def _without(self, name: str, comparison: Comparison) -> OutputVerdict:
        def others(output: Examined, rows: Iterable[Explanation]) -> Ruling | None:
            return first(output, [row for row in rows if row.name != name])

        with mock.patch.object(standard, "first", others):
            return STANDARDS["auto"].judge(comparison)


def _with(comparison: Comparison, changed: AnyArray) -> Comparison:
    """The comparison where the device gave that."""
    case = comparison.case
    if comparison.direction == "forward":
        case = replace(case, forward={**case.forward, comparison.name: changed})
    return replace(comparison, actual=changed, case=case)


def counted(found: Yields, samples: Iterable[Sample | LeftOut], place: str) -> None:
    """The yields on a device."""
    registry = Registry.default()
    registry.devices["other"], registry.standards[found.name] = Emulated, found
    checker = Checker(Conditions(device=place, standard=found.name, allow=("none",)), registry)
    for sample in samples:
        if isinstance(sample, LeftOut):
            continue
        sample.seed(seed_of(sample.label))
        checked: Checked | None = None
        try:
            for case in sample.cases(checker):
                found.case = f"{sample.label} {case.direction}"
                checked = checker.run(case, checked)
        except Unsupported:
            continue


def yields(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [path for given in options.dumps for path in find_dumps(given)]
        paths = paths or [unpack(name, Path(folder)) for name in DUMPS]
        known: dict[str, Source] = {"dumps": partial(dumps.samples, paths), "calls": calls.samples}
        columns = {place: Yields() for place in ("cpu", "other")}
        for (place, found), (source, samples), dtype in itertools.product(
            columns.items(), known.items(), options.dtypes.split(",")
        ):
            taken = itertools.islice(samples(Wish(dtype, options.samples)), 0, None, options.step)
            counted(found, taken, place)
            print(f"{place}, {source}, {dtype}: {dict(found.outputs)}", file=sys.stderr, flush=True)
    for place, found in columns.items():
        print(f"{place}: " + ", ".join(f"{count:,} {name}" for name, count in found.outputs.items()))
    print("\n| row | CPU: first | needed | lets through | other name: first | needed | lets through |")
    print(f"|---{'|---:' * 6}|")
    for row in EXPLANATIONS:
        numbers = (
            f"{each[row.name]:,}" for one in columns.values() for each in (one.first, one.needed, one.lets_through)
        )
        print(f"| {row.name} | {' | '.join(numbers)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dumps", type=Path, nargs="*")
    parser.add_argument("--write", action="store_true", help="put the table on the page")
    parser.add_argument(
        "--yields", action="store_true", help="count what each row is needed for, in place of the table"
    )
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--samples", type=int, default=2, help="drawn calls of each API")
    parser.add_argument("--step", type=int, default=1, help="take one call of so many")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.yields:
        yields(options)
    elif options.write:
        PAGE.write_text(with_table(PAGE.read_text()))
    else:
        print(table(), end="")


if __name__ == "__main__":
    main()
