"""Public models, recorded and checked as a user does: calls, items, verdicts, and what it costs, as a Markdown table.

    python benchmarks/real_models.py [--framework paddle] [--model NAME ...] [--recording] [--out DIR] [--python PYTHON]

A model is made from its configuration with random weights (`pip install pytest-probe[models]`). One training step of
it, forward, backward and AdamW, is recorded and checked on the CPU, each in a process of its own with one thread.
Check times are CPU time without that of imports. --out keeps the dumps and results. --recording checks nothing: the
CPU time of a recorded step, by which its dump is on the disk, beside that of a plain one, each the least of four; "a
call" is what it takes more for each call. The exit status is 1 where a model could not be
measured, or an item is an error.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.check_speed import cost  # noqa: E402

MODULES = {"pytorch": "torch", "paddle": "paddle"}
STEPS = 4
CHECKING = (
    "| {} | parameters | calls | items | pass | warning | skip | error | CPU | a million parameters | peak |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|"
)
RECORDING = "| {} | parameters | calls | a plain step | recorded | a call |\n|---|---|---|---|---|---|"


class Recorded(Struct, frozen=True):
    """A recorded model; plain and recorded are seconds of the CPU for a step."""

    parameters: int
    plain: float
    recorded: float
    dump: Path

    @property
    def calls(self) -> int:
        return sum(key.endswith(".forward") for key in json.loads(self.dump.read_text())["data"])

    def row(self, name: str) -> str:
        return (
            f"| {name} | {self.parameters / 1e6:.1f} M | {self.calls:,} | {1e3 * self.plain:.0f} ms | "
            f"{self.recorded / self.plain:.2f}x | {1e6 * (self.recorded - self.plain) / self.calls:,.0f} us |"
        )


class CaseOutcome(Struct, frozen=True):
    """What the check of a model gave. reasons are those of items that do not pass, and how many have each."""

    recorded: Recorded
    verdicts: Counter[str]
    reasons: Counter[str]
    seconds: float
    peak: float

    def row(self, name: str) -> str:
        verdicts = " | ".join(f"{self.verdicts[kind]:,}" for kind in ("pass", "warning", "skip", "error"))
        millions = self.recorded.parameters / 1e6
        return (
            f"| {name} | {millions:.1f} M | {self.recorded.calls:,} | {self.verdicts.total():,} | {verdicts} | "
            f"{self.seconds:.1f} s | {self.seconds / millions:.2f} s | {self.peak:,.0f} MiB |"
        )


def record(framework: str, name: str, out: Path) -> None:
    """Print, as JSON, what a plain step and a recorded one take; the dump of the last one is in out."""
    parameters, step = importlib.import_module(f"benchmarks.models.{framework}_models").training(name)
    plain = min(_seconds(step) for _ in range(STEPS))
    recorded = min(_recorded(step, framework, out, number) for number in range(STEPS))
    print(json.dumps({"parameters": parameters, "plain": plain, "recorded": recorded}))


def _seconds(step: Callable[[], object]) -> float:
    start = time.process_time()
    step()
    return time.process_time() - start


def _recorded(step: Callable[[], None], framework: str, out: Path, number: int) -> float:
    from pytest_probe import PrecisionDebugger

    debugger = PrecisionDebugger(dump_path=str(out / f"dump{number}"), framework=framework, overwrite=True)

    def all_of_it() -> None:
        debugger.start()
        step()
        debugger.stop()
        debugger.step()

    try:
        return _seconds(all_of_it)
    finally:
        debugger.close()


def recorded(framework: str, name: str, out: Path, interpreter: str) -> Recorded:
    program = [interpreter, str(Path(__file__).resolve()), "--framework", framework, "--record", name]
    times = json.loads(cost(out, [*program, "--out", str(out)], ROOT).text.splitlines()[-1])
    return Recorded(dump=next((out / f"dump{STEPS - 1}").glob("step*/*/dump.json")), **times)


def checked(framework: str, name: str, out: Path, interpreter: str) -> CaseOutcome:
    found = recorded(framework, name, out, interpreter)
    imports = cost(out, [interpreter, "-c", f"import pytest, {MODULES[framework]}, pytest_probe.plugin"], ROOT)
    command = [interpreter, "-m", "pytest", "-p", "pytest_probe.plugin", "-p", "no:cacheprovider", "-q", "--tb=no"]
    command += [f"--probe-dump={found.dump}", "--probe-device=cpu", f"--probe-out={out / 'results'}"]
    # What it finds is in the results; its exit status says whether there was a failure.
    check = cost(out, ["sh", "-c", f"{' '.join(command)}; exit 0"], ROOT)
    results = [json.loads(line) for line in (out / "results" / "results.jsonl").read_text().splitlines()]
    reasons = Counter(
        f"{result['verdict']} {result['api']} {result['direction']}: {result['reason']}"
        for result in results
        if result["verdict"] != "pass"
    )
    verdicts = Counter(result["verdict"] for result in results)
    return CaseOutcome(found, verdicts, reasons, check.seconds - imports.seconds, check.peak)


Measured = TypeVar("Measured", Recorded, CaseOutcome)


def each(
    measure: Callable[[str, str, Path, str], Measured],
    framework: str,
    names: Iterable[str],
    out: Path,
    interpreter: str,
) -> Iterator[tuple[str, Measured]]:
    """Measure the models one after another, and print a row of each; one that cannot be measured is said to be so."""
    for name in names:
        folder = out / framework / name
        folder.mkdir(parents=True, exist_ok=True)
        try:
            found = measure(framework, name, folder, interpreter)
        except RuntimeError as error:
            print(f"{name}: {str(error).splitlines()[-1]}", flush=True)
            continue
        print(found.row(name), flush=True)
        yield name, found


def main() -> int:
    parser = argparse.ArgumentParser(description="Public models, recorded and checked")
    parser.add_argument("--framework", choices=("pytorch", "paddle"), default="pytorch")
    parser.add_argument("--model", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--recording", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has the models")
    parser.add_argument("--record", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.record:
        record(options.framework, options.record, options.out)
        return 0
    names = options.model or importlib.import_module(f"benchmarks.models.{options.framework}_models").names()
    with tempfile.TemporaryDirectory() as temporary:
        out = (options.out or Path(temporary)).resolve()
        of_run = options.framework, names, out, options.python
        print((RECORDING if options.recording else CHECKING).format(options.framework), flush=True)
        if options.recording:
            return 0 if len(list(each(recorded, *of_run))) == len(names) else 1
        found = list(each(checked, *of_run))
    for name, model in found:
        for reason, count in model.reasons.items():
            print(f"{name}: {count} x {reason}")
    return 0 if len(found) == len(names) and not any(model.verdicts["error"] for _, model in found) else 1


if __name__ == "__main__":
    sys.exit(main())
