"""The table of the noise rule, as docs/standards.md prints it; and what each of its rows is needed for.

    python benchmarks/explanations.py [--write]
    python benchmarks/explanations.py --yields [DUMPS ...] [--dtypes float32,bfloat16] [--samples 2] [--faults 8]
        [--sources dumps,opinfo,calls,kernels] [--keep FILE]

Without options the table is printed; --write puts it on the page. --yields judges by `auto`, with the CPU's name and
with another one: the calls of dumps (those below DUMPS, else of tests/data and cases/gpt), torch's own samples of its
operators and drawn calls (--samples of each), and the kernels of cases/kernels. Of healthy outputs a row explains some
*first*, and is *needed* by those whose verdict is worse without it: a later row may explain the same. It *lets through*
faults that are an error without it: what benchmarks/mutations.py makes of each --faults-th output, and kernels with a
defect. --keep writes each piece to a file, a line each, and takes those that are there as they are.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from msgspec import Struct, field  # noqa: E402
from msgspec.json import decode, encode  # noqa: E402

from benchmarks.mutations import instead, mutants  # noqa: E402
from benchmarks.quality import calls, dumps, opinfo  # noqa: E402
from benchmarks.quality.samples import LeftOut, Sample, Source, Wish, seed_of  # noqa: E402
from cases import kernels  # noqa: E402
from cases.kernels.entry import Entry  # noqa: E402
from cases.kernels.scoring import judged, short  # noqa: E402
from pytest_probe.check import CaseOutcome, Checker, RunRequest  # noqa: E402
from pytest_probe.errors import Unsupported  # noqa: E402
from pytest_probe.model.comparison import Comparison  # noqa: E402
from pytest_probe.model.verdict import SEVERITY, OutputVerdict  # noqa: E402
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
PLACES = ("cpu", "other")
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
    yield f"`{row.message}`" if row.message else ""


def with_table(page: str) -> str:
    before, after = page.index(BEGIN) + len(BEGIN), page.index(END)
    return f"{page[:before]}\n{table()}\n{page[after:]}"


class Yields(Struct):
    """In the place of a standard: judges as `auto` does, and again without the row that explained the output.

    every: of so many outputs one is made wrong. saving: the rows without which an output of the kernel at hand is
    worse. judged: what was found of the case at hand, by its outputs' names: the best of two readings of its scalars
    decides, and the search for a cause judges again.
    """

    name: str = "yields"
    case: str = ""
    every: int = 1
    outputs: Counter[str] = field(default_factory=Counter)
    first: Counter[str] = field(default_factory=Counter)
    needed: Counter[str] = field(default_factory=Counter)
    lets_through: Counter[str] = field(default_factory=Counter)
    examples: list[tuple[str, str, str]] = field(default_factory=list)
    rulings: list[str] = field(default_factory=list)
    saving: set[str] = field(default_factory=set)
    judged: dict[str, tuple[OutputVerdict, str, bool]] = field(default_factory=dict)

    def judge(self, comparison: Comparison) -> OutputVerdict:
        verdict, by = self._judged(comparison)
        needed = bool(by) and SEVERITY[self._without(by, comparison).verdict] > SEVERITY[verdict.verdict]
        if needed:
            self.saving.add(by)
        before = self.judged.get(comparison.name)
        if before is None or SEVERITY[verdict.verdict] < SEVERITY[before[0].verdict]:
            self.judged[comparison.name] = verdict, by, needed
        if self.every and before is None and (self.outputs["healthy"] + len(self.judged)) % self.every == 0:
            self._mutate(comparison)
        return verdict

    def settle(self) -> None:
        """Count the outputs of the case at hand."""
        for name, (verdict, by, needed) in self.judged.items() if self.every else ():
            self._count("healthy", verdict)
            self.first[by] += bool(by)
            self.needed[by] += needed
            if needed or verdict.verdict == "error":
                self.examples.append((by, "needed" if needed else verdict.reason, f"{self.case} {name}"))
        self.judged.clear()

    def _mutate(self, comparison: Comparison) -> None:
        for how, changed in mutants(comparison, seed_of(self.case)):
            wrong = instead(comparison, changed)
            found, by = self._judged(wrong)
            self._count("wrong", found)
            if by and found.verdict != "error" and self._without(by, wrong).verdict == "error":
                self.lets_through[by] += 1
                self.examples.append((by, how, f"{self.case} {comparison.name}"))

    def of_kernel(self, checker: Checker, entry: Entry, dtype: torch.dtype, device: str) -> None:
        """A kernel of cases/kernels: a fault is let through by rows without which an output of it is an error."""
        self.case, self.every = f"{entry.family}: {entry.name} {short(dtype)}", 10**9 if entry.healthy else 0
        self.saving.clear()
        found = judged(checker, entry, dtype, device)
        self.settle()
        if not entry.healthy and found.verdict in SEVERITY:
            self.outputs["wrong"] += 1
            self.outputs[f"wrong: {found.verdict}"] += 1
            if found.verdict != "error":
                self.lets_through.update(self.saving)
                self.examples += [(row, entry.fault, self.case) for row in self.saving]

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


class Piece(Struct, frozen=True):
    """What a device's outputs of one source in one dtype gave."""

    place: str
    source: str
    dtype: str
    outputs: dict[str, int]
    first: dict[str, int]
    needed: dict[str, int]
    lets_through: dict[str, int]
    examples: list[tuple[str, str, str]]


