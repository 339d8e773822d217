"""What it costs to check a GPT training step: CPU time, memory, and to whom the time goes.

    python benchmarks/check_speed.py [--repeats N] [--records N] [--msprobe-python PYTHON] [--then CHECKOUT]

- The whole check of cases/gpt by pytest in a fresh process: CPU time (user and system) and peak memory from the
  operating system; taken off is what a process needs that only imports pytest and the framework. Beside it stands a
  run of pytest over one empty test that imports the same: pytest's hooks make imports dearer, and it collects garbage
  when it ends, which walks over all that the framework made.
- Shares of it, measured in another process by wrappers around public functions (benchmarks/shares.py).
- The same of cases/paddle-gpt, where Paddle is installed; where PADDLEAPEX names a checkout of PaddleAPEX, its
  run_paddle.py on the same dump, forward and backward on the CPU: it runs the calls and judges nothing.
- With --msprobe-python, a Python that has torch and mindstudio-probe 26: its own checker on the same dump, measured
  the same way.
- With --framework mindspore and nothing else: replays of a dump of MindSpore, in an environment that has it; with
  --msprobe-python, a Python that has MindSpore and mindstudio-probe 26, beside its checker.
- With --then another checkout and nothing else: both check cases/gpt in turn, with the spread, and the same step many
  times, which tells an item's own cost.
- Collection of a made dump (the records of cases/gpt with new call numbers), and what an unused plugin adds to pytest.

Numbers are medians over the repeats. Every process has one thread (OMP_NUM_THREADS and its kin are 1), lest threads
that wait in a spin loop count as work; pytest loads this plugin and no other, and runs in a temporary folder.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from benchmarks import failing_items  # noqa: E402
from benchmarks.reading_speed import write_dump  # noqa: E402
from benchmarks.shares import IMPORTS, OPTIONS, PARTS  # noqa: E402

SOURCE = HERE.parent / "cases" / "gpt"
PADDLE = HERE.parent / "cases" / "paddle-gpt"
MINDSPORE = HERE.parent / "tests" / "data" / "mindspore"
COPIES = 12
# Two threads of MindSpore's wait in a spin loop in some processes: a short run says little.
COPIES_OF_MINDSPORE = 40
SINGLE = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
# Byte code is kept, as it is by default: compiling our modules anew costs as much as importing them all.
KEPT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
ENVIRONMENT = {**KEPT, **SINGLE, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
IMPORT = "import time, pytest; t = time.process_time(); import pytest_probe.plugin; print(time.process_time() - t)"


class Cost(NamedTuple):
    """Seconds of CPU and peak memory in MiB of a process, and what it printed."""

    seconds: float
    peak: float
    text: str


def cost(folder: Path, command: Sequence[str], checkout: Path | None = None) -> Cost:
    """Run a command in a folder, with the package of a checkout. Raises RuntimeError, with its output, where it
    fails."""
    environment = ENVIRONMENT if checkout is None else {**ENVIRONMENT, "PYTHONPATH": str(checkout)}
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{text[-2000:]}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, text)


def typical(folder: Path, repeats: int, *commands: Sequence[str]) -> list[Cost]:
    """The median cost of each command; they take turns, so that a machine that slows down slows all of them."""
    for command in commands:
        cost(folder, command)  # fills caches of files and byte code
    rounds = [[cost(folder, command) for command in commands] for _ in range(repeats)]
    return [
        Cost(statistics.median(run.seconds for run in runs), statistics.median(run.peak for run in runs), runs[0].text)
        for runs in zip(*rounds, strict=True)
    ]


def python(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, *arguments)


def whole(
    folder: Path, repeats: int, items: int, dump: str = "gpt", imported: Sequence[str] = IMPORTS
) -> Iterator[str]:
    """The check, less the imports."""
    code = f"import {', '.join(imported)}"
    paused = f"import gc; gc.disable(); {code}; gc.enable(); gc.freeze()"  # as the check imports the framework
    (folder / "test_empty.py").write_text(f"{code}\n\ndef test_nothing(): pass\n")
    imports, empty, check = typical(
        folder,
        repeats,
        python("-c", paused),
        python("-m", "pytest", *OPTIONS, "-q", "test_empty.py"),
        python("-m", "pytest", *OPTIONS, "-q", f"--probe-dump={dump}"),
    )
    own, added = check.seconds - imports.seconds, check.seconds - empty.seconds
    yield f"the whole check of {dump}, {items:,} items: {check.seconds:.2f} s of CPU, peak {check.peak:.0f} MiB"
    yield f"  imports alone:   {imports.seconds:.2f} s of CPU, peak {imports.peak:.0f} MiB"
    yield f"  without imports: {own:.2f} s of CPU, {1000 * own / items:.2f} ms an item"
    yield f"  one empty test after the same imports: {empty.seconds:.2f} s of CPU, peak {empty.peak:.0f} MiB"
    yield f"  beyond that:     {added:.2f} s of CPU, {1000 * added / items:.2f} ms an item"


def of_paddle(folder: Path, repeats: int) -> Iterator[str]:
    """The check of Paddle's dump, and PaddleAPEX's run of it."""
    shutil.copytree(PADDLE, folder / "paddle-gpt")
    listed = cost(folder, python("-m", "pytest", *OPTIONS, "-q", "--collect-only", "--probe-dump=paddle-gpt")).text
    items = sum("::" in line for line in listed.splitlines())
    yield from whole(folder, repeats, items, "paddle-gpt", ("paddle", "pytest"))
    checkout = os.environ.get("PADDLEAPEX")
    if checkout:
        script = str(Path(checkout).resolve() / "paddleapex" / "apex" / "run_paddle.py")
        options = ("-json", "paddle-gpt/forward_rank0.json", "-backend", "cpu", "-mode", "acc", "-out", "apex/")
        imports, run = typical(folder, repeats, python("-c", "import paddle"), python(script, *options))
        own = run.seconds - imports.seconds
        calls = len(json.loads((PADDLE / "forward_rank0.json").read_text()))
        yield f"run_paddle.py on the same dump, {calls:,} APIs: {run.seconds:.2f} s of CPU, peak {run.peak:.0f} MiB"
        yield f"  without imports: {own:.2f} s of CPU, {1000 * own / calls:.2f} ms an API"


def of_mindspore(folder: Path, repeats: int, interpreter: str | None) -> Iterator[str]:
    """Replays of a step of an MLP on MindSpore's CPU, and msprobe's checker for MindSpore: what each further call
    costs, where the dump has its calls many times."""
    # Of stored tensors the tool judges those, and makes no call either.
    for mode, device in (("mlp", "recorded"), ("mlp-statistics", "CPU")):
        copies = 1, COPIES_OF_MINDSPORE
        names = [f"{mode}-{number}" for number in copies]
        calls = [write_mindspore(folder / name, mode, number) for name, number in zip(names, copies, strict=True)]
        checks = [
            python("-m", "pytest", *OPTIONS, "-q", f"--probe-dump={name}", f"--probe-device={device}") for name in names
        ]
        own = _further(typical(folder, repeats, *checks), [every for every, _ in calls])
        yield f"a further call of {mode} on {device}, forward and backward: {own:.2f} ms of CPU"
        if interpreter is not None:
            command = (interpreter, "-m", "msprobe.msprobe", "acc_check", "-o", "msprobe", "-api_info")
            tool = typical(folder, min(repeats, 3), *((*command, f"{name}/dump.json") for name in names))
            theirs = _further(tool, [checked for _, checked in calls])
            yield f"  msprobe's checker, a further call that it checks: {theirs:.2f} ms, {theirs / own:.1f} times that"


def _further(costs: Sequence[Cost], calls: Sequence[int]) -> float:
    """Milliseconds that each further call costs."""
    return 1000 * (costs[1].seconds - costs[0].seconds) / (calls[1] - calls[0])


def write_mindspore(folder: Path, name: str, copies: int) -> tuple[int, int]:
    """A packed dump of MindSpore with each call so many times; the number of its calls, and of those that msprobe
    checks, which are no operators."""
    with zipfile.ZipFile(MINDSPORE / f"{name}.zip") as packed:
        packed.extractall(folder)
    content = json.loads((folder / "dump.json").read_text())
    data = content["data"]
    content["data"] = {
        f"{api}.{int(number) + 100 * copy}.{direction}": entry
        for copy in range(copies)
        for (api, number, direction), entry in ((key.rsplit(".", 2), entry) for key, entry in data.items())
    }
    content["dump_data_dir"] = content["dump_data_dir"] and str(folder / "dump_tensor_data")
    (folder / "dump.json").write_text(json.dumps(content))
    every = records(folder / "dump.json")
    return len(every), sum(not call.startswith("Tensor.") for call in every)


def shares(folder: Path, repeats: int, items: int) -> Iterator[str]:
    """To whom the time goes, largest first."""
    runs = [json.loads(cost(folder, python(str(HERE / "shares.py"), "gpt")).text) for _ in range(repeats)]
    seconds = {part: statistics.median(run.get(part, 0.0) for run in runs) for part in PARTS}
    total = sum(seconds.values())
    yield f"shares of {total:.2f} s of CPU:"
    for part, taken in sorted(seconds.items(), key=lambda row: -row[1]):
        yield f"  {part:<30} {taken:>6.3f} s {taken / total:>6.1%} {1000 * taken / items:>7.3f} ms an item"


def beside(folder: Path, repeats: int, items: int, then: Path) -> Iterator[str]:
    """Two checkouts in turn: the whole run, and what each further item costs."""
    failing_items.write_dump(folder / "many.json", COPIES)
    many = COPIES * items
    checkouts = {"then": then, "now": HERE.parent}
    found: dict[str, list[tuple[Cost, float]]] = {name: [] for name in checkouts}
    for _ in range(repeats):
        for name, checkout in checkouts.items():
            one, all_of_them = (
                cost(folder, python("-m", "pytest", *OPTIONS, "-q", f"--probe-dump={dump}"), checkout)
                for dump in ("gpt", "many.json")
            )
            found[name].append((one, 1e3 * (all_of_them.seconds - one.seconds) / (many - items)))
    for name, runs in found.items():
        seconds, each = [one.seconds for one, _ in runs], [an_item for _, an_item in runs]
        peak = statistics.median(one.peak for one, _ in runs)
        yield f"{name:<5} {items:,} items: {_spread(seconds)} s of CPU, peak {peak:.0f} MiB"
        yield f"{name:<5} a further item: {_spread(each)} ms"
    ratios = [(new[0].seconds / old[0].seconds, new[1] / old[1]) for old, new in zip(*found.values(), strict=True)]
    for what, values in (("run", [run for run, _ in ratios]), ("further item", [each for _, each in ratios])):
        yield f"now over then, pair by pair, {what}: {_spread(values)}"


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def msprobe(folder: Path, interpreter: str) -> Iterator[str]:
    """msprobe's checker on the same dump, once: it takes minutes."""
    script, calls = str(HERE / "msprobe_checker.py"), len(records(folder / "gpt" / "dump.json"))
    imports = cost(folder, (interpreter, script))
    check = cost(folder, (interpreter, script, "gpt/dump.json", "msprobe"))
    own = check.seconds - imports.seconds
    yield f"msprobe's checker, {calls:,} APIs: {check.seconds:.2f} s of CPU, peak {check.peak:.0f} MiB"
    yield f"  imports alone:   {imports.seconds:.2f} s of CPU"
    yield f"  without imports: {own:.2f} s of CPU, {1000 * own / calls:.2f} ms an API"


