"""On a node: one process that runs cases on one device, and is replaced when it dies.

Ray says of an actor that died neither the signal nor what it ran. So the actor imports no framework and survives; its
child is a pytest with `workerinput`, whose items come through a pipe. Everything that is done for pytest-xdist's
workers serves it, and deaths have the same kinds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pytest_probe.features.cluster.messages import END, Death, Outcome, Place, Ready, RunFacts, Start
from pytest_probe.reports.running import Ending, by_limit, file_of, memory_kills, read_running

# How many last bytes of a dead process's stderr are reported.
_TAIL = 4000
# Seconds that a process has to end by itself.
_PATIENCE = 5.0


def variables(environment: Mapping[str, str | None]) -> dict[str, str]:
    """Those of a process of this run: this process's, and what Start says of them."""
    known = {**os.environ, **environment}
    return {name: value for name, value in known.items() if value is not None}


class Host:
    """Knows no Ray. start is what each of its processes begins with."""

    def __init__(self, start: Start, place: Place) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="pytest-probe-"))
        self._files, self._running = self._folder / "files", self._folder / "running"
        worker = {
            **start.worker,
            "workerid": place.worker,
            "workercount": place.hosts,
            "probe_slot": place.slot,
            "probe_running": str(self._running),
            "probe_files": str(self._files),
        }
        self._start = replace(start, worker=worker)
        self._place = place
        self._kills = memory_kills()
        self._ready: Ready | None = None
        self._facts: RunFacts | None = None
        self._busy = self._closing = False
        self._launch()

    def ready(self) -> Ready:
        """What the process says of its device, once it can run cases."""
        if self._ready is None:
            try:
                found: Ready = self._reader.recv()
            except (EOFError, OSError):
                found = Ready(trouble=f"its process died {self._death().ending.words} while it started", broken=True)
            self._ready = replace(found, trouble=f"{found.trouble}\n{self._said()}".strip()) if found.broken else found
        return self._ready

    def tell(self, facts: RunFacts) -> None:
        """Each process gets these facts before it gets cases."""
        self._facts = facts
        with suppress(OSError):  # it has died, as the next cases will find
            self._writer.send(facts)

    def run(self, cases: bytes, files: Mapping[str, Any]) -> Outcome:
        """Run pickled cases. files are tensors that they read, by their path among this host's files."""
        if self._ready is None and self.ready().trouble:
            return self._again(Outcome([], self._death(self._ready)))
        self._busy = True
        try:
            for name, content in files.items():
                path = self._files / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            return self._run(cases)
        finally:
            for name in files:
                (self._files / name).unlink(missing_ok=True)
            self._busy = False

    def close(self) -> None:
        """End the process, also from another thread while cases run."""
        self._closing = True
        if self._busy:
            self._process.kill()
        else:
            self._writer.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, cases: bytes) -> Outcome:
        ran: list[bytes] = []
        try:
            self._writer.send_bytes(cases)
            while (content := self._reader.recv_bytes()) != END:
                ran.append(content)
        except (EOFError, OSError):
            return self._again(Outcome(ran, self._death()))
        return Outcome(ran)

    def _launch(self) -> None:
        self._stderr = (self._folder / "stderr").open("w+b", buffering=0)
        (self._reader, theirs_write), (theirs_read, self._writer) = Pipe(duplex=False), Pipe(duplex=False)
        ends = theirs_read.fileno(), theirs_write.fileno()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pytest_probe.features.cluster.worker", *map(str, ends)],
            stdin=subprocess.DEVNULL,
            stdout=self._stderr,
            stderr=self._stderr,
            pass_fds=ends,
            env=variables(self._start.environment),
        )
        theirs_read.close()
        theirs_write.close()
        with suppress(OSError):
            self._writer.send(self._start)
            if self._facts is not None:
                self._writer.send(self._facts)

    def _again(self, outcome: Outcome) -> Outcome:
        """The process is replaced. The new one gets ready while the controller thinks about the death."""
        self._reader.close()
        self._writer.close()
        self._stderr.close()
        self._ready = None
        if not self._closing:
            self._launch()
        return outcome

    def _death(self, refused: Ready | None = None) -> Death:
        if refused is not None:
            self._process.kill()
        status, now = self._process.wait(), memory_kills()
        self._kills, ran_out = now, now > self._kills
        file = file_of(self._running, self._place.worker)
        running = read_running(file)
        file.unlink(missing_ok=True)
        timed_out = by_limit(running, status)
        return Death(running, Ending(status, ran_out), timed_out, refused.trouble if refused else self._said())

    def _said(self) -> str:
        """The end of what the process wrote to stderr."""
        end = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, end - _TAIL))
        return self._stderr.read().decode(errors="replace").strip()