def measured(place: str, source: str, dtype: str, options: argparse.Namespace) -> Piece:
    found = Yields(every=options.faults)
    registry = Registry.default()
    registry.devices["other"], registry.standards[found.name] = Emulated, found
    if source == "kernels":
        for entry in kernels.entries("open")[:: options.step]:
            if place in entry.devices and getattr(torch, dtype) in entry.dtypes:
                checker = Checker(RunRequest(device=place, standard=found.name, allow=entry.allow), registry)
                found.of_kernel(checker, entry, getattr(torch, dtype), place)
    else:
        checker = Checker(RunRequest(device=place, standard=found.name, allow=("none",)), registry)
        with tempfile.TemporaryDirectory() as folder:
            taken = _samples(source, Path(folder), options)(Wish(dtype, options.samples))
            _check(checker, found, itertools.islice(taken, 0, None, options.step))
    counts = found.outputs, +found.first, +found.needed, +found.lets_through
    return Piece(place, source, dtype, *counts, found.examples)


def _samples(source: str, folder: Path, options: argparse.Namespace) -> Source:
    if source != "dumps":
        return {"opinfo": opinfo.samples, "calls": calls.samples}[source]
    paths = [path for given in options.dumps for path in find_dumps(given)]
    return partial(dumps.samples, paths or [*(unpack(name, folder) for name in DUMPS), ROOT / "cases/gpt/dump.json"])


def _check(checker: Checker, found: Yields, samples: Iterable[Sample | LeftOut]) -> None:
    for sample in samples:
        if isinstance(sample, LeftOut):
            continue
        sample.seed(seed_of(sample.label))
        checked: CaseOutcome | None = None
        try:
            for case in sample.cases(checker):
                found.case = f"{sample.label} {case.direction}"
                checked = checker.run(case, checked)
                found.settle()
        except Unsupported:
            found.judged.clear()


def yields(options: argparse.Namespace) -> None:
    kept = options.keep.read_text().splitlines() if options.keep and options.keep.exists() else []
    pieces = {(piece.place, piece.source, piece.dtype): piece for piece in (decode(line, type=Piece) for line in kept)}
    for wanted in itertools.product(PLACES, options.sources.split(","), options.dtypes.split(",")):
        if wanted not in pieces:
            pieces[wanted] = measured(*wanted, options)
            print(f"{', '.join(wanted)}: {pieces[wanted].outputs}", file=sys.stderr, flush=True)
            if options.keep:
                with options.keep.open("a") as file:
                    file.write(encode(pieces[wanted]).decode() + "\n")
    print(yields_table(list(pieces.values())))


def yields_table(pieces: list[Piece]) -> str:
    columns = [[piece for piece in pieces if piece.place == place] for place in PLACES]
    lines = [f"{place}: {dict(_sum(piece.outputs for piece in of))}" for place, of in zip(PLACES, columns, strict=True)]
    lines += ["", "| row | CPU: first | needed | lets through | other name: first | needed | lets through |"]
    lines += [f"|---{'|---:' * 6}|"]
    counted = [
        _sum(kind(piece) for piece in of)
        for of in columns
        for kind in (lambda piece: piece.first, lambda piece: piece.needed, lambda piece: piece.lets_through)
    ]
    of_rows = {row.name: [each[row.name] for each in counted] for row in EXPLANATIONS}
    lines += [
        f"| {name} | {' | '.join(f'{count:,}' for count in counts)} |"
        for name, counts in of_rows.items()
        if any(counts)
    ]
    return "\n".join(lines)


def _sum(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    return sum((Counter(each) for each in counts), Counter())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dumps", type=Path, nargs="*")
    parser.add_argument("--write", action="store_true", help="put the table on the page")
    parser.add_argument(
        "--yields", action="store_true", help="count what each row is needed for, in place of the table"
    )
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--samples", type=int, default=2, help="drawn calls of each API")
    parser.add_argument("--sources", default="dumps,opinfo,calls,kernels")
    parser.add_argument("--step", type=int, default=1, help="take one call of so many")
    parser.add_argument("--faults", type=int, default=1, help="make one output of so many wrong")
    parser.add_argument("--keep", type=Path, help="the file of pieces")
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
