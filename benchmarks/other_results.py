"""What other runs' results cost: `python benchmarks/other_results.py [RESULTS] [--then CHECKOUT]` (default 100,000).

The results are those of cases/gpt, repeated with new call numbers. Prints CPU seconds and peak memory of a process of
its own for each command that reads them: merge of two shards that have them all, compare of a run with itself, a run of
a few cases with that run as its benchmark, and such a run that is resumed. With --then, another checkout takes turns
with this one, and the last column is the ratio of now to then, the median of three pairs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.check_speed import cost
from pytest_probe.reports.selected import SelectedItem, read_items, selected_in, write_items

ROOT = Path(__file__).parent.parent
DUMP = f"--probe-dump={ROOT / 'cases/gpt'}"
RUN = ("-m", "pytest", "-p", "pytest_probe.plugin", "-q", "-p", "no:cacheprovider", DUMP)
FEW = ("--probe-api=Functional.gelu", "--probe-api=Functional.softmax")
MAIN = ("-m", "pytest_probe")
# By name: what is removed first, and the command.
COMMANDS = {
    "merge": ("merged", (*MAIN, "merge", "shard1", "shard2", "-o", "merged")),
    "compare": ("compared", (*MAIN, "compare", "whole", "whole", "-o", "compared")),
    "benchmark": ("", (*RUN, *FEW, "--probe-benchmark=whole")),
    "resume": ("", (*RUN, "--probe-out=whole", "--probe-resume")),
}


def repeated(folder: Path, times: int) -> int:
    """Make a run's folder one of so many times its results; their number."""
    lines = (folder / "results.jsonl").read_text().splitlines()
    items = read_items(folder).found
    with (folder / "results.jsonl").open("a") as file:
        for turn in range(1, times):
            for line in lines:
                result = json.loads(line)
                result["id"] = _renamed(result["id"], turn)
                file.write(json.dumps(result) + "\n")
    # Whole runs one after the other, so that each shard's places stay its own.
    span = 1000
    more = [
        SelectedItem(_renamed(item.id, turn), item.place + span * turn, _renamed(item.node, turn))
        for turn in range(1, times)
        for item in items
    ]
    write_items(folder, [*items, *more])
    run = json.loads((folder / "run.json").read_text())
    selected = selected_in(folder)
    run["selected"] = {"count": selected.count, "digest": selected.digest}
    (folder / "run.json").write_text(json.dumps(run))
    return times * len(lines)


def _renamed(id: str, turn: int) -> str:
    call, number, direction = id.rsplit(".", 2)
    return f"{call}.{int(number) + 1000 * turn}.{direction}"


def measured(folder: Path, checkouts: list[Path], rounds: int) -> Iterator[str]:
    """Each checkout reads results of its own, in a folder with the number of its place."""
    for name, (made, command) in COMMANDS.items():
        found: list[list[tuple[float, float]]] = [[] for _ in checkouts]
        for _ in range(rounds):
            for place, checkout in enumerate(checkouts):
                own = folder / str(place)
                if made:
                    shutil.rmtree(own / made, ignore_errors=True)
                taken = cost(own, [sys.executable, *command], checkout)
                found[place].append((taken.seconds, taken.peak))
        for place, checkout in enumerate(checkouts):
            seconds, peak = (statistics.median(values) for values in zip(*found[place], strict=True))
            yield f"{name:<10} {checkout.name:<12} {seconds:>7.2f} s of CPU, peak {peak:>6,.0f} MiB"
        if len(checkouts) > 1:
            ratios = [now[0] / then[0] for then, now in zip(*found, strict=True)]
            yield f"{name:<10} now over then: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=int, nargs="?", default=100_000)
    parser.add_argument("--then", type=Path, metavar="CHECKOUT", help="another checkout to compare with")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = {"whole": (), "shard1": ("--probe-shard=1/2",), "shard2": ("--probe-shard=2/2",)}
        checkouts = [ROOT] if given.then is None else [given.then.resolve(), ROOT]
        for place, checkout in enumerate(checkouts):
            own = folder / str(place)
            own.mkdir()
            for out, options in runs.items():
                cost(own, [sys.executable, *RUN, *options, f"--probe-out={out}"], checkout)
            count = len(read_items(own / "whole").found)
            counts = [f"{repeated(own / out, given.results // count):,} in {out}" for out in runs]
            print(f"results of {checkout.name}: {', '.join(counts)}", flush=True)
        for line in measured(folder, checkouts, 1 if given.then is None else 3):
            print(line, flush=True)


if __name__ == "__main__":
    main()
