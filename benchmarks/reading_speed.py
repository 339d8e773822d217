"""How fast a big dump is read: CPU seconds and peak memory for 300,000 records, plain and with bare NaN tokens, for as
many of PaddleAPEX, and for 30,000 of Paddle's one-line calls, each of them parsed too.

    python benchmarks/reading_speed.py [RECORDS]

The dumps repeat the records of cases/gpt, and real ones of Paddle's tools, with new call numbers. Each variant is read
in a fresh process; the numbers are those of that process alone, and the import of Python and pytest-probe is given
apart.
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

# Of the step's records those that make 300,000 weigh about as much as in a dump of a larger model, 223 MB.
LONGEST = 1000
ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "cases" / "gpt" / "dump.json"
PADDLE = ROOT / "tests" / "data" / "paddleapex"
LINES = 30_000


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
    else:
        main(*map(int, sys.argv[1:2]))
