"""Runs of pytest on dumps, in a process that is replaced where it dies, hangs, or has had its number of dumps."""

from __future__ import annotations

import contextlib
import gc
import importlib
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from msgspec import Struct

from benchmarks.hostile.watching import Watch
from pytest_probe.system.machine import available_memory

SECONDS = 10.0  # of CPU, since others use the machine as well
PATIENCE = 40.0  # of the clock: what waits uses no CPU
MACHINE = 1 << 30  # bytes that the plugin is told the machine has
LIMIT = 4 << 30  # bytes at which the process gets no more: what it was told, and room to see that it takes more
DUMPS = 200  # of one process: what a run leaves behind must not add up for long
# Without a time limit, whose timer has a small program of its own.
PLAIN = ("--probe-dump=dump/dump.json", "--probe-out=out", "--probe-timeout=0", "-p", "no:cacheprovider")
_CONTEXT = multiprocessing.get_context("fork")


class Ran(Struct, frozen=True):
    """One run: pytest's exit code, or how the process ended; what it touched; seconds of CPU; bytes that it grew by."""

    code: int | None
    ended: str = ""
    touched: tuple[str, ...] = ()
    seconds: float = 0.0
    grown: int = 0


class Sandbox:
    """Folders below one: `run` with the dump and out/, `outside` with what must stay, homes and temporary files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run, self.outside = folder, folder / "run", folder / "outside"
        self.home, self.temporary, self.output = folder / "home", folder / "tmp", folder / "output.txt"
        for made in (self.run, self.outside, self.home, self.temporary):
            made.mkdir()
        self.output.touch()
        for name in ("canary.txt", "canary.pt", "dump.json"):
            (self.outside / name).write_text("nobody reads or writes this\n")

    def enter(self) -> None:
        """Make the homes and folders for temporary files of this process, and of its children, those of the sandbox."""
        os.environ |= {"HOME": str(self.home), "TMPDIR": str(self.temporary)}
        tempfile.tempdir = None  # asked for again, of TMPDIR
        importlib.import_module("torch._dynamo")  # makes a folder of torch's own in TMPDIR, whatever the dump


class Worker:
    """A child with torch, forked before this process ran anything in it."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._process: BaseProcess | None = None
        self._pipe: Connection
        self._count = 0

    def run(self, arguments: Sequence[str]) -> Ran:
        """A run of pytest with these arguments in the sandbox's run folder."""
        if self._process is None:
            self._start()
        assert self._process is not None
        self._count += 1
        begun, spent = time.monotonic(), self._spent()
        self._pipe.send(tuple(arguments))
        while not self._pipe.poll(0.5):
            if self._spent() - spent > SECONDS or time.monotonic() - begun > PATIENCE:
                seconds = self._spent() - spent
                self._process.kill()
                self.stop()
                return Ran(None, f"a hang: {seconds:.0f} s of CPU, {time.monotonic() - begun:.0f} s", seconds=seconds)
        try:
            ran: Ran = self._pipe.recv()
        except EOFError:
            return Ran(None, self._death())
        if self._count >= DUMPS:
            self.stop()
        return ran

    def stop(self) -> None:
        """End the child; the next run has a new one."""
        if self._process is not None:
            self._pipe.close()
            self._process.join()
            self._process = None

    def _start(self) -> None:
        sys.stdout.flush()
        self._pipe, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_serve, args=(theirs, self._pipe, self._sandbox), daemon=True)
        self._process.start()
        theirs.close()
        self._count = 0

    def _death(self) -> str:
        assert self._process is not None
        self._process.join()
        code = self._process.exitcode or 0
        self.stop()
        return f"a crash: {signal.Signals(-code).name}" if code < 0 else f"the process ended with {code}"

    def _spent(self) -> float:
        """Seconds of CPU of the child, 0 where it has ended."""
        assert self._process is not None
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _serve(pipe: Connection, parents: Connection, sandbox: Sandbox) -> None:
    parents.close()
    written = os.open(sandbox.output, os.O_WRONLY | os.O_APPEND)
    os.dup2(written, 1)
    os.dup2(written, 2)
    os.chdir(sandbox.run)
    gc.freeze()  # pytest collects garbage several times a run: what is here already would cost most of the time
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit(MACHINE)
    available_memory()  # keeps its answer
    _limit(LIMIT)
    watch = Watch((sandbox.run / "out", sandbox.temporary), sandbox.outside)
    with contextlib.suppress(EOFError):
        while True:
            pipe.send(_run(pipe.recv(), watch))


def _run(arguments: tuple[str, ...], watch: Watch) -> Ran:
    Path("/proc/self/clear_refs").write_text("5")  # the peak of memory begins anew
    before, begun = _memory("VmRSS"), time.process_time()
    watch.begin()
    try:
        code = int(pytest.main(list(arguments)))
    except BaseException as error:
        return Ran(None, f"pytest.main raised {type(error).__name__}: {error}", tuple(watch.end()))
    touched = watch.end()
    sys.stdout.flush()
    return Ran(code, "", tuple(touched), time.process_time() - begun, _memory("VmHWM") - before)


def _memory(field: str) -> int:
    """Bytes, as the kernel says of this process."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition(f"{field}:")[2].split()[0]) << 10


def _limit(left: int) -> None:
    """Let the address space grow by so many bytes from now on."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + left
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