def collection(folder: Path, repeats: int, count: int) -> Iterator[str]:
    write_dump(folder / "large.json", count, nan=False)
    command = python("-m", "pytest", *OPTIONS, "--collect-only", "-q", "--probe-dump=large.json")
    (found,) = typical(folder, repeats, command)
    items = sum("::" in line for line in found.text.splitlines())
    yield f"collection of {count:,} records, {items:,} items: {found.seconds:.2f} s of CPU, peak {found.peak:.0f} MiB"


def unused(folder: Path, repeats: int) -> str:
    seconds = [float(cost(folder, python("-c", IMPORT)).text) for _ in range(repeats)]
    return f"import of the unused plugin: {1000 * statistics.median(seconds):.2f} ms of CPU"


def records(path: Path) -> set[str]:
    """The calls in a dump, by name."""
    return {entry.rpartition(".")[0] for entry in json.loads(path.read_text())["data"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="runs of each measurement (default: 5)")
    parser.add_argument("--records", type=int, default=100_000, help="records to collect (default: 100,000)")
    parser.add_argument("--msprobe-python", metavar="PYTHON", help="a Python with torch and mindstudio-probe 26")
    parser.add_argument("--then", type=Path, metavar="CHECKOUT", help="another checkout to compare with")
    parser.add_argument("--framework", choices=["mindspore"], help="measure this one's checks alone")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        shutil.copytree(SOURCE, folder / "gpt")
        if given.framework:
            interpreter = given.msprobe_python and os.path.abspath(given.msprobe_python)
            print("\n".join(of_mindspore(folder, given.repeats, interpreter)), flush=True)
            return
        items = len(json.loads((SOURCE / "dump.json").read_text())["data"])
        if given.then:
            print("\n".join(beside(folder, given.repeats, items, given.then.resolve())), flush=True)
            return
        parts = [whole(folder, given.repeats, items), shares(folder, given.repeats, items)]
        if importlib.util.find_spec("paddle"):
            parts.insert(1, of_paddle(folder, given.repeats))
        for lines in parts:
            print("\n".join(lines), flush=True)
        print(unused(folder, 4 * given.repeats), flush=True)
        print("\n".join(collection(folder, min(given.repeats, 3), given.records)), flush=True)
        if given.msprobe_python:
            print("\n".join(msprobe(folder, os.path.abspath(given.msprobe_python))), flush=True)


if __name__ == "__main__":
    main()
