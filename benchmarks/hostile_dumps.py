"""Does a hostile dump take a run down? `python benchmarks/hostile_dumps.py [--framework paddle] [--count N] [--seed N]
[--keep DIR]`.

A dump is untrusted. Real dumps, cut down to a few calls, are changed by hypothesis: bytes; JSON values; names of
entries, APIs and fields; the files of stored tensors. Each is given to pytest as users give it, in a child process with
limits of its own. A finding is a crash, more than 10 s of CPU, more than 1 GiB of memory, an exception of the plugin's
own, another exit code than pytest's for runs that passed, failed, were refused or collected nothing, and anything that
was read beside the run's folder, written outside --probe-out, started or connected to. Findings are printed with what
was changed; --keep keeps their files and what pytest printed. The script ends with 1 where there is one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from msgspec import Struct, field

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.other_plugins import WITHOUT_OTHERS

# Some of the other plugins start programs and open sockets.
os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_ADDOPTS": WITHOUT_OTHERS}

# What runs import lazily: children, forked from here, find it imported.
import torch._decomp
import torch._refs
import torch._subclasses.fake_tensor  # noqa: F401
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as hypothesis_seed
from torch.fx.experimental import symbolic_shapes  # noqa: F401

import pytest_probe.check
import pytest_probe.frameworks.torch.framework
import pytest_probe.plugin.reporting  # noqa: F401
from benchmarks.hostile.bases import FRAMEWORKS, Base, bases
from benchmarks.hostile.findings import Outcome, outcome
from benchmarks.hostile.mutations import LEVELS, HostileDump, hostile_dumps
from benchmarks.hostile.words import as_json
from benchmarks.hostile.worker import Sandbox, Worker

VERDICTS = ("pass", "warning", "error", "skip")
WHOLE = ("damaged", "refused")


class Counts(Struct):
    """Of the dumps of one level: how many, items by verdict and dumps by state, the most seconds and bytes."""

    dumps: int = 0
    found: Counter[str] = field(default_factory=Counter)
    findings: int = 0
    seconds: float = 0.0
    grown: int = 0

    def add(self, result: Outcome) -> None:
        self.dumps += 1
        self.found.update(result.verdicts)
        self.found[result.whole] += 1
        self.findings += bool(result.findings)
        self.seconds = max(self.seconds, result.ran.seconds)
        self.grown = max(self.grown, result.ran.grown)

    def row(self, name: str) -> str:
        cells = [name, self.dumps, *(self.found[key] for key in (*VERDICTS, *WHOLE)), self.findings]
        return f"| {' | '.join(map(str, cells))} | {self.seconds:.1f} | {self.grown >> 20} |"


class Search(Struct):
    """Runs dump after dump, counts, and prints and keeps what it finds."""

    sandbox: Sandbox
    keep: Path | None
    levels: dict[str, Counts] = field(default_factory=lambda: {level: Counts() for level in ("unchanged", *LEVELS)})
    number: int = 0

    def __post_init__(self) -> None:
        self.worker = Worker(self.sandbox)

    def look_at(self, dump: HostileDump) -> None:
        result = outcome(dump, self.worker, self.sandbox)
        self.levels[dump.level].add(result)
        self.number += 1
        if result.findings:
            self._tell(dump, result)

    def _tell(self, dump: HostileDump, result: Outcome) -> None:
        # Changed names may hold lone surrogates.
        words = "; ".join(dump.words).encode(errors="backslashreplace").decode()
        print(f"{self.number}. {dump.base}, {' '.join((dump.level, *dump.arguments))}: {words}")
        for line in result.findings:
            print(f"    {line}")
        sys.stdout.flush()
        if self.keep is not None:
            target = self.keep / str(self.number)
            shutil.copytree(self.sandbox.run, target, symlinks=True, dirs_exist_ok=True, ignore=_special)
            shutil.copy(self.sandbox.output, target / "output.txt")

    def table(self) -> Iterator[str]:
        yield f"| changed | dumps | {' | '.join((*VERDICTS, *WHOLE))} | findings | most s | most MiB |"
        yield f"|---{'|---:' * (len(VERDICTS) + len(WHOLE) + 4)}|"
        for level, counts in self.levels.items():
            yield counts.row(level)


def _special(folder: str, names: Sequence[str]) -> list[str]:
    """What cannot be copied."""
    return [name for name in names if (path := Path(folder, name)).exists() and not (path.is_file() or path.is_dir())]


def search(search: Search, framework: str, count: int, seed: int) -> None:
    held = bases(framework)
    for base in held:
        search.look_at(_unchanged(base))

    @hypothesis_seed(seed)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(hostile_dumps(held))
    def run(dump: HostileDump) -> None:
        if search.number < count + len(held):
            search.look_at(dump)

    run()


def _unchanged(base: Base) -> HostileDump:
    """The first calls of a dump as they are: a run that finds something here says nothing about hostile dumps."""
    dump, stack, tensors = base.cut(list(base.calls)[:5])
    files = {"dump.json": as_json(dump), "stack.json": as_json(stack)}
    return HostileDump(
        base.name, "unchanged", (), (), files | {f"{base.folder}{name}": held for name, held in tensors.items()}
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", choices=FRAMEWORKS, default="torch", help="whose dumps (default: torch)")
    parser.add_argument("--count", type=int, default=2000, help="dumps (default: 2000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the files of findings here")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.framework == "paddle":
        import_module("pytest_probe.frameworks.paddle.framework")
    with tempfile.TemporaryDirectory() as folder:
        sandbox = Sandbox(Path(folder))
        sandbox.enter()
        searched = Search(sandbox, given.keep and given.keep.absolute())
        try:
            search(searched, given.framework, given.count, given.seed)
        finally:
            searched.worker.stop()
    print("\n".join(searched.table()))
    return int(any(counts.findings for counts in searched.levels.values()))


if __name__ == "__main__":
    sys.exit(main())
