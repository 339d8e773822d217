"""A hostile dump's run: the files are laid out, pytest runs, and what must not happen is looked for."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path

from msgspec import Struct

from benchmarks.hostile.mutations import HostileDump
from benchmarks.hostile.words import OUTSIDE
from benchmarks.hostile.worker import PLAIN, Ran, Sandbox, Worker

GROWTH = 1 << 30  # bytes
# pytest's exit codes: passed, failed, wrong usage, nothing collected.
_USUAL = (0, 1, 4, 5)
_BROKEN = re.compile(
    r"^.*(?:INTERNALERROR|pytest-probe broke|Traceback \(most recent|Fatal Python error).*$|^E   .*$", re.MULTILINE
)


class Outcome(Struct, frozen=True):
    """A run with its items by verdict, what the dump as a whole was, and the findings, each in a line."""

    ran: Ran
    verdicts: Counter[str]
    whole: str
    findings: tuple[str, ...]


def outcome(dump: HostileDump, worker: Worker, sandbox: Sandbox) -> Outcome:
    """A run on this dump, its files laid out anew."""
    lay_out(dump, sandbox)
    os.truncate(sandbox.output, 0)
    before = _state(sandbox)
    ran = worker.run([*PLAIN, *dump.arguments])
    output = sandbox.output.read_text("utf-8", errors="replace")
    findings = [*_of_process(ran), *(found[0].strip()[:300] for found in _BROKEN.finditer(output)), *ran.touched]
    findings += [f"changed: {name}" for name in sorted(_differences(before, _state(sandbox)))]
    verdicts = Counter[str]()
    try:
        results = sandbox.run / "out/results.jsonl"
        verdicts.update(json.loads(line)["verdict"] for line in results.read_text("utf-8").splitlines())
    except FileNotFoundError:
        pass
    except (ValueError, KeyError) as error:
        findings.append(f"results.jsonl cannot be read: {error}")
    return Outcome(ran, verdicts, _whole(ran, output), tuple(dict.fromkeys(findings)))


def lay_out(dump: HostileDump, sandbox: Sandbox) -> None:
    for name in ("dump", "out"):
        shutil.rmtree(sandbox.run / name, ignore_errors=True)
    folder = sandbox.run / "dump"
    for name, held in dump.files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(held.replace(OUTSIDE.encode(), str(sandbox.outside).encode()))
        except (OSError, ValueError):
            continue  # a name that no file can have: the dump alone has it
    for name, kind in dump.special.items():
        _make_special(folder / name, kind, sandbox)


def _make_special(path: Path, kind: str, sandbox: Sandbox) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "empty":
        path.touch()
    else:
        targets = {"outside": sandbox.outside / "canary.pt", "itself": path, "/dev/zero": Path("/dev/zero")}
        path.symlink_to(targets[kind.removeprefix("link to ")])


def _of_process(ran: Ran) -> list[str]:
    if ran.code is None:
        return [ran.ended]
    found = [] if ran.code in _USUAL else [f"pytest ended with {ran.code}"]
    return found + ([f"{ran.grown >> 20} MiB of memory"] if ran.grown > GROWTH else [])


def _whole(ran: Ran, output: str) -> str:
    if ran.code == 4:
        return "refused"
    return "damaged" if "(damaged)" in output else "read"


def _state(sandbox: Sandbox) -> dict[str, tuple[int, int, int, int]]:
    """All that lies in the sandbox, but what the run may write."""
    own = (str(sandbox.run / "out"), str(sandbox.output))
    found = {}
    for folder, folders, files in os.walk(sandbox.folder):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            if not path.startswith(own):
                stat = os.lstat(path)
                # A folder changes where the run's own is made in it; what else comes into it is found by name.
                times = 0 if name in folders else stat.st_mtime_ns
                found[path] = (stat.st_mode, stat.st_ino, 0 if name in folders else stat.st_size, times)
    return found


def _differences(before: dict[str, tuple[int, int, int, int]], after: dict[str, tuple[int, int, int, int]]) -> set[str]:
    return {path for path, _ in before.items() ^ after.items()}
