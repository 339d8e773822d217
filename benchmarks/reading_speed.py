"""How fast a big dump is read: CPU seconds and peak memory for 300,000 records, plain and with bare NaN tokens, for as
many of PaddleAPEX, and for 30,000 of Paddle's one-line calls, each of them parsed too.

    python benchmarks/reading_speed.py [RECORDS]
    python benchmarks/reading_speed.py --ptdbg [LINES]

The dumps repeat the records of cases/gpt, and real ones of Paddle's tools, with new call numbers. Each variant is read
in a fresh process; the numbers are those of that process alone, and the import of Python and pytest-probe is given
apart. With --ptdbg: 100,000 lines of ptdbg, plain, with stacks, and with NaN in one of eight, beside `json.loads` of
each line; the ratio is the median of five, each of both in one process.
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

# Of the step's records those that make 300,000 weigh about as much as in a dump of a larger model, 223 MB.
LONGEST = 1000
ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "cases" / "gpt" / "dump.json"
PADDLE = ROOT / "tests" / "data" / "paddleapex"
LINES = 30_000
PTDBG = ROOT / "tests" / "data" / "ptdbg"
CALL = re.compile(r"_(\d+)_(for|back)ward_")
REPEATS = 5


def write_dump(path: Path, records: int, nan: bool) -> None:
    """A dump of that many records, indented as msprobe writes it; with nan, one mean in four is a bare NaN."""
    data = json.loads(SOURCE.read_text())["data"]
    names = list(dict.fromkeys(entry.rpartition(".")[0] for entry in data))
    with path.open("w") as file:
        file.write('{\n "task": "statistics",\n "level": "L1",\n "framework": "pytorch",\n "dump_data_dir": null,\n')
        file.write(' "data": {')
        bodies = {entry: _body(body, index, nan) for index, (entry, body) in enumerate(data.items())}
        names = [name for name in names if len(bodies[f"{name}.forward"]) < LONGEST]
        for index in range(records):
            name = names[index % len(names)]
            for direction in ("forward", "backward"):
                if f"{name}.{direction}" in bodies:
                    comma = "," if index or direction == "backward" else ""
                    key = f"{name.rpartition('.')[0]}.{index}.{direction}"
                    file.write(f'{comma}\n  "{key}": {bodies[f"{name}.{direction}"]}')
        file.write("\n }\n}")


def write_paddleapex(path: Path, records: int) -> None:
    """A dump of PaddleAPEX with that many records."""
    data = json.loads(gzip.decompress((PADDLE / "gpt_random_nodedup.json.gz").read_bytes()))
    bodies = [(name.partition("*")[0], json.dumps(body, indent=2)) for name, body in data.items()]
    with path.open("w") as file:
        for index, (name, body) in enumerate(itertools.islice(itertools.cycle(bodies), records)):
            file.write(f'{"," if index else "{"}\n  "{name}*{index}": {body}')
        file.write("\n}")


def write_lines(path: Path, count: int) -> None:
    """A text file of that many calls of Paddle's."""
    lines = [line for name in ("lines", "tracer") for line in (PADDLE / f"{name}.txt").read_text().splitlines()]
    path.write_text("\n".join(itertools.islice(itertools.cycle(lines), count)) + "\n")


def _body(body: object, index: int, nan: bool) -> str:
    text = json.dumps(body, indent=1).replace("\n", "\n  ")
    return re.sub(r'("Mean": )[-+.e\d]+', r"\1NaN", text) if nan and index % 4 == 0 else text


def measure(path: Path) -> None:
    """Read a dump in this process and print what it took; lines are parsed too, as they are when they run."""
    import pytest_probe.records
    from pytest_probe.errors import RecordError

    start, imported = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    dump = pytest_probe.records.read_dump(path)
    for record in dump.records if path.suffix == ".txt" else ():
        with suppress(RecordError):
            dump.decode(record)
    seconds, peak = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"{len(dump.records):,} records, {path.stat().st_size / 1e6:.1f} MB: {seconds:.2f} s CPU, "
        f"peak {peak / 1024:.0f} MiB ({imported / 1024:.0f} MiB and {start:.2f} s before)"
    )


def write_ptdbg(path: Path, count: int, dump: str, every: int = 0) -> None:
    """A dump of ptdbg with that many lines: those of a real one, with new call numbers; each `every`th has NaN."""
    with tarfile.open(PTDBG / f"{dump}.tgz") as archive:
        name = next(member for member in archive.getnames() if member.endswith(".pkl"))
        source = archive.extractfile(name)
        assert source is not None
        lines = source.read().decode().splitlines()
    with path.open("w") as file:
        for index in range(count):
            line = lines[index % len(lines)]
            step = 100 * (index // len(lines))
            line = CALL.sub(partial(_later, step), line, count=1)
            if every and index % every == 0 and '"torch.float' in line:
                line = line.rpartition("[")[0] + "[NaN, NaN, NaN, NaN]]"
            file.write(f"{line}\n")


def _later(step: int, call: re.Match[str]) -> str:
    return f"_{int(call[1]) + step}_{call[2]}ward_"


def measure_ptdbg(path: Path) -> None:
    """Print the CPU seconds of json.loads for each line of a file, those of reading it, and their ratio."""
    import pytest_probe.records

    start = time.process_time()
    with path.open(encoding="utf-8") as file:
        for line in file:
            json.loads(line)
    plain = time.process_time() - start
    start = time.process_time()
    dump = pytest_probe.records.read_dump(path)
    seconds = time.process_time() - start
    print(json.dumps([len(dump.records), plain, seconds]))


def main_ptdbg(lines: int = 100_000) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "dump.pkl")
        for variant, dump, every in (
            ("plain", "v4-all", 0),
            ("with stacks", "v4-stack-filter-on", 0),
            ("with NaN", "v4-all", 8),
        ):
            write_ptdbg(path, lines, dump, every)
            command = [sys.executable, __file__, "--measure-ptdbg", str(path)]
            found = [
                json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(REPEATS)
            ]
            records, plain, seconds = (statistics.median(column) for column in zip(*found, strict=True))
            ratio = statistics.median(each[2] / each[1] for each in found)
            print(
                f"ptdbg, {variant}: {lines:,} lines, {int(records):,} records, {path.stat().st_size / 1e6:.1f} MB: "
                f"{seconds:.2f} s CPU, json.loads {plain:.2f} s, ratio {ratio:.2f}"
            )


def main(records: int = 300_000) -> None:
    with tempfile.TemporaryDirectory() as folder:
        writers: tuple[tuple[str, str, Callable[[Path], None]], ...] = (
            ("plain", "dump.json", lambda path: write_dump(path, records, nan=False)),
            ("with NaN", "dump.json", lambda path: write_dump(path, records, nan=True)),
            ("PaddleAPEX", "dump.json", lambda path: write_paddleapex(path, records)),
            ("lines, parsed", "lines.txt", lambda path: write_lines(path, LINES)),
        )
        for variant, name, write in writers:
            path = Path(folder, name)
            write(path)
            print(f"{variant}: ", end="", flush=True)
            subprocess.run([sys.executable, __file__, "--measure", str(path)], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["--measure-ptdbg"]:
        measure_ptdbg(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["--ptdbg"]:
        main_ptdbg(*map(int, sys.argv[2:3]))
    else:
        main(*map(int, sys.argv[1:2]))
