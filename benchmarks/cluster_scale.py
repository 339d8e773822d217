"""A million cases on 512 devices, simulated: `python benchmarks/cluster_scale.py [CASES] [DEVICES] [CONTROLLER_MS]`.

The costs are those of the items of cases/gpt, measured here in a run without workers and repeated; what decides are the
estimates, as in a run. A process of a shard starts in no time.

1. The share of the devices' time in which they idle: in the shards of --probe-cluster, which devices take as they
   become free, and in one for each device, by number of cases in their order and by estimated cost as --probe-shard has
   them; then with calls that differ by 10^5, by factors with a log-normal distribution, of whose logarithm no estimate
   knows half; and both with calls that take 100 times as long.
2. What the controller's own time allows, if it needs CONTROLLER_MS for each case, as cluster_cost.py measures.
3. Peak memory of the simulation, and that of collecting so many cases, from what 50,000 records and 100,000 take.
"""

from __future__ import annotations

import heapq
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.reading_speed import write_dump
from benchmarks.scale import run
from pytest_probe import records
from pytest_probe.check.cost import Costs, dealt
from pytest_probe.features.cluster.controller import shards_for
from pytest_probe.model.case import Case

DUMP = Path(__file__).parents[1] / "cases/gpt/dump.json"
# Of a million such factors the largest is 10^5 times the smallest.
SIGMA = 1.2
COLLECTED = 50_000, 100_000


def measured(folder: Path) -> tuple[list[float], list[float]]:
    """Estimated and measured milliseconds of each record's cases, both directions together, in the dump's order."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        f"--probe-dump={DUMP}",
        "--probe-device=cpu",
        f"--probe-out={folder}",
        "-q",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [*command, "-p", "no:cacheprovider"], cwd=folder.parent, env=environment, check=True, capture_output=True
    )
    took = {
        line["id"].partition("::")[2]: line["duration"] * 1e3
        for line in map(json.loads, (folder / "results.jsonl").open())
    }
    dump, costs = records.read_dump(DUMP, records.READERS), Costs()
    guessed, found = [], []
    for record in dump.records:
        cases = [Case(dump, record, direction) for direction in record.directions]
        guessed.append(sum(map(costs.of, cases)))
        found.append(sum(took[case.id] for case in cases))
    return guessed, found


def simulated(shards: Sequence[int], found: Sequence[float], devices: int) -> float:
    """When the last device is done, in milliseconds: one that is free takes the next shard."""
    free = [0.0] * devices
    for cost in np.bincount(shards, found):
        heapq.heapreplace(free, free[0] + cost)
    return max(free)


def idle(end: float, found: Iterable[float], devices: int) -> float:
    return 1 - sum(found) / (end * devices)


def table(title: str, guessed: Sequence[float], found: Sequence[float], devices: int, controller: float) -> None:
    print(f"\n{title}: {len(found):,} records, {sum(found) / 1e3:,.0f} s of work, the longest {max(found) / 1e3:.3g} s")
    print(f"| {'how':<34} | {'the last device is done':<23} | idle |")
    print(f"|{'-' * 36}|{'-' * 25}|------|")
    several = shards_for(sum(guessed), devices)
    for name, shards in (
        (f"{several / devices:.3g} shards a device", dealt(guessed, several)),
        ("shards of equal numbers", equal(len(found), devices)),
        ("shards of equal estimated costs", dealt(guessed, devices)),
    ):
        last = simulated(shards, found, devices)
        print(f"| {name:<34} | {last / 1e3:21.2f} s | {100 * idle(last, found, devices):3.1f} % |")
    per_case = sum(found) / len(found)
    print(
        f"the controller needs {controller * len(found) / 1e3:.1f} s: records take {per_case:.2f} ms, and it keeps "
        f"{per_case / controller:.0f} devices busy; {devices} of them with records of {controller * devices:.0f} ms"
    )


def equal(count: int, parts: int) -> list[int]:
    """In their order, as many in each."""
    return [place * parts // count for place in range(count)]


def main(args: Sequence[str]) -> None:
    cases, devices = int(args[0]) if args else 10**6, int(args[1]) if len(args) > 1 else 512
    controller = float(args[2]) if len(args) > 2 else 0.16
    with tempfile.TemporaryDirectory() as name:
        guessed, found = measured(Path(name) / "out")
    times = -(-cases // sum(len(record.directions) for record in records.read_dump(DUMP, records.READERS).records))
    guessed, found = guessed * times, found * times
    known, unknown = np.random.default_rng(0).normal(0.0, SIGMA / 2**0.5, (2, len(found)))
    for longer in (1, 100):
        guesses, costs = longer * np.array(guessed), longer * np.array(found)
        table("cases/gpt repeated", list(guesses), list(costs), devices, controller)
        differing = list(guesses * np.exp(known)), list(costs * np.exp(known + unknown))
        table("calls that differ by 10^5", *differing, devices, controller)
    print(f"\npeak memory of the simulation: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    with tempfile.TemporaryDirectory() as name:
        collected(Path(name), cases)


def collected(folder: Path, cases: int) -> None:
    peaks = []
    for number in COLLECTED:
        dump = folder / f"{number}.json"
        write_dump(dump, number, nan=False)
        count = sum(len(record.directions) for record in records.read_dump(dump, records.READERS).records)
        _, (_, peak) = run(folder, f"--probe-dump={dump}", "--collect-only", "-qq")
        peaks.append((count, peak))
    (few, less), (many, more) = peaks
    each = (more - less) / (many - few)
    total = more + each * (cases - many)
    print(
        f"collecting: {more:.0f} MiB for {many:,} cases, {each * 1024:.2f} KiB for one more: "
        f"{total:,.0f} MiB for {cases:,}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
