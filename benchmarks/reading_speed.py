"""How fast a big dump is read: CPU seconds and peak memory for 300,000 records, plain and with bare NaN tokens.

    python benchmarks/reading_speed.py [RECORDS]

The dump repeats the records of cases/gpt with new call numbers. Each variant is read in a fresh process; the numbers
are those of that process alone, and the import of Python and pytest-probe is given apart.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Of the step's records those that make 300,000 weigh about as much as in a dump of a larger model, 223 MB.
LONGEST = 1000
SOURCE = Path(__file__).parents[1] / "cases" / "gpt" / "dump.json"


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


def _body(body: object, index: int, nan: bool) -> str:
    text = json.dumps(body, indent=1).replace("\n", "\n  ")
    return re.sub(r'("Mean": )[-+.e\d]+', r"\1NaN", text) if nan and index % 4 == 0 else text


def measure(path: Path) -> None:
    """Read a dump in this process and print what it took."""
    import pytest_probe.records

    start, imported = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    dump = pytest_probe.records.read_dump(path)
    seconds, peak = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"{len(dump.records):,} records, {path.stat().st_size / 1e6:.1f} MB: {seconds:.2f} s CPU, "
        f"peak {peak / 1024:.0f} MiB ({imported / 1024:.0f} MiB and {start:.2f} s before)"
    )


def main(records: int = 300_000) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for variant in ("plain", "with NaN"):
            path = Path(folder, "dump.json")
            write_dump(path, records, nan=variant == "with NaN")
            print(f"{variant}: ", end="", flush=True)
            subprocess.run([sys.executable, __file__, "--measure", str(path)], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(Path(sys.argv[2]))
    else:
        main(*map(int, sys.argv[1:2]))
