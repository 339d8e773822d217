"""How far metrics of healthy outputs move, and what the gate makes of it: `python benchmarks/gate_spread.py [SEEDS]`.

Runs cases/gpt and msprobe's dump of a CNN (tests/data) on the CPU, as recorded and in bfloat16, with many seeds; then
once more with the same inputs and other kernels (two threads; torch without its vector instructions). Prints, as
Markdown, the spread of the RMSE by number of elements; how many pairs of healthy runs the gate would call worse; and
how many outputs of 100 elements or more it finds whose RMSE was doubled. docs/ci.md shows what it printed.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import permutations
from pathlib import Path
from unittest import mock

import msgspec
import numpy as np
from msgspec.structs import replace

from pytest_probe import Checker, Registry, RunRequest
from pytest_probe.check.judging import Judging
from pytest_probe.features.gate.baseline import baseline_entry, signature, spread_of
from pytest_probe.features.gate.gate import CALIBRATED, rows
from pytest_probe.model.baseline import KeptCase, KeptOutput, Spread, number
from pytest_probe.model.case import Case, floating_dtypes
from pytest_probe.model.comparison import Comparison, Standard
from pytest_probe.model.dump import Dump
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray, round_to, widen
from pytest_probe.numerics.metrics import relative_rmse
from pytest_probe.records import read_dump
from pytest_probe.selection import Selection, select

ROOT = Path(__file__).parent.parent
SEEDS, REPEATS = 20, 5
# Name of other kernels, with the environment that has them.
OTHERS = {
    "two threads": {"OMP_NUM_THREADS": "2"},
    "no vector instructions": {"OMP_NUM_THREADS": "1", "ATEN_CPU_CAPABILITY": "default"},
}
Outputs = dict[tuple[str, str], KeptOutput]


def dumps(folder: Path) -> Iterator[Dump]:
    """The GPT and the CNN."""
    packed = ROOT / "tests/data/msprobe-26.2.0/cnn/dump.json.gz"
    (folder / "cnn.json").write_bytes(gzip.decompress(packed.read_bytes()))
    for path in (ROOT / "cases/gpt/dump.json", folder / "cnn.json"):
        yield read_dump(path, Registry.default().readers)


def cases(folder: Path) -> list[Case]:
    """All cases, as recorded and in bfloat16."""
    selection = Selection(dtypes=(None, "bfloat16"))
    return [
        Case(dump, record, direction, dtype)
        for dump in dumps(folder)
        for record, direction, dtype in select(dump, selection, floating_dtypes)
    ]


def measured(found: list[Case], seed: int) -> list[KeptCase]:
    """The cases as a baseline keeps them."""
    checker = Checker(RunRequest(device="cpu", seed=seed, baseline=True), Registry.default())
    previous, lines = None, []
    for case in found:
        previous = checker.run(case, previous)
        lines.append(baseline_entry(f"{case.dump.path.name}::{case.id}", signature(case), previous.verdict))
    return lines


def by_output(lines: list[KeptCase]) -> Outputs:
    """The outputs whose metrics are compared."""
    return {(case.id, output.name): output for case in lines for output in case.outputs if output.rmse is not None}


def spreads(runs: Mapping[int, Outputs]) -> Iterator[str]:
    """The RMSE of each output over the seeds: largest by smallest, by the number of elements that carry it."""
    yield "| elements that make the RMS | outputs | median | 99 of 100 | largest | factor |"
    yield "|---|---|---|---|---|---|"
    found: dict[float, list[float]] = {}
    for key in next(iter(runs.values())):
        same = [run[key] for run in runs.values() if key in run]
        values = [number(output.rmse) for output in same]
        if max(values) > 0:
            below = next(limit for limit, _ in CALIBRATED if min(output.carriers or 0 for output in same) < limit)
            found.setdefault(below, []).append(max(values) / min(values) if min(values) else math.inf)
    for below, factor in CALIBRATED:
        ratios = sorted(found.get(below, [1.0]))
        shown = (ratios[len(ratios) // 2], ratios[99 * len(ratios) // 100], ratios[-1])
        words = f"below {below:.0f}" if below < math.inf else "more"
        yield f"| {words} | {len(ratios):,} | {' | '.join(f'{ratio:.3g}' for ratio in shown)} | {factor} |"


def worse(
    before: Outputs, now: Outputs, spread: Mapping[tuple[str, str], Spread | None] | None = None
) -> Iterator[str]:
    """What the gate would call worse."""
    for key, output in now.items():
        known = None if spread is None else spread.get(key)
        if key in before and any(row.worse for row in rows(before[key], output, known)):
            yield key[0]


def measured_spread(runs: list[list[KeptCase]]) -> Mapping[tuple[str, str], Spread | None]:
    """What --probe-repeat measures of the first run with those behind it."""
    first, *others = (by_output(run) for run in runs)
    return {key: spread_of(output, [run[key] for run in others if key in run]) for key, output in first.items()}


def alarms(lines: Mapping[int, list[KeptCase]], others: Mapping[str, Mapping[int, list[KeptCase]]]) -> Iterator[str]:
    """How many outputs of healthy runs the gate would call worse."""
    runs = {seed: by_output(found) for seed, found in lines.items()}
    seeds = sorted(runs)
    blocks = {
        seed: measured_spread([lines[s] for s in [*seeds, *seeds][at : at + REPEATS]]) for at, seed in enumerate(seeds)
    }
    calibrated_of = Counter[str]()
    measured_of = Counter[str]()
    pairs = 0
    for before, now in permutations(seeds, 2):
        pairs += len(runs[now])
        calibrated_of.update(worse(runs[before], runs[now]))
        if before + REPEATS <= len(seeds) and not before <= now < before + REPEATS:
            measured_of.update(worse(runs[before], runs[now], blocks[before]))
    yield "| healthy runs beside one another | outputs compared | worse by the calibrated spread | by a measured one |"
    yield "|---|---|---|---|"
    yield f"| other inputs | {pairs:,} | {calibrated_of.total():,} | {measured_of.total():,} |"
    for name, found in others.items():
        same = {seed: by_output(cases) for seed, cases in found.items()}
        compared = sum(map(len, same.values()))
        plain = sum(len(list(worse(runs[seed], outputs))) for seed, outputs in same.items())
        by_measured = sum(len(list(worse(runs[seed], outputs, blocks[seed]))) for seed, outputs in same.items())
        yield f"| the same inputs, {name} | {compared:,} | {plain:,} | {by_measured:,} |"
    yield ""
    yield "Of other inputs, by API: " + ", ".join(f"{api} {n}" for api, n in _apis(calibrated_of).most_common(8))


def _apis(ids: Counter[str]) -> Counter[str]:
    found = Counter[str]()
    for id, count in ids.items():
        found[id.partition("::")[2].split(".")[1]] += count
    return found


def doubled(comparison: Comparison, generator: np.random.Generator) -> AnyArray | None:
    """The output with relative noise that makes its RMSE 2 times as large; None where no noise of its dtype does."""
    actual, expected = comparison.actual, comparison.expected
    wanted = 2 * relative_rmse(actual, expected).value
    noise, low, high = generator.standard_normal(actual.shape), 0.0, 1.0
    if not wanted or not math.isfinite(wanted):
        return None
    for _ in range(60):
        size = math.sqrt(low * high) if low else high / 1e3
        worse = round_to(widen(actual) * (1 + size * noise), actual.dtype)
        found = relative_rmse(worse, expected).value / wanted
        if 1 <= found < 1.02:
            return worse
        low, high = (low, size) if found >= 1 else (size, high)
    return None


def found_doubled(found: list[Case], seed: int) -> tuple[int, int]:
    """Of outputs of 100 elements or more whose RMSE was doubled, how many are worse, and how many there are."""
    generator, pairs = np.random.default_rng(seed), []
    judge = Judging._output

    def both(self: Judging, standard: Standard, comparison: Comparison) -> OutputVerdict:
        verdict = judge(self, standard, comparison)
        if comparison.actual.size >= 100 and verdict.baseline.get("rmse"):
            actual = doubled(comparison, generator)
            if actual is not None:
                other = judge(self, standard, replace(comparison, actual=actual))
                pairs.append((verdict, other))
        return verdict

    with mock.patch.object(Judging, "_output", both):
        measured(found, seed)
    sides = ((KeptOutput.of("", a.baseline), KeptOutput.of("", b.baseline), a, b) for a, b in pairs)
    seen = sum(b.verdict == "error" != a.verdict or any(row.worse for row in rows(x, y, None)) for x, y, a, b in sides)
    return seen, len(pairs)


def elsewhere(seeds: int, environment: Mapping[str, str]) -> dict[int, list[KeptCase]]:
    """The same runs by a process with other kernels."""
    command = [sys.executable, __file__, "--measure", str(seeds)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, check=True)
    return {int(seed): msgspec.convert(found, list[KeptCase]) for seed, found in json.loads(done.stdout).items()}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = cases(Path(folder))
        if sys.argv[1:2] == ["--measure"]:
            lines = {seed: measured(found, seed) for seed in range(int(sys.argv[2]))}
            sys.stdout.buffer.write(msgspec.json.encode(lines))
            return
        seeds = int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS
        lines = elsewhere(seeds, {"OMP_NUM_THREADS": "1"})
        print("\n".join(spreads({seed: by_output(run) for seed, run in lines.items()})), end="\n\n", flush=True)
        others = {name: elsewhere(min(5, seeds), environment) for name, environment in OTHERS.items()}
        print("\n".join(alarms(lines, others)), end="\n\n", flush=True)
        seen, planted = found_doubled(found, 0)
        print(f"Doubled RMSE, outputs of 100 elements or more: {seen:,} of {planted:,} found ({seen / planted:.1%}).")


if __name__ == "__main__":
    main()
